"""The watermark of a topic: the partition that is furthest behind decides. No Spark in this file.

Spark takes its watermark from the largest time of all rows. Of a topic with partitions A and B, where A is read up to June
and B up to March, that would be June: all that B still holds of April and May would be late, though B is in perfect
order. So the rows of a topic have no time for Spark. Beside them, clock frames tell every bucket how far each partition is.

Rule 1: the watermark is the least one of all known partitions; one that nothing was read of yet holds it back.
Rule 2: a batch is judged against the watermark that the batches before it made; what it brings moves it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from waterclock.rules.engine import NO_WATERMARK


class Watermarks:
    """The watermark of each partition, and of all; empty for a source without partitions, which Spark takes care of."""

    def __init__(self, stored: Mapping[str, int | None] | None = None) -> None:
        self._of = dict(stored or {})

    def __bool__(self) -> bool:
        return bool(self._of)

    def take(self, clocks: Iterable[pa.Table]) -> None:
        """Move on by what clock frames say; the watermark of a partition never goes back."""
        for frame in clocks:
            for place, us in zip(*(column.to_pylist() for column in frame.columns), strict=True):
                before = self._of.get(place)
                self._of[place] = before if us is None else us if before is None else max(before, us)

    def lowest(self) -> int:
        """The watermark of the topic in microseconds; NO_WATERMARK while a partition has none, or where there are none."""
        known = self._of.values()
        return NO_WATERMARK if None in known else min((us for us in known if us is not None), default=NO_WATERMARK)

    def dump(self) -> dict[str, int | None]:
        """What `Watermarks(stored)` takes, in an order of its own, so that the same state is the same bytes."""
        return dict(sorted(self._of.items()))
