"""The queue of completions, compiled or plain, as lock.py says it of the lock; and who wakes a coroutine that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Completions", "new_waker"]

if TYPE_CHECKING:
    from waterclock.purgatory.completions import Completions
    from waterclock.purgatory.waiting import Waker
else:
    try:
        from waterclock.purgatory._completions import Completions
    except ImportError:
        from waterclock.purgatory.completions import Completions

_wakers: list[type[Waker]] = []


def new_waker() -> Waker:
    """asyncio is imported for those who wait in it, and looked for once."""
    if not _wakers:
        from waterclock.purgatory.waiting import Waker

        _wakers[:] = [Waker]
    return _wakers[0]()
