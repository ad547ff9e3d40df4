"""What a caller holds: the wheel's own handle wherever that will do, else one of these.

Rule 1: every handle has the same five: `cancel`, `cancelled`, `reschedule`, `when`, `pending`.
Rule 2: `cancel` is True exactly once, and then the callback never runs.
Rule 3: `reschedule` is in seconds, as `call_later` is, and wakes the driver if that is earlier than it sleeps for. The
    wheel's own handle knows no driver; its wheel has the driver's `reschedule`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from waterclock.wheel.pictures import NotCopied


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


class RanHandle(NotCopied):
    """Of a callback that ran in its caller, because the timer was full: over from the start."""

    __slots__ = ("__weakref__", "_deadline_ns")

    pending = False

    def __init__(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def reschedule(self, delay_s: float, /) -> bool:
        return False

    def when(self) -> float:
        return self._deadline_ns / 1e9

    def __repr__(self) -> str:
        return f"<RanHandle, over, when={self.when()}>"


class CappedHandle(NotCopied):
    """Of a capped timer, where callers wait until one leaves: its cancel lets them look again."""

    __slots__ = ("__weakref__", "_left", "inner")

    def __init__(self, inner: Handle, left: Callable[[], None]) -> None:
        self.inner = inner
        self._left = left

    @property
    def pending(self) -> bool:
        return self.inner.pending

    def cancel(self) -> bool:
        done = self.inner.cancel()
        if done:
            self._left()
        return done

    def cancelled(self) -> bool:
        return self.inner.cancelled()

    def reschedule(self, delay_s: float, /) -> bool:
        return self.inner.reschedule(delay_s)

    def when(self) -> float:
        return self.inner.when()

    def __repr__(self) -> str:
        return repr(self.inner)
