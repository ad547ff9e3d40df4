"""Compaction of one partition: transactions, producers, compressions, and a crash at each numbered step of the swap."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from tests.broker.log.damage import NOW, append, end, flush
from tests.broker.log.damage import compact as compact_closed
from tests.broker.record_batches import CONTROL, TRANSACTIONAL, Rec, Stored, batch, end_marker, stored
from waterclock.broker.log import compaction
from waterclock.broker.log.batch import HORIZON, commits
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import records
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

KEEP_MS = 1000
BIG = b"v" * 700


@pytest.fixture
def settings() -> TopicSettings:
    settings = TopicSettings(Settings({"log.segment.bytes": "100000"}))
    settings.replace(
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": str(KEEP_MS)}
    )
    return settings


@pytest.fixture
def log(tmp_path: Path, settings: TopicSettings) -> Partition:
    return open_partition("t", 0, str(tmp_path), settings)


def transact(log: Partition, pid: int, sequence: int, *recs: Rec) -> None:
    append(log, *recs, producer=(pid, 0, sequence), attributes=TRANSACTIONAL)


def rec(key: bytes | None, value: bytes | None = BIG) -> Rec:
    return Rec(key, value, NOW)


def close(log: Partition) -> None:
    """Nothing more goes into the active segment."""
    log.roll()
    flush(log)


def compact(log: Partition, now_ms: int = NOW) -> None:
    close(log)
    compact_closed(log, now_ms)


def batches(log: Partition) -> list[Stored]:
    return stored(b"".join(os.pread(segment.fd, segment.size, 0) for segment in log.segments))


def keys(log: Partition) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.key) for b in batches(log) if not b.attributes & CONTROL for r in records(b.raw)]


def markers(log: Partition) -> list[int]:
    return [b.base for b in batches(log) if b.attributes & CONTROL and b.count]


# What stays


def test_the_records_of_an_aborted_transaction_go_and_older_ones_of_their_keys_stay(log: Partition) -> None:
    append(log, rec(b"a"))
    transact(log, 7, 0, rec(b"a"), rec(b"b"))
    end(log, 7, commit=False)
    append(log, rec(b"c"))
    compact(log)
    assert keys(log) == [(0, b"a"), (4, b"c")]


def test_a_committed_record_takes_the_place_of_an_older_one(log: Partition) -> None:
    append(log, rec(b"a"))
    transact(log, 7, 0, rec(b"a"))
    end(log, 7, commit=True)
    append(log, rec(b"c"))
    compact(log)
    assert keys(log) == [(1, b"a"), (3, b"c")]


def test_nothing_at_or_after_an_open_transaction_is_touched(log: Partition) -> None:
    for _ in range(2):
        append(log, rec(b"a"))
    close(log)
    transact(log, 7, 0, rec(b"a"))
    append(log, rec(b"a"))
    compact(log)
    assert keys(log) == [(1, b"a"), (2, b"a"), (3, b"a")]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_stays_until_its_records_are_gone_and_then_its_time(log: Partition, commit: bool) -> None:
    """1: the records go. 2: none was met, its time begins. 3: not yet over. 4: over."""
    transact(log, 7, 0, rec(b"a"))
    end(log, 7, commit)
    transact(log, 7, 1, rec(b"z"))  # the producer's last sequence is elsewhere
    end(log, 7, commit=True)
    seen = []
    for now_ms in (NOW, NOW + 10, NOW + 10 + KEEP_MS - 1, NOW + 10 + KEEP_MS):
        append(log, rec(b"a"))
        compact(log, now_ms)
        seen.append(1 in markers(log))
    assert seen == [True, True, True, False]


def test_readers_are_told_of_an_aborted_transaction_as_long_as_a_batch_of_it_was_met(log: Partition) -> None:
    transact(log, 7, 0, rec(b"a"))
    end(log, 7, commit=False)
    transact(log, 7, 1, rec(b"z"))
    end(log, 7, commit=True)
    answer = []
    for _ in range(2):
        append(log, rec(b"b"))
        compact(log)
        answer.append(len(log.aborted.between(0, 1 << 60)))
    assert answer == [1, 0]
    assert open_partition("t", 0, log.folder, log.settings).aborted.between(0, 1 << 60) == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_moved_marker_is_read_back_for_what_it_says(log: Partition, commit: bool) -> None:
    """With a horizon, its record's timestamp is a varint of several bytes, and its type lies elsewhere."""
    transact(log, 7, 0, rec(b"a"))
    end(log, 7, commit)
    transact(log, 7, 1, rec(b"z"))
    end(log, 7, commit=True)
    for _ in range(2):
        append(log, rec(b"a"))
        compact(log)
    moved = next(b for b in batches(log) if b.base == 1)
    assert (moved.attributes & HORIZON, commits(moved.raw)) == (HORIZON, commit)
    for snapshot in Path(log.folder).glob("*.snapshot"):
        snapshot.unlink()
    again = open_partition("t", 0, log.folder, log.settings)
    assert (again.producers.open, again.end) == ({}, log.end)


