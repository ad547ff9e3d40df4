"""`ManualLoop`: a whole asyncio loop on a ManualClock: `asyncio.sleep`, `wait_for`, and everybody's timers.

Its time is the clock's, and moves when nobody has anything to do: to the next timer, at once. So sixty days of a service
are over when its sixty days of timers have run.

    run_until_complete(service())    goes from timer to timer until the service has ended
    advance(86_400)                  a day, turned by hand: what is due on the way runs, and then time stands again

Rule 1: time moves only if nothing can come first: every callback has run, no job of an executor is on its way, and no
    socket has anything to say. It moves to the next timer, never past one, and never back.
Rule 2: while a callback runs the clock shows its timer's moment. What turns the clock itself, in a callback, is slow.
Rule 3: a job of an executor takes real time, and the loop's time stands still meanwhile.
Rule 4: real sockets, pipes and processes are refused at the call: time would pass out there, and not here.
    With sockets="allowed" the loop waits for them in real time, and for other threads, for `patience_s` at a time, before
    its own time moves on.
Rule 5: who waits for what cannot come gets an error: if no timer is left, no job and no socket, the run ends with a
    UsageError that names the tasks.
Rule 6: an AsyncTimer that is made in the loop, or with its clock, is driven by the loop as any other timer is.
Rule 7: nothing outside of the loop is changed: `time.monotonic()` and the date go on as ever.
"""

from __future__ import annotations

import asyncio
import logging
import math
import selectors
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import wraps
from threading import active_count
from threading import enumerate as threads
from typing import Any, Final, Literal, NoReturn, TypeVar, TypeVarTuple
from weakref import WeakSet, ref

from waterclock.clock import Clock, ManualClock
from waterclock.errors import UsageError
from waterclock.timer.units import MOST_S, nanoseconds

Sockets = Literal["refused", "allowed"]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PATIENCE_S: Final = 0.5  # real seconds for which what is outside is waited for, if it is allowed, before time moves on
LONG_S: Final = 10.0  # real seconds after which it is said that a job of an executor holds the time

log = logging.getLogger(__name__)


class LoopClock:
    """The time of a ManualLoop for what it drives: nobody turns it by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.monotonic_ns = clock.monotonic_ns
        self.monotonic_s = clock.monotonic_s

    def sleep_s(self, duration_s: float) -> None:
        self._clock.sleep_s(duration_s)

    def seconds_in(self, wait_ns: int) -> float:
        """The loop's seconds at which so many nanoseconds have passed, and not one less: floats are coarse."""
        moment_ns = self.monotonic_ns() + wait_ns
        moment_s = moment_ns / 1e9
        while nanoseconds_of(moment_s) < moment_ns:
            moment_s = math.nextafter(moment_s, math.inf)
        return moment_s


def nanoseconds_of(moment_s: float) -> int:
    """The nanosecond at which a loop is to be that finds what is due at `moment_s`: the nearest, if that will do.

    >>> nanoseconds_of(0.1 + 0.2), nanoseconds_of(1.5)
    (300000000, 1500000000)
    """
    moment_ns = round(moment_s * 1e9)
    while moment_ns / 1e9 + resolution_s(moment_ns / 1e9) <= moment_s:
        moment_ns += 1
    return moment_ns


def resolution_s(now_s: float) -> float:
    """What a loop takes for now: a nanosecond, and more if floats of seconds come in larger steps."""
    return max(1e-9, math.ulp(now_s))


def clock_in_loop(clock: Clock | None) -> Clock | None:
    """What an AsyncTimer goes by that was given this clock, here: in a ManualLoop its own."""
    if isinstance(clock, ManualClock):
        return LoopClock(clock) if clock.is_a_loops() else clock
    loop = asyncio._get_running_loop()
    return LoopClock(loop.clock) if clock is None and isinstance(loop, ManualLoop) else clock


