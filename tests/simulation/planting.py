"""Puts plants and marks into the product's source as it is imported: other text, and calls before statements.

Rule 1: it is done before anything of the broker is imported, so once in a process.
Rule 2: what is replaced stands there exactly once; a plant that no longer applies says so.
Rule 3: marks keep the numbers of lines, and stand where plants leave their text.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from tests.simulation import coverage

MARK = "passed_a_mark"


class Edit(NamedTuple):
    """In `module`, `old`, which is there once, becomes `new`."""

    module: str
    old: str
    new: str


class PlantDoesNotApply(Exception):
    """The source has changed, and the plant has not."""


def planted(text: str, edits: Iterable[Edit], marks: Iterable[tuple[str, str]] = ()) -> str:
    """The source with edits and marks."""
    for edit in edits:
        if (times := text.count(edit.old)) != 1:
            raise PlantDoesNotApply(f"{edit.old!r} stands {times} times in {edit.module}")
        text = text.replace(edit.old, edit.new)
    for name, line in marks:
        if text.count(line) == 1:  # else a plant has taken its place
            statement = line.lstrip(" ")
            text = text.replace(line, f"{line[: -len(statement)]}{MARK}({name!r}); {statement}")
    return text


def marks_of(module: str) -> list[tuple[str, str]]:
    return [(name, line) for name, (where, line) in coverage.MARKS.items() if where == module]


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        text = planted(self.get_data(self.path).decode(), self._edits, marks_of(fullname))
        return compile(text, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[MARK] = coverage.passed
        super().exec_module(module)


class Finder:
    def __init__(self, edits: Iterable[Edit]) -> None:
        self._edits = list(edits)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        edits = [edit for edit in self._edits if edit.module == name]
        spec = importlib.machinery.PathFinder.find_spec(name, path) if edits or marks_of(name) else None
        if spec is not None:
            spec.loader = Loader(name, str(spec.origin), edits)
        return spec


def begin(edits: Iterable[Edit] = ()) -> None:
    """Import the broker with these edits and all marks, and have the simulation in the place of the machine."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder(edits))
    from tests.simulation import alarms
    from waterclock.simulation import install

    install.install()
    alarms.listen()
