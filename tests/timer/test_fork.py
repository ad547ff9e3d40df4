"""In a forked child the timer is empty (semantics.md, section 3: 10); and what a child has of every public class
(timer/forking.py). Each test forks in a process of its own.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

import waterclock

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


def printed_by(script: str, kind: str, timeout_s: float = 20) -> str:
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
    assert printed_by(script, kind) == "b'p'\n"


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
    assert printed_by(script, kind) == "0 1 1\n"


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
    assert printed_by(script, kind) == "the rest, once\n0\n"


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
    assert printed_by(script, kind) == "0\n"


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
    assert printed_by(script, kind) == "before before before rest rest rest  0\n"


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
    assert printed_by(script, kind) == "0\n"


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
    assert printed_by(script, kind) == "only once\n0 1\n"


# what other threads do to one all the time, and what the child does to it then; TIMER is a Timer that is used, too
USES = {
    "Timer": ("TIMER", "it.call_later(5, print).cancel(); it.every(5, print).cancel()"),
    "AsyncTimer": ("AsyncTimer(clock=ManualClock())", "it.call_later(5, print).cancel(); it.every(5, print).cancel()"),
    "ExpiringMap": ("ExpiringMap(TIMER, 5, max_entries=2)", "it['a'] = 1; it.touch('a'); it.pop('a', None); dict(it)"),
    "Debounce": ("Debounce(TIMER, 5, print, most_s=9)", "it('a'); it.cancel('a')"),
    "Throttle": ("Throttle(TIMER, 5, lambda *a: None)", "it('a'); it('a'); it.cancel('a')"),
    "IdleTimeout": ("IdleTimeout(TIMER, 5, print)", "it.touch(); it.reschedule(5); it.pending"),
    "Purgatory": (
        "Purgatory('x', TIMER)",
        "it.try_complete_else_watch(DelayedOperation(lambda op: False, lambda op: None, 5), ['a']); "
        "it.check_and_complete('a'); it.cancel_for_key('a')",
    ),
    "DelayedOperation": (
        "Purgatory('x', None)",
        "op = DelayedOperation(lambda op: op.completed, lambda op: None, None); "
        "it.try_complete_else_watch(op, ['a']); op.force_complete()",
    ),
    "Rules": ("Rules(key='k', time='t').deduplicate('1 day')", "it.run([{'k': 1, 't': 0}], '1 h')"),
    "SystemClock": ("SystemClock()", "it.monotonic_ns()"),
    "ManualClock": ("ManualClock()", "it.advance_s(1)"),
}
# no other thread is let in while it works (docs/semantics.md): an object of one thread's, as a list is; a loop is
# asyncio's own, and stays with its process; the rest are values
OF_ONE_THREAD = {"TimingWheel", "ArrayWheel", "ManualLoop", "Result"}

LOAD = """
import signal
from waterclock import *
from waterclock.timer.locked import LockedWheel
TIMER = make()
it = eval({made!r})
use = compile({use!r}, "use", "exec")
exec(use, globals(), {{}})  # what is imported on first use is imported here: of Python's own locks this is not about
def busy():
    while True:
        exec(use, globals(), {{}})
for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()
sys.setswitchinterval(1e-5)

def work():
    signal.alarm(60)  # stuck: it would be so for ever
    exec(use, globals(), {{}})
    exec(use, globals(), {{}})

print([code for code in [child(work) for _ in range(15)] if code], flush=True)
os._exit(0)
"""


def test_every_public_class_is_forked_over_or_said_to_be_of_one_thread() -> None:
    classes = {name for name in waterclock.__all__ if inspect.isclass(getattr(waterclock, name))}
    errors = {name for name in classes if issubclass(getattr(waterclock, name), Exception)}
    assert classes - errors == set(USES) | OF_ONE_THREAD


@pytest.mark.parametrize("kind", ["thread", "thread-locked"])
@pytest.mark.parametrize("name", USES)
def test_a_child_that_was_forked_while_other_threads_were_inside_works(name: str, kind: str) -> None:
    made, use = USES[name]
    assert printed_by(LOAD.format(made=made, use=use), kind, timeout_s=300) == "[]\n"


@pytest.mark.parametrize("kind", ["thread", "thread-locked"])
def test_what_waits_runs_in_the_parent_and_what_is_kept_is_there_in_the_child(kind: str) -> None:
    script = """
