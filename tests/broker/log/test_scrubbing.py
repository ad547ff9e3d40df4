"""A segment read again: whatever is damaged is found, the offsets lost are exactly those, and the rest stays readable."""

from __future__ import annotations

import os
import random
import struct
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("kio")

from tests.broker.log.damage import NOW, append, compact, flush
from tests.broker.record_batches import Rec, batch, stored
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import scrubbing
from waterclock.broker.log.batch import BASE
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.scrubbing import Damage, Segment, SegmentScrub, sound_bytes
from waterclock.broker.settings import Settings, TopicSettings

SETTINGS = TopicSettings(Settings({"log.segment.bytes": "30000"}))
COMPACTED = TopicSettings(Settings({"log.segment.bytes": "30000"}), {"cleanup.policy": "compact"})


def opened(folder: Path, settings: TopicSettings = SETTINGS) -> Partition:
    return open_partition("t", 0, str(folder), settings)


def fill(log: Partition, dice: random.Random, most: int = 900) -> Partition:
    """Two closed segments and one that is written to, of batches of one to three records of any size."""
    while len(log.segments) < 3:
        rows = [
            Rec(b"%d" % dice.randrange(90), dice.randbytes(dice.randint(0, most)), NOW)
            for _ in range(dice.randint(1, 3))
        ]
        append(log, *rows)
    flush(log)
    return log


@pytest.fixture
def log(tmp_path: Path) -> Partition:
    return fill(opened(tmp_path), random.Random(1))


def places(segment: Segment) -> list[tuple[int, int, int, int]]:
    """Byte, end, first and last offset of each batch, before anything is damaged."""
    return [(at, at + 12 + one.length, one.base, one.last) for at, one in segment.headers()]


def scrub(log: Partition, number: int) -> list[Damage]:
    """What a scrub finds in a segment; the segment knows it then."""
    segment = log.segments[number]
    end = log.segments[number + 1].base if number + 1 < len(log.segments) else log.durable
    work = SegmentScrub(segment, segment.durable, end)
    while not work.done:
        for _ in work.steps(5000):
            pass
    segment.know(work.damages, work.latest, grows=segment is log.active)
    return work.damages


def overwrite(segment: Segment, at: int, data: bytes) -> None:
    os.pwrite(segment.fd, data, at)


def readable(log: Partition, limit: int) -> set[int]:
    """The offsets of all batches that readers get who go on behind each error; what they get is whole."""
    found: set[int] = set()
    offset = log.start
    while offset < log.high:
        try:
            records = log.read(offset, limit, log.high)
        except LogDamaged:
            offset += 1
            continue
        assert records is not None
        for one in stored(records.read()):
            found |= set(range(one.base, one.last + 1))
            offset = max(offset, one.last + 1)
    return found


# What is found


def test_nothing_is_found_where_nothing_is_damaged(log: Partition) -> None:
    assert [scrub(log, number) for number in range(3)] == [[], [], []]


