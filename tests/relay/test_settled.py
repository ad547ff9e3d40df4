"""What is settled, read from TOPIC.settled without files: the same that the files of a relay have."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.store.origins import CHUNK, Origins, SpanSlots, State
from waterclock.relay.wire.settlement import (
    Move,
    SettledOrigins,
    SettledSnapshot,
    Settlement,
    SnapshotPart,
    mark_of,
    part_of,
)

MARK, OTHER = mark_of("an id"), mark_of("another")
PLACES = st.lists(st.integers(0, 4 * CHUNK), max_size=8)


def settlement(*origins: int, mark: bytes = MARK) -> Settlement:
    return Settlement(State.FIRED, 12, mark, np.array(origins, "<i8"))


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
    files.settle(np.unique(np.array(before, "<i8")), State.FIRED, range(0))
    for part in parts(SettledSnapshot(1, 12, end, 0, [], chunks)):
        settled.take(part)
    below = end - end % CHUNK
    for number in {*chunks, *files.numbers(below)}:
        given = np.frombuffer(zlib.decompress(chunks[number]), "u1") if number in chunks else None
        files.begin_with(number, given)
    files.settled_below = below
    settled.take(settlement(*behind))
    files.settle(np.unique(np.array(behind, "<i8")), State.FIRED, range(0))
    asked = np.array([*before, *behind, *(n * CHUNK + d for n in range(4) for d in (0, 3, 4, 4_000, CHUNK - 1))], "<i8")
    hoped = (files.values(asked) > State.UNKNOWN).tolist()
    assert [settled.state(origin) > State.UNKNOWN for origin in asked.tolist()] == hoped


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
