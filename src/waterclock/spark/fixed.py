"""What is fixed while a checkpoint lives: the columns of results, and the settings that the stored state depends on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from waterclock.rules.model import Rules
from waterclock.spark.source import Stream
from waterclock.streaming import frames
from waterclock.streaming.state import bucket


def results_schema(stream: Stream, rules: Rules | None) -> pa.Schema | None:
    """The columns of a pipeline's results; None where only Spark knows those of its events, and was not asked yet."""
    event = stream.schema()
    if event is None or rules is None:
        return event
    return frames.result_schema(event.field(rules.key).type, event)


def settings_of(stream: Stream, rules: Rules | None, delay_us: int, buckets: int) -> dict[str, Any]:
    """What a checkpoint's state depends on."""
    return {
        "state": bucket.VERSION,
        "buckets": buckets,
        "rules": repr(rules),
        "watermark_delay_us": delay_us,
        **stream.settings(),
    }
