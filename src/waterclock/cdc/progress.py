"""What a person sees of a capture: a line while it works, and what it did at the end."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from waterclock.cdc.statistics import CaptureStatistics
from waterclock.clock import Clock
from waterclock.errors import WaterclockError

_EVERY_MS = 500


class CaptureProgress:
    """One line on a terminal, twice a second; at the end a sentence, or JSON."""

    def __init__(self, clock: Clock, as_json: bool) -> None:
        self._clock, self._json = clock, as_json
        self._began_ns = self._printed_ns = clock.monotonic_ns()

    def report(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty() and self._clock.monotonic_ns() - self._printed_ns >= _EVERY_MS * 1_000_000:
            self._printed_ns = self._clock.monotonic_ns()
            print(f"\r\x1b[K{self._line(now)}   Ctrl-C ends", end="", file=sys.stderr, flush=True)

    def lost(self, error: WaterclockError) -> None:
        print(f"waterclock: {error} Trying again.", file=sys.stderr, flush=True)

    def end(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(json.dumps({**asdict(now), "seconds": self._seconds()}) if self._json else self._line(now))

    def _seconds(self) -> float:
        return round((self._clock.monotonic_ns() - self._began_ns) / 1e9, 3)

    def _line(self, now: CaptureStatistics) -> str:
        seconds = max(self._seconds(), 0.001)
        place = f", up to {now.place}" if now.place else ""
        counts = f"{now.changes:,} changes of {now.transactions:,} transactions in Kafka"
        aside = f", {now.dead_letters:,} records put aside" if now.dead_letters else ""
        return f"{counts} ({now.changes / seconds:,.0f}/s){aside}{place}"
