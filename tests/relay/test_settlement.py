"""TOPIC.settled: what was written is read, anything else is refused with a reason; read without files it says what the
files of a relay say; and what is known of copies, against the dumbest that says the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.owner.log_span import LogSpan, Volume
from waterclock.relay.store.origins import CHUNK, Origins, SpanSlots, State
from waterclock.relay.wire.moves import Moves, stretches_of
from waterclock.relay.wire.settlement import (
    MOST,
    Move,
    NoSettlement,
    SettledOrigins,
    SettledSnapshot,
    Settlement,
    SnapshotPart,
    mark_of,
    move_of,
    part_of,
    settlement_of,
    settlements,
)

MARK = mark_of("an id")


@given(st.lists(st.integers(0, 2**62), max_size=20), st.sampled_from([State.DELIVERED, State.CANCELLED, State.MOVED]))
def test_what_is_written_is_read(origins: list[int], state: State) -> None:
    (value,) = settlements(state, np.array(origins, "<i8"), 12, MARK)
    told = settlement_of(value)
    assert (told.state, told.command_position, told.mark, told.origins.tolist()) == (state, 12, MARK, origins)


def test_many_origins_are_several_records_each_below_a_topics_limit() -> None:
    values = list(settlements(State.DELIVERED, np.arange(2 * MOST + 1), 12, MARK))
    assert [len(settlement_of(value).origins) for value in values] == [MOST, MOST, 1]
    assert max(map(len, values)) < 1_000_000


# a record of each kind that stands in TOPIC.settled, and who reads it
KINDS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "settlement": (next(settlements(State.DELIVERED, np.array([5, 7], "<i8"), 12, MARK)), settlement_of),
    "move": (Move(12, 9, MARK, [(20, 23), (30, 31)]).packed(), move_of),
    "snapshot": (SettledSnapshot(4, 12, 70_000, 9, [(20, 23)], {0: b"states"}).parts(MARK)[0], part_of),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_single_wrong_byte_is_noticed(kind: str, data: st.DataObject) -> None:
    value, read = KINDS[kind]
    at = data.draw(st.integers(0, len(value) - 1))
    wrong = bytearray(value)
    wrong[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NoSettlement):
        read(bytes(wrong))


@pytest.mark.parametrize("value", [b"", b"wcsettle", b"wcmoved\n", b"wcsnaps\n", bytes(80)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_none_is_told_so(kind: str, value: bytes) -> None:
    with pytest.raises(NoSettlement, match="does not begin as a settlement does"):
        KINDS[kind][1](value)


def test_a_record_without_a_value_is_no_settlement() -> None:
    with pytest.raises(NoSettlement, match="does not begin as a settlement does"):
        settlement_of(None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_version_is_told_from_a_damaged_record(kind: str) -> None:
    value, read = KINDS[kind]
    with pytest.raises(NoSettlement) as raised:
        read(value[:8] + b"\x02" + value[9:])
    assert raised.value.later


OTHER = mark_of("another")
PLACES = st.lists(st.integers(0, 4 * CHUNK), max_size=8)


def settlement(*origins: int, mark: bytes = MARK) -> Settlement:
    return Settlement(State.DELIVERED, 12, mark, np.array(origins, "<i8"))


def parts(snapshot: SettledSnapshot, mark: bytes = MARK) -> list[SnapshotPart]:
    return [part_of(value) for value in snapshot.parts(mark)]


def chunk(*settled: int) -> bytes:
    states = np.zeros(CHUNK, "u1")
    states[list(settled)] = State.CANCELLED
    return zlib.compress(states.tobytes())


@given(PLACES, PLACES, st.sets(st.integers(0, 3)), st.integers(0, 4 * CHUNK))
def test_it_has_what_the_files_have_after_the_same_snapshot(
    before: list[int], behind: list[int], named: set[int], end: int
) -> None:
    """`OriginLedger.begin_with` is what the files make of it."""
    chunks = {number: chunk(3, 5, 4_000) for number in named if number * CHUNK < end}
    settled, files = SettledOrigins(MARK, 1), Origins(SpanSlots())
    settled.take(settlement(*before))
    files.settle(np.unique(np.array(before, "<i8")), State.DELIVERED, range(0))
    for part in parts(SettledSnapshot(1, 12, end, 0, [], chunks)):
        settled.take(part)
    below = end - end % CHUNK
    for number in {*chunks, *files.numbers(below)}:
        given = np.frombuffer(zlib.decompress(chunks[number]), "u1") if number in chunks else None
        files.begin_with(number, given)
    files.settled_below = below
    settled.take(settlement(*behind))
    files.settle(np.unique(np.array(behind, "<i8")), State.DELIVERED, range(0))
    looked_up = np.array(
        [*before, *behind, *(n * CHUNK + d for n in range(4) for d in (0, 3, 4, 4_000, CHUNK - 1))], "<i8"
    )
    hoped = (files.values(looked_up) > State.UNKNOWN).tolist()
    assert [settled.state(origin) > State.UNKNOWN for origin in looked_up.tolist()] == hoped


def test_what_was_cut_off_is_known_through_a_snapshot_that_covers_it_and_through_no_other() -> None:
    settled = SettledOrigins(MARK, 100)
    assert not settled.is_known
    snapshots = [SettledSnapshot(at, 0, 0, 0, [], {}) for at in (99, 100)]
    for snapshot, is_known in zip(snapshots, (False, True), strict=True):
        for part in parts(snapshot):
            settled.take(part)
        assert settled.is_known is is_known
    assert SettledOrigins(MARK, 0).is_known


def test_that_of_an_earlier_input_settles_nothing_and_says_that_nothing_was_cut_off() -> None:
    settled = SettledOrigins(MARK, 100)
    for part in parts(SettledSnapshot(100, 7, 4 * CHUNK, 9, [(1, 2)], {}), OTHER):
        settled.take(part)
    settled.take(settlement(5, mark=OTHER))
    settled.take(Move(7, 9, OTHER, [(1, 2)]))
    assert (settled.is_known, settled.answered, settled.state(5)) == (True, -1, State.UNKNOWN)
    assert (settled.moves.swept, settled.moves.end) == (0, 0)


def test_a_snapshot_tells_what_was_moved_and_how_far_commands_are_answered() -> None:
    settled = SettledOrigins(MARK, 100)
    for part in parts(SettledSnapshot(100, 77, 50, 40, [(45, 50)], {0: chunk(41)})):
        settled.take(part)
    assert (settled.answered, settled.moves.swept, settled.moves.end) == (77, 40, 50)
    assert [settled.state(origin) for origin in (41, 42)] == [State.CANCELLED, State.UNKNOWN]
    settled.take(Move(80, 44, MARK, [(60, 61)]))
    assert (settled.answered, settled.moves.swept, settled.moves.end) == (80, 44, 61)


OFFSETS = st.sets(st.integers(0, 60))


@given(st.lists(OFFSETS, max_size=6), st.integers(0, 70))
def test_copies_are_known_in_whatever_order_and_however_often_they_are_told_of(told: list[set[int]], low: int) -> None:
    moves = Moves()
    for some in told:
        moves.note(0, stretches_of(sorted(some)))
    known = set().union(*told)
    moves.forget(low)
    expected = [offset in known for offset in range(low, 70)]
    assert [moves.is_copy(offset) for offset in range(low, 70)] == expected
    for offset in range(low, 70):
        assert moves.next_copy(offset) == min((one for one in known if one >= offset), default=None)
    assert [offset for start, end in moves.stretches for offset in range(start, end) if offset >= low] == sorted(
        one for one in known if one >= low
    )


def test_the_swept_mark_never_falls() -> None:
    moves = Moves()
    moves.note(9, [])
    moves.note(5, [])
    assert moves.swept == 9


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10_000)), min_size=1, max_size=3_000), st.data())
def test_bytes_since_an_offset_lie_between_those_of_its_neighbours(
    grown: list[tuple[int, int]], data: st.DataObject
) -> None:
    volume, end, sums = Volume(), 0, {0: 0}
    for count, size in grown:
        volume.grow(end + count, size)
        sums[end + count] = sums[end] + size
        end += count
    assert (volume.since(0), volume.since(end)) == (sums[end], 0)
    offset = data.draw(st.integers(0, end))
    assert volume.since(0) >= volume.since(offset) >= volume.since(end)
    if len(grown) < 2_000 and offset in sums:
        assert volume.since(offset) == sums[end] - sums[offset]
    volume.forget(offset)
    if len(grown) < 2_000 and offset in sums:
        assert volume.since(offset) == sums[end] - sums[offset]


def test_what_a_checkpoint_has_of_it_is_what_was_there() -> None:
    log_span = LogSpan()
    log_span.volume.grow(40, 4_000)
    log_span.moved(Move(12, 9, bytes(8), [(20, 23), (30, 31)]))
    log_span.snapshotted(7, 500)
    log_span.unsaved, log_span.answered = 60, 8
    found = LogSpan.of(log_span.notes())
    assert (found.notes(), found.answered) == (log_span.notes(), 8)
    assert (found.moves.swept, found.moves.stretches) == (9, [(20, 23), (30, 31)])
    assert found.volume.since(20) == 2_000
