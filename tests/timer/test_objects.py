"""What a driver and its handles are as Python objects: what they show, who may refer to them; no copies."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any
from weakref import ref

import pytest

from tests.timer.timers import Make, by_hand, every_driver, nothing
from waterclock import AsyncTimer, DelayedOperation, IdleTimeout, ManualClock, Purgatory, SystemClock, Timer


def name_of(make: Any) -> str:
    return str(make.__name__)


@every_driver
def test_a_driver_says_how_many_wait_and_when_the_next_is_due(make: Make) -> None:
    timer = by_hand(make)
    assert repr(timer) == f"<{name_of(make)}, 0 waiting>"
    timer.call_later(1.5, nothing)
    timer.call_later(2.5, nothing)
    assert repr(timer) == f"<{name_of(make)}, 2 waiting, next=1.5>"
    timer.pause()
    assert repr(timer) == f"<{name_of(make)}, paused, 2 waiting, next=1.5>"
    timer.close()
    assert repr(timer) == f"<{name_of(make)}, closed, 0 waiting>"


@every_driver
def test_a_handle_says_when_in_seconds_and_how_it_ended(timer: Any) -> None:
    handle, beat = timer.call_later(1.5, nothing), timer.every(10, nothing)
    assert repr(handle).endswith(f"Handle, waiting, when=1.5, callback={nothing!r}>")
    assert repr(beat) == f"<PeriodicHandle, waiting, when=10.0, every=10.0, callback={nothing!r}>"
    handle.cancel()
    beat.cancel()
    assert "Handle, cancelled" in repr(handle)
    assert repr(beat) == "<PeriodicHandle, cancelled>"


@every_driver
@pytest.mark.parametrize("when_full", ["raise", "run", "block"])
def test_every_kind_of_handle_takes_weak_references(make: Make, when_full: str) -> None:
    if issubclass(make, AsyncTimer) and when_full == "block":
        return
    timer = by_hand(make, max_pending=1, when_full=when_full)
    handles = [timer.every(5, nothing)]
    if when_full != "raise":
        timer.call_later(1, nothing) if when_full == "run" else None  # one that ran: the timer is full
    handles[0].cancel()
    handles.append(timer.call_later(60, nothing))
    weak = [ref(handle) for handle in handles]
    assert [one() for one in weak] == handles
    timer.advance(60)
    handles.clear()
    assert [one() for one in weak] == [None, None]


@every_driver
def test_one_that_ran_in_its_caller_is_a_handle_like_the_others(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="run")
    timer.call_later(60, nothing)
    handle = timer.call_later(1.5, nothing)
    assert (ref(handle)() is handle, repr(handle)) == (True, "<RanHandle, over, when=1.5>")


def test_the_handle_of_a_capped_timer_shows_what_waits() -> None:
    timer = by_hand(Timer, max_pending=1, when_full="block")
    handle = timer.call_later(1.5, nothing)
    assert repr(handle).split("Handle", 1)[1].startswith(", waiting, when=1.5")


@every_driver
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_driver_is_not_copied(make: Make, way: Any) -> None:
    timer = by_hand(make)
    with pytest.raises(TypeError, match=rf"^an? {name_of(make)} is neither copied nor pickled.*make another one$"):
        way(timer)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        way(timer.every(5, nothing))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nor_is_anything_that_waits_in_one(way: Any) -> None:
    timer, full = by_hand(AsyncTimer), by_hand(Timer, max_pending=1, when_full="run")
    waiting = {
        "a CappedHandle": by_hand(Timer, max_pending=1, when_full="block").call_later(1, nothing),
        "a RanHandle": [full.call_later(1, nothing) for _ in range(2)][1],
        "a Timeout": timer.timeout(1),
        "an IdleTimeout": IdleTimeout(timer, 1, nothing),
    }
    for name, something in waiting.items():
        with pytest.raises(TypeError, match=rf"^{name} is neither copied nor pickled"):
            way(something)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_purgatory_is_not_copied_either(way: Any) -> None:
    with pytest.raises(TypeError, match=r"^a Purgatory is neither copied nor pickled"):
        way(Purgatory("produce", by_hand(Timer)))


def test_a_purgatory_says_its_name_and_how_many_wait() -> None:
    purgatory = Purgatory("produce", by_hand(Timer))
    assert repr(purgatory) == "<Purgatory 'produce', 0 waiting>"
    purgatory.try_complete_else_watch(DelayedOperation(lambda op: False, lambda op: None, None), ["a", "b"])
    assert repr(purgatory) == "<Purgatory 'produce', 1 waiting>"
    purgatory.close()
    assert repr(purgatory) == "<Purgatory 'produce', closed, 0 waiting>"


def test_a_clock_and_a_timeout_say_what_time_it_is() -> None:
    timer = by_hand(AsyncTimer)
    assert repr(ManualClock(5.5)) == "<ManualClock, now=5.5>"
    assert repr(SystemClock()) == "<SystemClock>"
    assert repr(timer.timeout(2)) == "<Timeout, created, when=2.0>"


def test_a_purgatory_and_an_operation_have_signatures() -> None:
    assert list(inspect.signature(Purgatory).parameters) == ["name", "timer", "on_error"]
    assert list(inspect.signature(DelayedOperation).parameters) == [
        "try_complete",
        "on_complete",
        "timeout_s",
        "on_expire",
    ]
    assert list(inspect.signature(Purgatory.try_complete_else_watch).parameters) == ["self", "op", "keys"]
    assert list(inspect.signature(Purgatory.wait).parameters) == ["self", "keys", "predicate", "timeout_s"]
    assert str(inspect.getdoc(Purgatory)).startswith("Where delayed operations wait")
    assert str(inspect.getdoc(DelayedOperation)).startswith("Something that waits")
