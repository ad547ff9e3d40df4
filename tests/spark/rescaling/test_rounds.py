"""What a run gave to its buckets, on its way through new ones: by keys, compared, and again until little is left."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from waterclock.clock import ManualClock
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing import recording
from waterclock.spark.packing.recording import BatchNote
from waterclock.spark.rescaling import live
from waterclock.spark.rescaling.live import LiveRescale
from waterclock.spark.rescaling.stored import StateQuery
from waterclock.spark.succession import ANSWERED, ASKED, HALT, HALTED, RECORD, SWITCHED, said
from waterclock.streaming import frames
from waterclock.streaming.buckets import labels, places
from waterclock.streaming.owner import Owner

RULES = Rules("key", "time")
KEYS = [f"k{n}" for n in range(40)]


class Query:
    """A query over parts that says what it was made to say."""

    def __init__(self, *said: dict[str, int]) -> None:
        self.said = list(said)

    def batch(self, number: int, look: Any) -> list[Any]:
        return [[self.said.pop(0), 100]]


@pytest.fixture
def moving(tmp_path: Path) -> LiveRescale:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "commits").mkdir(parents=True)
    (old / "commits" / "9").touch()
    (old / "waterclock.json").write_text(json.dumps({"buckets": 4, "rules": repr(RULES)}))
    session: Any = SimpleNamespace(conf={})
    made = LiveRescale(session, Checkpoint(old), Checkpoint(new), RULES, 8, lambda line: None)
    made._records.mkdir(parents=True)
    (tmp_path / "new" / "waterclock.parts" / "rows").mkdir()
    return made


def record(moving: LiveRescale, batch_id: int, counters: dict[str, int], **given: list[pa.Table]) -> None:
    for place, tables in given.items():
        name = f"{batch_id:012d}-{labels(4)[int(place[1:])]}"
        (moving._records / name).write_bytes(msgpack.packb([frames.to_bytes(table) for table in tables]))
    recording.note(moving._records, batch_id, BatchNote(batch_id * 10, counters))


def events(first: int) -> pa.Table:
    return pa.table({"key": KEYS, "n": range(first, first + len(KEYS))})


def test_each_new_bucket_is_given_its_keys_in_their_order_and_every_clock(moving: LiveRescale) -> None:
    clock = frames.clock({"orders/0": 5})
    record(moving, 3, {"events": 80}, b0=[events(0), clock, events(100)])
    record(moving, 4, {})
    query: Any = Query({"events": 80})
    moving._query = query
    moving._replay(2, 4)
    (file,) = moving._folder.iterdir()
    for row, (place, label) in zip(pq.read_table(file).to_pylist(), enumerate(labels(8)), strict=True):
        assert row["bucket"] == label
        (first_ms, first), (second_ms, second) = msgpack.unpackb(row["frame"])
        assert (first_ms, second_ms, second) == (30, 40, [])
        tables = [frames.from_bytes(frame) for frame in first]
        found = [table for table in tables if frames.kind_of(table) != "clock"]
        own = [key for key, at in zip(KEYS, places(pa.array(KEYS), 8).tolist(), strict=True) if at == place]
        assert [table["key"].to_pylist() for table in found] == ([own, own] if own else [])
        assert [table["n"][0].as_py() >= 100 for table in found] == ([False, True] if own else [])
        assert len(tables) - len(found) == 1
    assert [*moving._records.iterdir()] == []  # what went through is not kept


@pytest.mark.parametrize("name", ["events", "released", "late", "duplicates", "held", "pending", "results"])
def test_buckets_that_count_otherwise_than_the_old_ones_hand_nothing_over(moving: LiveRescale, name: str) -> None:
    record(moving, 3, {name: 5, "files": 1, "heartbeats": 2})
    query: Any = Query({name: 4})
    moving._query = query
    with pytest.raises(StateMismatch, match=rf"of batches 3 to 3 the old buckets counted 5 {name}, the new ones 4"):
        moving._replay(2, 3)


def test_a_batch_that_was_not_written_down_hands_nothing_over(moving: LiveRescale) -> None:
    record(moving, 4, {})
    with pytest.raises(StateMismatch, match="in batch 3 was not written down"):
        moving._replay(2, 4)


@pytest.mark.parametrize(("rounds", "ends"), [([9, 5, 1], 3), ([9, 8], 2), ([90, 60, 30, 25], 0), ([19, 19], 2)])
def test_the_run_halts_when_little_is_left_and_is_let_alone_if_it_does_more_than_can_be_done(
    moving: LiveRescale, monkeypatch: pytest.MonkeyPatch, rounds: list[int], ends: int
) -> None:
    clock, done = ManualClock(), []
    moving._clock = clock
    for batch_id in range(3, 10):
        recording.note(moving._records, batch_id, BatchNote(0, {}))

    def replay(first: int, last: int) -> None:
        done.append((first, last))
        clock.advance_s(rounds[len(done) - 1])

    monkeypatch.setattr(moving, "_replay", replay)
    monkeypatch.setattr(moving, "flush", lambda: None)
    if ends:
        assert moving._catch_up(2) == 9
        assert (done[0], len(done)) == ((2, 9), ends)
    else:
        with pytest.raises(UsageError, match=r"took 25 s, after 30 s before. It goes on as it was"):
            moving._catch_up(2)


def test_what_is_in_the_sink_and_not_yet_done_for_spark_is_left_to_the_new_checkpoint(
    moving: LiveRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(3, 12):
        recording.note(moving._records, batch_id, BatchNote(0, {}))
    monkeypatch.setattr(moving, "_replay", lambda first, last: None)
    monkeypatch.setattr(moving, "flush", lambda: None)
    assert moving._catch_up(2) == 9


def test_without_a_run_or_with_other_rules_there_is_nothing_to_ask(moving: LiveRescale) -> None:
    with pytest.raises(UsageError, match=r"no run has the checkpoint .*: leave out --live"):
        moving.move()
    moving._rules = Rules("key", "other")
    with pytest.raises(UsageError, match="the rules in the file are others"):
        moving.move()
    (moving._old.local / "source-closed").touch()
    with pytest.raises(UsageError, match="was closed"):
        moving.move()


def test_a_query_that_somebody_stopped_is_not_waited_for(tmp_path: Path) -> None:
    query: Any = object.__new__(StateQuery)
    query._new, query._query = Checkpoint(tmp_path), SimpleNamespace(awaitTermination=lambda seconds: True)
    with pytest.raises(WaterclockError, match="was stopped: nothing was handed over"):
        query.batch(0, lambda: None)


def test_a_second_command_is_refused_and_leaves_what_the_first_one_asks(
    moving: LiveRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    (moving._old.local / "waterclock.json").write_text(json.dumps({"buckets": 4, "rules": repr(RULES)}))
    first, run = Owner(moving._new.local), Owner(moving._old.local)
    first.take(), run.take()
    asked = {"id": "the first one's", "step": RECORD, "to": str(moving._new.path)}
    (moving._old.local / ASKED).write_text(json.dumps(asked))
    with pytest.raises(UsageError, match=r"another command carries its state over, to .*/new: wait for its end"):
        moving.move()
    monkeypatch.setattr(moving, "_refuse_what_cannot_move", lambda: None)  # it asked a moment later
    with pytest.raises(UsageError):
        moving.move()
    assert said(moving._old.local / ASKED) == asked
    first.let_go(), run.let_go()


def test_a_run_that_does_not_answer_is_left_as_it_was(moving: LiveRescale, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE_S", 0.0)
    moving._ask("record")
    with pytest.raises(UsageError, match="did not answer for 0 s, and goes on as it was"):
        moving._answer("recording")


def test_a_run_whose_batch_takes_long_is_waited_for_with_a_word(
    moving: LiveRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = ManualClock(), list[str]()
    monkeypatch.setattr(clock, "sleep_s", clock.advance_s)
    moving._clock, moving._report = clock, told.append

    def look() -> None:
        if clock.monotonic_s() - began_s > 2.5 * live.PATIENCE_S:
            (moving._old.local / ANSWERED).write_text(json.dumps({"id": moving._query_id, "step": HALTED}))

    began_s = clock.monotonic_s()
    monkeypatch.setattr(moving, "look", look)
    assert moving._answer(HALTED)["step"] == HALTED
    assert told == ["the run has not halted yet, and is waited for"] * 2


def test_an_answer_that_comes_while_the_last_one_is_read_is_heard(
    moving: LiveRescale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run answers, and forgets what it was asked."""
    folder = moving._old.local

    def read(file: Path) -> dict[str, Any]:
        found = said(file)
        if not found:
            (folder / ANSWERED).write_text(json.dumps({"id": moving._query_id, "step": SWITCHED}))
            (folder / ASKED).unlink()
        return found

    moving._ask(HALT)
    monkeypatch.setattr(live, "is_free", lambda path: False)
    monkeypatch.setattr(live, "said", read)
    assert moving._answer(SWITCHED)["step"] == SWITCHED
    monkeypatch.setattr(live, "said", said)
    (folder / ANSWERED).unlink()
    with pytest.raises(WaterclockError, match="ended, or began anew"):
        moving.look()
