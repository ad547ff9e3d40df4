"""What a wheel and its handles are as Python objects: what they show, who may refer to them, what is left of them. Whoever
looks right behind a cancel finds nothing of what was taken out, though its place may be made blank later.
"""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from collections.abc import Callable
from typing import Any
from weakref import WeakSet, ref

import pytest

from tests.wheel.array_wheels import ARRAY_WHEELS
from tests.wheel.wheels import WHEELS, Make, nothing

every_wheel = pytest.mark.parametrize("make", WHEELS)
every_kind = pytest.mark.parametrize("make", [*WHEELS, *ARRAY_WHEELS])

METHODS = {
    "add": ["delay", "callback", "argument"],
    "add_at": ["deadline", "callback", "argument"],
    "advance": ["now", "limit"],
    "clear": [],
    "next_deadline": [],
    "statistics": [],
    "occupancy": [],
}


@every_wheel
def test_a_wheel_says_what_it_is_and_when_it_is_due(make: Make) -> None:
    wheel = make(tick=10, start=3)
    assert repr(wheel) == "<TimingWheel, now=3, 0 waiting>"
    wheel.add(22, nothing)
    assert repr(wheel) == "<TimingWheel, now=3, 1 waiting, next=30>"


@pytest.mark.parametrize("make", ARRAY_WHEELS)
def test_a_wheel_of_arrays_does_so_too(make: Make) -> None:
    from array import array

    wheel = make()
    wheel.schedule(array("q", [7, 9]))
    assert repr(wheel) == "<ArrayWheel, now=0, 2 waiting, next=7>"


@every_wheel
def test_a_handle_says_what_waits_and_until_when_and_how_it_ended(make: Make) -> None:
    wheel = make(tick=10)
    handle, other = wheel.add(25, nothing), wheel.add(26, nothing)
    assert repr(handle) == f"<TimerHandle, waiting, deadline=25, callback={nothing!r}>"
    handle.cancel()
    wheel.advance(30)
    assert repr(handle) == "<TimerHandle, cancelled, deadline=25>"
    assert repr(other) == "<TimerHandle, over, deadline=26>"


@every_wheel
def test_a_handle_takes_weak_references_and_they_end_with_it(make: Make) -> None:
    wheel, told = make(), list[str]()
    handle = wheel.add(5, nothing)
    gone, handles = ref(handle, lambda _: told.append("gone")), WeakSet([handle])
    wheel.advance(4)
    assert (gone() is handle, list(handles) == [handle], told) == (True, True, [])
    del handle
    assert (gone() is not None, len(handles)) == (True, 1)  # it waits: its wheel has it
    wheel.advance(5)
    assert (gone(), len(handles), told) == (None, 0, ["gone"])


@every_wheel
def test_weak_references_are_those_of_one_handle_also_where_memory_is_used_again(make: Make) -> None:
    wheel = make()
    for _ in range(3):
        handles = [wheel.add(place, nothing) for place in range(500)]
        weak = [ref(handle) for handle in handles]
        assert [one() for one in weak] == handles
        wheel.advance(wheel.now + 1000)
        del handles
        assert [one() for one in weak if one() is not None] == []


@every_kind
def test_it_is_neither_copied_nor_pickled_or_else_whole(make: Make) -> None:
    """Wheels of arrays have no callbacks: their bytes are a copy that goes on by itself."""
    wheel = make()
    if not hasattr(wheel, "add"):
        assert copy.copy(wheel).to_bytes() == wheel.to_bytes()
        return
    for something in (wheel, wheel.add(5, nothing)):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"^a Tim\w+ is neither copied nor pickled: what waits is called once$"):
                way(something)


@every_wheel
def test_methods_have_signatures(wheel: Any) -> None:
    handle: Any = wheel.add(1, nothing)
    assert {name: list(inspect.signature(getattr(wheel, name)).parameters) for name in METHODS} == METHODS
    for name in ("cancel", "cancelled", "when"):
        assert list(inspect.signature(getattr(handle, name)).parameters) == []
    assert list(inspect.signature(type(wheel)).parameters) == ["tick", "start", "slots", "rounding"]
    assert list(inspect.signature(handle.reschedule).parameters) == ["delay"]


