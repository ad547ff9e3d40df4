"""The house rules: which room may import which, where time, threads and stores live, how big files and functions get.

The tables of docs/architecture.md are the ones that are held here. Imports for type checkers alone count as imports.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
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
    "arguments": set(),
    "wheel": {"errors"},
    "timer": {"wheel", "clock", "errors"},
    "purgatory": {"timer", "errors"},
    "keyed": {"timer", "errors"},
    "rules": {"wheel", "errors"},
    "sinks": {"changes", "clock", "disk", "errors", "kafka"},
    "web": {"__init__", "arguments", "clock", "errors"},
    "changes": {"errors"},
    "spark": {"rules", "sinks", "web", "arguments", "errors", "clock", "changes", "disk", "kafka", "relay"},
    "broker": {"purgatory", "timer", "web", "arguments", "clock", "disk", "errors"},
    "kafka": {"clock", "errors"},
    "cdc": {"changes", "web", "arguments", "clock", "errors", "kafka"},
    "relay": {"arguments", "clock", "disk", "errors", "kafka", "rules", "sinks", "web", "wheel"},
    "trace": {"clock", "errors", "wheel"},
    "testing": {"broker", "clock"},
    "pytest_plugin": {"testing", "timer"},
    "cli": {"__init__", "arguments", "broker", "cdc", "errors", "relay", "spark", "trace"},
    "traces": set(),
}
# inside of spark: a folder or file -> those of spark that it may import
INSIDE_SPARK = {
    "compiled": set(),
    "frames": set(),
    "buckets": set(),
    "places": set(),
    "source_folder": {"places"},
    "delays": set(),
    "layout": {"frames"},
    "summary": set(),
    "checkpoint": {"places", "source_folder"},
    "state": {"frames", "layout"},
    "session": {"buckets"},
    "tables": {"session"},
    "toml": {"buckets", "layout", "places", "tables"},
    "operator": {"compiled", "frames", "state"},
    "packs": {"buckets", "checkpoint", "frames", "operator"},
    "closing": {"buckets", "packs"},
    "transform": {"buckets", "closing", "frames", "layout", "operator", "packs", "state"},
    "source": {"places"},
    "task_files": {"frames", "transform"},
    "batches": {"checkpoint", "compiled", "frames", "layout", "task_files", "transform"},
    "plans": set(),
    "results": {"checkpoint", "closing", "frames", "places", "plans"},
    "progress": {"summary"},
    "files": {"buckets", "checkpoint", "frames", "layout", "packs", "places", "source", "source_folder", "toml",
              "transform"},
    "sources": {"places", "toml"},
    "steps": {"frames", "plans", "toml", "transform"},
    "dataframe": {"buckets", "checkpoint", "files", "frames", "layout", "packs", "places", "plans", "source",
                  "source_folder", "steps", "toml", "transform"},
    "kafka": {"buckets", "checkpoint", "dataframe", "files", "frames", "layout", "packs", "source", "steps", "toml",
              "transform"},
    "watching": {"checkpoint", "kafka", "source_folder", "toml"},
    "streams": {"checkpoint", "dataframe", "files", "kafka", "results", "source", "toml"},
    "fresh": {"checkpoint", "places", "streams", "toml"},
    "outlets": {"checkpoint", "frames", "places", "steps", "toml"},
    "pipeline": {"batches", "buckets", "checkpoint", "frames", "fresh", "operator", "outlets", "packs", "places",
                 "session", "state", "streams", "summary", "task_files", "toml", "watching"},
    "rescale": {"buckets", "checkpoint", "frames", "operator", "pipeline", "places", "session", "source", "state",
                "toml"},
    "command": {"fresh", "pipeline", "progress", "session", "toml", "watching"},
    "writing": {"pipeline", "places", "results", "summary"},
}  # fmt: skip
INSIDE_BROKER: dict[str, set[str]] = {
    "errors": set(),
    "bounds": set(),
    "buffers": set(),
    "collecting": set(),
    "namesakes": set(),
    "switching": set(),
    "patterns": set(),
    "rhythm": set(),
    "statistics": set(),
    "worker": {"switching"},
    "settings": {"bounds"},
    "folder": {"errors"},
    "prometheus": {"statistics"},
    "net": {"buffers", "rhythm", "settings", "switching"},
    "wire": {"buffers", "net"},
    "sealed": set(),
    "log": {"buffers", "errors", "sealed", "settings", "wire", "worker"},
    "store": {"errors", "log"},
    "making": {"log", "worker"},
    "flusher": {"log", "statistics", "worker"},
    "watermarks": {"flusher", "log", "net"},
    "identity": {"sealed", "settings", "store"},
    "labels": {"log", "sealed"},
    "inventory": {"errors", "identity", "labels", "log", "store"},
    "runtime": {"identity", "settings", "store"},
    "security": {"net", "settings", "store"},
    "topics": {"inventory", "labels", "log", "making", "namesakes", "settings", "store", "worker"},
    "upkeep": {"errors", "log", "rhythm", "settings", "topics", "worker"},
    "scrub": {"log", "statistics", "worker"},
    "freezing": {"flusher", "log", "topics"},
    "groups": {"patterns", "rhythm", "settings", "store", "topics", "wire"},
    "transactions": {"buffers", "flusher", "groups", "log", "rhythm", "settings", "store", "topics", "wire"},
    "replication": {"identity", "inventory", "log", "security", "settings", "statistics", "store", "topics", "wire"},
    "api": {"bounds", "errors", "flusher", "groups", "identity", "log", "net", "patterns", "replication", "runtime",
            "security", "settings", "store", "topics", "transactions", "upkeep", "wire"},
    "faults": {"api", "freezing", "net", "topics", "wire"},
    "core": {"api", "flusher", "folder", "freezing", "groups", "identity", "inventory", "log", "net", "replication",
             "rhythm", "runtime", "scrub", "security", "settings", "statistics", "store", "topics", "transactions",
             "upkeep", "watermarks", "worker"},
    "follower": {"api", "folder", "freezing", "identity", "inventory", "log", "net", "replication", "scrub",
                 "security", "settings", "statistics", "store", "topics", "wire", "worker"},
    "broker": {"core", "faults", "follower", "net", "replication", "security", "settings", "statistics", "store", "wire"},
    "process": {"broker", "collecting", "prometheus", "replication", "security", "settings", "statistics",
                "switching"},
    "command": {"process", "replication"},
}  # fmt: skip
INSIDE: dict[str, dict[str, set[str]]] = {"spark": INSIDE_SPARK, "broker": INSIDE_BROKER}
EXCEPTIONS_INSIDE: dict[str, set[tuple[str, str]]] = {}  # room -> (file, part that it may import all the same)
# circles of imports for type checkers alone: each a pair of files that are two halves of one thing
PAIRS = [{"timer/drive.py", "timer/periodic.py"}, {"timer/loop.py", "timer/timeouts.py"}]
# The one arrow upward: the product promises the name `rules.on_spark()`.
EXCEPTIONS = {("rules/model.py", "spark")}
# module that only these rooms or files may import
ONLY_IN = {
    "time": ("clock.py",),
    "threading": (
        "web/server.py",
        "spark/session/interrupts.py",
        "spark/checkpoint/lease.py",
        "sinks/sqlite_rows.py",
        "timer/",
        "trace/live.py",
        "purgatory/",
        "keyed/",
        "relay/relay.py",
        "relay/group.py",
        "relay/delays.py",
        "relay/handlers.py",
        "broker/broker.py",
        "broker/flusher.py",
        "broker/worker.py",
        "broker/process.py",
        "broker/store/store.py",
        "broker/log/write_ahead.py",
    ),
    "asyncio": (
        "relay/async_delays.py",
        "timer/loop.py",
        "timer/loop_binding.py",
        "timer/manual_loop.py",
        "timer/timeouts.py",
        "purgatory/waiting.py",
        "broker/broker.py",
        "broker/core.py",
        "broker/follower.py",
        "broker/replication/",
    ),
    "fcntl": ("disk.py",),
    "sqlite3": ("sinks/sqlite.py", "sinks/sqlite_rows.py", "broker/store/sqlite.py"),
    "psycopg": ("sinks/postgres_session.py", "cdc/postgres/", "cdc/origin.py"),
    "pgpq": ("sinks/postgres_copy.py",),
    "deltalake": ("sinks/delta.py", "sinks/delta_merge.py", "sinks/delta_replica.py"),
    "pyiceberg": ("sinks/iceberg.py",),
    "kio": ("broker/wire/",),
    "pymysql": ("cdc/mysql/",),
    "pymysqlreplication": ("cdc/mysql/",),
    "re2": ("broker/patterns.py",),
    "pyspark": ("spark/",),
    "confluent_kafka": ("kafka/", "sinks/topic.py", "spark/kafka/", "cdc/", "relay/"),
    "pickle": (),
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


NAMES = {module_name(path): path for path in MODULES}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_in(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom))


def imported(path: Path) -> Iterator[str]:
    for node in imports_in(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""


def our_rooms(path: Path) -> set[str]:
    names = [name.split(".") for name in imported(path)]
    return {(parts[1] if len(parts) > 1 else "__init__") for parts in names if parts[0] == "waterclock"}


def part_of(path: Path) -> str:
    """The folder or file inside its room that a module belongs to."""
    return path.relative_to(PACKAGE).parts[1].removesuffix(".py")


def parts_of(room: str, path: Path) -> set[str]:
    """The parts of `room` that a module imports."""
    nodes = [node for node in imports_in(path) if isinstance(node, ast.ImportFrom)]
    whole = [f"{node.module}.{alias.name}" for node in nodes for alias in node.names]
    names = [name.split(".") for name in (*imported(path), *(name for name in whole if name in NAMES))]
    return {parts[2] for parts in names if parts[:2] == ["waterclock", room] and len(parts) > 2}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that are imported anywhere but inside a function, for type checkers too."""
    inside = {id(inner) for node in ast.walk(tree) if isinstance(node, FUNCTION) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in inside:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in NAMES else str(node.module) for name in whole if str(node.module) in NAMES)
        elif isinstance(node, ast.Import) and id(node) not in inside:
            yield from (alias.name for alias in node.names if alias.name in NAMES)


