"""A sentence of ours that somebody else's words end has one full stop.

A capture said "some binlogs were purged.. If its binlogs are gone already": the server's words had their own full stop.

Rule 1: an error, or what came over a wire, stands in front of a full stop only by `unstopped` of `errors.py` or by one of
    those that use it (ENDED). So does what was made of it: names are followed within a function.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [file for folder in ("src", "examples", "bench") for file in sorted((ROOT / folder).rglob("*.py"))]
ENDED = {"unstopped", "words_of", "first_line"}
OF_THE_SYSTEM = {"strerror", "start", "name", "filename"}  # of an error: words without a full stop, or none
FROM_OUTSIDE = {"str", "decode"}  # methods: what librdkafka says, what a server sent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(expression: ast.expr) -> set[str]:
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}


def methods(expression: ast.expr) -> set[str]:
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return {call.attr for call in calls if isinstance(call, ast.Attribute)}


def is_foreign(expression: ast.expr, names: set[str]) -> bool:
    attributes = {node.attr for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
    if called(expression) & ENDED or attributes & OF_THE_SYSTEM:
        return False
    used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    return bool(used & names or methods(expression) & FROM_OUTSIDE)


def foreign_names(function: Function) -> set[str]:
    """What holds an error, or words that came from outside."""
    names = {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name}
    arguments = [*function.args.args, *function.args.kwonlyargs]
    said = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation is not None}
    names |= {name for name, kind in said.items() if "Error" in kind or "Exception" in kind}
    for _ in range(3):  # a name that is made of a name that is made of one
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.NamedExpr) and is_foreign(node.value, names):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names


def before_full_stops(text: ast.JoinedStr) -> list[ast.expr]:
    ends = [
        isinstance(each, ast.Constant) and (each.value == "." or each.value.startswith((". ", ".\n")))
        for each in text.values
    ]
    pairs = zip(text.values, ends[1:], strict=False)
    return [each.value for each, ended in pairs if ended and isinstance(each, ast.FormattedValue)]


def doubled(source: str) -> list[str]:
    """What may end with a full stop, and has one behind it."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)]
    found = []
    for function in functions:
        texts = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
        if ended := [each for text in texts for each in before_full_stops(text)]:
            names = foreign_names(function)
            found += [ast.unparse(each) for each in ended if is_foreign(each, names)]
    return found


@pytest.mark.always  # of every file: also of those that rooms elsewhere changed
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_message_ends_twice(file: Path) -> None:
    assert doubled(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("try: ask()\n    except OSError as error:\n        return f'it broke: {error}. Again.'", ["error"]),
        ("try: ask()\n    except OSError as error:\n        return f'it broke: {error}'", []),
        ("try: ask()\n    except OSError as error:\n        return f'it broke: {unstopped(error)}.'", []),
        ("said = packet[3:].decode()\n    return f'it said: {said}. Again.'", ["said"]),
        ("return f'{failure}.'", ["failure"]),
        ("return f'{count}.'", []),
    ],
)
def test_a_message_that_may_is_noticed(body: str, found: list[str]) -> None:
    assert doubled(f"def ask(failure: Exception, count: int) -> str:\n    {body}\n") == found
