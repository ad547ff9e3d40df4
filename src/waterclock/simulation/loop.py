"""A process's asyncio loop under virtual time."""

from __future__ import annotations

import asyncio
from collections import deque

from waterclock.simulation.world import US, Killed, world


class Loop(asyncio.AbstractEventLoop):
    """A process's asyncio loop: callbacks in their order (asyncio promises that), sockets in any order, timers late."""

    def __init__(self, process):
        self.process, self.world = process, world()
        self._ready, self._hot = deque(), {}
        self._readers, self._writers = {}, {}
        self._sleeps = False
        self.thread = None

    # asyncio's side

    def time(self):
        return self.world.now / 1e9

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return not self.process.alive

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coroutine, *, name=None, context=None):
        return asyncio.Task(coroutine, loop=self, name=name or "task", context=context)

    def call_exception_handler(self, context):
        if self.process.alive:
            error = context.get("exception")
            if not isinstance(error, Killed):
                self.world.problem(
                    "exception", f"{self.process.name}: {context.get('message')}: {type(error).__name__}: {error}"
                )

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._rouse()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        moment = max(self.world.now, int(when * 1e9) + 1)
        late = self.world.rng.randrange(0, 300 * US)
        self.world.at(moment + late, self._due, handle)
        return handle

    def _timer_handle_cancelled(self, handle):
        pass

    def _due(self, handle):
        if self.process.alive and not handle._cancelled:
            self._ready.append(handle)
            self._rouse()

    def run_in_executor(self, executor, function, *args):
        from waterclock.simulation import processes

        future = self.create_future()

        def work():
            try:
                result, error = function(*args), None
            except Exception as failed:
                result, error = None, failed
            self.call_soon_threadsafe(tell, result, error)

        def tell(result, error):
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(result)

        processes.Thread(process=self.process, target=work, name="executor").start()
        return future

    # sockets

    def add_reader(self, fd, callback, *args):
        self._watch(self._readers, fd, callback, args)

    def add_writer(self, fd, callback, *args):
        self._watch(self._writers, fd, callback, args)

    def _watch(self, where, fd, callback, args):
        fd = fd if isinstance(fd, int) else fd.fileno()
        where[fd] = asyncio.Handle(callback, args, self, None)
        self.io(fd)

    def remove_reader(self, fd):
        return self._readers.pop(fd if isinstance(fd, int) else fd.fileno(), None) is not None

    def remove_writer(self, fd):
        return self._writers.pop(fd if isinstance(fd, int) else fd.fileno(), None) is not None

    def io(self, fd):
        """Something about this socket may be news."""
        self._hot[fd] = None
        self._rouse()

    def _poll(self):
        found = []
        for fd in list(self._hot):
            sock = self.process.sockets.get(fd)
            reader, writer = self._readers.get(fd), self._writers.get(fd)
            if sock is None:
                del self._hot[fd]
                continue
            readable, writable = reader is not None and sock.readable(), writer is not None and sock.writable()
            if readable:
                found.append(reader)
            if writable:
                found.append(writer)
            if not readable and not writable:
                del self._hot[fd]
        if len(found) > 1:
            self.world.rng.shuffle(found)
        self._ready.extend(found)

    # the thread

    def _rouse(self):
        if self._sleeps:
            self._sleeps = False
            self.world.soon(self.thread.resume, self.thread.ticket)

    def run_ready_forever(self):
        world_, ready, rng = self.world, self._ready, self.world.rng
        while True:
            if self._hot:
                self._poll()
            if not ready:
                self.thread.ticket += 1
                self._sleeps = True
                world_.park()
                continue
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if rng.random() < 0.05:  # another thread has the interpreter
                    world_.sleep(1 + int(rng.random() * 40 * US))
            world_.sleep(1 + int(rng.random() * 10 * US))
