"""What a caption or a docstring names is there: a file, a class in backticks, a rule by its number, a test.

Rule 1: a file of the same room is named alone, or by its pattern; one of another room with its folder. What a user has in
    an example stands in OF_USERS.
Rule 2: a class is one of the file's room, or imported there, or public, or Python's own.
Rule 3: a rule's number is in the caption of the same file, or of one that the same line names.
"""

from __future__ import annotations

import ast
import builtins
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import waterclock

ROOT = Path(__file__).parents[1]
OURS = ("src", "tests", "bench", "examples", "docs")
FILES = [str(path.relative_to(ROOT)) for top in OURS for path in (ROOT / top).rglob("*") if path.is_file()]
FILES += [path.name for path in ROOT.glob("*.*")]
CODE = sorted(name for name in FILES if name.startswith(("src", "tests")) and name.endswith((".py", ".pyx", ".h")))
OF_USERS = {"a.txt", "notes.txt", "orders.toml", "PIPELINE.toml", "profile.py", "random.py", "run.py"}
FILE = re.compile(r"(?<![\w/.*-])[\w/*-]+\.(?:py|pyx|pxd|h|md)\b|\b\w+\.(?:toml|txt)\b")


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def captions() -> list[tuple[str, str]]:
    """Each file with each of its docstrings; of C++ each comment."""
    found: list[tuple[str, str]] = []
    for name in CODE:
        if name.endswith(".py"):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            nodes = (node for node in ast.walk(ast.parse(text_of(name))) if isinstance(node, kinds))
            found += [(name, ast.get_docstring(node) or "") for node in nodes]
        else:
            found += [(name, a or b) for a, b in re.findall(r'"""(.*?)"""|/\*(.*?)\*/', text_of(name), re.S)]
    return found


def room_of(name: str) -> str:
    """`tests/wheel/...` and `src/waterclock/wheel/...` are about one room."""
    return name.removeprefix("src/waterclock/").removeprefix("tests/").split("/")[0]


@cache
def files_like(file: str) -> list[str]:
    return [name for name in FILES if fnmatchcase(f"/{name}", f"*/{file}")]


def files_named(file: str, by: str) -> list[str]:
    """Those that a caption of `by` means."""
    of_all = "/" in file or room_of(by).endswith(".py")
    return [name for name in files_like(file) if of_all or room_of(name) in {room_of(by), file, "docs"}]


@cache
def classes_of(room: str) -> set[str]:
    code = "\n".join(text_of(name) for name in CODE if room_of(name) == room)
    made = re.findall(
        r"^\s*(?:cdef )?(?:class|struct|typedef struct|type) _?(\w+)|^_?([A-Z]\w+)(?:: .*)? = ", code, re.M
    )
    brought = re.findall(r"import (?:\(([^)]+)\)|(.+))", code)
    return {word for pair in (*made, *brought) for word in re.findall(r"\w+", " ".join(pair))}


@cache
def rules_of(name: str) -> set[str]:
    return set(re.findall(r"^\W*Rule (\d+): ", text_of(name), re.M))


def test_a_file_that_a_caption_names_is_there() -> None:
    named = {(name, file) for name, text in captions() for file in FILE.findall(text) if file not in OF_USERS}
    assert sorted(f"{name}: {file}" for name, file in named if not files_named(file, name)) == []


def test_a_class_that_a_caption_names_is_one_of_its_room() -> None:
    known = {*waterclock.__all__, *dir(builtins)}
    named = {(name, one) for name, text in captions() for one in re.findall(r"(?<!`)`_?([A-Z][a-z]\w*)`", text)}
    assert sorted(f"{name}: {one}" for name, one in named if one not in known | classes_of(room_of(name))) == []


def test_a_rule_that_is_named_stands_in_a_caption() -> None:
    wrong = set()
    for name in CODE:
        for line in text_of(name).splitlines():
            captions_of = [name, *(found for file in FILE.findall(line) for found in files_named(file, name))]
            named = {
                number for pair in re.findall(r"\b[Rr]ules? (\d+)(?: and (\d+))?", line) for number in pair if number
            }
            if not named <= set().union(*map(rules_of, captions_of)):
                wrong.add(f"{name}: {line.strip()}")
    assert wrong == set()


def test_a_test_that_a_caption_names_is_there() -> None:
    tests = {test for name in CODE for test in re.findall(r"\b(?:def |/)(test_\w+)", f"{text_of(name)} /{name}")}
    named = {(name, test) for name, text in captions() for test in re.findall(r"\btest_\w+\b(?!\*)", text)}
    assert sorted(f"{name}: {test}" for name, test in named if test not in tests) == []
