"""Threads against each other, switched as often as can be, on the system's clock (semantics.md, section 3: 8, 9)."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.timer.timers import THREADED, Make, by_hand, nothing
from waterclock import TimerClosed

pytestmark = pytest.mark.parametrize("make", THREADED)

THREADS = 8
EACH = 400


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run `work(number)` in so many threads, begun at one moment; what one raises is raised here."""
    begin, errors = threading.Barrier(threads), []

    def run(number: int) -> None:
        begin.wait(30)
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def settle(condition: Callable[[], bool]) -> None:
    """Until what runs in the timer's thread has come to it."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it never came")


def test_what_eight_threads_add_runs_each_exactly_once(make: Make) -> None:
    ran: list[tuple[int, int]] = []  # by one thread only: the timer's
    with make(tick_s=0.0001) as timer:

        def add(number: int) -> None:
            for place in range(EACH):
                timer.call_later(random.random() * 0.01, ran.append, (number, place))

        together(add)
        settle(lambda: len(ran) == THREADS * EACH)
    assert sorted(ran) == [(number, place) for number in range(THREADS) for place in range(EACH)]


def test_each_first_timer_wakes_a_thread_that_is_just_lying_down(make: Make) -> None:
    """Were one wake-up lost, its timer would wait for the next one for ever."""
    with make(tick_s=0.00001) as timer:
        for _ in range(EACH):
            done = threading.Event()
            timer.call_later(0, done.set)
            assert done.wait(10)


def test_of_cancel_and_expire_exactly_one_wins(make: Make) -> None:
    ran: list[int] = []
    won: list[list[int]] = [[] for _ in range(THREADS)]
    with make(tick_s=0.0001) as timer:
        for round_ in range(5):
            first = round_ * EACH
            handles = [timer.call_later(random.random() * 0.01, ran.append, first + place) for place in range(EACH)]

            def cancel(number: int, handles: list[Any] = handles, first: int = first) -> None:
                for place in random.sample(range(EACH), EACH):
                    if handles[place].cancel():
                        won[number].append(first + place)

            together(cancel)
        settle(lambda: len(timer) == 0)
        cancelled = [name for names in won for name in names]
        settle(lambda: len(ran) + len(cancelled) == 5 * EACH)
    assert sorted(ran + cancelled) == list(range(5 * EACH))


def test_of_cancel_and_a_periodic_call_exactly_one_comes_first(make: Make) -> None:
    """When cancel has returned no call begins; one that had begun may still be on its way to its note."""
    with make(tick_s=0.0001) as timer:
        for _ in range(60):
            over, calls, answers = threading.Event(), [], []
            handle = timer.every(0.0002, lambda over=over, calls=calls: calls.append(over.is_set()))
            threading.Event().wait(0.001 * random.random())
            together(lambda number, handle=handle, answers=answers: answers.append(handle.cancel()), 3)
            over.set()
            assert sorted(answers) == [False, False, True]
            turned = threading.Event()
            timer.call_later(0.0005, turned.set)
            assert turned.wait(10)
            assert sum(calls) <= 1
        assert len(timer) == 0


def test_a_periodic_call_that_is_cancelled_when_its_beat_has_come_does_not_begin(make: Make) -> None:
    """Thread A has taken it out of the wheel; B cancels; A would begin the call."""
    timer, ran = by_hand(make), []
    handle = timer.every(1, ran.append, 1)
    turning = threading.Thread(target=timer.advance, args=(1,), daemon=True)
    with timer.lock:  # A comes as far as the beginning of the call
        turning.start()
        settle(lambda: not handle._inner.pending)
        assert handle.cancel()
    turning.join(10)
    assert (ran, len(timer)) == ([], 0)


def test_a_close_amid_adding_loses_no_timer_and_runs_none_it_gave_back(make: Make) -> None:
    for _ in range(20):
        timer = make(tick_s=0.0001)
        ran: list[int] = []
        added: list[list[tuple[int, Any]]] = [[] for _ in range(THREADS)]
        refused, closed = [0] * THREADS, []

        def work(
            number: int,
            timer: Any = timer,
            ran: Any = ran,
            added: Any = added,
            refused: Any = refused,
            closed: Any = closed,
        ) -> None:
            for place in range(50):
                name = number * 50 + place
                if name == 25:
                    closed.extend(timer.close())
                try:
                    added[number].append((name, timer.call_later(random.random() * 0.002, ran.append, name)))
                except TimerClosed:
                    refused[number] += 1

        together(work)
        handles = {handle: name for names in added for name, handle in names}
        assert len(handles) + sum(refused) == THREADS * 50
        given_back = {
            handles[handle] for handle in closed
        }  # each of them has an owner: nobody was refused and given back
        assert len(given_back) == len(closed)
        settle(lambda ran=ran, closed=closed, handles=handles: len(ran) + len(closed) == len(handles))
        assert given_back.isdisjoint(ran)
        assert all(not handle.pending for handle in handles)
        assert timer.close() == []


def test_of_many_closes_one_gives_the_handles_back(make: Make) -> None:
    for _ in range(20):
        timer = make()
        waiting = {timer.call_later(60 + place, nothing) for place in range(20)} | {timer.every(60, nothing)}
        lists: list[list[Any]] = []
        together(lambda number, timer=timer, lists=lists: lists.append(timer.close()), 4)
        assert sorted(map(len, lists)) == [0, 0, 0, 21]
        assert set(max(lists, key=len)) == waiting


def test_cancel_and_close_share_the_handles_between_them(make: Make) -> None:
    for _ in range(10):
        timer = make()
        handles = [timer.call_later(60, nothing) for _ in range(200)]
        closed: list[Any] = []
        cancelled: list[Any] = []

        def work(
            number: int, timer: Any = timer, handles: Any = handles, closed: Any = closed, cancelled: Any = cancelled
        ) -> None:
            if number == 0:
                closed.extend(timer.close())
            else:
                cancelled.extend(handle for handle in handles if handle.cancel())

        together(work, 3)
        assert len(closed) + len(cancelled) == 200
        assert set(closed) | set(cancelled) == set(handles)


def test_pauses_and_resumes_amid_adding_lose_nothing(make: Make) -> None:
    ran: list[int] = []
    with make(tick_s=0.0001) as timer:

        def work(number: int) -> None:
            for place in range(EACH):
                if number:
                    timer.call_later(0.0005, ran.append, place)
                else:
                    (timer.resume if place % 2 else timer.pause)()

        together(work)
        timer.resume()
        settle(lambda: len(ran) == (THREADS - 1) * EACH)


def test_a_clock_is_turned_by_hand_from_one_thread_at_a_time(timer: Any) -> None:
    inside, most, ran = [0], [0], [0]

    def count() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        ran[0] += 1
        inside[0] -= 1

    timer.every(0.001, count)
    together(lambda number: [timer.advance(0.01) for _ in range(20)] and None)
    assert (most[0], ran[0], timer.time()) == (1, 1600, 1.6)


def test_advance_to_next_jumps_once_for_each_call_whatever_the_thread(timer: Any) -> None:
    for place in range(100):
        timer.call_later(place, nothing)
    ran: list[int] = []
    together(lambda number: ran.extend(timer.advance_to_next() for _ in range(25)), 4)
    assert (sum(ran), set(ran), timer.time()) == (100, {1}, 99.0)
