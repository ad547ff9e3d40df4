"""What a batch's frames say, as the batch that a sink is given: results, dead letters, counters, watermark."""

from __future__ import annotations

import json

import pyarrow as pa

from waterclock.sinks import Batch
from waterclock.spark.batch.task_files import files_in
from waterclock.spark.checkpoint.carrying import ahead
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.compiled import tell
from waterclock.streaming import frames
from waterclock.streaming.layout import EARLIEST_US


def batch_of(
    taken: list[pa.Table], place: tuple[Checkpoint, int], schema: pa.Schema, last_us: int, seconds: float
) -> Batch:
    """The batch of the frames `taken`; `place` is (checkpoint, batch id), the close is shown at `last_us`."""
    checkpoint, batch_id = place
    for refused in {frames.refused_of(f) for f in taken} - {""}:
        tell(refused)
    files = files_in(taken)
    found = [f for f in taken if not frames.is_dead(f) and not frames.is_file(f) and f.num_rows]
    results = [frames.conform(frames.chosen(f, schema.names), schema) for f in found]
    dead = [f.select(frames.DEAD_SCHEMA.names) for f in taken if frames.is_dead(f)]
    rows = frames.up_to(last_us, pa.concat_tables([schema.empty_table(), *results]))
    count = rows.num_rows + sum(file.rows for file in files)
    offsets, query_id = checkpoint.offsets(batch_id), checkpoint.query_id()
    watermark_us = watermark_of(offsets, taken)
    assert query_id is not None
    return Batch(
        query_id=query_id,
        batch_id=batch_id + ahead(checkpoint),
        offsets=offsets,
        results=rows,
        dead_letters=pa.concat_tables([frames.DEAD_SCHEMA.empty_table(), *dead], promote_options="default"),
        counters=frames.sum_counters([*map(frames.counters_of, taken), {"results": count}]),
        watermark_us=None if watermark_us is None else min(watermark_us, last_us),
        seconds=seconds,
        files=files,
    )


def watermark_of(offsets: str | None, taken: list[pa.Table]) -> int | None:
    """The watermark of a batch in microseconds: Spark's, from the second line of its offsets, or one that results say.

    Spark's begins at 0, which says that there is none; that of a topic may well lie before 1970. None for one that no
    calendar holds, so far back does `watermark_delay` reach.
    """
    lines = (offsets or "").splitlines()
    ms = json.loads(lines[1]).get("batchWatermarkMs", 0) if len(lines) > 1 else 0
    reported = [us for us in map(frames.watermark_of, taken) if us is not None and us >= EARLIEST_US]
    return max((*reported, *([ms * 1000] if ms else [])), default=None)
