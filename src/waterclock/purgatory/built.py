"""The queue of completions, and who wakes a coroutine that waits: compiled if they were built, else plain; so is lock.py's.

Rule 1: asyncio is imported for those who wait in it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


def new_waker(predicate: Callable[[], Any]) -> Waker:
    """A waker of the kind that was built, which is looked for once."""
    if not _wakers:
        try:
            from waterclock.purgatory._waiting import Waker
        except ImportError:
            from waterclock.purgatory.waiting import Waker

        _wakers[:] = [Waker]
    return _wakers[0](predicate)
