"""Processes, and their threads as greenlets: `threading` and `queue` of the simulated world."""

from __future__ import annotations

import asyncio
from collections import deque

from greenlet import greenlet

from waterclock.simulation.loop import Loop
from waterclock.simulation.world import NS, Killed, world


class Process:
    """What is killed as one: a loop, threads, files, sockets. `machine` has the disk."""

    def __init__(self, name, machine=None):
        self.world, self.name, self.machine = world(), name, machine
        self.alive, self.frozen_until = True, 0
        self.doom, self.doom_at, self.doomed = None, None, None
        self.threads, self.files, self.sockets = [], {}, {}
        self.loop = Loop(self)
        self.skew_ms = 0
        self.log_lines = []
        self.world.processes.append(self)

    def main(self, coroutine):
        """Run a coroutine as its main task, in a thread that is the loop's."""
        thread = Thread(process=self, target=self.loop.run_ready_forever, name="loop")
        thread.loop = self.loop
        self.loop.thread = thread

        def ended(task):
            if not task.cancelled() and task.exception() is not None and self.alive:
                error = task.exception()
                where = error.__traceback__
                while where.tb_next is not None:
                    where = where.tb_next
                place = f"{where.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{where.tb_lineno}"
                self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error} at {place}")

        def begin():
            self.task = self.loop.create_task(coroutine)
            self.task.add_done_callback(ended)

        self.loop.call_soon(begin)
        thread.start()
        return thread

    def kill(self):
        """As by SIGKILL, or by the end of its machine: nothing of it runs again."""
        if not self.alive:
            return
        self.alive = False
        self.world.processes.remove(self)
        self.world.graveyard.append(self)  # greenlets that are never resumed, until the history is over
        for sock in list(self.sockets.values()):
            sock.process_died()


class Thread:
    """`threading.Thread`, as a greenlet."""

    def __init__(self, group=None, target=None, name="thread", args=(), daemon=None, process=None):
        self.world = world()
        self.process = process or self.world.thread.process
        self.target, self.name, self.args = target, name, args
        self.loop = None
        self.ticket, self.done, self.joiners = 0, False, []

    def start(self):
        self.process.threads.append(self)
        self.greenlet = greenlet(self._run, parent=self.world.hub)
        self.ticket += 1
        self.world.soon(self.resume, self.ticket)

    def is_alive(self):
        return not self.done

    def _run(self, *_):
        try:
            self.target(*self.args)
        except Killed:
            pass
        except Exception as error:
            self.world.problem("thread", f"{self.process.name}/{self.name} ended: {type(error).__name__}: {error}")
        self.done = True
        if self.process.alive:
            for one, ticket in self.joiners:
                self.world.soon(one.resume, ticket)

    def join(self, timeout=None):
        if self.done:
            return
        me = self.world.thread
        me.ticket += 1
        self.joiners.append((me, me.ticket))
        self.world.park()

    def resume(self, ticket):
        process, world_ = self.process, self.world
        if not process.alive or self.done or ticket != self.ticket:
            return
        if process.frozen_until > world_.now:
            world_.at(process.frozen_until, self.resume, ticket)
            return
        world_.thread = self
        if self.loop is not None:
            asyncio._set_running_loop(self.loop)
            self.greenlet.switch()
            asyncio._set_running_loop(None)
        else:
            self.greenlet.switch()
        world_.thread = None


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self):
        self._items, self._waiting = deque(), deque()

    def put(self, item):
        self._items.append(item)
        if self._waiting:
            thread, ticket = self._waiting.popleft()
            thread.world.soon(thread.resume, ticket)

    def get(self):
        while not self._items:
            world_ = world()
            thread = world_.thread
            thread.ticket += 1
            self._waiting.append((thread, thread.ticket))
            world_.park()
        return self._items.popleft()

    def empty(self):
        return not self._items

    def qsize(self):
        return len(self._items)


class Lock:
    """`threading.Lock`."""

    def __init__(self):
        self._held, self._waiting = False, deque()

    def acquire(self):
        while self._held:
            world_ = world()
            thread = world_.thread
            thread.ticket += 1
            self._waiting.append((thread, thread.ticket))
            world_.park()
        self._held = True
        return True

    def release(self):
        self._held = False
        if self._waiting:
            thread, ticket = self._waiting.popleft()
            thread.world.soon(thread.resume, ticket)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


class Event:
    """`threading.Event`."""

    def __init__(self):
        self._set, self._waiting = False, []

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        for thread, ticket in self._waiting:
            thread.world.soon(thread.resume, ticket)
        self._waiting = []

    def wait(self, timeout=None):
        world_ = world()
        if not self._set:
            thread = world_.thread
            thread.ticket += 1
            self._waiting.append((thread, thread.ticket))
            if timeout is not None:
                world_.at(world_.now + round(timeout * NS), thread.resume, thread.ticket)
            world_.park()
        return self._set
