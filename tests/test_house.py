"""The house rules: which room may import which, where time, threads and stores live, how big files and functions get.

The tables stand in rooms.py, the floors in docs/architecture.md too. Imports for type checkers alone count as imports.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.rooms import EXCEPTIONS_INSIDE, FLUSHES, INSIDE, MAY_IMPORT, ONLY_IN
from waterclock.outside import DOORS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "waterclock"
MODULES = sorted(PACKAGE.rglob("*.py"))

# circles of imports for type checkers alone: each a pair of files that are two halves of one thing
PAIRS: list[set[str]] = []
# The one arrow upward: the product promises the name `rules.on_spark()`.
EXCEPTIONS = {("rules/model.py", "spark")}


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
            if node.module == "waterclock.outside":  # what it hands on is Python's own
                yield from (alias.name for alias in node.names)


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


@pytest.mark.always  # of every file: also of those that rooms elsewhere changed
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


def test_the_table_of_rooms_allows_nothing_that_no_room_needs() -> None:
    needed: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for path in MODULES:
        if room_of(path) in needed:
            needed[room_of(path)] |= our_rooms(path) - {room_of(path)}
    assert {room: may - needed[room] for room, may in MAY_IMPORT.items() if may - needed[room]} == {}


def test_the_table_of_modules_names_nobody_who_does_not_import_them() -> None:
    users = [(str(p.relative_to(PACKAGE)), {name.split(".")[0] for name in imported(p)}) for p in MODULES]
    named = [(module, home) for module, homes in ONLY_IN.items() for home in homes]
    assert [(m, home) for m, home in named if not any(u.startswith(home) and m in names for u, names in users)] == []


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


@pytest.mark.parametrize("room", ["broker", "relay", "cdc", "kafka", "disk"])
def test_what_is_outside_of_a_process_is_taken_from_the_one_door(room: str) -> None:
    """Python's own modules but for their types, and `open`: what goes around the door is real in a simulation."""
    outside, types = {*DOORS, "multiprocessing", "random", "time"} - {"open_file", "open_connection"}, {"UUID"}
    found = set()
    for path in (p for p in MODULES if room_of(p) == room):
        for node in ast.walk(tree_of(path)):
            direct = isinstance(node, ast.Import) and any(alias.name.split(".")[0] in outside for alias in node.names)
            part = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in outside
            taken = isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} - types
            opens = isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "asyncio.open_connection")
            if direct or (part and taken) or opens:
                found.add(f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}")
    assert found == set()


def test_what_stands_on_a_driver_uses_no_private_name_of_it() -> None:
    files = [
        *(PACKAGE / "keyed").glob("*.py"),
        *(PACKAGE / "timer" / f"{n}.py" for n in ("idle", "periodic", "tasks")),
    ]
    assert [
        found for file in files for found in re.findall(r"\b_?(?:timer|drive|driver)\)?\._\w+", file.read_text())
    ] == []


def test_a_file_is_flushed_only_where_the_table_says() -> None:
    found = {str(p.relative_to(PACKAGE)) for p in MODULES if re.search(r"\bos\.f(data)?sync\(", p.read_text())}
    assert {file for file in found if not file.startswith(FLUSHES)} == set()
    assert [home for home in FLUSHES if not any(file.startswith(home) for file in found)] == []


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


def test_every_public_name_and_method_has_a_docstring() -> None:
    import waterclock

    public = {name: getattr(waterclock, name) for name in waterclock.__all__ if name != "__version__"}
    for name, thing in list(public.items()):
        for cls in getattr(thing, "__mro__", ()):
            if cls.__module__.startswith("waterclock"):
                found = {f"{name}.{one}": getattr(cls, one) for one in vars(cls) if not one.startswith("_")}
                public |= {one: value for one, value in found.items() if callable(value) or isinstance(value, property)}
    assert sorted(name for name, thing in public.items() if not thing.__doc__) == []


def test_every_folder_of_python_is_a_package_that_is_found() -> None:
    """They were listed by hand; five were forgotten, and no installation worked. `make test-wheel` looks at the wheel."""
    files = [file for folder in (PACKAGE, ROOT / "examples", ROOT / "bench") for file in folder.rglob("*.py")]
    assert {str(file.parent) for file in files if not (file.parent / "__init__.py").exists()} == set()


def test_every_kind_of_file_travels_in_a_wheel_or_is_what_a_wheel_is_built_from() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    known = ["*.py", "*.pyx", "*.pxd", "*.pxi", "*.h", *settings["package-data"]["*"]]
    made = ["*.so", "*.c", "*.cpp", "*.pyc"]
    names = {file.name for file in PACKAGE.rglob("*") if file.is_file()}
    assert [name for name in sorted(names) if not any(fnmatch(name, pattern) for pattern in (*known, *made))] == []


def test_no_address_of_a_registry_and_no_path_of_a_machine_stands_in_the_project() -> None:
    tracked = [p for p in ROOT.rglob("*") if p.suffix in {".py", ".toml", ".txt", ".md", ".pyx", ".h"} and p.is_file()]
    ours = [p for p in tracked if not {".venv", "build", "out", ".git"} & set(p.relative_to(ROOT).parts)]
    wrong = re.compile(r"/root/|/home/\w|--(extra-)?index-url|find-links")
    assert [str(p.relative_to(ROOT)) for p in ours if p != Path(__file__) and wrong.search(p.read_text())] == []
