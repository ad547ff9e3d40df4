"""The state of a pipeline that ran without Spark, carried into a checkpoint of Spark's (carry.py has the steps).

Step 5, where Spark goes on:

    offsets/0     where the last batch ended, as Spark writes it: of topics the ends, of files the entry 0 of their log
    sources/0/0   of files: all that were taken, by the paths and times that Spark knows them by
    starting.json of topics: where the first batch began

Rule 1: the state is that after a batch which is in the sink, and the watermark is that which the batch brought: Spark's
        next batch begins with it. Spark counts in milliseconds, and knows none before 1970: each bucket stands at it by
        itself.
Rule 2: of topics the buckets keep the watermarks, and Spark has none until the close.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.rescaling.carry import Carry, Report, known, lay_offsets
from waterclock.spark.rescaling.parts import StateClock, StateSeen, state_seen
from waterclock.spark.rescaling.stored import PARTS, parts_of
from waterclock.streaming.checkpoint import write
from waterclock.streaming.places.place import make_folder
from waterclock.streaming.state.bucket import StoredBucket, Watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waterclock.spark.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class LocalState:
    """A state that was made without Spark, after the sink's batch `batch_id`.

    `counted` are its bytes by the sink's counters. `clock` is the watermark of each partition in microseconds, or that of
    the files. Of files `taken` has the paths, and when each was written in milliseconds since 1970; of topics `first` and
    `place` have the offsets.
    """

    checkpoint: Checkpoint
    rules: Rules
    batch_id: int
    stored: Sequence[StoredBucket]
    shelf: Callable[[int], dict[int, bytes]]
    clock: Mapping[str, int | None]
    place_of_sink: str
    counted: int
    taken: Mapping[str, int] | None = None
    first: Mapping[str, Any] | None = None
    place: Mapping[str, Any] | None = None


class Arrival(Carry):
    """From a pipeline without Spark."""

    def __init__(
        self, session: SparkSession, given: LocalState, pipeline: Pipeline, buckets: int, report: Report
    ) -> None:
        """`pipeline` is the same one, with the new checkpoint."""
        super().__init__(session, given.checkpoint, pipeline.checkpoint, given.rules, buckets, report)
        self._given, self._settings = given, pipeline.settings()
        lowest = Watermarks(given.clock).lowest()
        self._ms = max(0, lowest // 1000) if given.taken is not None else 0
        self._clock = StateClock(lowest, given.clock if given.taken is None else {})

    def refuse(self) -> StateSeen:
        """See `Carry`."""
        given = self._given
        sizes = [len(held) + sum(map(len, given.shelf(place).values())) for place, held in enumerate(given.stored)]
        found = ((place, held.engine, sizes[place]) for place, held in enumerate(given.stored))
        return state_seen(given.batch_id, len(sizes), found, self._clock)

    def parts(self, before: StateSeen) -> Iterator[DataFrame]:
        """See `Carry`."""
        given = self._given
        for place, stored in enumerate(given.stored):
            rows = parts_of(self._rules, stored, given.shelf(place), self._buckets, place)
            if rows.num_rows:
                yield self._session.createDataFrame(rows, PARTS)

    def watermark_ms(self, before: StateSeen) -> int:
        """See `Carry`."""
        return self._ms

    def lay_beside(self, done: int) -> tuple[dict[str, Any], int]:
        """See `Carry`."""
        given, new = self._given, self._new
        beside = known(new.path / "offsets" / "0")[0] | {"batchWatermarkMs": self._ms}
        at = {"logOffset": 0} if given.taken is not None else given.place
        lay_offsets(new, [(beside, [json.dumps(at, separators=(",", ":")), "-"])], self._ms)
        make_folder(new.heartbeats)
        if given.taken is not None:
            make_folder(new.path / "sources" / "0")
            write(new.path / "sources" / "0" / "0", "\n".join(["v1", *self._entries(given.taken)]))
        else:
            new.begin_at(given.first or {})
        write(new.path / "waterclock.sink", given.place_of_sink)
        return self._settings, done + 1

    def counted(self, before: StateSeen) -> int:
        """See `Carry`: what a clean end writes, no batch counts."""
        return self._given.counted

    def _entries(self, taken: Mapping[str, int]) -> Iterable[str]:
        """A line of Spark's log for each file."""
        uri = self._session.sparkContext._jvm.java.net.URI  # as Spark writes a path
        for path, ms in taken.items():
            entry = {"path": f"file://{uri(None, None, path, None).toString()}", "timestamp": ms, "batchId": 0}
            yield json.dumps(entry, separators=(",", ":"))
