"""A step of the user's own between a source and the rules, or between results and a sink. The reference is made of this.

    [source], [sink]
    query       a SELECT in Spark's SQL over the rows, which it knows as `source`, or as `results`; not for changes
                of tables
    transform   "module:function": a DataFrame in, a DataFrame out; the module is looked for beside the pipeline's file
                first. Behind the query, if there are both
    [sink]
    columns     which columns of the results the table has, in this order, if there is neither query nor transform; left
                out, all
    takes       which parts of a batch this sink is given, if there are several: "results", "late", "dead_letters"; left
                out, all

Between results and a sink they make an `Outlet` of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from waterclock.errors import UsageError
from waterclock.streaming.toml.table import FileTable

NAMES = ("query", "transform")
TAKES = ("results", "late", "dead_letters")  # parts of a batch; late ones are results of that kind
Written = TypeVar("Written")  # a sink, or in a pipeline's file where it writes
Another = TypeVar("Another")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Step:
    """What is done with rows; `folder` is where a module is looked for first."""

    query: str | None
    transform: str | Callable[[Any], Any] | None
    folder: Path

    def settings(self) -> dict[str, str]:
        """What of it a checkpoint can hold a later run to: the query's text, the function's name."""
        named = self.transform
        if callable(named):
            named = f"{named.__module__}:{named.__qualname__}"
        return {name: value for name, value in (("query", self.query), ("transform", named)) if value is not None}


@dataclass(frozen=True, slots=True)
class Outlet(Generic[Written]):
    """A sink, and what of a batch it is given."""

    sink: Written
    step: Step | None = None  # what results go through before they reach it
    columns: tuple[str, ...] = ()  # of results; all if none is named
    takes: tuple[str, ...] = ()  # which parts of a batch; all if none is named

    def of(self, sink: Another) -> Outlet[Another]:
        """The same of another sink."""
        return Outlet(sink, self.step, self.columns, self.takes)


def columns_from(table: FileTable) -> tuple[str, ...]:
    """The columns of results that `table` names, none for all; UsageError says what is wrong and where."""
    if "columns" not in table:
        return ()
    names = table.take("columns", list)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise UsageError(f"{table.where}: 'columns' must be a list of columns' names, each once, got {names!r}")
    if both := [name for name in NAMES if table.get(name) is not None]:
        raise UsageError(
            f"{table.where}: 'columns' chooses among the columns of results, and {both[0]!r} makes columns of its own: "
            "leave one out"
        )
    return tuple(names)


def takes_from(table: FileTable) -> tuple[str, ...]:
    """What of a batch a sink takes, as `table` says it; empty if it is all. UsageError says what is wrong and where."""
    if "takes" not in table:
        return ()
    names = table.take("takes", list)
    if not names or any(name not in TAKES for name in names) or len(set(names)) < len(names):
        raise UsageError(
            f"{table.where}: 'takes' must be a list of some of {', '.join(TAKES)}, each once, got {names!r}"
        )
    return () if len(names) == len(TAKES) else tuple(names)


def check_takes(taken: Sequence[tuple[str, ...]]) -> None:
    """Raise UsageError if what sinks take, each as `takes_from` gives it, is not all of a batch."""
    if all(taken) and (left := [name for name in TAKES if not any(name in each for each in taken)]):
        raise UsageError(
            f"[sink]: no sink takes {left[0]!r}, which would be lost: name it under 'takes' of one of them"
        )


def step_from(table: FileTable) -> Step | None:
    """The step that `table` names, None if it names none; UsageError says what is wrong and where."""
    if not set(NAMES) & set(table):
        return None
    query, transform = table.take("query", str, None), table.get("transform")
    if query is not None and not query.strip():
        raise UsageError(f"{table.where}: 'query' must be a SELECT in Spark's SQL, got {query!r}")
    named = isinstance(transform, str) and _FUNCTION.fullmatch(transform)
    if transform is not None and not (named or callable(transform)):
        raise UsageError(f"{table.where}: 'transform' must name a function as \"module:function\", got {transform!r}")
    return Step(query, transform, table.folder)
