"""A closed segment's index: it is looked up in its file, takes no memory, and a row that is damaged is found again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.log.damage import NOW, append, flush
from tests.broker.record_batches import Rec, stored
from waterclock.broker.log import compaction
from waterclock.broker.log.index import ENTRY, SALT, Index, StoredIndex, last_row
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.producers import AbortedTransaction, AbortedTransactions
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.times import first_at
from waterclock.broker.settings import Settings, TopicSettings

COUNT = 60


@pytest.fixture
def settings() -> TopicSettings:
    settings = TopicSettings(Settings({"log.segment.bytes": "20000"}))
    settings.replace({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    return settings


@pytest.fixture
def log(tmp_path: Path, settings: TopicSettings) -> Partition:
    """A durable log of 60 batches of a kilobyte, every third of them with a key that comes again."""
    log = open_partition("t", 0, str(tmp_path), settings)
    for number in range(COUNT):
        key = b"again" if number % 3 == 0 else b"%d" % number
        append(log, Rec(key, b"%d" % (number % 10) * 1000, NOW + number))
    flush(log)
    assert log.end == COUNT
    assert len(log.segments) == 4
    return log


def with_a_row_to_come(log: Partition) -> Segment:
    """The active segment, with records that are not durable, nor is their row of the index in its file."""
    for _ in range(2):
        append(log, Rec(b"k", b"v" * 5000, NOW))
    return log.active


def first_read(log: Partition, offset: int) -> int:
    """The offset of the first batch that a reader from there gets."""
    found = log.read(offset, 1, log.high)
    assert found is not None
    assert log.bound(found) > offset
    return stored(found.read())[0].base


def in_memory(log: Partition) -> list[int]:
    return [segment.base for segment in log.segments if "index" in vars(segment)]


# In the file


def test_only_the_segment_that_grows_has_its_index_in_memory(log: Partition, settings: TopicSettings) -> None:
    for opened in (log, open_partition("t", 0, log.folder, settings)):
        assert [first_read(opened, offset) for offset in range(COUNT)] == list(range(COUNT))
        assert [first_at(opened, NOW + n, opened.high).offset for n in range(COUNT)] == list(range(COUNT))
        assert in_memory(opened) == [opened.active.base]


def test_a_segment_that_is_rolled_before_it_is_durable_keeps_its_index_until_then(log: Partition) -> None:
    before = with_a_row_to_come(log)
    log.roll()
    assert in_memory(log) == [before.base]
    flush(log)
    assert in_memory(log) == []
    assert first_read(log, COUNT) == COUNT


def test_a_segment_that_is_durable_when_it_is_rolled_has_no_index_in_memory_from_then_on(log: Partition) -> None:
    log.roll()
    assert in_memory(log) == []
    assert first_read(log, COUNT - 1) == COUNT - 1


def test_what_the_disk_refused_stays_in_memory(log: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    before = with_a_row_to_come(log)
    log.roll()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: 0)
        flush(log)
    assert in_memory(log) == [before.base]
    assert first_read(log, COUNT) == COUNT


ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(4096, 9000), st.integers(0, 3)), max_size=40)


@given(ROWS, st.integers(-3, 400), st.integers(-3, 400_000), st.integers(-3, 130))
def test_the_file_answers_as_the_memory_does(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], offset: int, byte: int, latest: int
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "0.index")
    held, base, at, time = Index(path, 5), 5, 0, -1
    Path(path).touch()
    for step, size, later in rows:
        held.note(base, at, time)
        base, at, time = base + step, at + size, time + later
    held.save(at + 1)
    kept = StoredIndex(path, 5, None, lambda: pytest.fail("no row is damaged"))
    assert kept.before_offset(offset) == held.before_offset(offset)
    assert kept.before_byte(byte) == held.before_byte(byte)
    assert kept.offset_after(byte) == held.offset_after(byte)
    assert kept.before_time(latest) == held.before_time(latest)


def test_a_lookup_reads_a_few_rows_and_not_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Index(str(tmp_path / "0.index"), 0)
    for number in range(100_000):
        held.note(number, number * 4096, number)
    held.save(1 << 60)
    read: list[int] = []
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        read.append(size)
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    kept = StoredIndex(str(tmp_path / "0.index"), 0, None, lambda: pytest.fail("no row is damaged"))
    assert kept.before_offset(77_777) == 77_777 * 4096
    assert sum(read) <= 20 * ENTRY.size


# Damage


@pytest.mark.parametrize("row", [0, 1, 2, 3])
@pytest.mark.parametrize("damage", ["one bit", "gone", "short"])
def test_a_row_that_is_damaged_while_the_log_is_open_is_found_again(log: Partition, row: int, damage: str) -> None:
    closed = log.segments[1]
    assert first_read(log, closed.base) == closed.base
    path = Path(closed.path + ".index")
    whole = path.read_bytes()
    if damage == "one bit":
        broken = bytearray(whole)
        broken[ENTRY.size * row + 9] ^= 4
        path.write_bytes(broken)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[: ENTRY.size * row + 7])
    offsets = range(closed.base, log.segments[2].base)
    assert [first_read(log, offset) for offset in offsets] == list(offsets)
    assert damage == "short" or path.read_bytes() == whole
    assert in_memory(log) == [log.active.base]


def test_rows_that_a_crash_took_from_a_closed_segment_are_written_again(
    log: Partition, settings: TopicSettings
) -> None:
    path = Path(log.segments[1].path + ".index")
    whole = path.read_bytes()
    os.truncate(path, len(whole) - 2 * ENTRY.size)
    again = open_partition("t", 0, log.folder, settings)
    assert [first_read(again, offset) for offset in range(COUNT)] == list(range(COUNT))
    assert path.read_bytes() == whole
    assert in_memory(again) == [again.active.base]


@pytest.mark.parametrize("place", range(ENTRY.size))
def test_the_last_row_is_believed_only_with_its_check(log: Partition, place: int) -> None:
    closed = log.segments[1]
    path = Path(closed.path + ".index")
    whole = bytearray(path.read_bytes())
    row = last_row(str(path), closed.base)
    assert row == (closed.index.bases[-1], closed.index.at[-1], closed.index.times[-1])
    assert last_row(str(path), closed.base - 1) is None  # another segment's
    whole[place - ENTRY.size] ^= 1
    path.write_bytes(whole)
    assert last_row(str(path), closed.base) is None


def test_a_last_row_with_a_right_check_and_a_wrong_place_is_not_believed(tmp_path: Path) -> None:
    for base, at in ((4, 0), (5, -1)):
        path = tmp_path / "0.index"
        path.write_bytes(ENTRY.pack(base, at, 0, base ^ at ^ SALT ^ 5))
        assert last_row(str(path), 5) is None


# Beside a compaction


def test_who_reads_old_segments_while_their_files_are_swapped_finds_what_was_there(log: Partition) -> None:
    log.roll()
    flush(log)
    plan = compaction.plan(log, NOW)
    assert plan is not None
    old = list(log.segments)
    steps = compaction.Compaction(plan).steps()
    swapped = next(step for step in steps if step is not None)
    assert log.segments == old  # the loop has not heard of it
    assert [first_read(log, offset) for offset in range(swapped.upto)] == list(range(swapped.upto))
    compaction.adopt(log, swapped)
    assert first_read(log, 0) == 1
    assert first_read(log, swapped.upto - 1) == swapped.upto - 1
    assert in_memory(log) == []


def test_an_index_is_not_held_open_after_a_compaction_that_failed(log: Partition) -> None:
    log.roll()
    flush(log)
    plan = compaction.plan(log, NOW)
    assert plan is not None
    work = compaction.Compaction(plan)
    assert len(indexes_open(log)) == 4
    work.leave()
    assert indexes_open(log) == []
    assert first_read(log, 7) == 7


def indexes_open(log: Partition) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(log.folder) and path.endswith(".index")]


# Aborted transactions


class Looked(AbortedTransaction):
    """A row that counts how often its first offset is looked at."""

    count = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "first":
            Looked.count += 1
        return super().__getattribute__(name)


def test_a_reader_of_old_records_does_not_pay_for_later_transactions() -> None:
    aborted = AbortedTransactions()
    for number in range(10_000):
        aborted.add(Looked(number, 10 * number, 10 * number + 5), 0)
    Looked.count = 0
    assert [row.producer_id for row in aborted.between(1_000, 1_030)] == [100, 101, 102]
    assert Looked.count <= 10


def test_a_long_transaction_is_told_of_to_who_reads_its_start_though_later_ones_ended_before() -> None:
    aborted, rows = (
        AbortedTransactions(),
        [AbortedTransaction(1, 24, 25), AbortedTransaction(2, 40, 41), AbortedTransaction(3, 0, 50)],
    )
    for row in rows:
        aborted.add(row, 0)
    assert aborted.between(0, 3) == rows[2:]
    aborted.forget(0, 100)
    assert aborted.between(0, 3) == rows[2:]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), max_size=60), st.integers(0, 200), st.integers(0, 200)
)
def test_a_reader_is_told_of_every_transaction_that_concerns_it(
    some: list[tuple[int, int]], first: int, upto: int
) -> None:
    aborted, rows, marker = AbortedTransactions(), list[AbortedTransaction](), 0
    for number, (step, length) in enumerate(some):
        marker += step
        rows.append(AbortedTransaction(number, max(0, marker - length), marker))
        aborted.add(rows[-1], 0)
    concern = [row for row in rows if row.last >= first and row.first < upto]
    assert aborted.between(first, upto) == concern
    aborted.forget(first, upto)
    kept = [row for row in rows if first <= row.last < upto]
    assert aborted.between(0, 1 << 60) == kept
    assert aborted.between(first, first + 1) == [row for row in kept if row.first <= first]
