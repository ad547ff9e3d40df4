"""The universe of one seed: virtual time, processes, their threads and their loops, in one thread of one real process.

Rule 1: everything that happens is an event of one heap, (moment, number); whoever wants a choice asks a stream of the seed.
Rule 2: a simulated thread is a greenlet. It runs until it blocks, sleeps or makes a system call (`breathe`): there the
    world may let others run, take time, kill the process, or cut the power.
Rule 3: a process that is dead never runs again: nothing of it is unwound, its system calls have no effect.
Rule 4: time moves only between events. A callback takes no time but what the seed gives it.
"""

from __future__ import annotations

import hashlib
import heapq
from random import Random

from greenlet import greenlet

NS = 1_000_000_000
US = 1_000
MS = 1_000_000


class Killed(BaseException):
    """A dead process went on."""


class World:
    now_world: World | None = None

    def __init__(self, seed, trace=None):
        self.seed, self.trace = seed, trace
        self.now = self.clock_ns = 1_000 * NS
        self._heap, self._number = [], 0
        self.hub = greenlet.getcurrent()
        self.thread = None
        self.digest = hashlib.blake2b(digest_size=12)
        self.events = self.lines = 0
        self.syscalls = self.switches = 0
        self.stop = False
        self.processes = []
        self.graveyard = []
        self.problems = []
        self.wall_shift_ms = 1_700_000_000_000
        self._streams = {}
        self.rng = self.stream("schedule")
        self.fsync_ns = (200 * US, 4 * MS)  # what a flush takes; the nemesis makes disks slow
        World.now_world = self

    def stream(self, name):
        """A source of choices of its own: what one part asks does not shift another's answers."""
        if name not in self._streams:
            self._streams[name] = Random(f"{self.seed}/{name}")
        return self._streams[name]

    # events

    def at(self, when, deed, *args):
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, deed, args))

    def soon(self, deed, *args):
        self.at(self.now + 1 + int(self.rng.random() * 30 * US), deed, *args)

    def run(self, until, done=lambda: False):
        heap = self._heap
        while heap and heap[0][0] <= until and not self.stop and not done():
            when, _, deed, args = heapq.heappop(heap)
            if when > self.now:
                self.now = when
            self.events += 1
            deed(*args)
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)

    def log(self, *what):
        """One line of the history; its hash is the proof of determinism."""
        line = f"{self.now} {' '.join(map(str, what))}\n"
        self.lines += 1
        self.digest.update(line.encode())
        if self.trace is not None:
            self.trace.write(line)

    def problem(self, kind, story):
        """A promise was broken."""
        self.log("PROBLEM", kind, story)
        self.problems.append((kind, str(story)))

    def wall_ms(self):
        """The date of the process that runs."""
        process = self.thread.process if self.thread is not None else None
        return self.wall_shift_ms + self.now // MS + (process.skew_ms if process else 0)

    # what threads do

    def park(self):
        """Wait until somebody resumes this thread."""
        self.switches += 1
        self.hub.switch()
        if not self.thread.process.alive:
            raise Killed

    def sleep(self, ns):
        thread = self.thread
        thread.ticket += 1
        self.at(self.now + ns, thread.resume, thread.ticket)
        self.park()

    def breathe(self, name, share=0.15, least=1 * US, most=60 * US):
        """A system call: others may run meanwhile, and the process may die here."""
        self.syscalls += 1
        thread = self.thread
        if thread is None:
            return
        process = thread.process
        if not process.alive:
            raise Killed
        if process.doom is not None and process.doom_at in (None, name):
            process.doom -= 1
            if process.doom <= 0:
                process.doom = None
                deed, process.doomed = process.doomed, None
                deed(f"in {thread.name}, at {name}")
                self.park()
        if self.rng.random() < share:
            self.sleep(least + int(self.rng.random() * (most - least)))


def world():
    return World.now_world
