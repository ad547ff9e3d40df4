"""Where a pipeline writes, as [sink] of its file says it: a record, which makes the sink. Each lies beside its sink.

Rule 1: the callers of a record use what it does, and never look what kind it is.
Rule 2: a record is texts and numbers. It connects to nothing, and imports no package of an extra, before its sink is made.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa

from waterclock.errors import WaterclockError, extra_of, pip_install
from waterclock.sinks.base import Sink

LONGEST_ENDING = len("_dead_letters")  # of the names that a sink's tables and topics have


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with a pipeline, and what was not looked at, in sentences."""

    faults: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def try_to(self, look: Callable[[], object]) -> bool:
        """Whether `look` finds nothing wrong."""
        try:
            look()
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            sentence = f"the package {package} is not installed: {pip_install(extra_of(package))}"
        except (WaterclockError, OSError) as error:
            sentence = str(error)
        else:
            return True
        if sentence not in self.faults:
            self.faults.append(sentence)
        return False


class SinkTable(Protocol):
    """The table [sink], as a record reads it. Without a default a key must be there; UsageError names what is wrong."""

    changes: bool  # whether the source brings changes of tables
    folder: Path  # in which the pipeline's file lies

    def text(self, name: str, default: str | None = None) -> str: ...

    def number(self, name: str, default: int, largest: int) -> int:
        """From 1 on, or the default."""

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str: ...

    def place(self, name: str, given: str) -> Path:
        """What is `given` under `name` as a path of this machine."""

    def settings(self, name: str) -> dict[str, str]:
        """The table [sink.NAME] by dotted names, secrets from the environment."""

    def client(self, own: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Kafka's `servers`, and [sink.client]; `own` are settings that nobody else may say, and why."""


class Destination(ABC):
    """Where a pipeline writes."""

    __slots__ = ()
    kind: ClassVar[str]  # what it is, in the words of an error
    keys: ClassVar[tuple[str, ...]]  # of [sink], beside those of every format
    takes_changes: ClassVar[bool] = False  # changes of tables, each into the table that it names
    records_inputs: ClassVar[bool] = False  # its sink is a `RecordingSink`
    needs_session: ClassVar[bool] = False  # Spark's, before its tables can be looked at

    @classmethod
    @abstractmethod
    def from_table(cls, given: SinkTable) -> Destination:
        """What [sink] says; UsageError if that cannot be."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the results are, in words that are the same from run to run; its sink says the same."""

    @property
    def alone(self) -> str:
        """What no second sink of the pipeline may write to."""
        return self.place

    @abstractmethod
    def sink(self) -> Sink:
        """The `Sink` there, not connected yet."""

    def is_there(self) -> bool:
        """Whether there may be something to remove: to look into a file that is not there would make it."""
        return True

    def refuse_to_remove(self) -> None:
        """UsageError if `remove` would meet a table of somebody else's."""
        if self.is_there():
            with closing(self.sink()) as sink:
                if (refuse := getattr(sink, "refuse_to_remove", None)) is not None:  # a user's own sink has none
                    refuse()

    def remove(self) -> None:
        """Drop the sink's tables."""
        if self.is_there():
            with closing(self.sink()) as sink:
                sink.remove()

    def look(self, results: pa.Schema | None, found: Findings) -> None:
        """Find all that is wrong with the tables that are there, or why they cannot be made. Nothing is made or changed.

        `results` are the columns that are to be written, None if only Spark knows them.
        """
        with closing(self.sink()) as sink:
            if results is None:
                found.unchecked.append(f"{self.place}: its columns")
            else:
                found.faults.extend(sink.look(results))  # type: ignore[attr-defined]  # a user's own sink has none

    def topic_of(self, servers: str, topics: Sequence[str]) -> str | None:
        """Which of these topics at `servers` is written; None if none is."""
        return None


def remove_all(destinations: Sequence[Destination]) -> None:
    """Drop the tables of all; UsageError, and nothing is dropped, if one of them is somebody else's."""
    for each in destinations:
        each.refuse_to_remove()
    for each in destinations:
        each.remove()


def unwritable(path: Path, what: str, is_file: bool = False) -> list[str]:
    """What is wrong with `what` if this user may not write at `path`, or make what lies there."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    is_wrong = there.is_dir() == (is_file and there == path)
    if not is_wrong and os.access(there, os.W_OK):
        return []
    return [f"{what} cannot be written: see to {there}, or name another path in [sink]"]