def at_run_time(path: Path) -> set[str]:
    """The modules of ours that are imported when this one is."""
    body = [
        node
        for node in tree_of(path).body
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return set(imported_modules(ast.Module(body, [])))


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that reach each other."""
    reach: dict[str, set[str]] = {}
    for name in imports:
        found, ahead = set[str](), [*imports[name] - {name}]
        while ahead:
            if (one := ahead.pop()) not in found:
                found.add(one)
                ahead += imports.get(one, ())
        reach[name] = found
    sets = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in imports if name in reach[name]
    }
    return [{str(NAMES[name].relative_to(PACKAGE)) for name in one if name != ""} for one in sorted(sets, key=sorted)]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
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


@pytest.mark.parametrize("room", INSIDE)
def test_no_arrow_points_upward_inside_a_room(room: str) -> None:
    wrong = {
        (str(path.relative_to(PACKAGE)), other)
        for path in MODULES
        if room_of(path) == room and path != PACKAGE / room / "__init__.py"
        for other in parts_of(room, path) - INSIDE[room][part_of(path)] - {part_of(path)}
    }
    assert wrong == EXCEPTIONS_INSIDE.get(room, set())


@pytest.mark.parametrize("room", INSIDE)
def test_a_table_inside_a_room_allows_nothing_that_no_part_needs(room: str) -> None:
    needed: dict[str, set[str]] = {part: set() for part in INSIDE[room]}
    for path in MODULES:
        if room_of(path) == room and path != PACKAGE / room / "__init__.py":
            needed[part_of(path)] |= parts_of(room, path) - {part_of(path)}
    assert needed == INSIDE[room]


@pytest.mark.parametrize("table", [MAY_IMPORT, *INSIDE.values()])
def test_a_table_of_floors_is_a_ladder(table: dict[str, set[str]]) -> None:
    below: set[str] = {"__init__", "bench", "examples"}  # the last two stand beside src and import what they show
    left = dict(table)
    while ready := {room for room, may in left.items() if may <= below}:
        below |= ready
        left = {room: may for room, may in left.items() if room not in ready}
    assert left == {}


def test_there_is_no_circle_of_imports_at_run_time() -> None:
    assert circles({name: at_run_time(path) for name, path in NAMES.items()}) == []


def test_circles_of_imports_for_types_are_the_pairs_that_are_known() -> None:
    assert circles({name: set(imported_modules(tree_of(path))) for name, path in NAMES.items()}) == PAIRS


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
    silent = [str(p.relative_to(ROOT)) for p in MODULES if p.read_text().strip() and not ast.get_docstring(tree_of(p))]
    assert silent == []


def test_the_public_names_are_the_ones_written_down() -> None:
    import waterclock

    assert sorted(waterclock.__all__) == (ROOT / "tests" / "api.txt").read_text().split()


def test_no_address_of_a_registry_and_no_path_of_a_machine_stands_in_the_project() -> None:
    tracked = [p for p in ROOT.rglob("*") if p.suffix in {".py", ".toml", ".txt", ".md", ".pyx", ".h"} and p.is_file()]
    ours = [p for p in tracked if not {".venv", "build", "out", ".git"} & set(p.relative_to(ROOT).parts)]
    wrong = re.compile(r"/root/|/home/\w|--(extra-)?index-url|find-links")
    assert [str(p.relative_to(ROOT)) for p in ours if p != Path(__file__) and wrong.search(p.read_text())] == []
