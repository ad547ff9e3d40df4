"""The documents keep their word: samples run as they stand, and every file, test and command that they name is there."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.samples import blocks, run_block
from waterclock import errors
from waterclock.rules.toml import rules_from

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "bench" / "results").rglob("*.md")),
]
FOLDERS = ("docs", "docsite", "src", "tests", "examples", "bench", ".ci")
DAY_US = 86_400_000_000
# what the block of docs/rules.md reads from
EVENTS = [
    {"case_id": "A1", "ts": 0, "activity": "Insert Fine Notification", "event_id": "e1", "seq": 1},
    {"case_id": "A1", "ts": 60 * DAY_US, "activity": "Payment", "event_id": "e2", "seq": 2},
]


def words(file: Path) -> set[str]:
    """What stands between backticks in the text, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {word for found in re.findall(r"`([^`\n]+)`", text) for word in found.split()}


@cache
def known_tests() -> set[str]:
    return {name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())}


SAMPLES = ["docs/rules.md", "docs/timers.md", "docs/keyed.md", "docs/purgatory.md", "docs/broker.md"]
PYTHON = [sample for file in SAMPLES for sample in blocks(ROOT / file, "python")]


@pytest.mark.parametrize("content", [c for _, c in PYTHON], ids=[name for name, _ in PYTHON])
def test_a_python_sample_runs_as_it_stands(content: str) -> None:
    for package, word in {"kio": "waterclock.testing", "confluent_kafka": "Producer("}.items():
        if word in content:
            pytest.importorskip(package)
    run_block(content, {"events": EVENTS, **clients(content)})


def clients(content: str) -> dict[str, Any]:
    """The names that an earlier block of the same guide imported."""
    return vars(pytest.importorskip("confluent_kafka")) if "Producer(" in content else {}


def test_what_is_meant_to_differ_from_apache_kafka_stands_in_the_guide() -> None:
    from tests.conformance.settings import DIFFERENCES

    guide = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    assert [name for name in DIFFERENCES if f"`{name}`" not in guide] == []


