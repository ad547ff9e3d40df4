"""A process and all below it: what processor time they took, and on which CPUs they may run (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from waterclock.bench.broker.process import TICKS_S


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, of all below it, and of those below that have ended.

    >>> tree_cpu_s(os.getpid()) > 0
    True
    """
    found = _processes()
    return sum(found[each][1] for each in _below(pid, found)) / TICKS_S


def hold(pid: int, cpus: Iterable[int]) -> None:
    """Have a process and all below it run on these CPUs only, each thread of theirs, and what they start from now on."""
    for each in _below(pid, _processes()):
        with suppress(OSError):  # it has just ended
            for thread in os.listdir(f"/proc/{each}/task"):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), cpus)


def _processes() -> dict[int, tuple[int, int]]:
    """The parent of each process that there is, and the ticks that it and its ended children took."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):  # it has just ended
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
            found[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return found


def _below(pid: int, found: dict[int, tuple[int, int]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for each, (parent, _) in found.items():
        children.setdefault(parent, []).append(each)
    tree = [pid] if pid in found else []
    for each in tree:  # it grows meanwhile
        tree += children.get(each, [])
    return tree
