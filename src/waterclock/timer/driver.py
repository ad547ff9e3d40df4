"""The two interfaces of a timer: `Handle` for who adds a callback, `Driver` for what stands on a Timer or an AsyncTimer:
`every`, idle timeouts, timeouts of tasks, what has a time for each key.

Rule 1: every handle has the same five: `cancel`, `cancelled`, `reschedule`, `when`, `pending`.
Rule 2: `cancel` is True exactly once, and then the callback never runs.
Rule 3: `reschedule` is in seconds, as `call_later` is, and wakes the driver if that is earlier than it sleeps for. The
    wheel's own handle knows no driver; its wheel has the driver's `reschedule`.
Rule 4: what stands on a driver uses these names and none of its own; those of `Driver` are no promise to users.
Rule 5: a driver's moments are whole nanoseconds of its time, which stands still in a pause.
Rule 6: what is added here has no cap before it and no executor; `call` is what runs a callback of the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from waterclock.timer.awaited import Taker
    from waterclock.timer.report import Report


class Handle(Protocol):
    """A timer of a driver; times are seconds of `timer.time()`."""

    @property
    def pending(self) -> bool:
        """Whether it still waits: neither run nor cancelled."""
        ...

    def cancel(self) -> bool:
        """True once, and then it never runs; else False: it ran, or was cancelled."""
        ...

    def cancelled(self) -> bool:
        """Whether it was cancelled; False while it waits and after it ran."""
        ...

    def reschedule(self, delay_s: float, /) -> bool:
        """Move it to `delay_s` seconds from now, behind those of that tick; False when it ran or was cancelled.

        Zero or less means at the driver's next turn. Errors are those of `call_later`, and leave it where it was.
        Of `every` it moves the next call, and the beats are counted from there.
        """
        ...

    def when(self) -> float:
        """The moment it was asked to run."""
        ...


class Driver(Protocol):
    """The half of a `Timer` and of an `AsyncTimer` that is for what stands on them."""

    lock: AbstractContextManager[Any]  # of the driver; never held while a callback runs
    now_ns: Callable[[], int]
    report: Report  # where the errors of callbacks go
    periodic: set[Any]  # the handles of `every`, which a close ends

    @property
    def returned(self) -> Taker:
        """What is done with what callbacks return."""

    def check(self, fn: Any, name: str = "callback") -> None:
        """`TypeError` for what cannot be called here, or would never run."""

    def deadline_in(self, delay_s: float, /) -> int:
        """The nanosecond that is `delay_s` seconds from now; `ValueError` as for `call_later`."""
        ...

    def add_and_look(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> Handle:
        """Have `fn(*argument)` called, at most one argument, and see to it that the driver knows. `TimerClosed`."""
        ...

    def add_in_child(self, deadline: int, fn: Callable[..., Any], /, *argument: Any) -> None:
        """As a forked child is made new (forking.py): no lock is taken and no thread started."""

    def move(self, handle: Any, deadline: int, /) -> bool:
        """Move what waits, and see to it that the driver knows; False when it waits no more."""
        ...

    def left(self) -> None:
        """What was added here has left the wheel before its time: whoever waits for room may look again."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], then: Callable[[], None]) -> None:
        """Run a callback of the user's, here or in the executor; what it raises is reported; then call `then`."""


def nothing() -> None:
    """What is done when a call has ended behind which nothing comes."""
