"""The lock of the watch lists: Python's own, and the compiled one; one suite for both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event, Thread, get_ident
from typing import Any

import pytest

from tests.purgatory.purgatories import KINDS
from waterclock.purgatory.lock import Lock, PlainLock

LOCKS: dict[str, Any] = {"plain": PlainLock, "compiled": Lock} if "compiled" in KINDS else {"plain": PlainLock}


@pytest.fixture(params=LOCKS)
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield LOCKS[request.param]
    sys.setswitchinterval(before)


def test_the_thread_that_holds_it_takes_it_again(make: Any) -> None:
    lock, got = make(), Event()

    def twice() -> None:
        with lock, lock:
            got.set()

    Thread(target=twice, daemon=True).start()
    assert got.wait(10)


def test_it_is_free_when_its_holder_has_let_go_as_often_as_it_took_it(make: Any) -> None:
    lock, got = make(), Event()
    with lock:
        with lock:
            other = Thread(target=lambda: lock.acquire() and (got.set(), lock.release()), daemon=True)
            other.start()
        assert not got.wait(0.01)  # once is not enough
    assert got.wait(30)
    other.join()


def test_another_thread_waits_and_the_interpreter_goes_on_meanwhile(make: Any) -> None:
    lock, steps = make(), []
    lock.acquire()
    threads = [
        Thread(target=lambda n=n: (lock.acquire(), steps.append(n), lock.release()), daemon=True) for n in range(5)
    ]
    for thread in threads:
        thread.start()
    assert steps == []
    lock.release()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(steps) == [0, 1, 2, 3, 4]


def test_steps_under_it_never_overlap_whatever_the_interpreter_does(make: Any) -> None:
    lock, count, inside = make(), [0], [0]

    def step() -> None:
        for _ in range(2000):
            lock.acquire()
            try:
                inside[0] += 1
                assert inside[0] == 1
                before = count[0]
                str(before)  # a chance to be interrupted between reading and writing
                count[0] = before + 1
                inside[0] -= 1
            finally:
                lock.release()

    threads = [Thread(target=step, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert (count, inside) == ([16_000], [0])


def test_who_does_not_hold_it_cannot_let_it_go(make: Any) -> None:
    lock = make()
    with pytest.raises(RuntimeError, match="cannot release"):
        lock.release()
    told: list[str] = []

    def foreign() -> None:
        try:
            lock.release()
        except RuntimeError as error:
            told.append(str(error))

    with lock:
        thread = Thread(target=foreign)
        thread.start()
        thread.join(30)
    assert len(told) == 1
    lock.acquire()
    lock.release()


def test_an_exception_inside_lets_it_go(make: Any) -> None:
    lock = make()
    with pytest.raises(KeyError), lock:
        raise KeyError
    with pytest.raises(RuntimeError):
        lock.release()


def test_it_knows_the_thread_that_asks(make: Any) -> None:
    seen: list[tuple[int, int]] = []
    thread = Thread(target=lambda: seen.append((make().me(), get_ident())))
    thread.start()
    thread.join(30)
    seen.append((make().me(), get_ident()))
    assert all(me == ident for me, ident in seen)
    assert len({me for me, _ in seen}) == 2
