"""The universe of one seed: virtual time, processes, their threads and their loops, in one thread of one real process.

Rule 1: everything that happens is an event of one heap, (moment, number); whoever wants a choice asks a stream of the seed.
Rule 2: a simulated thread is a greenlet. It runs until it blocks, sleeps or makes a system call (`breathe`): there the
    world may let others run, take time, kill the process, or cut the power.
Rule 3: a process that is dead never runs again: nothing of it is unwound before the history is over (`World.over`), and its
    system calls have no effect then.
Rule 4: time moves only between events. A callback takes no time but what the seed gives it.
Rule 5: what is made of this file is not known here: threads, processes and the network are Any.
Rule 6: who sleeps while nobody else has anything to do before goes on at once, at that later moment: the order is the same,
    and two switches of greenlets are saved.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import warnings
from collections.abc import Callable, Collection
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, ClassVar, Final, TextIO

from waterclock.errors import EnvironmentMissing, pip_install

try:
    from greenlet import greenlet
except ImportError as error:
    raise EnvironmentMissing(
        f"the simulation runs threads as greenlets, and there is no package greenlet. {pip_install('simulation')}"
    ) from error

NS: Final = 1_000_000_000
MS: Final = 1_000_000
US: Final = 1_000
START_NS: Final = 1_000 * NS  # where a float of seconds still tells nanoseconds apart
DATE_MS: Final = 1_700_000_000_000
USUAL_FLUSH_NS: Final = (200 * US, 4 * MS)


class DeadProcess(BaseException):
    """A dead process went on."""


class World:
    """The universe of `seed`, which is the present one (`world()`) from now on. `trace` gets each line of its history."""

    now_world: ClassVar[Any] = None

    def __init__(self, seed: object, trace: TextIO | None = None) -> None:
        self.seed, self.trace = seed, trace
        self.now = self.clock_ns = START_NS
        self.wall_shift_ms = DATE_MS
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number, self._until = 0, START_NS
        self.fds = count(1001)
        """Numbers of files and sockets: none is used twice."""
        self.hub = greenlet.getcurrent()
        self.thread: Any = None  # the Thread that runs
        self.loop: Any = None  # the Loop that asyncio takes for running
        self._digest = hashlib.blake2b(digest_size=12)
        self._unhashed: list[str] = []
        self.lines = self.events = self.syscalls = self.switches = 0
        self.stop = False
        self.processes: list[Any] = []
        self.graveyard: list[Any] = []
        self.problems: list[tuple[str, str]] = []
        self.sought: Collection[str] = ()
        """Kinds of problems that end the history."""
        self.network: Any = None
        self._streams: dict[str, Random] = {}
        self.rng = self.stream("schedule")
        self._random = self.rng.random
        self.fsync_ns = USUAL_FLUSH_NS
        """What a flush takes, at least and at most."""
        World.now_world = self

    def stream(self, name: str) -> Random:
        """A source of choices of its own: what one part asks does not shift another's answers."""
        if name not in self._streams:
            self._streams[name] = Random(f"{self.seed}/{name}")
        return self._streams[name]

    # Events

    def at(self, when: int, deed: Callable[..., object], *args: Any) -> None:
        """Do something at a moment."""
        self._number += 1
        heappush(self._heap, (when, self._number, deed, args))

    def soon(self, deed: Callable[..., object], *args: Any) -> None:
        """Do something within some microseconds."""
        self._number += 1
        heappush(self._heap, (self.now + 1 + int(self._random() * 30_000), self._number, deed, args))

    def run(self, until: int, done: Callable[[], bool] | None = None) -> None:
        """Let happen what happens up to a moment, or until `done()`."""
        heap, self._until = self._heap, until
        before = asyncio._get_running_loop()
        while heap and heap[0][0] <= until and not self.stop and (done is None or not done()):
            when, _, deed, args = heappop(heap)
            if when > self.now:
                self.now = when
            self.events += 1
            deed(*args)
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)
        self.loop = None
        asyncio._set_running_loop(before)

    def log(self, *what: object) -> None:
        """One line of the history; the hash of all is the proof of determinism."""
        line = f"{self.now} {' '.join(map(str, what))}\n"
        self.lines += 1
        self._unhashed.append(line)
        if self.trace is not None:
            self.trace.write(line)

    def remark(self, *what: object) -> None:
        """A line that stands in the trace alone."""
        if self.trace is not None:
            self.trace.write(f"{self.now} {' '.join(map(str, what))}\n")

    @property
    def digest(self) -> hashlib.blake2b:
        """The hash of all lines so far."""
        lines, self._unhashed = self._unhashed, []
        self._digest.update("".join(lines).encode())
        return self._digest

    def problem(self, kind: str, story: object) -> None:
        """A promise was broken."""
        self.log("PROBLEM", kind, story)
        self.problems.append((kind, str(story)))
        self.stop = self.stop or kind in self.sought

    def wall_ms(self) -> int:
        """The date of the process that runs."""
        skew_ms: int = self.thread.process.skew_ms if self.thread is not None else 0
        return self.wall_shift_ms + self.now // MS + skew_ms

    def over(self) -> None:
        """The history is over: its threads are unwound, without any effect, so that nothing of it stays in memory."""
        self.thread, hook, before = None, sys.unraisablehook, asyncio._get_running_loop()
        sys.unraisablehook = lambda unraisable: None  # what fails as it is unwound is nobody's
        try:
            with warnings.catch_warnings(action="ignore"):
                for process in [*self.processes, *self.graveyard]:
                    process.end()
        finally:
            sys.unraisablehook = hook
            asyncio._set_running_loop(before)
        self._heap.clear()

    # What threads do

    def running(self) -> Any:
        """The thread that runs; DeadProcess where there is none, or its process is dead."""
        thread = self.thread
        if thread is None or not thread.process.alive:
            raise DeadProcess
        return thread

    def park(self) -> None:
        """Wait until somebody resumes this thread: whose process is alive then."""
        self.switches += 1
        thread = self.thread
        if thread is None or not thread.process.alive:
            raise DeadProcess
        self.hub.switch()

    def sleep(self, ns: int) -> None:
        """Let time pass for this thread; others run meanwhile."""
        when, heap = self.now + ns, self._heap
        if when <= self._until and not self.stop and (not heap or heap[0][0] > when):  # rule 6
            self.now = when
            self.events += 1
            return
        thread = self.running()
        thread.ticket += 1
        self._number += 1
        heappush(heap, (when, self._number, thread.resume, (thread.ticket,)))
        self.switches += 1
        self.hub.switch()

    def breathe(self, name: str, share: float = 0.15, least: int = 1 * US, most: int = 60 * US) -> None:
        """A system call: others may run meanwhile, and the process may die here."""
        self.syscalls += 1
        thread = self.thread
        if thread is None:
            return
        process = thread.process
        if not process.alive:
            raise DeadProcess
        if process.doom is not None:
            process.meet_doom(name)
        random = self._random
        if random() < share:
            self.sleep(least + int(random() * (most - least)))


def world() -> World:
    """The present universe."""
    here: World = World.now_world
    return here
