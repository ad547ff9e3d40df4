"""Virtual time, threads and loops of the simulated world, and the doors that lead there and back."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("greenlet")

from tests.simulation.scene import Scene
from waterclock import outside
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.simulation import world as world_module
from waterclock.simulation.clocks import Clock, Machine, Uuid
from waterclock.simulation.files import OS
from waterclock.simulation.install import installed
from waterclock.simulation.processes import Process
from waterclock.simulation.threads import Event, Lock, SimpleQueue, Thread
from waterclock.simulation.world import MS, NS, World


def test_time_moves_from_event_to_event_and_those_of_one_moment_come_in_their_order() -> None:
    scene, seen = Scene(), list[tuple[str, int]]()
    start = scene.world.now
    for name, moment in (("c", 30), ("a", 10), ("b", 10)):
        scene.world.at(start + moment, lambda name=name: seen.append((name, scene.world.now - start)))
    scene.world.run(start + 100)
    assert (seen, scene.world.now - start) == ([("a", 10), ("b", 10), ("c", 30)], 100)


def test_threads_that_sleep_wake_in_the_order_of_their_moments() -> None:
    scene, seen = Scene(), list[int]()

    def sleeper(ms: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(10):
                scene.world.sleep(ms * MS)
                seen.append(scene.world.now)

        return run

    scene.done(*map(sleeper, (7, 1, 3)))
    assert seen == sorted(seen)
    assert len(seen) == 30


def test_a_queue_hands_each_item_to_one_thread_in_its_order() -> None:
    scene, got = Scene(), list[int]()
    queue = SimpleQueue[int | None]()

    def take() -> None:
        while (item := queue.get()) is not None:
            got.append(item)
            scene.world.breathe("something", 0.5)

    def put() -> None:
        for number in range(50):
            queue.put(number)
            scene.world.breathe("something", 0.5)
        for _ in range(3):
            queue.put(None)

    scene.done(take, take, take, put)
    assert sorted(got) == list(range(50))
    assert queue.empty()


@pytest.mark.parametrize("seed", range(5))
def test_a_lock_is_held_by_one_thread(seed: int) -> None:
    scene, lock, inside = Scene(seed), Lock(), list[int]()

    def enter() -> None:
        for _ in range(10):
            with lock:
                inside.append(1)
                scene.world.breathe("something", 0.9)
                assert inside == [1]
                inside.clear()
            scene.world.breathe("something", 0.5)

    scene.done(*[enter] * 4)


def test_an_event_wakes_all_who_wait_and_a_timeout_those_who_wait_in_vain() -> None:
    scene, event, never = Scene(), Event(), Event()

    def happen() -> None:
        scene.world.sleep(100 * MS)
        event.set()

    start = scene.world.now
    answers = scene.done(event.wait, lambda: event.wait(1.0), lambda: never.wait(0.5), lambda: event.wait(0.01), happen)
    assert answers == [True, True, False, False, None]
    assert scene.world.now - start >= 0.5 * NS


def test_who_joins_a_thread_waits_for_its_end() -> None:
    scene = Scene()

    def join() -> list[bool]:
        thread = Thread(target=lambda: scene.world.sleep(NS))
        thread.start()
        before = thread.is_alive()
        thread.join()
        return [before, thread.is_alive()]

    assert scene.done(join) == [[True, False]]


def test_a_killed_process_does_nothing_more_not_even_what_stands_in_finally() -> None:
    scene, seen = Scene(), list[str]()

    def work() -> None:
        try:
            while True:
                seen.append("work")
                scene.world.sleep(100 * MS)
        finally:
            seen.append("finally")

    scene.begin(work)
    scene.pass_s(0.35)
    scene.process.kill()
    scene.pass_s(10)
    assert seen == ["work"] * 4


def test_a_doomed_process_dies_in_the_midst_of_its_nth_call_of_a_kind() -> None:
    scene, where = Scene(), list[str]()
    scene.process.doom, scene.process.doom_at = 2, "mkdir"

    def die(place: str) -> None:
        where.append(place)
        scene.process.kill()

    def make() -> None:
        for name in ("a", "b", "c"):
            OS.mkdir(f"/data/{name}")

    scene.process.doomed = die
    scene.begin(make)
    scene.pass_s()
    assert where == ["in make, at mkdir"]
    assert list(scene.disk.folder("/data").names) == ["a"]


def test_a_frozen_process_goes_on_when_it_thaws() -> None:
    scene, seen = Scene(), list[int]()
    start = scene.world.now

    def work() -> None:
        for _ in range(10):
            scene.world.sleep(100 * MS)
            seen.append((scene.world.now - start) // MS)

    scene.begin(work)
    scene.pass_s(0.45)
    scene.process.frozen_until = scene.world.now + 3 * NS
    scene.pass_s(10)
    assert len([moment for moment in seen if moment < 450]) == 4
    assert seen[4] >= 3450


def test_a_history_that_is_over_is_unwound_and_leaves_nothing_behind() -> None:
    scene, seen = Scene(), list[str]()

    class Held:
        pass

    def hold() -> None:
        held = Held()
        left.append(weakref.ref(held))
        try:
            Event().wait()
        finally:
            seen.append("unwound")
            OS.mkdir("/data/too-late")

    async def wait() -> None:
        held = Held()
        left.append(weakref.ref(held))
        await asyncio.sleep(100)

    left: list[weakref.ref[Held]] = []
    scene.begin(hold)
    scene.process.main(wait())
    scene.pass_s(1)
    scene.world.over()
    assert (seen, scene.disk.folder("/data").names, scene.world.problems) == (["unwound"], {}, [])
    del scene
    World.now_world = None
    gc.collect()
    assert [ref() for ref in left] == [None, None]


def test_a_loop_runs_callbacks_in_their_order_and_timers_not_before_their_moment() -> None:
    scene, seen = Scene(), list[object]()
    start = scene.world.now

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(0.5)
        seen.append((scene.world.now - start) // (100 * MS))
        seen.append(await loop.run_in_executor(None, lambda: scene.world.sleep(NS) or "done"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 0.1)
        seen.append(asyncio.current_task() is scene.process.task)

    scene.process.main(main())
    scene.pass_s()
    assert seen == [0, 1, 2, 3, 4, 5, "done", True]


def test_tasks_of_two_processes_are_in_the_midst_of_a_call_at_the_same_time() -> None:
    scene, seen = Scene(), list[bool]()
    scene.other.machine = scene.disk

    async def main() -> None:
        for number in range(20):
            task = asyncio.current_task()
            scene.world.sleep((number % 3 + 1) * MS)  # another loop runs meanwhile
            seen.append(asyncio.current_task() is task)
            await asyncio.sleep(0)

    scene.process.main(main())
    scene.other.main(main())
    scene.pass_s()
    assert seen == [True] * 40


def test_what_fails_in_a_task_or_a_callback_is_a_problem() -> None:
    scene = Scene()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        raise ValueError("no")

    scene.process.main(main())
    scene.world.run(scene.world.now + NS)
    assert [kind for kind, _ in scene.world.problems] == ["exception", "ended"]


def test_clocks_go_by_virtual_time_and_the_date_may_be_off() -> None:
    scene = Scene()
    clock, machine = Clock(scene.process), Machine(scene.process)
    before_ms = clock.wall_ms()
    scene.done(lambda: clock.sleep_s(2.0))
    scene.process.skew_ms = -1000
    assert clock.wall_ms() - before_ms == 5000 - 1000  # the scene passes 5 s
    readings = [machine.monotonic_ns() for _ in range(100)]
    assert readings == sorted(set(readings))  # it creeps
    assert machine.elapsed_ns() == clock.monotonic_ns() == scene.world.now


def test_what_is_random_comes_from_the_seed() -> None:
    def ids(seed: int) -> list[object]:
        Scene(seed)
        return [Uuid.uuid4() for _ in range(3)]

    assert ids(1) == ids(1) != ids(2)


# The doors


def test_inside_the_doors_lead_into_the_world_and_outside_back() -> None:
    import waterclock.broker.flusher as flusher
    import waterclock.disk as disk

    logger = logging.getLogger("waterclock")
    before = logger.handlers, logger.level, logger.propagate, gc.isenabled()
    with installed():
        assert disk.os is outside.os is OS
        assert flusher.threading is not threading
        with installed():
            pass
        assert disk.os is OS
    assert disk.os is outside.os is os
    assert flusher.threading is threading
    assert [
        name for name, module in sys.modules.items() if vars(module).get("os") is OS and "simulation" not in name
    ] == []
    assert before == (logger.handlers, logger.level, logger.propagate, gc.isenabled())


def test_what_is_freed_of_a_dead_process_is_not_told_of_and_other_errors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))

    def reading(why: Exception | None) -> Iterator[None]:
        try:
            yield
        finally:
            if why is not None:
                raise why
            world_module.world().running()  # as a client that is closed

    def freed(why: Exception | None) -> None:
        """A generator of a process that was killed while it stood still."""
        scene = Scene()
        kept, process = [reading(why)], Process("reader")
        process.begin_thread(lambda: next(kept[0]), "reading")
        scene.world.run(scene.world.now + MS)
        process.kill()
        kept.clear()

    with installed():
        freed(None)
        assert told == []
        freed(error := ValueError("another one"))
    assert told == [error]


def test_doors_are_not_opened_under_a_broker_that_runs_and_one_runs_after_them() -> None:
    pytest.importorskip("kio")
    from waterclock.broker import Broker

    with Broker() as broker:
        with pytest.raises(UsageError, match="a broker runs in this process"), installed():
            pass
        broker.create_topic("still-real")
    with installed():
        Scene()
    with Broker() as broker:
        broker.create_topic("real-again")


def test_without_greenlet_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "waterclock.simulation.world")
    with pytest.raises(EnvironmentMissing, match=r"no package greenlet\. pip install"):
        import waterclock.simulation.world  # noqa: F401
