"""What every sink promises: "after `commit` returned, the batch survives a crash; before, nothing of it is seen".

A `Store` is a place that a sink writes to, seen from outside: it makes sinks, looks with a connection of its own, and
tells a child process how to make a sink. A new sink joins with one more class in STORES.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import Applied, Batch, Sink, SQLiteSink, apply_once, check_belongs
from waterclock.spark import frames
from waterclock.spark.checkpoint import Checkpoint

EVENT = pa.schema([("case", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("b", pa.bool_())])
SCHEMA = frames.result_schema(pa.string(), EVENT)
COUNTERS = {"events": 2, "late": 1}


class Store(Protocol):
    """A place for results, seen from outside of the sink."""

    def sink(self, table: str = "results") -> Sink: ...

    def source(self) -> str:
        """An expression that makes the sink in another process."""

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        """Rows as another connection sees them."""


class SQLiteStore:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "deep" / "results.db"

    def sink(self, table: str = "results") -> SQLiteSink:
        return SQLiteSink(self.path, table)

    def source(self) -> str:
        return f"SQLiteSink({str(self.path)!r})"

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=0)) as other:
            return other.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()


STORES = [SQLiteStore]


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = request.param(tmp_path)
    return made


@pytest.fixture
def sink(store: Store) -> Iterator[Sink]:
    made = store.sink()
    made.open(SCHEMA)
    yield made
    made.close()


def results(batch_id: int, count: int = 2) -> pa.Table:
    rows = [
        {
            "kind": "event",
            "key": "a",
            "rule": "order",
            "due": n,
            "emitted_at": None,
            "source_id": f"{batch_id}-{n}",
            "result_id": f"r{batch_id}-{n}",
            "event": {"case": "a" * (1 + n % 500), "n": n, "d": 0.5, "b": True},
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def batch(batch_id: int, query_id: str = "q", count: int = 2, counters: Mapping[str, int] = COUNTERS) -> Batch:
    dead = pa.Table.from_pylist(
        [{"file": "f", "line": batch_id, "reason": "bad", "text": "{"}], schema=frames.DEAD_SCHEMA
    )
    return Batch(query_id, batch_id, f"offsets {batch_id}", results(batch_id, count), dead, counters, 1_000_000, 0.25)


def everything(store: Store) -> list[Any]:
    return [
        store.look("batch_id, source_id, result_id, kind, rule"),
        store.look("batch_id, line, file, reason, text", "results_dead_letters"),
        store.look("batch_id, query_id, offsets", "results_batches"),
    ]


def of_batches(*batch_ids: int) -> list[Any]:
    """What another connection sees of these batches, and of no others."""
    return [
        [(i, f"{i}-{n}", f"r{i}-{n}", "event", "order") for i in batch_ids for n in range(2)],
        [(i, i, "f", "bad", "{") for i in batch_ids],
        [(i, "q", f"offsets {i}") for i in batch_ids],
    ]


# One batch


def test_a_new_sink_is_empty_and_its_tables_are_there(store: Store, sink: Sink) -> None:
    assert sink.last_applied() is None
    assert sink.totals() == {}
    assert sink.is_applied("q", 0) is False
    assert everything(store) == of_batches()


def test_another_connection_sees_a_batch_after_commit_and_nothing_of_it_before(store: Store, sink: Sink) -> None:
    sink.begin()
    assert everything(store) == of_batches()
    sink.write(batch(0))
    assert everything(store) == of_batches()
    sink.commit()
    assert everything(store) == of_batches(0)


def test_rollback_leaves_nothing_and_the_batch_can_come_again(store: Store, sink: Sink) -> None:
    sink.begin()
    sink.write(batch(0))
    sink.rollback()
    assert everything(store) == of_batches()
    assert (sink.is_applied("q", 0), sink.last_applied(), sink.totals()) == (False, None, {})
    assert apply_once(sink, batch(0)) is True
    assert everything(store) == of_batches(0)


def test_rollback_without_a_begin_is_nothing(store: Store, sink: Sink) -> None:
    sink.rollback()
    apply_once(sink, batch(0))
    sink.rollback()
    assert everything(store) == of_batches(0)


def test_a_batch_is_applied_once(store: Store, sink: Sink) -> None:
    assert [apply_once(sink, batch(0)) for _ in range(3)] == [True, False, False]
    assert everything(store) == of_batches(0)
    assert sink.totals() == COUNTERS


def test_a_batch_of_the_same_number_of_another_query_is_another_batch(sink: Sink) -> None:
    assert apply_once(sink, batch(0)) is True
    assert sink.is_applied("other", 0) is False
    assert apply_once(sink, batch(0, "other")) is True


def test_an_empty_batch_is_remembered_too(store: Store, sink: Sink) -> None:
    nothing = replace(
        batch(7), results=SCHEMA.empty_table(), dead_letters=frames.DEAD_SCHEMA.empty_table(), counters={}, offsets=None
    )
    assert apply_once(sink, replace(nothing, watermark_us=None)) is True
    assert everything(store) == [[], [], [(7, "q", None)]]
    assert (sink.last_applied(), sink.totals()) == (Applied("q", 7), {})


def test_totals_are_the_sums_over_all_batches(sink: Sink) -> None:
    for batch_id, counters in enumerate([{"events": 5, "held": 3}, {}, {"held": -3, "late": 1}, {"events": 2**40}]):
        apply_once(sink, batch(batch_id, counters=counters))
    assert sink.totals() == {"events": 2**40 + 5, "held": 0, "late": 1}


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 10])))
def test_last_applied_is_the_batch_of_the_largest_number(sink: Sink, order: tuple[int, ...]) -> None:
    for batch_id in order:
        apply_once(sink, batch(batch_id))
    assert sink.last_applied() == Applied("q", 10)


def test_everything_is_there_after_it_was_closed_and_opened_again(store: Store, sink: Sink) -> None:
    apply_once(sink, batch(0))
    again = store.sink()
    again.open(SCHEMA)
    again.open(SCHEMA)
    assert again.last_applied() == Applied("q", 0)
    assert again.totals() == COUNTERS
    assert apply_once(again, batch(0)) is False
    assert apply_once(again, batch(1)) is True
    again.close()
    assert everything(store) == of_batches(0, 1)


def test_two_tables_in_one_place_do_not_know_of_each_other(store: Store, sink: Sink) -> None:
    apply_once(sink, batch(0))
    other = store.sink("others")
    other.open(SCHEMA)
    assert (other.last_applied(), other.totals()) == (None, {})
    assert apply_once(other, batch(0)) is True
    other.close()


def test_a_batch_whose_write_fails_leaves_nothing_and_the_sink_goes_on(store: Store, sink: Sink) -> None:
    broken = replace(batch(0), counters={"events": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        apply_once(sink, broken)
    assert everything(store) == of_batches()
    assert apply_once(sink, batch(0)) is True


def test_rows_of_a_batch_stand_in_the_order_in_which_they_came(sink: Sink, store: Store) -> None:
    apply_once(sink, batch(0, count=1000))
    assert [n for _, _, n in store.look("batch_id, rule, event_n")] == list(range(1000))


@pytest.mark.parametrize(
    "changed",
    [
        EVENT.append(pa.field("new", pa.string())),
        EVENT.remove(0),
        EVENT.set(1, pa.field("n", pa.string())),
        EVENT.set(0, pa.field("renamed", pa.string())),
        pa.schema(list(EVENT)[::-1]),
    ],
    ids=["added", "removed", "other type", "renamed", "other order"],
)
def test_a_table_of_other_columns_is_refused_with_the_ways_out_and_left_alone(
    store: Store, sink: Sink, changed: pa.Schema
) -> None:
    apply_once(sink, batch(0))
    other = store.sink()
    with pytest.raises(UsageError) as caught:
        other.open(frames.result_schema(pa.string(), changed))
    other.close()
    for word in ("'results'", "--fresh", "another table"):
        assert word in str(caught.value)
    assert everything(store) == of_batches(0)


@pytest.mark.parametrize("table", ["", "a b", "1st", 'x"; DROP TABLE results; --', "a\x00b", "sqlite_results"])
def test_a_table_of_an_impossible_name_is_refused(store: Store, table: str) -> None:
    with pytest.raises(UsageError, match="table"):
        store.sink(table).open(SCHEMA)


def test_describe_names_the_table_and_the_place(sink: Sink) -> None:
    assert sink.describe().startswith("the table 'results' in ")


# A crash between any two steps


class Dying:
    """A sink that kills its process with SIGKILL right before or after one of its calls."""

    def __init__(self, sink: Sink, before: str | None, after: str | None) -> None:
        self._sink, self._before, self._after = sink, before, after

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == self._before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = getattr(self._sink, name)(*arguments)
            if name == self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


class Deadly(Mapping[str, int]):
    """Counters that kill the process that reads them: somewhere inside `write`."""

    def __getitem__(self, name: str) -> int:
        return os.kill(os.getpid(), signal.SIGKILL) or 0

    def __iter__(self) -> Iterator[str]:
        return iter(["events"] if self["events"] == 0 else [])

    def __len__(self) -> int:
        return 1


CHILD = """
import sys
sys.path.insert(0, {tests!r})
from test_sink_contract import Deadly, Dying, SCHEMA, batch
from waterclock.sinks import SQLiteSink, apply_once
sink = {sink}
sink.open(SCHEMA)
{body}
"""


def in_a_child(store: Store, body: str) -> subprocess.CompletedProcess[str]:
    script = CHILD.format(tests=str(Path(__file__).parent), sink=store.source(), body=body)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("crash", "survives"),
    [
        ("apply_once(Dying(sink, 'begin', None), batch(1))", False),
        ("apply_once(Dying(sink, None, 'begin'), batch(1))", False),
        ("apply_once(Dying(sink, None, 'is_applied'), batch(1))", False),
        ("apply_once(sink, batch(1, counters=Deadly()))", False),
        ("apply_once(sink, batch(1, count=30_000, counters=Deadly()))", False),
        ("apply_once(Dying(sink, None, 'write'), batch(1))", False),
        ("apply_once(Dying(sink, 'commit', None), batch(1))", False),
        ("apply_once(Dying(sink, None, 'commit'), batch(1))", True),
    ],
    ids=[
        "1 before begin",
        "2 after begin",
        "3 after the look",
        "4 inside write",
        "4 inside a large write",
        "4 after write",
        "5 before commit",
        "5 after commit",
    ],
)
def test_a_kill_between_two_steps_leaves_all_of_a_batch_or_nothing_and_a_rerun_makes_it_whole(
    store: Store, crash: str, survives: bool
) -> None:
    died = in_a_child(store, f"apply_once(sink, batch(0))\n{crash}")
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    assert everything(store) == (of_batches(0, 1) if survives else of_batches(0))
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        assert again.last_applied() == Applied("q", 1 if survives else 0)
        assert apply_once(again, batch(1)) is not survives
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)


# Does a sink belong to a checkpoint?


@pytest.mark.parametrize(
    ("query_id", "last_batch"),
    [("q", 3), ("q", 4)],
    ids=["the sink is where the checkpoint is", "the checkpoint's last batch did not reach the sink"],
)
def test_a_sink_and_its_checkpoint_belong_together(sink: Sink, query_id: str, last_batch: int) -> None:
    apply_once(sink, batch(3))
    check_belongs(sink, "cp", query_id, last_batch)


@pytest.mark.parametrize("last_batch", [None, 0])
def test_an_empty_sink_belongs_to_a_checkpoint_that_is_new_or_in_its_first_batch(
    sink: Sink, last_batch: int | None
) -> None:
    check_belongs(sink, "cp", None if last_batch is None else "q", last_batch)


@pytest.mark.parametrize(
    ("query_id", "last_batch", "found"),
    [
        (None, None, "is new or was deleted"),
        ("other", 3, "belongs to another query or is older"),
        ("other", 100, "belongs to another query or is older"),
        ("q", 2, "belongs to another query or is older"),
        ("q", None, "belongs to another query or is older"),
    ],
    ids=["deleted checkpoint", "other query", "other query further on", "sink ahead", "checkpoint without a batch"],
)
def test_a_sink_that_does_not_belong_to_the_checkpoint_is_refused_with_the_ways_out(
    sink: Sink, query_id: str | None, last_batch: int | None, found: str
) -> None:
    apply_once(sink, batch(3))
    with pytest.raises(StateMismatch) as caught:
        check_belongs(sink, "/the/checkpoint", query_id, last_batch)
    told = str(caught.value)
    assert f"holds results up to batch 3 of query q, but the checkpoint /the/checkpoint {found}" in told
    assert "--fresh" in told
    assert "restore" in told


@pytest.mark.parametrize("applied", [None, 0, 2], ids=["deleted sink", "old sink", "sink two batches behind"])
def test_a_sink_that_lost_what_the_checkpoint_has_done_is_refused(sink: Sink, applied: int | None) -> None:
    # The offsets of batch 4 are written after batch 3 was committed to the sink: 3 is missing here, for good.
    if applied is not None:
        apply_once(sink, batch(applied))
    with pytest.raises(StateMismatch, match="--fresh"):
        check_belongs(sink, "cp", "q", 4)


def test_a_sink_that_two_queries_wrote_to_belongs_to_neither_by_the_one_with_fewer_batches(sink: Sink) -> None:
    apply_once(sink, batch(1, "a"))
    apply_once(sink, batch(3, "b"))
    with pytest.raises(StateMismatch):
        check_belongs(sink, "cp", "a", 1)


# The checkpoint's folder


def checkpoint(folder: Path, batches: int) -> Checkpoint:
    """A folder as Spark leaves it."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    for n in range(batches):
        (folder / "offsets" / str(n)).write_text(f"v1\n{{}}\noffset {n}")
        (folder / "offsets" / f".{n}.crc").write_bytes(b"crc")
    return Checkpoint(folder)


