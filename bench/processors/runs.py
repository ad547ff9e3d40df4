"""What the processes of waterclock share: moments, a sink that throws away, and a run for each line.

Rule 1: moments are those of the machine's steady clock. A run begins before the pipeline is made, and has ended when its
        last batch is committed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from waterclock import __version__
from waterclock.local.trial import MemorySink
from waterclock.sinks import Batch
from waterclock.streaming.statistics import Progress

BEHIND_US: Final = 120_000_000
Record = dict[str, Any]


class Marks:
    """When how many rows were committed; `on` is what carries the pipeline, beside waterclock."""

    def __init__(self, on: str) -> None:
        self._version = f"waterclock {__version__}, {on}"
        self.began_ns = time.monotonic_ns()
        self._marks: list[tuple[int, int]] = []

    def note(self, rows: int) -> None:
        """So many rows in all are committed now."""
        self._marks.append((time.monotonic_ns(), rows))

    def batch(self, progress: Progress) -> None:
        """A batch of a pipeline is committed now."""
        self.note(progress.totals.get("events", 0))

    def record(self, counts: dict[str, int]) -> Record:
        """What the run did."""
        ended_ns = self._marks[-1][0] if self._marks else time.monotonic_ns()
        return {
            "version": self._version,
            "began_ns": self.began_ns,
            "ended_ns": ended_ns,
            "marks": self._marks,
            "counts": counts,
        }


class ThrownAway(MemorySink):
    """A sink that counts the results by kind and keeps none."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def write(self, batch: Batch) -> None:
        for pair in batch.results.column("kind").value_counts().to_pylist():
            self.counts[pair["values"]] += pair["counts"]
        super().write(replace(batch, results=batch.results.schema.empty_table()))


def serve(runs: Mapping[str, Callable[..., Record]], *given: Any) -> None:
    """A record for each line: the name of a run, and its words."""
    for line in sys.stdin:
        what, *words = line.split()
        print(json.dumps(runs[what](*given, *words)), flush=True)
