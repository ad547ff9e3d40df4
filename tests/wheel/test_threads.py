"""Threads in one wheel at once: the compiled wheel bears it, by the interpreter's lock or, where there is none, by its own.

The plain wheel does not: its driver takes a lock. One thread turns at a time: a second `advance` is refused.
"""

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from waterclock import wheel

pytestmark = pytest.mark.skipif(not wheel.COMPILED, reason="the plain wheel needs its driver's lock")
THREADS, TIMERS = 4, 3000


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: object) -> None:
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_every_timer_of_every_thread_runs_or_is_cancelled_and_never_both() -> None:
    turning = wheel.TimingWheel()
    ran: list[list[int]] = [[0] * TIMERS for _ in range(THREADS)]
    cancelled = [[0] * TIMERS for _ in range(THREADS)]
    done = threading.Event()

    def add_and_cancel(number: int) -> None:
        chance = random.Random(number)
        waiting = []
        for n in range(TIMERS):

            def run(n: int = n) -> None:
                ran[number][n] += 1

            waiting.append((n, turning.add(chance.randrange(50), run)))
            if chance.random() < 0.6:
                victim, handle = waiting.pop(chance.randrange(len(waiting)))
                cancelled[number][victim] += handle.cancel()
            elif chance.random() < 0.3:
                waiting[-1][1].reschedule(chance.randrange(50))

    def turn() -> None:
        while not done.is_set():
            turning.advance(turning.now + 1)
            turning.next_deadline()

    turner = threading.Thread(target=turn)
    turner.start()
    in_threads(THREADS, add_and_cancel)
    done.set()
    turner.join()
    turning._check()
    turning.advance(turning.now + 100)
    assert len(turning) == 0
    for number in range(THREADS):
        assert [r + c for r, c in zip(ran[number], cancelled[number], strict=True)] == [1] * TIMERS


def test_one_cancel_of_many_is_true() -> None:
    turning = wheel.TimingWheel()
    handles = [turning.add(5, int) for _ in range(2000)]
    won: list[list[bool]] = [[] for _ in range(THREADS)]
    in_threads(THREADS, lambda number: won[number].extend(handle.cancel() for handle in handles))
    assert [sum(told) for told in zip(*won, strict=True)] == [1] * len(handles)


def test_two_threads_do_not_turn_one_wheel() -> None:
    turning, inside, leave = wheel.TimingWheel(), threading.Event(), threading.Event()
    turning.add(1, lambda: (inside.set(), leave.wait(10)))
    turner = threading.Thread(target=turning.advance, args=(1,))
    turner.start()
    assert inside.wait(10)
    with pytest.raises(RuntimeError, match="while advance"):
        turning.advance(2)
    leave.set()
    turner.join()


def test_a_wheel_may_go_in_one_thread_while_another_cancels() -> None:
    for _ in range(50):
        owner = [wheel.TimingWheel()]
        handles = [owner[0].add(5, int) for _ in range(200)]
        works = [owner.clear, lambda handles=handles: [handle.cancel() for handle in handles]]
        in_threads(2, lambda number, works=works: works[number]())
        assert not any(handle.cancel() for handle in handles)
