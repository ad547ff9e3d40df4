"""What a task does with result frames where executors write results: rows into its file, all else on to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sinks.stores import SCHEMA, batch, results
from tests.spark.least_pipeline import LEAST
from waterclock.errors import UsageError
from waterclock.sinks import DeltaSink, SQLiteSink, apply_once
from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import ResultFiles
from waterclock.spark.batch.batches import Shape, batch_of, files_in, writing
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.batch.steps import reshaped
from waterclock.streaming import frames
from waterclock.streaming.layout import CLOSING_US
from waterclock.streaming.toml.config import load

SHAPE = Shape(SCHEMA, SCHEMA, CLOSING_US)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ResultFiles]:
    with closing(DeltaSink(tmp_path / "lake", written_by="executors")) as sink:
        sink.open(SCHEMA)
        made = sink.result_files(7)
        assert made is not None
        yield made


def packed(*taken: pa.Table) -> Iterator[pa.RecordBatch]:
    for frame in taken:
        yield pa.RecordBatch.from_arrays([pa.array([frames.to_bytes(frame)], pa.binary())], ["frame"])


def told(files: ResultFiles, *taken: pa.Table, shape: Shape = SHAPE) -> list[pa.Table]:
    out = writing(files, shape)(packed(*taken))
    return [frames.from_bytes(frame) for batch in out for frame in batch.column("frame").to_pylist()]


def written(files: ResultFiles, out: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for file in files_in(out) for row in pq.read_table(f"{files.folder}/{file.name}").to_pylist()]


def test_results_that_the_table_does_not_keep_are_counted_where_they_were_put_aside(files: ResultFiles) -> None:
    rows, place = results(0, 3), SCHEMA.get_field_index("due")
    far = rows.set_column(
        place, SCHEMA.field(place), pa.array([1, 2, -(2**62)], pa.int64()).cast(SCHEMA.field(place).type)
    )
    out = told(replace(files, far="too far"), frames.with_counters(far, {"events": 3}))
    assert [frames.note(frame, "put_aside") for frame in out] == [None, 1, None]
    assert [file.rows for file in files_in(out)] == [2]


def test_rows_go_into_the_file_and_all_that_a_frame_says_beside_them_goes_on(files: ResultFiles) -> None:
    rows = frames.with_counters(results(0, 3), {"events": 5, "late": 1})
    rows = frames.noted(rows, watermark=44, newest=55, refused="why")
    quiet = frames.with_counters(SCHEMA.empty_table(), {"events": 2})
    dead = frames.with_counters(
        pa.Table.from_pylist([{"reason": "bad"}], frames.DEAD_SCHEMA), {"dead_letters": 1}, "dead"
    )
    out = told(files, rows, quiet, dead)
    assert [row["event_n"] for row in written(files, out)] == [0, 1, 2]
    assert [frame.num_rows for frame in out] == [0, 0, 1, 1]
    assert frames.sum_counters(map(frames.counters_of, out)) == {"events": 7, "late": 1, "dead_letters": 1}
    assert [frames.note(out[0], name) for name in ("watermark", "newest", "refused")] == [44, 55, "why"]
    assert frames.kind_of(out[2]) == "dead"
    assert out[2].equals(dead)
    (file,) = files_in(out)
    assert file.rows == 3
    assert file.name == f"part-7-{files.run}-0-0.parquet"


def test_a_time_behind_the_close_is_shown_at_the_close_as_the_driver_shows_it(files: ResultFiles) -> None:
    rows = results(0, 1)
    beyond = pa.chunked_array([pa.array([2**60], pa.int64()).cast(frames.TIMESTAMP)])
    rows = rows.set_column(4, rows.schema.field("emitted_at"), beyond)
    out = told(files, rows, shape=Shape(SCHEMA, SCHEMA, 1_000_000))
    assert [row["emitted_at"].timestamp() for row in written(files, out)] == [1.0]


def test_a_task_without_a_result_tells_of_no_file(files: ResultFiles) -> None:
    assert files_in(told(files, SCHEMA.empty_table())) == ()
    assert list(Path(files.folder).glob("*.parquet")) == []


def test_a_task_that_fails_on_its_way_leaves_no_file(files: ResultFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waterclock.sinks.files._ROWS", 1)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from packed(results(0))
        assert len(list(Path(files.folder).glob("*.parquet"))) == 1
        raise RuntimeError("the worker before this one failed")

    with pytest.raises(RuntimeError, match="failed"):
        list(writing(files, SHAPE)(failing()))
    assert list(Path(files.folder).glob("*.parquet")) == []


def test_what_tasks_wrote_is_counted_as_results_beside_what_frames_count(files: ResultFiles, tmp_path: Path) -> None:
    checkpoint = SimpleNamespace(path=tmp_path, offsets=lambda batch_id: "offsets", query_id=lambda: "q")
    rows = frames.with_counters(results(0, 3), {"events": 5})
    taken = told(files, rows, frames.with_counters(SCHEMA.empty_table(), {"events": 2}))
    made = batch_of(taken, (checkpoint, 7), SCHEMA, CLOSING_US, 0.0)  # type: ignore[arg-type]
    assert made.counters == {"events": 7, "results": 3}
    assert made.results.num_rows == 0
    assert made.dead_letters.num_rows == 0
    assert [file.rows for file in made.files] == [3]


def test_a_batch_that_the_sink_has_writes_no_files(tmp_path: Path) -> None:
    checkpoint: Any = SimpleNamespace(path=tmp_path, query_id=lambda: "q")
    with closing(DeltaSink(tmp_path / "lake", written_by="executors")) as lake:
        lake.open(SCHEMA)
        apply_once(lake, batch(4))
        outlets = Outlets(lake)
        assert outlets.result_files(4, checkpoint) is None
        made = outlets.result_files(5, checkpoint)
        assert made is not None
        assert made.batch_id == 5
    assert Outlets(DeltaSink(tmp_path / "lake")).result_files(5, checkpoint) is None


def test_what_tasks_wrote_comes_to_the_sink_as_it_is_told_where_columns_are_chosen_too(tmp_path: Path) -> None:
    outlets = Outlets(reshaped(DeltaSink(tmp_path / "lake", written_by="executors"), columns=["key"]))
    outlets.plan(None, SCHEMA)
    file, nothing = ResultFile("part", 1, 3, 0, "{}"), outlets.frame_schema(SCHEMA).empty_table()
    made = replace(batch(0, counters={"results": 3}), results=nothing, files=(file,))
    assert outlets.first.part_of(made, None) is made  # type: ignore[arg-type]


def test_what_needs_the_results_on_the_driver_is_refused(tmp_path: Path) -> None:
    lake = DeltaSink(tmp_path / "lake", written_by="executors")
    for given in ([lake, SQLiteSink(tmp_path / "a.db")], [SQLiteSink(tmp_path / "a.db"), lake]):
        with pytest.raises(UsageError, match=r"written_by = 'executors'.* several sinks"):
            Outlets(given)
    for asked in (reshaped(lake, query="SELECT * FROM results"), reshaped(lake, takes=["results"])):
        with pytest.raises(UsageError, match=r"written_by = 'executors'.* 'query', 'transform' or 'takes'"):
            Outlets(asked)
    Outlets(reshaped(lake, columns=["kind", "key"]))


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (
            "format = 'delta'\npath = 'lake/x'\nwritten_by = 'nobody'",
            r"\[sink\]: 'written_by' must be one of driver, executors",
        ),
        ("format = 'iceberg'\ntable = 'a.b'\nwritten_by = 1", r"\[sink\]: 'written_by' must be a text"),
        ("path = 'out.db'\nwritten_by = 'executors'", "written_by"),
    ],
)
def test_a_file_says_who_writes_for_a_lake_alone(tmp_path: Path, sink: str, said: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.toml").write_text(LEAST.partition("[sink]")[0] + f"[sink]\n{sink}\n")
    with pytest.raises(UsageError, match=said):
        load(tmp_path / "pipeline.toml")


@pytest.mark.parametrize("sink", ["format = 'delta'\npath = 'lake/x'", "format = 'iceberg'\ntable = 'a.b'"])
def test_the_word_of_the_file_comes_to_the_sink(tmp_path: Path, sink: str) -> None:
    (tmp_path / "in").mkdir()
    for word, wanted in (("", "driver"), ("written_by = 'executors'", "executors")):
        (tmp_path / "pipeline.toml").write_text(LEAST.partition("[sink]")[0] + f"[sink]\n{sink}\n{word}\n")
        assert load(tmp_path / "pipeline.toml").sink.sink().written_by == wanted
