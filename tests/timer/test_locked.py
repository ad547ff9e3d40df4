"""The wheel for threads where nothing is compiled: one step at a time, and callbacks in none of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from waterclock.timer.locked import LockedWheel


class Watched:
    """A wheel that notes how many threads are in it at once; each stays for a moment."""

    def __init__(self, wheel: Any) -> None:
        self._wheel = wheel
        self.inside = self.most = 0
        self._count = threading.Lock()

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._count:
            self.inside += 1
            self.most = max(self.most, self.inside)
        threading.Event().wait(0.002)
        yield
        with self._count:
            self.inside -= 1

    def add_at(self, *args: Any) -> WatchedHandle:
        with self.entered():
            return WatchedHandle(self, self._wheel.add_at(*args))

    def advance(self, *args: Any) -> Any:
        with self.entered():
            return self._wheel.advance(*args)

    def next_deadline(self) -> Any:
        with self.entered():
            return self._wheel.next_deadline()

    def statistics(self) -> Any:
        with self.entered():
            return self._wheel.statistics()


class WatchedHandle:
    def __init__(self, wheel: Watched, handle: Any) -> None:
        self._wheel, self._handle = wheel, handle

    def cancel(self) -> Any:
        with self._wheel.entered():
            return self._handle.cancel()


def at_once(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_every_step_on_the_structure_is_taken_alone() -> None:
    wheel = LockedWheel(1, 0)
    wheel._wheel = watched = Watched(wheel._wheel)  # type: ignore[assignment]
    handles = [wheel.add_at(5, int) for _ in range(5)]
    at_once(
        lambda: [wheel.add_at(100, int) for _ in range(5)],
        lambda: [handle.cancel() for handle in handles],
        lambda: [wheel.advance(now) for now in range(5)],
        lambda: [wheel.next_deadline() for _ in range(5)],
        lambda: [wheel.statistics() for _ in range(5)],
    )
    assert (watched.most, len(wheel), len(wheel.clear()), watched.most) == (1, 5, 5, 1)


def test_while_a_callback_runs_others_may_use_the_wheel() -> None:
    wheel = LockedWheel(1, 0)
    added: list[Any] = []

    def callback() -> None:
        other = threading.Thread(target=lambda: added.append(wheel.add_at(9, int)), daemon=True)
        other.start()
        other.join(10)
        added.append("the callback has ended")

    wheel.add_at(1, callback)
    assert wheel.advance(1) == 1
    assert [type(one).__name__ for one in added] == ["LockedHandle", "str"]


def test_only_one_thread_turns_it() -> None:
    wheel = LockedWheel(1, 0)
    errors: list[str] = []

    def turn_again() -> None:
        with pytest.raises(RuntimeError, match="while advance"):
            wheel.advance(2)
        errors.append("refused")

    wheel.add_at(1, turn_again)
    assert (wheel.advance(1), errors) == (1, ["refused"])
    assert wheel.advance(2) == 0


def test_an_interrupt_stops_it_and_earlier_failures_are_its_cause() -> None:
    wheel = LockedWheel(1, 0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    wheel.add_at(1, int, "no number")
    wheel.add_at(1, interrupt)
    wheel.add_at(1, int)
    with pytest.raises(KeyboardInterrupt) as raised:
        wheel.advance(1)
    assert isinstance(raised.value.__cause__, ExceptionGroup)
    assert (len(wheel), wheel.advance(1)) == (1, 1)


def test_limit_bounds_a_turn() -> None:
    wheel = LockedWheel(1, 0)
    for _ in range(5):
        wheel.add_at(1, int)
    assert [wheel.advance(1, 2), wheel.advance(1, 0), wheel.advance(1)] == [2, 0, 3]
