"""What a person sees of a relay: a line while it works, and what it did at the end."""

from __future__ import annotations

import json
import sys

from waterclock.clock import WallClock
from waterclock.errors import WaterclockError
from waterclock.relay.statistics import RelayStatistics
from waterclock.relay.wire.letters import UNKNOWN
from waterclock.web.record import plain
from waterclock.wording import counted

_EVERY_NS = 500_000_000
_LOST_EVERY_NS = 30_000_000_000
_READING_EVERY_NS = 10_000_000_000  # if there is no terminal


class Progress:
    """One line on a terminal, twice a second; at the end a sentence, or JSON. What is read for long before anything is
    delivered is printed without a terminal too, a line every ten seconds."""

    def __init__(self, clock: WallClock, as_json: bool) -> None:
        self._clock = clock
        self._json = as_json
        self._printed_ns = clock.monotonic_ns()
        self._lost = ("", 0)  # the last error, and when it was printed, in ns

    def report(self, now: RelayStatistics) -> None:
        left = _left(now)
        if sys.stderr.isatty():
            self._print(self._line(now), _EVERY_NS)
        elif left > 0:
            self._print(f"{left:,} requests are to be read before anything is delivered", _READING_EVERY_NS)
        else:
            self._printed_ns = self._clock.monotonic_ns()

    def reading(self, log: str, done: int, all: int) -> None:
        """So many of so many offsets of a log are read, and nothing else is done meanwhile."""
        every_ns = _EVERY_NS if sys.stderr.isatty() else _READING_EVERY_NS
        self._print(f"reading {log}: {done:,} of {counted(all, 'record')}", every_ns)

    def _print(self, line: str, every_ns: int) -> None:
        if self._clock.monotonic_ns() - self._printed_ns < every_ns:
            return
        self._printed_ns = self._clock.monotonic_ns()
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}   Ctrl-C ends", end="", file=sys.stderr, flush=True)
        else:
            print(f"waterclock: {line}", file=sys.stderr, flush=True)

    def lost(self, error: WaterclockError) -> None:
        """Say it; the same again not before `_LOST_EVERY_NS`."""
        now_ns, (said, at_ns) = self._clock.monotonic_ns(), self._lost
        if str(error) != said or now_ns - at_ns >= _LOST_EVERY_NS:
            self._lost = str(error), now_ns
            print(f"waterclock: {error} Trying again.", file=sys.stderr, flush=True)

    def end(self, now: RelayStatistics) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(json.dumps(plain(now)) if self._json else self._line(now))

    def _line(self, now: RelayStatistics) -> str:
        parts = [
            f"{now.delivered:,} delivered",
            f"{now.pending:,} pending in {counted(len(now.partitions), 'partition')}",
        ]
        if now.standby:
            behind = sum(each.behind or 0 for each in now.standby.values())
            parts.append(
                f"stands by for {len(now.standby)}" + (f" ({counted(behind, 'request')} behind)" if behind else "")
            )
        # a cancel without a key is answered by each partition: all of them but one know nothing of the id
        parts += [f"{count:,} {outcome}" for outcome, count in sorted(now.replies.items()) if outcome != UNKNOWN]
        parts += [counted(now.dead_letters, "dead letter")] if now.dead_letters else []
        parts += [f"{counted(left, 'request')} to be read first"] if (left := _left(now)) else []
        due_ms = [each.next_due_ms for each in now.partitions.values() if each.next_due_ms is not None]
        if due_ms:
            parts.append(f"next in {max(0, min(due_ms) - self._clock.wall_ms()) / 1000:,.0f} s")
        return ", ".join(parts)


def _left(now: RelayStatistics) -> int:
    """How many records of the input are to be read before anything is delivered."""
    return sum(max(0, each.reads_to - each.position) for each in now.partitions.values() if not each.caught_up)
