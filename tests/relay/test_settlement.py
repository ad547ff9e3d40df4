"""The records of TOPIC.settled: what was written is read, anything else is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.relay.store import State
from waterclock.relay.wire.settlement import (
    MOST,
    Move,
    NoSettlement,
    SettledSnapshot,
    mark_of,
    move_of,
    part_of,
    settlement_of,
    settlements,
)

MARK = mark_of("an id")


@given(st.lists(st.integers(0, 2**62), max_size=20), st.sampled_from([State.FIRED, State.CANCELLED, State.MOVED]))
def test_what_is_written_is_read(origins: list[int], state: State) -> None:
    (value,) = settlements(state, np.array(origins, "<i8"), 12, MARK)
    told = settlement_of(value)
    assert (told.state, told.command_position, told.mark, told.origins.tolist()) == (state, 12, MARK, origins)


def test_many_origins_are_several_records_each_below_a_topics_limit() -> None:
    values = list(settlements(State.FIRED, np.arange(2 * MOST + 1), 12, MARK))
    assert [len(settlement_of(value).origins) for value in values] == [MOST, MOST, 1]
    assert max(map(len, values)) < 1_000_000


# a record of each kind that stands in TOPIC.settled, and who reads it
KINDS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "settlement": (next(settlements(State.FIRED, np.array([5, 7], "<i8"), 12, MARK)), settlement_of),
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