@pytest.mark.parametrize("place", range(12, 61))
def test_a_flipped_bit_of_a_header_costs_its_batch_and_no_other(log: Partition, place: int) -> None:
    segment = log.segments[0]
    batches = places(segment)
    at, end, first, last = batches[len(batches) // 2]
    overwrite(segment, at + place, bytes([os.pread(segment.fd, 1, at + place)[0] ^ 4]))
    expected = [] if place < 16 else [Damage(at, end, first, last + 1)]  # a leader's epoch has no checksum
    assert scrub(log, 0) == expected


@pytest.mark.parametrize("wrong", [-1_000_000, -3, -1, 1, 2, 40, 2**40, -(2**62)])
def test_so_does_an_offset_that_does_not_follow(log: Partition, wrong: int) -> None:
    segment = log.segments[0]
    batches = places(segment)
    at, end, first, last = batches[len(batches) // 2]
    overwrite(segment, at, BASE.pack(first + wrong))
    assert scrub(log, 0) == [Damage(at, end, first, last + 1)]


@pytest.mark.parametrize("length", [0, 1, 48, 49, 200, 1 << 19, 1 << 30, -1, -(2**31)])
def test_and_a_length_that_is_none(log: Partition, length: int) -> None:
    segment = log.segments[0]
    at, end, first, last = places(segment)[7]
    overwrite(segment, at + 8, struct.pack(">i", length))
    assert scrub(log, 0) == [Damage(at, end, first, last + 1)]


def test_a_run_of_zeros_costs_the_batches_that_it_touches(log: Partition) -> None:
    segment = log.segments[1]
    batches = places(segment)
    hit = [row for row in batches if row[1] > 9000 and row[0] < 9000 + 4096]
    overwrite(segment, 9000, bytes(4096))
    assert scrub(log, 1) == [Damage(hit[0][0], hit[-1][1], hit[0][2], hit[-1][3] + 1)]


@pytest.mark.parametrize("keep", [0, 20_000])
def test_all_to_the_end_may_be_gone(log: Partition, keep: int) -> None:
    segment = log.segments[0]
    lost = next(row for row in places(segment) if row[1] > keep)
    overwrite(segment, keep, bytes(segment.size - keep))
    assert scrub(log, 0) == [Damage(lost[0], segment.size, lost[2], log.segments[1].base)]
    index = Path(segment.path + ".index").read_bytes()
    segment.__dict__.pop("index", None)
    assert readable(log, 1 << 20) == {*range(lost[2]), *range(log.segments[1].base, log.end)}
    assert Path(segment.path + ".index").read_bytes() == index
    assert segment.tail == (log.segments[1].base, NOW if keep else -1)  # retention asks for it


def test_a_whole_batch_between_two_with_flipped_bits_is_kept(tmp_path: Path) -> None:
    """All three stand in one interval of the index: the damaged headers say where they end."""
    log = fill(opened(tmp_path), random.Random(7), 60)
    segment = log.segments[0]
    _, first, _, second, _ = rows = places(segment)[10:15]
    for _, end, _, _ in (first, second):
        overwrite(segment, end - 3, bytes([os.pread(segment.fd, 1, end - 3)[0] ^ 1]))
    assert rows[-1][1] - rows[0][0] < 4096
    assert scrub(log, 0) == [Damage(at, end, one, last + 1) for at, end, one, last in (first, second)]


def test_the_index_of_a_damaged_segment_stays_as_it_is(log: Partition) -> None:
    """Where the last batch is not one, the end is looked for in the whole log: that emptied the index, for nothing."""
    segment = log.segments[0]
    index = Path(segment.path + ".index").read_bytes()
    at, _, first, _ = places(segment)[-1]
    overwrite(segment, at, bytes(segment.size - at))
    segment.__dict__.pop("tail", None)
    segment.unread = segment.size  # as after a start
    assert readable(log, 1 << 20) == {*range(first), *range(log.segments[1].base, log.end)}
    assert Path(segment.path + ".index").read_bytes() == index


def test_a_file_that_was_cut_while_it_was_open_is_damaged_from_there(log: Partition) -> None:
    segment = log.segments[0]
    lost = next(row for row in places(segment) if row[1] > 12_345)
    os.truncate(segment.path + ".log", 12_345)
    assert scrub(log, 0) == [Damage(lost[0], segment.size, lost[2], log.segments[1].base)]


def test_bytes_that_the_disk_refuses_are_damaged(log: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    segment, real = log.segments[0], os.pread
    at, _, first, last = next(row for row in places(segment) if row[0] > 10_000)

    def refuse(fd: int, size: int, place: int) -> bytes:
        if fd == segment.fd and place < at + 100 and place + size > at + 99:
            raise OSError(5, "Input/output error")
        return real(fd, size, place)

    monkeypatch.setattr(os, "pread", refuse)
    found = scrub(log, 0)
    assert len(found) == 1
    assert found[0].first <= first <= last < found[0].end


def test_the_part_of_the_last_segment_that_is_durable_is_read_too(tmp_path: Path) -> None:
    log = fill(opened(tmp_path), random.Random(3))
    for _ in range(20):
        append(log, Rec(b"k", b"v" * 300, NOW))
    flush(log)
    at, end, first, last = places(log.active)[-2]
    overwrite(log.active, at + 30, b"\xff\xff")
    assert scrub(log, 2) == [Damage(at, end, first, last + 1)]


def test_a_batch_that_a_client_sent_inside_of_a_record_is_not_taken_for_one(tmp_path: Path) -> None:
    """Its offset is right, and so is its checksum: but no whole batches lead from it to the next row of the index."""
    log = opened(tmp_path)
    for _ in range(9):
        inner = bytearray(batch([Rec(b"k", b"forged", NOW)]))
        BASE.pack_into(inner, 0, log.end)
        append(log, Rec(b"k", b"before" + bytes(inner) + b"v" * 700, NOW))
    flush(log)
    at, end, first, last = places(log.active)[4]
    overwrite(log.active, at + 8, b"\0\0\0\0")
    assert scrub(log, 0) == [Damage(at, end, first, last + 1)]


def test_gaps_that_a_compaction_left_are_no_damage(tmp_path: Path) -> None:
    log = fill(opened(tmp_path, COMPACTED), random.Random(5), 200)
    compact(log)
    segment = log.segments[0]
    batches = places(segment)
    assert any(after[2] > before[3] + 1 for before, after in pairwise(batches))
    assert [scrub(log, number) for number in range(len(log.segments))] == [[]] * len(log.segments)
    at, end, first, last = batches[-2]
    overwrite(segment, at + 61, b"\xff\xff\xff\xff\xff")
    (found,) = scrub(log, 0)
    assert (found.at, found.upto) == (at, end)
    assert found.first <= first <= last < found.end <= batches[-1][2]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_damaged_readers_get_everything_else_and_nothing_that_is_not_whole(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    log = fill(opened(tmp_path), dice)
    number = dice.randrange(2)
    segment = log.segments[number]
    batches, before = places(segment), os.pread(segment.fd, segment.size, 0)
    several = dice.choice((1, 1, 2, 3))
    for _ in range(several):
        at, size = dice.randrange(segment.size - 5000), dice.choice((1, 16, 100, 4096))
        data = dice.choice((bytes(size), dice.randbytes(size), b"\2" * size))
        overwrite(segment, at, data)
    now = os.pread(segment.fd, segment.size, 0)
    hit = [row for row in batches if without_epoch(before[row[0] : row[1]]) != without_epoch(now[row[0] : row[1]])]
    lost = {offset for _, _, first, last in hit for offset in range(first, last + 1)}
    found = {offset for one in scrub(log, number) for offset in range(one.first, one.end)}
    assert found == lost if several == 1 else found >= lost, (
        seed
    )  # a whole batch between two damaged ones may go with them
    for limit in (1, 3000, 1 << 20):
        assert readable(log, limit) == set(range(log.end)) - found, seed


def without_epoch(data: bytes) -> bytes:
    """A batch without its leader's epoch, which has no checksum."""
    return data[:12] + data[16:]


# What goes out before the scrub has come there


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (8, b"\0\0\0\0"),
        (8, b"\0\0\0\x30"),
        (8, b"\x7f\0\0\0"),
        (8, b"\xff" * 4),
        (0, bytes(8)),
        (16, b"\0"),
        (23, b"\xff" * 4),
        (17, b"\xff" * 4),
        (61, bytes(100)),
    ],
)
def test_an_answer_ends_before_the_first_batch_that_is_not_whole(log: Partition, place: int, data: bytes) -> None:
    segment = log.segments[0]
    at = places(segment)[9][0]
    overwrite(segment, at + place, data)
    segment.unread = segment.size
    assert sound_bytes(segment, 0, segment.size) == at
    if place:  # an offset alone says nothing: it is the one before that it must follow
        with pytest.raises(LogDamaged, match=f"is broken at byte {at} of"):
            sound_bytes(segment, at, segment.size - at)


def test_a_header_of_another_format_is_an_error_for_who_looks_for_its_offset(log: Partition) -> None:
    segment = log.segments[0]
    at, _, first, _ = places(segment)[9]
    overwrite(segment, at + 16, b"\0")
    segment.unread = 0
    with pytest.raises(LogDamaged, match=f"is broken at byte {at} of"):
        log.read(first, 1, log.high)


def test_one_answer_is_no_longer_than_what_was_looked_at_or_its_first_batch(
    log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = log.segments[0]
    segment.unread = segment.size
    monkeypatch.setattr(scrubbing, "LOOKED_AT", 5000)
    ends = [end for _, end, _, _ in places(segment)]
    assert sound_bytes(segment, 0, segment.size) == max(end for end in ends if end <= 5000)
    monkeypatch.setattr(scrubbing, "LOOKED_AT", ends[0] - 1)
    assert sound_bytes(segment, 0, segment.size) == ends[0]