from waterclock import Debounce, ExpiringMap, IdleTimeout, Throttle
clock, told = ManualClock(), []
timer = make(clock=clock)
entries = ExpiringMap(timer, 60, on_evict=lambda *line: told.append(line))
entries.update(a=1, b=2, c=3)
save, report = Debounce(timer, 60, lambda key: told.append(key)), Throttle(timer, 60, lambda *call: told.append(call))
save("s"), report("r", 1), report("r", 2)
beat, idle = timer.every(60, told.append, "beat"), IdleTimeout(timer, 60, told.append, "idle")
del told[:]

def work():
    assert (beat.pending, beat.reschedule(5), idle.pending, idle.reschedule(5)) == (False, False, False, False)
    assert (len(save), len(report), "s" in save) == (0, 0, False)
    assert (report("r", 3), told) == (True, [("r", 3)])
    assert dict(entries) == {"a": 1, "b": 2, "c": 3}
    timer.advance(30)
    assert entries.touch("a") and not entries.touch("gone")
    entries["b"] = 4
    timer.advance(30)
    assert (dict(entries), told) == ({"a": 1, "b": 4}, [("r", 3)])  # of c the parent is told
    assert len(entries) == 2
    timer.advance(30)
    assert (dict(entries), told[1:]) == ({}, [("a", 1, "expired"), ("b", 4, "expired")])

print(child(work))
timer.advance(60)
print(sorted(map(str, told)))
"""
    parent = ["('a', 1, 'expired')", "('b', 2, 'expired')", "('c', 3, 'expired')", "('r', 2)", "beat", "idle", "s"]
    assert printed_by(script, kind) == f"0\n{parent}\n"


@pytest.mark.parametrize("kind", ["thread", "thread-locked"])
def test_operations_of_the_parent_are_over_in_the_child_and_nobody_is_told_twice(kind: str) -> None:
    script = """
from waterclock import DelayedOperation, Purgatory
timer, told = make(clock=ManualClock()), []
purgatory = Purgatory("x", timer)
asked, go_on = threading.Event(), threading.Event()
op = DelayedOperation(lambda op: False, lambda op: told.append(op.outcome), 5)
slow = DelayedOperation(lambda op: asked.set() or go_on.wait(60) and False, lambda op: told.append("slow"), None)
purgatory.try_complete_else_watch(op, ["a", "b"])
thread = threading.Thread(target=purgatory.try_complete_else_watch, args=(slow, ["a"]))
thread.start()
asked.wait(60)

def work():
    assert (op.outcome, op.force_complete(), purgatory.watched_for("a"), told) == ("cancelled", False, 0, [])
    mine = DelayedOperation(lambda op: len(told) == 0, lambda op: told.append("mine"), 5)
    assert purgatory.try_complete_else_watch(mine, ["a"]) and told == ["mine"]
    assert purgatory.statistics().completed == 1
    assert purgatory.close() == []

print(child(work))
go_on.set()
thread.join()
print(purgatory.cancel_for_key("b") == [op], told)
"""
    assert printed_by(script, kind) == "0\nTrue ['cancelled']\n"


def test_a_clock_that_another_thread_turned_by_hand_is_turned_in_the_child() -> None:
    script = """
timer, inside, go_on = make(clock=ManualClock()), threading.Event(), threading.Event()
timer.call_later(1, lambda: (inside.set(), go_on.wait(60)))
thread = threading.Thread(target=timer.advance, args=(1,))
thread.start()
inside.wait(60)

def work():
    timer.call_later(1, lambda: print(flush=True))
    assert timer.advance(1) == 1

print(child(work))
go_on.set()
thread.join()
"""
    assert printed_by(script, "thread") == "\n0\n"
