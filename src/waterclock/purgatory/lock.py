"""The lock of a purgatory: re-entrant, and it knows which thread asks. Compiled where _lock.pyx was built.

Re-entrant, because the garbage collector may run in the middle of a step, and in it a `__del__` of the user that ends
an operation.
"""

from __future__ import annotations

from _thread import RLock, get_ident  # threading.RLock is a function, which nothing can be derived from

__all__ = ["Lock", "PlainLock"]


class PlainLock(RLock):
    """Python's own.

    >>> lock = PlainLock()
    >>> with lock, lock:
    ...     lock.me() > 0
    True
    """

    me = staticmethod(get_ident)


try:
    from waterclock.purgatory._lock import Lock
except ImportError:
    Lock = PlainLock  # type: ignore[misc,assignment]
