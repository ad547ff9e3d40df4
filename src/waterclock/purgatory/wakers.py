"""Who wakes a coroutine that waits, compiled or plain, as lock.py says it of the lock.

Rule 1: asyncio is imported for those who wait in it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waterclock.purgatory.waiting import Waker

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