def test_an_older_abort_does_not_touch_a_later_commit_of_the_same_producer(log: Partition) -> None:
    append(log, rec(b"a"))
    transact(log, 7, 0, rec(b"b"))
    end(log, 7, commit=False)
    compact(log)
    transact(log, 7, 1, rec(b"a"))
    end(log, 7, commit=True)
    append(log, rec(b"c"))
    compact(log)
    assert keys(log) == [(3, b"a"), (5, b"c")]


def test_every_file_goes_on_to_where_the_next_begins(log: Partition) -> None:
    """What the recovery after a crash goes by; and no offset is given twice."""
    for _ in range(6):
        append(log, rec(b"a"))
        close(log)
    log.settings.segment_bytes = 1000  # no two of them fit into one
    compact(log)
    ends = [segment.tail.end for segment in log.segments[:-1]]
    assert ends == [segment.base for segment in log.segments[1:]] == [1, 2, 3, 4, 5, 6]
    assert keys(log) == [(5, b"a")]


def test_a_producers_last_sequence_outlives_its_records(log: Partition) -> None:
    append(log, rec(b"a"), rec(b"b"), producer=(5, 0, 0))
    append(log, rec(b"a"), rec(b"b"))
    compact(log)
    first = batches(log)[0]
    assert (first.base, first.last, first.count) == (0, 1, 0)
    for snapshot in Path(log.folder).glob("*.snapshot"):
        snapshot.unlink()
    again = open_partition("t", 0, log.folder, log.settings)
    repeated = memoryview(bytearray(batch([rec(b"a"), rec(b"b")], producer=(5, 0, 0))))
    assert again.append(repeated, NOW) == (Error.NONE, 0)
    assert again.end == log.end


def test_a_producers_last_five_batches_are_known_again_though_no_snapshot_has_them(log: Partition) -> None:
    """It may have had no answer to any of them, and sends all again after the start."""
    sent = [batch([rec(b"a")], producer=(5, 0, sequence)) for sequence in range(6)]
    for one in sent:
        assert log.append(memoryview(bytearray(one)), NOW)[0] == Error.NONE
    append(log, rec(b"a"))
    compact(log)
    assert ([one.base for one in batches(log)], keys(log)) == ([1, 2, 3, 4, 5, 6], [(6, b"a")])
    for snapshot in Path(log.folder).glob("*.snapshot"):
        snapshot.unlink()
    again = open_partition("t", 0, log.folder, log.settings)
    assert [again.append(memoryview(bytearray(one)), NOW) for one in sent[1:]] == [(Error.NONE, n) for n in range(1, 6)]
    assert again.append(memoryview(bytearray(sent[0])), NOW)[0] == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("younger", [1, 5])
def test_a_producers_last_sequence_on_the_disk_outlives_its_records_though_later_ones_are_known(
    log: Partition, younger: int
) -> None:
    """What is not durable yet may be lost, and the snapshots with it: the log itself must say the sequence."""
    for sequence in range(2):
        append(log, rec(b"a"), producer=(7, 0, sequence))
    append(log, rec(b"a"))
    close(log)
    for sequence in range(2, 2 + younger):
        append(log, rec(b"b"), producer=(7, 0, sequence))
    compact_closed(log, NOW)
    log.lose_undurable()
    found = open_partition("t", 0, log.folder, log.settings)
    assert [sent.last for sent in found.producers.known[7].sent][-1:] == [1]


def test_of_a_producer_that_is_known_by_its_markers_the_newest_epochs_stay(log: Partition) -> None:
    """Transactions whose epoch rises each time leave no file of headers behind them."""
    for epoch in range(3):
        append(log, rec(b"a"), producer=(7, epoch, 0), attributes=TRANSACTIONAL)
        assert log.mark(bytearray(end_marker(7, epoch + 1, True, NOW)))[0] == Error.NONE
    append(log, rec(b"a"))
    for now_ms in (NOW, NOW, NOW + KEEP_MS):
        compact(log, now_ms)
        append(log, rec(b"a"))
    assert [one.base for one in batches(log) if one.attributes & CONTROL] == [5]
    found = open_partition("t", 0, log.folder, log.settings)
    assert found.producers.known[7].epoch == 3


def test_offsets_go_on_where_they_were_though_the_last_records_are_gone(log: Partition) -> None:
    append(log, rec(b"a"))
    append(log, Rec(b"a", None, NOW))
    compact(log)
    append(log, rec(b"b"))
    compact(log, NOW + KEEP_MS)
    assert keys(log) == [(2, b"b")]
    again = open_partition("t", 0, log.folder, log.settings)
    assert (again.start, again.end) == (0, 3)


