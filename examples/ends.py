"""How a demo ends what it started, whoever ends the demo: SIGKILL to a process and to all that it started.

PostgreSQL's backends and Spark's Python workers leave the group of the one that started them. A kill of that group lets
them go on: a backend ends its statement, commits, and cleans up, which is no kill.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PARENT = 1  # among the fields of /proc/PID/stat behind the name


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, do what Ctrl-C does: or all that was started would outlive us."""
    heard = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]  # nohup stays nohup
    with _handled(heard, signal.default_int_handler):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """A second Ctrl-C is passed over while the first one is obeyed: it left half of the processes running."""
    with _handled(_ENDING, signal.SIG_IGN):
        yield


@contextmanager
def _handled(numbers: Iterable[signal.Signals], how: Any) -> Iterator[None]:
    before = {each: signal.signal(each, how) for each in numbers}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def kill_all(head: int) -> None:
    """Kill `head`, its group, and their children's children. Each is stopped first: none starts another one meanwhile."""
    found = {head}
    _send(signal.SIGSTOP, found)
    while more := _children(found) - found:
        _send(signal.SIGSTOP, more)
        found |= more
    _send(signal.SIGKILL, found)
    with suppress(ProcessLookupError):
        os.killpg(head, signal.SIGKILL)


def _send(what: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _children(parents: set[int]) -> set[int]:
    """None where the system does not say: then the group is all that is killed."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(file.read_text().rpartition(")")[2].split()[_PARENT]) in parents:
                found.add(int(file.parent.name))
    return found
