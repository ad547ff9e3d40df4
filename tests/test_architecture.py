"""docs/architecture.md against the code: its floors are those of tests/rooms.py, its files and words are there."""

from __future__ import annotations

import re

import pytest

from tests.rooms import MAY_IMPORT
from tests.test_house import MODULES, PACKAGE, ROOT

DOCUMENT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCES = [*MODULES, *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.h")]
# tests of what is no room of src: the commands, benchmarks and examples, and one suite over two brokers
BESIDE = {"bench", "examples", "conformance", "installed"}


def section(title: str) -> str:
    """What stands under a heading, up to the next one of its rank or a higher one."""
    rank = len(title.split(" ")[0])
    rest = DOCUMENT.split(f"\n{title}\n", 1)[1]
    return re.split(rf"^#{{1,{rank}}} ", rest, maxsplit=1, flags=re.M)[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    tables = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for table in tables for row in table.splitlines()]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_a_room_stands_on_one_floor_above_those_that_it_may_import() -> None:
    floors = [(room, int(floor)) for floor, rooms in rows(section("## The floors")) for room in names(rooms)]
    floor = {"__init__": 0, **dict(floors)}
    assert sorted(room for room, _ in floors) == sorted(MAY_IMPORT)
    assert [room for room, may in MAY_IMPORT.items() if any(floor[other] >= floor[room] for other in may)] == []


@pytest.mark.parametrize("title", ["## Where it is decided", "## The ways"])
def test_a_file_that_the_map_names_is_there(title: str) -> None:
    named = {name for name in names(section(title)) if re.fullmatch(r"[\w/]+\.(py|pyx|h)", name)}
    assert named
    assert [
        name for name in sorted(named) if not (PACKAGE / name).is_file() and not (PACKAGE / "broker" / name).is_file()
    ] == []


def test_a_word_of_the_glossary_is_a_name_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    known = set(re.findall(r"\w+", code))
    words = {name for row in rows(section("## The words")) for name in names(row[2])}
    assert len(words) > 30
    assert words - known == set()


def test_no_class_is_named_by_a_participle() -> None:
    """Asked, Going, Leading: what something does now is not what it is. Words of the field are listed."""
    field = {"Setting", "Meaning", "Interrupted"}
    names_of_classes = (re.findall(r"^class _?(\w+)", path.read_text(encoding="utf-8"), re.M) for path in MODULES)
    found = {name for some in names_of_classes for name in some if re.fullmatch(r"[A-Z][a-z]*(ing|ed)", name)}
    assert found - field == set()


def test_a_folder_of_tests_has_a_room_of_the_same_name() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {str(f) for f in folders if f.parts and f.parts[0] not in BESIDE and not (PACKAGE / f).is_dir()}
    assert missing == {"broker/consistency", "relay/kills"}  # they are about a room as a whole, from outside
