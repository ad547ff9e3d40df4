"""The house rules: which room may import which, where time, threads and stores live, how big files and functions get."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "waterclock"
MODULES = sorted(PACKAGE.rglob("*.py"))

# room -> rooms of ours that it may import; the order of the floors is docs/architecture.md's
MAY_IMPORT = {
    "errors": set(),
    "clock": set(),
    "disk": {"errors"},
    "wheel": {"errors"},
    "timer": {"wheel", "clock", "errors"},
    "purgatory": {"timer", "errors"},
    "rules": {"wheel", "errors"},
    "sinks": {"changes", "errors"},
    "web": {"errors"},
    "changes": {"errors"},
    "spark": {"rules", "sinks", "web", "errors", "clock", "changes", "disk", "kafka"},
    "broker": {"purgatory", "timer", "web", "clock", "disk", "errors"},
    "kafka": {"clock", "errors"},
    "cdc": {"changes", "clock", "errors", "kafka"},
    "trace": {"wheel", "errors"},
    "testing": {"broker", "clock"},
    "pytest_plugin": {"testing"},
    "cli": {
        "bench",
        "broker",
        "cdc",
        "web",
        "rules",
        "sinks",
        "spark",
        "trace",
        "errors",
        "clock",
        "examples",
        "__init__",
    },
    "traces": set(),
}
# The one arrow upward: the product promises the name `rules.on_spark()`.
EXCEPTIONS = {("rules/model.py", "spark")}
# module that only these rooms or files may import
ONLY_IN = {
    "time": ("clock.py",),
    "threading": (
        "web/server.py",
        "spark/session/interrupts.py",
        "timer/",
        "purgatory/",
        "broker/broker.py",
        "broker/flusher.py",
        "broker/worker.py",
        "broker/process.py",
        "broker/store.py",
    ),
    "asyncio": (
        "timer/loop.py",
        "timer/home.py",
        "timer/timeouts.py",
        "purgatory/waiting.py",
        "broker/broker.py",
        "broker/core.py",
        "broker/replication/",
    ),
    "fcntl": ("disk.py",),
    "sqlite3": ("sinks/sqlite.py", "broker/store.py"),
    "psycopg": ("sinks/postgres_session.py", "cdc/postgres/", "cdc/command.py"),
    "pgpq": ("sinks/postgres_copy.py",),
    "deltalake": ("sinks/delta.py",),
    "kio": ("broker/wire/",),
    "pymysql": ("cdc/mysql/",),
    "pymysqlreplication": ("cdc/mysql/",),
    "re2": ("broker/patterns.py",),
    "pyspark": ("spark/",),
    "confluent_kafka": ("kafka/", "spark/kafka/", "cdc/"),
    "pickle": (),
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""


def our_rooms(path: Path) -> set[str]:
    names = [name.split(".") for name in imported(path)]
    return {(parts[1] if len(parts) > 1 else "__init__") for parts in names if parts[0] == "waterclock"}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.name}", node.end_lineno - node.lineno + 1


@pytest.mark.parametrize(
    "path", [m for m in MODULES if room_of(m) != "__init__"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_no_arrow_points_upward(path: Path) -> None:
    name, room = str(path.relative_to(PACKAGE)), room_of(path)
    forbidden = our_rooms(path) - MAY_IMPORT[room] - {room}
    assert {(name, other) for other in forbidden} <= EXCEPTIONS


@pytest.mark.parametrize("module", ONLY_IN)
def test_a_module_is_imported_only_in_its_room(module: str) -> None:
    users = {
        str(path.relative_to(PACKAGE)) for path in MODULES for name in imported(path) if name.split(".")[0] == module
    }
    assert {user for user in users if not user.startswith(ONLY_IN[module] or ("nowhere",))} == set()


def test_no_file_outgrows_400_lines() -> None:
    files = [
        *MODULES,
        *PACKAGE.rglob("*.pyx"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    assert [f"{f.relative_to(ROOT)}" for f in files if len(f.read_text().splitlines()) > 400] == []


def test_functions_stay_small() -> None:
    sizes = sorted(size for path in MODULES for _, size in functions(path))
    assert [name for path in MODULES for name, size in functions(path) if size > 40] == []
    assert sizes[len(sizes) // 2] <= 9
    assert sizes[len(sizes) * 9 // 10] <= 35


def test_every_module_opens_with_its_caption() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in MODULES
        if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert silent == []


def test_the_public_names_are_the_ones_written_down() -> None:
    import waterclock

    assert sorted(waterclock.__all__) == (ROOT / "tests" / "api.txt").read_text().split()


def test_no_address_of_a_registry_and_no_path_of_a_machine_stands_in_the_project() -> None:
    tracked = [p for p in ROOT.rglob("*") if p.suffix in {".py", ".toml", ".txt", ".md", ".pyx", ".h"} and p.is_file()]
    ours = [p for p in tracked if not {".venv", "build", "out", ".git"} & set(p.relative_to(ROOT).parts)]
    wrong = re.compile(r"/root/|/home/\w|--(extra-)?index-url|find-links")
    assert [str(p.relative_to(ROOT)) for p in ours if p != Path(__file__) and wrong.search(p.read_text())] == []
