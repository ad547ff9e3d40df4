"""What the system knows of a server's process: CPU time and memory, of Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_S = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Seconds of CPU of all its threads.

    >>> cpu_s(os.getpid()) > 0
    True
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def resident_mb(pid: int) -> float:
    """Megabytes that it has in memory.

    >>> resident_mb(os.getpid()) > 1
    True
    """
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
