"""Messages on their way in, from a process of its own: as fast as it goes, or each so long before it is due.

    python -m waterclock.bench.relay.putting WAY ADDRESS TARGET FIRST COUNT DUE_MS SPAN_MS LEAD_MS

Messages FIRST to FIRST + COUNT are due evenly over SPAN_MS from DUE_MS on, in the order of their numbers; with a span of a
day or more at random. LEAD_MS 0: all at once. Its last line says what it took.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import astuple, dataclass
from typing import Any, Final

from waterclock.bench.relay.apart import Apart
from waterclock.bench.relay.ways import INTO, Putter

CHUNK: Final = 10_000
TICK_S: Final = 0.005
DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Load:
    """Which messages, and when they are due."""

    first: int
    count: int
    due_ms: int
    span_ms: int = 0
    lead_ms: int = 0

    def dues_ms(self) -> list[int]:
        """Of each, in the order of numbers.

        >>> Load(0, 4, 100, 20).dues_ms()
        [100, 105, 110, 115]
        """
        if self.span_ms >= DAY_MS:
            luck = random.Random(7)
            return [self.due_ms + int(luck.random() * self.span_ms) for _ in range(self.count)]
        return [self.due_ms + number * self.span_ms // self.count for number in range(self.count)]


class Putting(Apart):
    """The process, seen from outside."""

    def __init__(self, way: str, address: str, target: str, load: Load) -> None:
        super().__init__("whoever puts messages in", "putting", [way, address, target, *map(str, astuple(load))])

    def done(self) -> dict[str, float]:
        """Wait for its end: how many a second were acknowledged."""
        out = self._out.read()
        self.wait()
        found: dict[str, float] = json.loads(out)
        return found


def put_in(way: str, address: str, target: str, load: Load) -> dict[str, float]:
    """All of a load, by a process of its own: how many a second were acknowledged."""
    process = Putting(way, address, target, load)
    try:
        return process.done()
    finally:
        process.kill()


def put(putter: Putter, load: Load) -> dict[str, Any]:
    """All of a load."""
    dues_ms, numbers = load.dues_ms(), range(load.first, load.first + load.count)
    began_s, done = time.monotonic(), 0
    while done < load.count:
        upto = min(load.count, done + CHUNK)
        if load.lead_ms:
            time.sleep(TICK_S)
            now_ms = time.time_ns() // 1_000_000
            while upto > done and dues_ms[upto - 1] - load.lead_ms > now_ms:
                upto = done + (upto - done) // 2
        if upto > done:
            putter.put(numbers[done:upto], dues_ms[done:upto])
        done = upto
    putter.flush()
    return {"count": load.count, "per_s": load.count / (time.monotonic() - began_s)}


def main() -> None:
    way, address, target, *numbers = sys.argv[1:]
    print(json.dumps(put(INTO[way](address, target), Load(*map(int, numbers)))))


if __name__ == "__main__":
    main()
