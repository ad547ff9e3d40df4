"""A request that does not fit a read: what it holds grows with what arrives."""

from __future__ import annotations

import pytest

from waterclock.broker.net.limits import LEAST, MOST_GROWTH, Frame

MANY = 100 << 20


def claiming(size: int, have: int) -> memoryview:
    """The first bytes of a request of so many."""
    return memoryview(size.to_bytes(4, "big", signed=True) + bytes(have))


def fill(frame: Frame) -> None:
    def all_of(free: memoryview) -> int:
        free[:] = b"x" * len(free)
        return len(free)

    frame.receive(all_of)


def test_it_grows_by_what_is_there_and_never_by_what_is_claimed() -> None:
    frame = Frame(claiming(MANY, 10), MANY)
    held = [len(frame)]
    while held[-1] < 4 * MOST_GROWTH:
        fill(frame)
        assert frame.filled
        assert frame.grow() == min(held[-1], MOST_GROWTH)
        held.append(len(frame))
    assert held[:4] == [LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST]


def test_it_is_whole_with_its_last_byte_and_holds_no_more() -> None:
    frame = Frame(claiming(LEAST, 1), MANY)
    fill(frame)
    assert (frame.filled, frame.whole) == (True, False)
    frame.grow()
    fill(frame)
    assert frame.whole
    assert bytes(frame.bytes()) == LEAST.to_bytes(4, "big") + b"\0" + b"x" * (LEAST - 1)


def test_without_its_size_it_is_the_size_that_arrives() -> None:
    frame = Frame(memoryview(b"\0\0"), MANY)
    fill(frame)
    assert (frame.whole, len(frame)) == (True, 4)


@pytest.mark.parametrize("size", [-1, MANY + 1])
def test_one_that_claims_less_than_nothing_or_too_much_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a request of {size} bytes; {MANY} are allowed"):
        Frame(claiming(size, 0), MANY)
