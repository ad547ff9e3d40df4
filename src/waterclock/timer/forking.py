"""What a forked child has of all this, by one means for everything that keeps a lock, a thread, a flag or what waits.

A child has one thread, the one that forked. A lock that another thread held would be held there for ever, a thread that was
to do something is not there, and what waits would be run twice, by the parent and by the child.

    Timer, AsyncTimer       empty; handles of the parent's timers say that they were cancelled
    ExpiringMap             the entries, each for as long as it has left; `on_evict` is called for them in the parent
    Debounce, Throttle      no key: what waits, or was put off, runs in the parent
    Purgatory               empty; operations that waited are over as "cancelled"; `on_complete` is the parent's

Rule 1: who keeps such a thing registers when it is made, and is known weakly.
Rule 2: they are made new in the order in which they were made: a driver before what stands on it.
Rule 3: `_after_fork` takes no lock that was there before, starts no thread, and calls nothing of the user's.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary


class Renewable(Protocol):
    def _after_fork(self) -> None:
        """In the child, where no other thread runs yet: make new what another thread may have held."""


_numbers = count()
_registered: WeakValueDictionary[int, Renewable] = WeakValueDictionary()


def make_new_in_child(thing: Renewable) -> None:
    """Have `thing._after_fork()` called in each child that is forked from now on."""
    _registered[next(_numbers)] = thing


def _in_the_child() -> None:
    for thing in tuple(_registered.values()):
        thing._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
