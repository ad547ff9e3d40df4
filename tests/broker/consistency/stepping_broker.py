"""The command `waterclock` with a wall clock that can be stepped while it runs, as NTP or an administrator steps one.

    python -m tests.broker.consistency.stepping_broker CLOCK broker --port 9092 --data DIR

Rule 1: the product knows nothing of this: the clock's own method is replaced by one that adds what CLOCK says.
Rule 2: CLOCK is a file of 8 bytes, milliseconds as a signed integer. The monotonic clock is not touched: no step of a
    machine's date moves it.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path

from waterclock.cli import main
from waterclock.clock import SystemClock

FORM = struct.Struct("<q")


def step_to(path: Path, offset_ms: int) -> None:
    """Whoever has `path` as its CLOCK is so much ahead of the machine's date from now on."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.write(FORM.pack(offset_ms))


def use(path: Path) -> None:
    """In this process the date follows `path`."""
    with open(path, "rb") as file:
        shared = mmap.mmap(file.fileno(), FORM.size, access=mmap.ACCESS_READ)
    real = SystemClock.wall_ms
    SystemClock.wall_ms = lambda self: real(self) + FORM.unpack(shared)[0]  # type: ignore[method-assign]


if __name__ == "__main__":
    use(Path(sys.argv[1]))
    raise SystemExit(main(sys.argv[2:]))