def test_the_sample_of_the_rules_gives_the_penalty_and_the_unpaid_fine() -> None:
    names: dict[str, Any] = {"events": EVENTS}
    run_block(next(blocks(ROOT / "docs" / "rules.md", "python"))[1], names)
    results = names["rules"].run(EVENTS, watermark_delay="14 days")
    told = [(r.kind, r.rule, r.due // DAY_US) for r in results if r.kind != "event"]
    assert told == [("emit", "Add penalty", 60), ("expired", "unpaid", 60)]


TOML = [block for file in DOCUMENTS for block in blocks(file, "toml")]


@pytest.mark.parametrize("content", [c for _, c in TOML], ids=[name for name, _ in TOML])
def test_a_pipeline_in_a_document_is_a_pipeline(content: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from waterclock.streaming.toml.config import load

    file = tmp_path / "pipeline.toml"
    file.write_text(content)
    rules = tomllib.loads(content).get("rules")  # changes of tables have none
    assert load(file).rules == (rules_from(rules) if rules else None)


def test_the_sinks_that_there_are_stand_in_the_guide() -> None:
    pytest.importorskip("pyspark")
    from waterclock.streaming.toml import sink

    guide = (ROOT / "docs" / "pipeline-file.md").read_text(encoding="utf-8")
    parts = re.findall(r'^With `format = "(\w+)"', guide, re.M)
    assert parts == list(sink.FORMATS)


def test_the_two_commands_stand_in_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert {"run", "test"} <= set(targets)
    assert all(command in README for command in ("`make run`", "`make test`"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in DOCUMENTS)
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    shown = "\n".join(content for language, content in fenced if not language)
    named = {*re.findall(r"`make ([a-z-]+)", text), *re.findall(r"^make ([a-z-]+)", shown, re.M)}
    assert named <= set(targets)


def test_an_extra_that_an_error_advises_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    code = "".join(
        file.read_text() for folder in ("src", "examples", "bench") for file in (ROOT / folder).rglob("*.py")
    )
    advised = set(re.findall(r"""["'](\w+)["']""", " ".join(re.findall(r"pip_install\(([^)*]+)\)", code))))
    assert {"spark", "relay", "kafka"} < advised
    assert advised | {*errors._EXTRAS.values()} <= set(extras)


def test_nothing_is_installed_from_an_index_that_has_no_waterclock() -> None:
    code = [file for folder in ("src", "examples", "bench") for file in (ROOT / folder).rglob("*.py")]
    asked = re.compile(r"pip\s+install\s+(-\S+\s+)*['\"]?waterclock\b")
    current = [file for file in DOCUMENTS if file.name != "CHANGELOG.md"]
    assert [file.name for file in (*current, *code) if asked.search(file.read_text(encoding="utf-8"))] == []


def test_what_is_set_up_says_what_it_brings_and_how_long_that_takes() -> None:
    rules = re.findall(r"^\.venv/(ready-\w+):.*\n\t(@echo (?:.+\\\n)*.+)", (ROOT / "Makefile").read_text(), re.M)
    assert {"ready-run", "ready-test", "ready-check"} <= {name for name, _ in rules}
    assert [name for name, said in rules if not re.search(r"\(.*(second|minute)", said)] == []


@pytest.mark.always  # a test may be renamed in any room
@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_test_that_a_document_names_is_there(file: Path) -> None:
    own = r"^ *```(?:python|console|text).*?^ *```$"  # a reader's own tests, and what they print
    text = re.sub(own, "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = set(re.findall(r"\b(test_\w+)\b(?!\.py|\*)", text))
    files = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    assert named - known_tests() - files == set()


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(file: Path) -> None:
    links = {link for link in re.findall(r"\]\(([^)#]+)", file.read_text(encoding="utf-8")) if "://" not in link}
    assert [link for link in links if not (file.parent / link).exists()] == []
    named = {word.rstrip("/") for word in words(file) if word.startswith(tuple(f"{folder}/" for folder in FOLDERS))}
    named |= {word for word in words(file) if re.fullmatch(r"[A-Z]+\.md", word)}
    assert [name for name in sorted(named) if "*" not in name and not (ROOT / name).exists()] == []


def test_the_prose_of_the_documents_is_within_its_bounds() -> None:
    """Samples and tables do not count: nobody reads those from one end to the other."""
    words = []
    for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = re.sub(r"^ *```.*?^ *```$", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
        words.append(len(re.sub(r"^ *\|.*$", "", text, flags=re.M).split()))
    assert (sum(words) <= 45_000, median(words) <= 900) == (True, True)
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 200


@cache
def anchors(file: Path) -> set[str]:
    """Of its headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    plain = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r" ", "-", re.sub(r"[^\w -]", "", heading.lower())) for heading in plain}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_part_of_a_page_that_a_document_names_is_there(file: Path) -> None:
    """README sent its reader to step 1 of a tutorial, and the link led to the top of the page."""
    text = file.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]*#[^)]+)\)", text) if "://" not in link]
    targets = [(link, file.parent / link.partition("#")[0], link.partition("#")[2]) for link in links]
    there = [(link, file if link[0] == "#" else page, part) for link, page, part in targets]
    assert [link for link, page, part in there if page.is_file() and part not in anchors(page)] == []
    pages = "|".join(re.escape(page) for page in re.findall(r"\]\(([^)#]*tutorials/[^)#]+)\)", text))
    assert not pages or re.findall(rf"\]\((?:{pages})\)[^.\n]*\bstep \d", text) == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_was_met_does_not_bear_the_name_of_its_opposite(file: Path) -> None:
    """`met A unpaid` was read as a payment that is missing: both results of an expectation bear one name."""
    text = file.read_text(encoding="utf-8")
    opposites = set(re.findall(r'otherwise ?= ?"(un\w+|late|overdue|missing|no \w+)"', text))
    blocks_of = re.findall(r"^```.*?^```$", text, re.M | re.S)
    shown = [line for block in blocks_of for line in block.splitlines() if re.match(r"\W*met\b", line)]
    assert [line for line in shown if set(re.findall(r"\w+", line)) & opposites] == []
