"""Batches and records against a builder that shares no code with the broker; the index; the upkeep's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.record_batches import CONTROL, Rec, batch, end_marker, stored, whole
from waterclock.broker.log.batch import (
    GZIP,
    LZ4,
    MOST_UNPACKED,
    SNAPPY,
    ZSTD,
    at_append_time,
    commits,
    compressed,
    header_of,
    marker,
    uncompressed,
)
from waterclock.broker.log.index import ENTRY
from waterclock.broker.log.records import emptied, keyless, keys, records, rewritten, timestamps
from waterclock.broker.log.segment import Segment
from waterclock.broker.worker import Worker

REC = st.builds(Rec, st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=300), st.integers(0, 2**42))
RECS = st.lists(REC, min_size=1, max_size=5)
CODEC = st.integers(0, 4)


@given(RECS, CODEC)
def test_records_are_read_as_they_were_written(recs: list[Rec], codec: int) -> None:
    data = batch(recs, codec=codec)
    assert [Rec(r.key, r.value, r.timestamp) for r in records(data)] == recs
    assert list(timestamps(data)) == [(place, rec.ms) for place, rec in enumerate(recs)]
    assert list(keys(data)) == [(place, rec.key) for place, rec in enumerate(recs)]
    assert keyless(data) == any(rec.key is None for rec in recs)


@given(RECS, CODEC, st.data())
def test_a_batch_that_loses_records_reads_as_before_without_them(
    recs: list[Rec], codec: int, draw: st.DataObject
) -> None:
    data = batch(recs, codec=codec, producer=(7, 1, 40))
    all_of_them = list(records(data))
    kept = draw.draw(st.lists(st.sampled_from(all_of_them), min_size=1, unique=True).map(sorted))
    horizon = draw.draw(st.none() | st.integers(0, 2**42))
    raw = rewritten(header_of(data), kept, horizon)
    one = stored(raw)[0]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records(raw)] == [r[1:5] for r in kept]
    assert (one.base, one.last, one.producer_id, one.sequence, one.count) == (0, len(recs) - 1, 7, 40, len(kept))
    assert header_of(raw).max_timestamp == max(r.timestamp for r in kept)


@given(RECS, CODEC)
def test_an_emptied_batch_keeps_its_offsets_and_its_sequence(recs: list[Rec], codec: int) -> None:
    raw = emptied(header_of(batch(recs, codec=codec, producer=(7, 1, 40))))
    one = stored(raw)[0]
    assert (len(raw), one.base, one.last, one.sequence, one.count) == (61, 0, len(recs) - 1, 40, 0)
    assert list(records(raw)) == []


@given(RECS)
def test_the_time_of_the_append_is_that_of_every_record(recs: list[Rec]) -> None:
    data = bytes(at_append_time(batch(recs), 99))
    assert stored(data)[0].attributes == 8
    assert {r.timestamp for r in records(data)} == {99}


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_what_a_coordinator_writes(commit: bool) -> None:
    ours = bytes(marker(7, 2, commit, 0, 1_700_000_000_000))
    assert ours == end_marker(7, 2, commit, 1_700_000_000_000).replace(b"\xff\xff\xff\xff\x02", b"\0\0\0\0\x02", 1)
    assert (commits(ours), bool(stored(ours)[0].attributes & CONTROL)) == (commit, True)


@given(st.binary(max_size=200), CODEC, st.integers(0, 3))
def test_what_cannot_be_decoded_is_a_value_error(body: bytes, codec: int, count: int) -> None:
    data = whole(codec, body, [Rec(None, None, 0)] * (count + 1), (-1, -1, -1))
    try:
        assert len(list(records(data))) == count + 1
    except ValueError:
        assert keyless(data) or all(key is not None for _, key in keys(data))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_would_be_too_large_is_not_uncompressed(codec: int) -> None:
    bomb = compressed(codec, bytes(MOST_UNPACKED + 1))
    with pytest.raises(ValueError, match="more than"):
        uncompressed(codec, bomb)
    assert len(uncompressed(codec, compressed(codec, bytes(MOST_UNPACKED)))) == MOST_UNPACKED


# The index


def test_a_row_goes_to_the_index_file_when_its_batch_is_durable_and_not_before(tmp_path: Path) -> None:
    segment = Segment(str(tmp_path), 0)
    for base in range(10):
        segment.append(bytes(5000), base, base)
    index = Path(segment.path + ".index")
    assert index.stat().st_size == 0
    segment.flushed(15_000)
    assert index.stat().st_size == 3 * ENTRY.size
    segment.flushed(50_000)
    assert index.stat().st_size == 10 * ENTRY.size


# The thread


def test_a_short_deed_does_not_wait_for_a_long_one() -> None:
    answer: list[object] = []
    short, over = threading.Event(), threading.Event()

    def long() -> Iterator[str | None]:
        while not short.is_set():
            yield None
        yield "after the short one"

    worker = Worker(lambda then, *values: then(*values))
    worker.do_in_steps(long(), answer.append, lambda error: over.set())
    worker.do(short.set, answer.append)
    assert over.wait(20)
    assert answer == [None, "after the short one"]
    worker.close()


def test_what_the_disk_refuses_is_told_and_the_next_deed_is_done() -> None:
    def refuse() -> None:
        raise OSError(28, "full")

    answer: list[OSError | None] = []
    worker = Worker(lambda then, *values: then(*values))
    worker.do(refuse, answer.append)
    worker.do(lambda: None, answer.append)
    worker.close()
    assert [str(error) for error in answer] == ["[Errno 28] full", "None"]


def test_a_long_deed_is_left_where_it_is_when_the_broker_closes() -> None:
    begun, steps = threading.Event(), iter(int, 1)

    def long() -> Iterator[None]:
        for _ in steps:
            begun.set()
            yield None

    worker = Worker(lambda then, *values: then(*values))
    worker.do_in_steps(long(), print, lambda error: None)
    assert begun.wait(20)
    worker.close()


def test_what_is_asked_for_after_the_end_is_done_at_once_and_after_what_came_before() -> None:
    """A broker that closes takes a snapshot of each partition when its thread is gone."""
    done: list[str] = []
    worker = Worker(lambda then, *values: then(*values))
    worker.do(lambda: done.append("before"), print)
    worker.close()
    worker.do(lambda: done.append("after"), lambda error: done.append(f"then: {error}"))
    assert done == ["before", "after", "then: None"]