def test_a_checkpoint_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    new = Checkpoint(tmp_path / "cp")
    assert (new.query_id(), new.last_batch(), new.offsets(0)) == (None, None, None)


def test_a_checkpoint_tells_the_query_and_the_last_batch_by_number_not_by_name(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 12)
    assert (old.query_id(), old.last_batch(), old.offsets(10)) == ("q", 11, "v1\n{}\noffset 10")


def test_settings_are_claimed_once_and_again_and_other_ones_are_refused_by_name(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    settings = {"rules": "r", "columns": {"k": "string"}, "state": 1}
    old.claim(settings)
    old.claim(dict(reversed(settings.items())))
    assert old.heartbeats.is_dir()
    with pytest.raises(StateMismatch, match=r"\(columns, new, rules\).*--fresh"):
        old.claim({"columns": {"k": "long"}, "state": 1, "new": 0})


@pytest.mark.parametrize("name", ["metadata", "waterclock.json"])
@pytest.mark.parametrize(
    "content", [b"", b'{"id":', b"\x00" * 20, b"\xff", b"[]"], ids=["empty", "cut", "NUL", "not UTF-8", "a list"]
)
def test_a_damaged_file_of_a_checkpoint_is_told_by_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    # reliability.md: "torn or corrupt files ... a clear error naming file and offset, and a way to go on"
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({"rules": "r"})
    (tmp_path / "cp" / name).write_bytes(content)
    with pytest.raises(UsageError, match=name):
        old.claim({"rules": "r"}) if name == "waterclock.json" else old.query_id()


def test_closing_is_one_heartbeat_however_often(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({})
    old.close()
    old.close()
    (file,) = old.heartbeats.iterdir()
    assert json.loads(file.read_text()) == {"closing": "9999-12-31T00:00:00Z"}


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Checkpoint, Path]:
    """A checkpoint that was closed after a file came to its source."""
    old, source = checkpoint(tmp_path / "cp", 1), tmp_path / "in"
    source.mkdir()
    (source / "before.jsonl").touch()
    wait_for_a_later_time(source / "before.jsonl")
    old.claim({})
    old.close()
    return old, source


def wait_for_a_later_time(file: Path) -> None:
    """The clock of a file system ticks in milliseconds: go on only when a new file would be younger than `file`."""
    probe = file.with_name(".probe")
    probe.touch()
    while probe.stat().st_mtime_ns <= file.stat().st_ctime_ns:
        probe.touch()
    probe.unlink()


def test_a_closed_checkpoint_whose_files_are_all_older_goes_on(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    old.refuse_if_closed(source)


def test_a_folder_in_the_source_does_not_count(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "sub").mkdir()
    old.refuse_if_closed(source)


def test_several_files_that_came_after_the_close_are_counted(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "b.jsonl").touch()
    (source / "a.jsonl").touch()
    with pytest.raises(UsageError, match=r"2 files came after that \(a\.jsonl, \.\.\.\)"):
        old.refuse_if_closed(source)


def test_files_that_came_after_the_close_are_refused_with_the_ways_out(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "after.jsonl").touch()
    with pytest.raises(UsageError, match=r"1 files? came after.*after\.jsonl.*--fresh.*close = false"):
        old.refuse_if_closed(source)


def test_an_older_file_that_is_moved_in_after_the_close_came_after_it_too(tmp_path: Path) -> None:
    # `mv`, `cp -p`, rsync and tar keep the time of a file: when it was changed is not when it came.
    old, source = checkpoint(tmp_path / "cp", 1), tmp_path / "in"
    source.mkdir()
    (tmp_path / "late.jsonl").touch()
    os.utime(tmp_path / "late.jsonl", (900, 900))
    old.claim({})
    old.close()
    (tmp_path / "late.jsonl").rename(source / "late.jsonl")
    with pytest.raises(UsageError, match=r"late\.jsonl"):
        old.refuse_if_closed(source)


@pytest.mark.parametrize("name", [".hidden", "_SUCCESS"])
def test_what_spark_does_not_read_does_not_count_as_input(closed: tuple[Checkpoint, Path], name: str) -> None:
    old, source = closed
    (source / name).touch()
    old.refuse_if_closed(source)


@pytest.mark.parametrize("names", [["precious.txt"], ["spark.log", "precious.txt"], ["offsets"]])
def test_a_folder_of_other_things_is_not_removed_as_a_checkpoint(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="is not removed"):
        Checkpoint(tmp_path).refuse_to_remove()


@pytest.mark.parametrize("names", [[], ["spark.log"], ["waterclock.json", "offsets"], ["metadata", "state"]])
def test_a_checkpoint_whole_or_damaged_may_be_removed(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    Checkpoint(tmp_path).refuse_to_remove()
    Checkpoint(tmp_path / "gone").refuse_to_remove()


def test_a_checkpoint_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cp").touch()
    for path in (tmp_path / "cp", tmp_path / "cp" / "below"):
        with pytest.raises(UsageError, match=f"{path} cannot be made"):
            Checkpoint(path).claim({})
    with pytest.raises(UsageError, match="is a file"):
        Checkpoint(tmp_path / "cp").refuse_to_remove()


# SQLite's own


def test_sqlite_holds_the_values_of_a_result_as_its_functions_read_them(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    row = {
        "kind": "late",
        "key": "é\x00",
        "rule": "late",
        "due": -1,
        "emitted_at": 1_577_836_800_000_001,
        "source_id": "s",
        "result_id": "r",
        "event": {"case": "", "n": 2**63 - 1, "d": -0.25, "b": False},
    }
    rows = pa.Table.from_pylist([row, {**row, "event": None, "key": None}], schema=SCHEMA)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, replace(batch(0), results=rows))
    times = ("1969-12-31 23:59:59.999999", "2020-01-01 00:00:00.000001")
    assert store.look("*") == [
        (0, "late", "é\x00", "late", *times, "s", "r", "", 2**63 - 1, -0.25, 0),
        (0, "late", None, "late", *times, "s", "r", None, None, None, None),
    ]
    assert store.look("julianday(due) < julianday(emitted_at), 1") == [(1, 1), (1, 1)]
    assert store.look("counters, watermark, seconds", "results_batches") == [
        ('{"events": 2, "late": 1}', "1970-01-01 00:00:01.000000", 0.25)
    ]


@pytest.mark.parametrize("us", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**62, -(2**62)])
def test_a_time_outside_of_the_calendar_is_refused_or_kept_but_never_a_broken_text(tmp_path: Path, us: int) -> None:
    store = SQLiteStore(tmp_path)
    rows = pa.Table.from_pylist([{"kind": "emit", "key": "a", "due": us}], schema=SCHEMA)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        try:
            apply_once(sink, replace(batch(0), results=rows))
        except ValueError:
            return
    (due, _) = store.look("due, 1")[0]
    assert "range" not in due


def junk(path: Path) -> None:
    path.write_bytes(b"not a database at all " * 100)


def beside_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    "prepare", [junk, Path.mkdir, beside_a_file], ids=["not a database", "a folder", "below a file"]
)
def test_a_path_where_no_database_can_be_is_a_usage_error_that_names_it(tmp_path: Path, prepare: Any) -> None:
    path = tmp_path / "sub" / "results.db"
    path.parent.mkdir()
    prepare(path)
    with pytest.raises(UsageError, match=r"results\.db"):
        SQLiteSink(path).open(SCHEMA)


def test_a_corrupt_database_is_told_by_its_name(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0, count=500))
    data = bytearray(store.path.read_bytes())
    data[100:4096] = b"\xff" * 3996
    store.path.write_bytes(data)
    with pytest.raises(UsageError, match=r"results\.db"):
        SQLiteSink(store.path).open(SCHEMA)


