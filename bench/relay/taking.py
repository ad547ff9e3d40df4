"""Messages on their way out, into the hands of a process of its own, which notes when it had each.

    python -m waterclock.bench.relay.taking WAY ADDRESS TARGET COUNT FILE

It says a line when it is under way; it ends when it has had COUNT messages, or none for three minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.relay.apart import Apart
from waterclock.bench.relay.ways import FROM, PATIENCE_S

Had = np.ndarray[Any, Any]  # rows of number, microseconds since 1970, partition


class Taking(Apart):
    """The process, seen from outside."""

    def __init__(self, way: str, address: str, target: str, count: int, file: Path) -> None:
        self._file = file
        super().__init__("whoever takes messages", "taking", [way, address, target, str(count), str(file)])
        if not self._out.readline():
            self.kill()
            raise self.failure()

    def cpu_s(self) -> float:
        """Seconds of processor so far."""
        return cpu_s(self._process.pid)

    def had(self) -> Had:
        """Wait for its end: what it had."""
        self.wait()
        found: Had = np.load(self._file)
        return found


@contextmanager
def taking(way: str, address: str, target: str, count: int) -> Iterator[Taking]:
    """For as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        process = Taking(way, address, target, count, Path(folder) / "had.npy")
        try:
            yield process
        finally:
            process.kill()


def main() -> None:
    way, address, target, count, file = sys.argv[1:]
    some, found = FROM[way](address, target), list[tuple[int, int, int]]()
    found += next(some)
    print("{}", flush=True)
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < int(count) and time.monotonic() < until_s:
        more = next(some)
        found += more
        if more:
            until_s = time.monotonic() + PATIENCE_S
    np.save(file, np.array(found, "i8").reshape(-1, 3))
    print(json.dumps({"had": len(found)}), flush=True)


if __name__ == "__main__":
    main()
