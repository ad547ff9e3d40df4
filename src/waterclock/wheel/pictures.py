"""What wheels and their timers say of themselves, compiled or plain.

<TimingWheel, now=3, 2 waiting, next=30>
<TimerHandle, waiting, deadline=25, callback=<built-in function print>>      in the wheel's own unit
<TimerHandle, waiting, when=1.5, callback=...>                               seconds, where a driver turns the wheel
<TimerHandle, cancelled, deadline=25>    <TimerHandle, over, deadline=25>    it ran, or its wheel is gone
"""

from __future__ import annotations

from typing import Any


def of_handle(handle: Any, callback: Any, driven: bool) -> str:
    """A timer: its callback, None once it is over; `driven`: its time is a driver's, in seconds."""
    name = type(handle).__name__.removeprefix("_")
    if callback is None:
        return f"<{name}, {'cancelled' if handle.cancelled() else 'over'}, deadline={handle.deadline}>"
    due = f"when={handle.when()}" if driven else f"deadline={handle.deadline}"
    return f"<{name}, waiting, {due}, callback={callback!r}>"


def of_wheel(wheel: Any) -> str:
    """A wheel, of objects or of arrays."""
    waiting = len(wheel)
    try:
        following = wheel.next_deadline()
    except RuntimeError:  # another thread is inside a wheel of arrays
        return f"<{type(wheel).__name__}, now={wheel.now}, {waiting} waiting, in use>"
    due = "" if following is None else f", next={following}"
    return f"<{type(wheel).__name__}, now={wheel.now}, {waiting} waiting{due}>"


def not_copied(something: Any) -> TypeError:
    """For `__reduce__`: callbacks wait in one place, and are called once."""
    name = type(something).__name__
    article = "an" if name[0] in "AEIO" else "a"
    return TypeError(f"{article} {name} is neither copied nor pickled: what waits is called once")


class NotCopied:
    """Something in which callbacks wait, or a handle of one."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        raise not_copied(self)