@pytest.mark.parametrize("make", ARRAY_WHEELS)
def test_methods_of_a_wheel_of_arrays_have_signatures(wheel: Any) -> None:
    names = ("schedule", "cancel", "advance", "from_bytes")
    parameters = {name: list(inspect.signature(getattr(wheel, name)).parameters) for name in names}
    assert parameters == {
        "schedule": ["deadlines"],
        "cancel": ["ids"],
        "advance": ["now", "limit"],
        "from_bytes": ["blob"],
    }
    assert list(inspect.signature(type(wheel)).parameters) == ["tick", "start"]


@every_wheel
def test_when_a_wheel_is_gone_its_timers_are_over_and_keep_nothing(make: Make) -> None:
    class Payload:
        pass

    wheel, payload = make(), Payload()
    kept = ref(payload)
    handle, other = wheel.add(5, nothing), wheel.add(5000, id, payload)
    gc.disable()
    try:
        del wheel, payload
        assert kept() is None
    finally:
        gc.enable()
    for one in (handle, other):
        assert (one.pending, one.cancel(), one.cancelled(), one.reschedule(3)) == (False, False, False, False)
    assert (handle.deadline, repr(other)) == (5, "<TimerHandle, over, deadline=5000>")


@every_wheel
def test_a_wheel_that_refers_to_itself_is_collected_with_its_timers(make: Make) -> None:
    def one_that_refers_to_itself() -> Any:
        wheel = make()
        wheel.add(6, wheel.advance)
        return ref(wheel.add(5, lambda: wheel.now))

    handle = one_that_refers_to_itself()
    gc.collect()
    assert handle() is None


FAR = 1 << 30  # all of them in one bucket of a high level
LEFT = [1, 7, 8, 9, 30, 480]  # fewer and more than are made blank later


def turn(wheel: Any, kept: list[Any]) -> None:
    assert wheel.advance(FAR + 1_000) == len(kept)


def turn_in_part(wheel: Any, kept: list[Any]) -> None:
    assert wheel.advance(FAR + 1_000, limit=1) == 1


def look_for_the_next(wheel: Any, kept: list[Any]) -> None:
    assert wheel.next_deadline() == min(handle.deadline for handle in kept)


def take_all(wheel: Any, kept: list[Any]) -> None:
    assert wheel.clear() == kept


def collect(wheel: Any, kept: list[Any]) -> None:
    gc.collect()
    assert len(wheel) == len(kept)


def throw_away(wheel: Any, kept: list[Any]) -> None:
    """The wheel goes with its last reference, which is the caller's."""


LOOKS = [turn, turn_in_part, look_for_the_next, take_all, collect, throw_away]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("make", WHEELS)
def test_who_looks_right_behind_a_cancel_finds_what_waits(
    make: Make, left: int, look: Callable[[Any, list[Any]], None]
) -> None:
    wheel = make()
    handles = [wheel.add(FAR + n, nothing) for n in range(500)]
    kept, gone = handles[left:], handles[:left]
    del handles
    for handle in gone:
        assert handle.cancel()
    del handle, gone[::2]  # of some the memory is given to others
    others = [wheel.add(FAR + 700, nothing) for _ in range(3)]
    look(wheel, kept + others)
    del wheel
    assert not any(handle.pending for handle in gone)


@pytest.mark.parametrize("make", WHEELS)
def test_callbacks_that_cancel_timers_of_their_own_tick_are_the_last_that_run(make: Make) -> None:
    wheel, ran = make(), []
    first = wheel.add(5, lambda: [handle.cancel() for handle in handles[2:]])
    handles = [first, *(wheel.add(5, ran.append, n) for n in range(1, 40))]
    assert wheel.advance(5) == 2
    assert ran == [1]


@pytest.mark.parametrize("make", WHEELS)
def test_a_timer_that_was_moved_within_its_bucket_runs_once_and_in_its_turn(make: Make) -> None:
    wheel, ran = make(), []
    handles = [wheel.add(FAR, ran.append, n) for n in range(100)]
    for handle in handles[:10]:
        assert handle.reschedule(FAR)
    assert wheel.advance(FAR) == 100
    assert ran == [*range(10, 100), *range(10)]


@pytest.mark.parametrize("make", WHEELS)
def test_timers_that_get_the_places_of_those_that_left_a_bucket_empty_are_there(make: Make) -> None:
    wheel, ran = make(), []
    gone = [wheel.add(FAR, nothing) for _ in range(5)]
    others = [wheel.add(3, ran.append, -1)]
    for handle in gone:
        assert handle.cancel()
    others += [wheel.add(300, ran.append, n) for n in range(5)]
    assert wheel.advance(300) == len(others)
    assert ran == [-1, *range(5)]