def test_a_failed_open_does_not_lock_the_file_for_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(SQLiteSink(store.path)) as failing:
        twice = pa.schema([("a", pa.string()), ("A", pa.string())])
        with pytest.raises((UsageError, sqlite3.Error)):
            failing.open(frames.result_schema(pa.string(), twice))
        with closing(sqlite3.connect(store.path, timeout=0)) as other:
            other.execute("CREATE TABLE mine (n)")


def test_a_table_beside_one_of_another_purpose_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink("a_batches")) as other:
        other.open(SCHEMA)
    before = store.look("name, 1", "sqlite_master")
    with closing(store.sink("a")) as sink, pytest.raises(UsageError, match=r"'a_batches'.*another table.*--fresh"):
        sink.open(SCHEMA)
    assert store.look("name, 1", "sqlite_master") == before


def test_columns_of_any_printable_name_have_their_place(tmp_path: Path) -> None:
    event = pa.schema([(name, pa.string()) for name in ("a b", "a.b", "select", 'a"b', "é", "1", "'", "?")])
    with closing(SQLiteStore(tmp_path).sink()) as sink:
        for _ in range(2):
            sink.open(frames.result_schema(pa.string(), event))


def test_remove_drops_the_tables_of_the_sink_and_no_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink, closing(store.sink("others")) as other:
        sink.remove()
        for each in (sink, other):
            each.open(SCHEMA)
            apply_once(each, batch(0))
        sink.remove()
        assert other.last_applied() == Applied("q", 0)
        sink.open(SCHEMA)
        assert (sink.last_applied(), sink.totals()) == (None, {})


@pytest.mark.parametrize("name", ["results", "results_batches", "results_dead_letters"])
def test_remove_leaves_a_table_that_is_none_of_a_sink(tmp_path: Path, name: str) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink:
        with closing(sqlite3.connect(store.path)) as other:
            other.execute(f"CREATE TABLE {name} (batch_id, mine)")
        with pytest.raises(UsageError, match=f"'{name}' .*is not removed"):
            sink.remove()
    assert store.look("*, 1", name) == []


FULL = """
import resource, signal
apply_once(sink, batch(0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    apply_once(sink, batch(1, count=20_000))
    print("written")
except Exception as error:
    print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(sink.last_applied().batch_id, apply_once(sink, batch(1)), sink.totals()["events"])
sink.close()
"""


def test_a_full_disk_refuses_the_batch_whole_and_the_sink_goes_on_when_space_returns(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    done = in_a_child(store, FULL)
    assert (done.stdout.split(), done.stderr) == (["refused", "0", "True", "4"], "")
    assert everything(store) == of_batches(0, 1)


def test_a_commit_of_the_file_waits_for_the_disk(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "x.db")
    assert sink._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: what survives a power cut
    sink.close()
