"""What a worker makes of a file for the rest of the pipeline; no session is started."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.checkpoint.test_source_files import write_entry
from tests.spark.least_pipeline import LEAST
from waterclock import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.files import reader
from waterclock.spark.streams import stream_of
from waterclock.streaming import frames
from waterclock.streaming.buckets import BUCKETS, labels
from waterclock.streaming.files.reading import Layout
from waterclock.streaming.toml.config import load

LAYOUT = Layout("jsonl", {"k": "string", "t": "timestamp"}, Rules(key="k", time="t"))


def test_a_file_of_a_batch_that_nobody_read_is_a_dead_letter(tmp_path: Path) -> None:
    # Spark passes over a file that was deleted behind its listing, without a word
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    checkpoint = Checkpoint(config.checkpoint)
    for batch, offset in enumerate((0, 1, 1)):
        checkpoint.path.joinpath("offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint.path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{offset}}}\n-')
    write_entry(checkpoint.path / "sources" / "0", "0", ("before.jsonl", 0))
    write_entry(checkpoint.path / "sources" / "0", "1", ("read.jsonl", 1), ("gone.jsonl", 1), ("empty.jsonl", 1))
    (tmp_path / "in" / "empty.jsonl").touch()
    read = frames.noted(frames.DEAD_SCHEMA.empty_table(), file="read.jsonl")
    with closing(stream_of(config.source, config.rules, 0, checkpoint)) as stream:
        (letter,) = stream.vanished(1, [read])
        assert stream.vanished(2, []) == []
    assert letter.column("file").to_pylist() == [f"file:{tmp_path}/in/gone.jsonl"]
    assert frames.counters_of(letter) == {"files": 2, "dead_letters": 1}


def test_progress_is_told_while_the_folder_is_away(tmp_path: Path) -> None:
    # a disk that was not mounted for a moment ended a live run, right behind a batch that was committed
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    for name in ("a", "b", "_c", ".d"):
        (tmp_path / "in" / name).touch()
    with closing(stream_of(config.source, config.rules, 0, Checkpoint(config.checkpoint))) as stream:
        assert stream.progress({"files": 1}) == (1, 2)
        (tmp_path / "in").rename(tmp_path / "away")
        assert stream.progress({"files": 1}) == (1, 1)


@pytest.mark.parametrize(
    ("time", "delay_us", "told"),
    [
        ("1960-01-01T00:00:00Z", 7, -315_619_200_000_007),
        ("1970-01-01T00:00:00.000999Z", 0, 999),
        ("1970-01-01T00:00:00.001Z", 0, None),
        ("1970-01-01T00:00:01Z", 1_000_001, -1),
        ("2026-01-01T00:00:00Z", 0, None),
    ],
)
def test_every_bucket_is_told_of_a_watermark_before_1970_and_of_no_other(
    tmp_path: Path, time: str, delay_us: int, told: int | None
) -> None:
    (tmp_path / "in.jsonl").write_text(f'{{"k": "a", "t": "{time}"}}\n')
    named = pa.RecordBatch.from_pydict({"path": [f"file:{tmp_path}/in.jsonl"], "written": [0], "beat": [False]})
    packed = [row for made in reader(LAYOUT, delay_us)(iter([named])) for row in made.to_pylist()]
    clocks = [(row["bucket"], frames.from_bytes(row["frame"])) for row in packed]
    found = [(label, frame.to_pylist()) for label, frame in clocks if frames.kind_of(frame) == "clock"]
    expected = [{"partition": "stream", "watermark": told}]
    assert found == ([] if told is None else [(label, expected) for label in labels(BUCKETS)])


def test_rows_that_carry_nothing_but_a_time_are_counted_beside_dead_letters(tmp_path: Path) -> None:
    beat, event = '{"t": "2020-01-01T00:00:00Z"}\n', '{"k": "a", "t": "2020-01-01T00:00:00Z"}\n'
    (tmp_path / "in.jsonl").write_text(beat + event + beat + "rubbish\n")
    named = {"path": [f"file:{tmp_path}/in.jsonl"], "written": [0], "beat": [False]}
    packed = [row for made in reader(LAYOUT)(iter([pa.RecordBatch.from_pydict(named)])) for row in made.to_pylist()]
    told = [frames.counters_of(frames.from_bytes(row["frame"])) for row in packed if row["frame"] is not None]
    assert frames.sum_counters(told) == {"files": 1, "dead_letters": 1, "heartbeats": 2}