def test_records_without_a_key_from_before_the_policy_go(log: Partition) -> None:
    log.settings.replace({**log.settings.given, "cleanup.policy": "delete"})
    append(log, rec(None), rec(b"a"))
    log.settings.replace({**log.settings.given, "cleanup.policy": "compact"})
    compact(log)
    assert keys(log) == [(1, b"a")]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_its_compression(log: Partition, codec: int) -> None:
    append(log, rec(b"a"), rec(b"b", b"w" * 70_000), codec=codec)
    append(log, rec(b"a"), codec=codec)
    compact(log)
    assert keys(log) == [(1, b"b"), (2, b"a")]
    assert [b.attributes & 7 for b in batches(log)] == [codec, codec]
    assert [r.value for r in records(batches(log)[0].raw)] == [b"w" * 70_000]


def test_a_batch_that_cannot_be_decoded_stays_as_it_is_and_that_is_said(
    log: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    log.settings.replace({**log.settings.given, "cleanup.policy": "delete"})
    append(log, rec(b"a"), attributes=4)  # zstd, it says
    log.settings.replace({**log.settings.given, "cleanup.policy": "compact"})
    append(log, rec(b"a"))
    before = batches(log)
    compact(log)
    assert batches(log) == before
    assert "1 batches stay as they are" in caplog.text
    assert "The first is at offset 0: " in caplog.text


def test_small_segments_become_one(log: Partition) -> None:
    for place in range(6):
        append(log, rec(b"%d" % place))
        close(log)
    compact(log)
    assert [segment.base for segment in log.segments] == [0, 6]
    assert [key for _, key in keys(log)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_where_the_map_is_full_the_rest_is_left_for_the_next_time(
    log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAP_BYTES", 300)
    for key in (b"a", b"a", b"b", b"c", b"c"):
        append(log, rec(key))
    compact(log)
    assert keys(log) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"c")]
    assert log.memo.cleaned == 3
    compact(log)
    assert keys(log) == [(1, b"a"), (2, b"b"), (4, b"c")]


# A crash at each step


class Crash(Exception):
    pass


def crash_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, count: int) -> None:
    """The process dies after so many calls of that function."""
    real: Callable[..., Any] = getattr(module, name)
    left = [count]

    def call(*args: Any, **named: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return real(*args, **named)

    monkeypatch.setattr(module, name, call)


def in_two_segments(log: Partition) -> list[Stored]:
    """A log of two closed segments: its batches."""
    for value in (b"1", b"2"):
        append(log, rec(b"a", value * 700), rec(b"b", value * 700))
        transact(log, 7, int(value) - 1, rec(b"t", value))
        end(log, 7, commit=False)
        close(log)
    log.take_snapshot()  # so that a start has the aborted transactions from their files
    return batches(log)


STEPS = [
    ("1 begun", "os", "fsync", 0),
    ("1 half", "os", "fsync", 1),
    ("1", "os", "rename", 0),
    ("2", "swap", "_remove", 0),
    ("3 begun", "os", "unlink", 1),
    ("3 half", "os", "unlink", 4),
    ("3", "os", "rename", 1),
    ("4", "Index", "save", 0),
    ("5 begun", "os", "rename", 2),
]


@pytest.mark.parametrize(("module", "name", "count"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS])
def test_a_crash_after_a_step_leaves_one_good_state(
    log: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, count: int
) -> None:
    from waterclock.broker.log import index, swap

    before = in_two_segments(log)
    plan = compaction.plan(log, NOW)
    assert plan is not None
    work = compaction.Compaction(plan)
    with monkeypatch.context() as patch:
        crash_after(patch, {"os": os, "swap": swap, "Index": index.Index}[module], name, count)
        with pytest.raises(Crash):
            list(work.steps())
    again = open_partition("t", 0, str(tmp_path), log.settings)
    after = batches(again)
    assert (after == before) == (name == "fsync" or (name, count) == ("rename", 0))
    assert again.end == log.end
    assert again.producers.open == {}
    assert [key for _, key in keys(again)][-2:] == [b"a", b"b"] or after == before
    left = {path.name for path in tmp_path.iterdir()}
    assert not [one for one in left if one.endswith((".cleaned", ".swap"))]
    assert again.aborted.between(0, 1 << 60)[-1].last == 7  # of the first one no batch may be left
    compact(again)
    assert [key for _, key in keys(again)] == [b"a", b"b"]


def test_the_keys_of_a_batch_that_is_broken_halfway_count_for_nothing() -> None:
    """It stays as it is: an older value of the same key is the last that can be read."""
    broken = batch([Rec(b"k", b"x", 0), Rec(b"l", b"y" * 50, 0)])[:-20]
    work = compaction.Compaction(compaction.CompactionPlan("", [], 0, 9, 0, 0, 0, [], 1.0, {}))
    with pytest.raises(StopIteration) as end_of_steps:
        next(work._note(broken))
    assert (end_of_steps.value.value, work._offsets) == (0, {})
