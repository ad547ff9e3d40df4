"""The seam: what is asked of whoever keeps messages until they are due.

Rule 1: a keeper is fresh, in a folder of its own, and gone at the end of its block.
Rule 2: what it cannot do raises `NotMeasured` with the reason, and stands in the table so.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from waterclock.bench.broker.process import cpu_s, resident_mb
from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.taking import Taking


class NotMeasured(Exception):
    """The message says why."""


class Most(NamedTuple):
    """No more than so much is asked of a keeper that would take all day."""

    pending: int
    rate: int
    burst: int


class Keeper(Protocol):
    """Somebody who keeps messages until they are due. `way` and `address`: how they are put in (ways.py)."""

    name: str
    way: str
    address: str
    most: Most | None

    def __enter__(self) -> Keeper: ...

    def __exit__(self, *_: object) -> None: ...

    def version(self) -> str:
        """Of the server; empty where it is waterclock's."""

    def target(self) -> str:
        """A new place for deliveries, empty; where a keeper has but one, its name."""

    def until_kept(self, pending: int) -> None:
        """Wait until it keeps so many in all: they are filed, and are delivered when they are due."""

    def catch_up_s(self, pending: int) -> float | None:
        """What filing so many takes that have been acknowledged before; None where acknowledged is filed. Starts it."""

    def taking(self, target: str, count: int) -> AbstractContextManager[Taking]:
        """Whoever takes them."""

    def cancel(self, numbers: Sequence[int]) -> float:
        """Cancel these; how many seconds until each was answered, truly."""

    def processes(self) -> dict[str, list[int]]:
        """By what they are; the first kind keeps what is pending."""

    def resident_mb(self) -> float:
        """What the first kind of them has in memory."""

    def bytes_on_disk(self) -> dict[str, int]:
        """By what it is."""

    def crash(self) -> int:
        """Kill -9, and start it again at once; the microsecond of the kill."""

    def take_over(self, first: int, rate: int, seconds: float) -> Figures:
        """Another one takes over from one that is killed and stays away."""


def resident_of(pids: Sequence[int]) -> float:
    """MB of processes, some of which may have ended meanwhile."""
    found = 0.0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += resident_mb(pid)
    return found


def cpu_of(pids: Sequence[int]) -> float:
    """Seconds of processor of processes, likewise."""
    found = 0.0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += cpu_s(pid)
    return found


def bytes_in(folder: Path) -> int:
    """What the files of a folder take of the disk."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                found += (Path(path) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
