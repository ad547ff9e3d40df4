"""What a worker makes of a file for the rest of the pipeline; no session is started."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from waterclock import Rules
from waterclock.spark import frames
from waterclock.spark.files import reader
from waterclock.spark.reading import Layout

LAYOUT = Layout("jsonl", {"k": "string", "t": "timestamp"}, Rules(key="k", time="t"))


def test_rows_that_carry_nothing_but_a_time_are_counted_beside_dead_letters(tmp_path: Path) -> None:
    beat, event = '{"t": "2020-01-01T00:00:00Z"}\n', '{"k": "a", "t": "2020-01-01T00:00:00Z"}\n'
    (tmp_path / "in.jsonl").write_text(beat + event + beat + "rubbish\n")
    named = {"path": [f"file:{tmp_path}/in.jsonl"], "written": [0], "beat": [False]}
    packed = [row for made in reader(LAYOUT)(iter([pa.RecordBatch.from_pydict(named)])) for row in made.to_pylist()]
    told = [frames.counters_of(frames.from_bytes(row["frame"])) for row in packed if row["frame"] is not None]
    assert frames.sum_counters(told) == {"files": 1, "dead_letters": 1, "heartbeats": 2}
