"""Which part of the broker may import which: type-only imports and those inside of functions are counted too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_house import NAMES, PACKAGE, circles, tree_of

BROKER = PACKAGE / "broker"
PREFIX = "waterclock.broker."
FILES = sorted(path for path in BROKER.rglob("*.py") if path.parent != BROKER or path.name != "__init__.py")

# folder or file of src/waterclock/broker -> those that it may import, the lowest floor first
BROKER_MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "bounds": set(),
    "buffers": set(),
    "patterns": set(),
    "statistics": set(),
    "worker": set(),
    "settings": {"bounds"},
    "folder": {"errors"},
    "prometheus": {"statistics"},
    "net": {"buffers", "settings"},
    "wire": {"buffers", "net"},
    "log": {"buffers", "errors", "settings", "wire", "worker"},
    "store": {"errors", "log"},
    "making": {"log", "worker"},
    "flusher": {"log", "statistics"},
    "watermarks": {"flusher", "log", "net"},
    "identity": {"settings", "store"},
    "runtime": {"identity", "settings", "store"},
    "security": {"net", "settings", "store"},
    "topics": {"errors", "log", "making", "settings", "store", "worker"},
    "upkeep": {"errors", "log", "settings", "topics", "worker"},
    "freezing": {"flusher", "log", "topics"},
    "groups": {"patterns", "settings", "store", "topics", "wire"},
    "transactions": {"buffers", "flusher", "groups", "log", "settings", "store", "topics", "wire"},
    "replication": {"identity", "log", "settings", "statistics", "store", "topics", "wire"},
    "api": {"bounds", "errors", "flusher", "groups", "identity", "log", "net", "patterns", "replication", "runtime",
            "security", "settings", "store", "topics", "transactions", "upkeep", "wire"},
    "faults": {"api", "freezing", "net", "topics", "wire"},
    "core": {"api", "flusher", "folder", "freezing", "groups", "identity", "log", "replication", "runtime", "security",
             "settings", "statistics", "store", "topics", "transactions", "upkeep", "watermarks", "worker"},
    "follower": {"api", "folder", "freezing", "identity", "net", "replication", "security", "settings", "statistics",
                 "store", "topics", "wire"},
    "broker": {"core", "faults", "follower", "replication", "security", "settings", "statistics", "store", "wire"},
    "process": {"broker", "prometheus", "replication", "security", "settings", "statistics"},
    "command": {"process", "replication"},
}  # fmt: skip
EXCEPTIONS: dict[tuple[str, str], str] = {}  # (file, part that it may import all the same) -> why


def part_of(path: Path) -> str:
    """The folder or file of the broker that a module belongs to."""
    return path.relative_to(BROKER).parts[0].removesuffix(".py")


def modules_imported(path: Path) -> Iterator[str]:
    """The modules of the broker that a module imports, anywhere in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (name for name in names & NAMES.keys() or {str(node.module)} if name.startswith(PREFIX))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(PREFIX))


def parts_imported(path: Path) -> set[str]:
    """The other parts that a module imports."""
    return {name.removeprefix(PREFIX).split(".")[0] for name in modules_imported(path)} - {part_of(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(BROKER)))
def test_a_part_of_the_broker_imports_from_lower_floors_only(path: Path) -> None:
    part, name = part_of(path), str(path.relative_to(BROKER))
    forbidden = parts_imported(path) - BROKER_MAY_IMPORT[part]
    assert {other for other in forbidden if (name, other) not in EXCEPTIONS} == set()


def test_the_floors_of_the_broker_stand_in_their_order() -> None:
    below: set[str] = set()
    for part, may in BROKER_MAY_IMPORT.items():
        assert may <= below, part
        below.add(part)


def test_the_table_of_floors_allows_nothing_that_no_part_needs() -> None:
    needed: dict[str, set[str]] = {part_of(path): set() for path in FILES}
    for path in FILES:
        needed[part_of(path)] |= parts_imported(path)
    assert needed == BROKER_MAY_IMPORT


def test_no_file_of_the_broker_reaches_itself_by_imports() -> None:
    names = {name: path for name, path in NAMES.items() if name.startswith(PREFIX)}
    assert circles({name: set(modules_imported(path)) & names.keys() for name, path in names.items()}) == []
