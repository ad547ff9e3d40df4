"""A timer that comes back: one place in the wheel at a time, beats counted from the first due time.

    missed    the next call, after one that ended when further beats had passed
    skip      at the first beat that has not passed: the ones in between are left out
    burst     at the next beat, though it has passed: each is made up for, one after the other
    delay     an interval after the end of the late call; beats are counted from there

Rule 1: beats are whole nanoseconds, first + n * interval: nothing drifts. Jitter puts a call off, and not the beat: what
    is drawn for one call is in no other one.
Rule 2: a call is planned when the one before has ended, so two never overlap, not even in an executor.
Rule 3: one that is moved counts its beats from where it was moved to. While a call runs that is the next one.
Rule 4: `cancel` is a step under the driver's lock, and so are a move, and the beginning and the end of a call: one of
    them comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from waterclock.errors import TimerClosed
from waterclock.timer.units import nanoseconds
from waterclock.wheel.pictures import NotCopied

if TYPE_CHECKING:
    from waterclock.timer.driver import Driver, Handle

Missed = Literal["skip", "burst", "delay"]
Jitter = float | Callable[[], float]  # seconds


def skip(beat_ns: int, interval_ns: int, now_ns: int) -> int:
    """The first beat at or after now.

    >>> skip(10, 10, 35), skip(10, 10, 20), skip(10, 10, 12)
    (40, 20, 20)
    """
    return beat_ns + interval_ns * max(1, -((beat_ns - now_ns) // interval_ns))


def burst(beat_ns: int, interval_ns: int, now_ns: int) -> int:
    """The next beat, passed or not.

    >>> burst(10, 10, 35)
    20
    """
    return beat_ns + interval_ns


def delay(beat_ns: int, interval_ns: int, now_ns: int) -> int:
    """The next beat, or an interval from now if that has passed.

    >>> delay(10, 10, 35), delay(10, 10, 12)
    (45, 20)
    """
    return beat_ns + interval_ns if beat_ns + interval_ns >= now_ns else now_ns + interval_ns


def drawn_by(jitter: Jitter, interval_ns: int) -> Callable[[], int] | None:
    """What draws whole nanoseconds from 0 to the interval; None for no jitter. `ValueError` for what lies beyond.

    >>> drawn_by(lambda: 0.5, 10**9)()
    500000000
    """

    def checked(seconds: float) -> int:
        drawn_ns = nanoseconds("jitter", seconds, least=0)
        if drawn_ns > interval_ns:
            raise ValueError(f"jitter must lie within 0 and the interval, {interval_ns / 1e9} s, got {seconds}")
        return drawn_ns

    if callable(jitter):
        return lambda: checked(jitter())
    if not (most_ns := checked(jitter)):
        return None
    from random import randint  # for those who ask for it

    return lambda: randint(0, most_ns)


NEXT_BEAT: dict[str, Callable[[int, int, int], int]] = {"skip": skip, "burst": burst, "delay": delay}


class PeriodicHandle(NotCopied):
    """The handle of `every`: pending until it is cancelled or its driver closed; `when()` is the latest beat planned."""

    __slots__ = ("__weakref__", "_args", "_beat_ns", "_drive", "_due_ns", "_fn", "_inner", "_interval_ns", "_jitter",
                 "_moved_ns", "_next_beat", "_over")  # fmt: skip

    def __init__(
        self,
        drive: Driver,
        interval_ns: int,
        missed: Missed,
        jitter: Jitter,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self._drive = drive
        self._interval_ns = interval_ns
        self._next_beat = NEXT_BEAT[missed]
        self._fn, self._args = fn, args
        self._inner: Handle | None = None
        self._over = False
        self._moved_ns: int | None = None  # while a call runs: where the next one was moved to
        self._jitter = drawn_by(jitter, interval_ns)
        self._beat_ns = drive.now_ns() + interval_ns
        self._due_ns = self._beat_ns + (0 if self._jitter is None else self._jitter())
        self._wait()

    @property
    def pending(self) -> bool:
        return not self._over

    def cancelled(self) -> bool:
        return self._over

    def when(self) -> float:
        return (self._due_ns if self._moved_ns is None else self._moved_ns) / 1e9

    def cancel(self) -> bool:
        with self._drive.lock:
            if self._over:
                return False
            self._over = True
            inner, self._inner = self._inner, None
            self._drive.periodic.discard(self)
        if inner is not None and inner.cancel():
            self._drive.left()
        return True

    def reschedule(self, delay_s: float, /) -> bool:
        with self._drive.lock:
            if self._over:
                return False
            beat_ns = max(self._drive.deadline_in(delay_s), self._drive.now_ns())  # no beat lies in the past
            if self._inner is not None and self._drive.move(self._inner, beat_ns):
                self._beat_ns = self._due_ns = beat_ns
            else:
                self._moved_ns = beat_ns
            return True

    def __repr__(self) -> str:
        if self._over:
            return "<PeriodicHandle, cancelled>"
        return f"<PeriodicHandle, waiting, when={self.when()}, every={self._interval_ns / 1e9}, callback={self._fn!r}>"

    def end(self) -> Handle | None:
        """Under the driver's lock: the driver is closed. Gives back its timer in the wheel."""
        self._over = True
        return self._inner

    def _wait(self) -> None:
        with self._drive.lock:
            if not self._over:
                self._inner = self._drive.add_and_look(self._due_ns, self._begin)
                self._drive.periodic.add(self)

    def _begin(self) -> None:
        """The beat has come."""
        with self._drive.lock:
            if self._over:
                return
            self._inner = None
        self._drive.call(self._fn, self._args, self._plan)

    def _plan(self) -> None:
        """The call has ended."""
        jitter_ns = 0
        try:
            if self._jitter is not None:  # it may be a function of the user's: without a lock
                jitter_ns = self._jitter()
        except Exception as error:  # and the call is in time
            self._drive.report(error)
        with self._drive.lock:
            moved_ns, self._moved_ns = self._moved_ns, None
            if moved_ns is None:
                self._beat_ns = self._next_beat(self._beat_ns, self._interval_ns, self._drive.now_ns())
                self._due_ns = self._beat_ns + jitter_ns
            else:
                self._beat_ns = self._due_ns = moved_ns
            try:
                self._wait()
            except TimerClosed:
                self._over = True
