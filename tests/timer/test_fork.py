"""In a forked child the timer is empty (semantics.md, section 3: 10). Each test forks in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

HEAD = """
import os, sys, threading, traceback
from tests.timer.timers import LockedTimer
from waterclock import AsyncTimer, ManualClock, Timer, TimerClosed
make = {"thread": Timer, "thread-locked": LockedTimer}[sys.argv[1]]

def child(work):
    "Run `work` in a forked child; its exit code is 0 where that went well."
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

"""


def told_by(script: str, kind: str, timeout_s: float = 20) -> str:
    command = [sys.executable, "-W", "error", "-W", "ignore:the compiled timing wheel:RuntimeWarning"]
    # from 3.12 on Python warns of every fork beside a thread, and this is about just that
    command += ["-W", "ignore:This process:DeprecationWarning", "-c", HEAD + script, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


both = pytest.mark.parametrize("kind", ["thread", "thread-locked"])


@both
def test_the_child_is_empty_and_what_the_parent_had_runs_in_the_parent_only(kind: str) -> None:
    script = """
timer, done, read, write = make(), threading.Event(), *os.pipe()
handles = [timer.call_later(0.2, lambda: (os.write(write, b"p"), done.set())), timer.every(0.05, os.write, write, b"e")]

def work():
    assert len(timer) == 0 and timer._thread is None, (len(timer), timer._thread)
    assert [handle.pending for handle in handles[:1]] == [False]
    assert timer.statistics().pending == 0
    assert timer.close() == []

assert child(work) == 0
handles[1].cancel()
assert done.wait(10)
timer.close()
print(os.read(read, 99).replace(b"e", b""))
"""
    assert told_by(script, kind) == "b'p'\n"


@both
def test_the_child_has_a_thread_of_its_own_when_it_needs_one(kind: str) -> None:
    script = """
timer = make(name="mine")
timer.call_later(60, print)

def work():
    done, names = threading.Event(), []
    timer.call_later(0.01, lambda: (names.append(threading.current_thread().name), done.set()))
    assert done.wait(10) and names == ["mine"], names
    beats = threading.Semaphore(0)
    handle = timer.every(0.01, beats.release)
    assert beats.acquire(timeout=10) and beats.acquire(timeout=10)
    assert timer.close() == [handle]

print(child(work), len(timer), len(timer.close()))
"""
    assert told_by(script, kind) == "0 1 1\n"


@both
def test_a_fork_while_a_callback_runs_in_the_thread_leaves_a_child_that_works(kind: str) -> None:
    script = """
timer, running, go_on = make(), threading.Event(), threading.Event()
timer.call_later(0, lambda: (running.set(), go_on.wait(10)))
timer.call_later(0, print, "the rest, once")
assert running.wait(10)

def work():
    done = threading.Event()
    timer.call_later(0, done.set)
    assert done.wait(10)

code = child(work)
done = threading.Event()
timer.call_later(0.05, done.set)
go_on.set()
assert done.wait(10)
print(code, flush=True)
"""
    assert told_by(script, kind) == "the rest, once\n0\n"


@both
def test_a_fork_while_the_locks_are_held_leaves_a_child_that_works(kind: str) -> None:
    script = """
timer = make(max_pending=5, when_full="block")
timer.call_later(60, print)
locks = [timer.lock, timer._cap._freed, getattr(timer._wheel, "_lock", threading.RLock())]
held, let_go = threading.Event(), threading.Event()

def hold():
    with locks[0], locks[1], locks[2]:
        held.set()
        let_go.wait(10)

threading.Thread(target=hold).start()
assert held.wait(10)

def work():
    done = threading.Event()
    timer.call_later(0, done.set)
    assert done.wait(10) and len(timer) == 0

print(child(work))
let_go.set()
"""
    assert told_by(script, kind) == "0\n"


@both
def test_a_callback_that_forks_runs_the_rest_of_its_tick_in_the_parent_only(kind: str) -> None:
    script = """
timer, done, read, write = make(), threading.Event(), *os.pipe()

def fork():
    global code
    pid = os.fork()
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

for _ in range(3):
    timer.call_later(0, os.write, write, b"before ")
when_s = timer.time() + 0.05
timer.call_at(when_s, fork)
for _ in range(3):
    timer.call_at(when_s, os.write, write, b"rest ")
timer.call_at(when_s + 0.02, done.set)
assert done.wait(10)
print(os.read(read, 999).decode(), code)
"""
    assert told_by(script, kind) == "before before before rest rest rest  0\n"


@both
def test_a_closed_timer_is_closed_in_the_child_too(kind: str) -> None:
    script = """
timer = make()
timer.close()

def work():
    try:
        timer.call_later(1, print)
    except TimerClosed:
        return
    raise AssertionError("it took a timer")

print(child(work))
"""
    assert told_by(script, kind) == "0\n"


@both
def test_by_hand_and_in_asyncio_the_child_is_empty_too(kind: str) -> None:
    script = """
import asyncio
timer, aside = make(clock=ManualClock()), AsyncTimer()
timer.call_later(1, print, "only once")

def work():
    assert (len(timer), len(aside), timer.advance(5)) == (0, 0, 0)
    asyncio.run(aside.sleep(0.001))
    timer.call_later(1, lambda: None)
    assert timer.advance(1) == 1

async def main():
    aside.call_later(60, print)
    return child(work)

print(asyncio.run(main()), timer.advance(1))
"""
    assert told_by(script, kind) == "only once\n0 1\n"