class TurnedSelector(selectors.BaseSelector):
    """Where the loop would sleep, its clock is turned."""

    def __init__(self, loop: ManualLoop) -> None:
        self._loop = ref(loop)
        self._real = selectors.DefaultSelector()
        self.open = False  # for more than the loop's own pipe

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events, loop = self._real.select(0), self._loop()
        if events or loop is None or (timeout is not None and timeout <= 0):
            return events
        return loop._turn(timeout)

    def wait(self, seconds: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """In real time."""
        return self._real.select(seconds)

    def waits_for_sockets(self) -> bool:
        return len(self._real.get_map()) > 1  # one is the loop's own pipe

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if not self.open and self._real.get_map():
            refuse("a file descriptor")
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class ManualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a ManualClock, which is turned from timer to timer, or by hand.

    clock: a new ManualClock if none is given. sockets: "refused", or "allowed" and waited for in real time. patience_s:
    how many real seconds a socket, a process or another thread has to say something, each time before the loop's time moves
    on; half a second if sockets are allowed, none if they are refused. Give more to a peer that is slower, and less
    if the loop takes thousands of steps beside an open connection.

    `loop.clock` is its ManualClock. An `AsyncTimer` that is made in the loop, or with this clock, is driven by the loop.

    >>> async def main() -> float:
    ...     await asyncio.sleep(60 * 86_400)
    ...     return asyncio.get_running_loop().time()
    >>> with manual_loop() as loop:
    ...     loop.run_until_complete(main())
    5184000.0
    """

    _closed = True  # until it is made: asyncio's destructor asks

    def __init__(
        self, clock: ManualClock | None = None, *, sockets: Sockets = "refused", patience_s: float | None = None
    ) -> None:
        if clock is not None and not isinstance(clock, ManualClock):
            raise TypeError(f"clock must be a ManualClock, or None for a new one, got {clock!r}")
        if sockets not in ("refused", "allowed"):
            raise ValueError(f"sockets must be 'refused' or 'allowed', got {sockets!r}")
        self.clock = ManualClock() if clock is None else clock
        self._turned = TurnedSelector(self)
        self._sockets = sockets
        self._patience_s = PATIENCE_S if sockets == "allowed" else 0.0
        if patience_s is not None:
            self._patience_s = nanoseconds("patience_s", patience_s, least=0) / 1e9
        self._scheduled: list[asyncio.TimerHandle]  # asyncio's heap: where we look, its first is the next timer
        self._until_ns: int | None = None  # while it is turned by hand
        self._jobs = 0
        self._processes: WeakSet[asyncio.SubprocessTransport] = WeakSet()
        super().__init__(self._turned)
        self._turned.open = sockets == "allowed"
        self.clock.turned_by = ref(self)

    def time(self) -> float:
        """The clock's seconds."""
        return self.clock.monotonic_s()

    @property
    def _clock_resolution(self) -> float:  # asyncio's: what is due within it runs now
        return resolution_s(self.clock.monotonic_s())

    @_clock_resolution.setter
    def _clock_resolution(self, resolution_s: float) -> None:
        pass

    def advance(self, duration_s: float) -> None:
        """Turn the clock by `duration_s` seconds, from outside of the loop, and run what is due on the way.

        `RuntimeError` while the loop runs: there it is `await asyncio.sleep(duration_s)`. `ValueError` for a negative one.

        >>> with manual_loop() as loop:
        ...     handle = loop.call_later(1.5, print, "one second and a half")
        ...     loop.advance(1), loop.advance(1), loop.time()
        one second and a half
        (None, None, 2.0)
        """
        if self.is_running():
            raise RuntimeError("this loop is running: inside of it time is turned by await asyncio.sleep(...)")
        self._until_ns = self.clock.monotonic_ns() + nanoseconds("duration_s", duration_s, least=0)
        try:
            self.run_forever()
        finally:
            self._until_ns = None

    # Where a loop would sleep

    def _turn(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nobody has anything to do for `timeout` seconds; None for ever."""
        if self._jobs or _jobs_of_anyio(self):
            return self._wait_for_jobs()
        if self._waits_for_outside() and (events := self._turned.wait(self._patience_s)):
            return events
        # no driver's time goes beyond MOST_S, 146 years: who sleeps for longer, as asyncio.sleep(math.inf), sleeps for ever
        never = timeout is None or self._scheduled[0].when() > MOST_S
        next_ns = None if never else nanoseconds_of(self._scheduled[0].when())
        until_ns = self._until_ns
        if next_ns is not None and (until_ns is None or next_ns <= until_ns):
            self.clock.advance_to_ns(next_ns)
        elif until_ns is not None and self.clock.monotonic_ns() < until_ns:
            self.clock.advance_to_ns(until_ns)  # and once more round, for what is due there
        elif until_ns is not None:
            self.stop()
        elif self._sockets == "allowed":
            return self._turned.wait(None)
        else:
            self._refuse_to_wait()
        return []

    def _waits_for_outside(self) -> bool:
        """For a socket, a pipe, a process, or another thread, which may hand something to the loop."""
        if not self._patience_s:
            return False
        running = any(one.get_returncode() is None for one in self._processes)
        return running or self._turned.waits_for_sockets() or active_count() > 1

    def _wait_for_jobs(self) -> list[tuple[selectors.SelectorKey, int]]:
        while not (events := self._turned.wait(LONG_S)):
            log.warning(
                "%d jobs of an executor have run for %s real seconds, and the loop's time stands still for them: "
                "a job that waits for the loop's time would wait for ever",
                self._jobs + _jobs_of_anyio(self),
                LONG_S,
            )
        return events

    def _refuse_to_wait(self) -> NoReturn:
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        raise UsageError(
            f"nothing is due in this loop, and {', '.join(names) or 'somebody'} waits: for what no timer, no job of an "
            "executor and no socket brings. What a thread of its own brings is waited for with sockets='allowed', or for "
            "patience_s"
        )

    # What takes real time

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As asyncio's; the loop's time stands still until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_is_done)
        return future

    async def shutdown_default_executor(self, *args: Any, **named: Any) -> None:
        """As asyncio's, which waits for a thread."""
        self._jobs += 1
        try:
            await super().shutdown_default_executor(*args, **named)
        finally:
            self._jobs -= 1

    def _job_is_done(self, future: object) -> None:
        self._jobs -= 1

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ManualLoop is neither copied nor pickled: two would close each other's sockets")


# asyncio's methods that ask for what is outside, and what that is
OUTSIDE: Final = {
    "getaddrinfo": "a name's address",
    "getnameinfo": "an address's name",
    "create_connection": "a connection",
    "create_server": "a server",
    "create_unix_connection": "a connection",
    "create_unix_server": "a server",
    "create_datagram_endpoint": "a socket of datagrams",
    "sock_connect": "a connection",
    "connect_read_pipe": "a pipe",
    "connect_write_pipe": "a pipe",
    "subprocess_exec": "a process",
    "subprocess_shell": "a process",
}


def _refusing(name: str, what: str) -> Callable[..., Any]:
    theirs = getattr(asyncio.SelectorEventLoop, name)

    @wraps(theirs)
    async def ours(self: ManualLoop, *args: Any, **named: Any) -> Any:
        if self._sockets == "refused":
            refuse(what)
        made = await theirs(self, *args, **named)
        if what == "a process":
            self._processes.add(made[0])
        return made

    ours.__doc__ = "As asyncio's; `UsageError` if what is outside is refused."
    return ours


for _name, _what in OUTSIDE.items():
    setattr(ManualLoop, _name, _refusing(_name, _what))


def _jobs_of_anyio(loop: ManualLoop) -> int:
    """How many threads of anyio's `to_thread` have a job of this loop: it has threads of its own, and no executor."""
    anyio = sys.modules.get("anyio._backends._asyncio")
    if anyio is None:
        return 0
    workers = [one for one in threads() if isinstance(one, anyio.WorkerThread) and one.loop is loop]
    return sum(one in one.workers and one not in one.idle_workers for one in workers)


def refuse(what: str) -> NoReturn:
    raise UsageError(
        f"{what} was asked for in a loop that a ManualClock turns: real time passes out there, and not in here. Put "
        "something in its place, or allow it: manual_loop(sockets='allowed'), @pytest.mark.manual_loop(sockets='allowed')"
    )


@contextmanager
def manual_loop(
    clock: ManualClock | None = None, *, sockets: Sockets = "refused", patience_s: float | None = None
) -> Iterator[ManualLoop]:
    """A `ManualLoop`, with its arguments; at the end its tasks are cancelled and it is closed, as `asyncio.run` does.

    >>> with manual_loop() as loop:
    ...     loop.run_until_complete(asyncio.sleep(3600, "an hour later")), loop.time()
    ('an hour later', 3600.0)
    """
    made = ManualLoop(clock, sockets=sockets, patience_s=patience_s)
    with asyncio.Runner(loop_factory=lambda: made) as runner:
        runner.get_loop()
        yield made
