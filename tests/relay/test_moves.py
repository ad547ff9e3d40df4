"""What is known of copies, and how much of the log there is, against the dumbest that tells the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.owner.log_span import LogSpan, Volume
from waterclock.relay.wire.moves import Moves, stretches_of
from waterclock.relay.wire.settlement import Move

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
