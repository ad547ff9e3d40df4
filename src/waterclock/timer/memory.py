"""The memory of a burst goes back though everybody sleeps: by a thread that is there for a second or two.

A burst that was cancelled leaves a driver that sleeps until a deadline which is no more. So no driver looks:
the compiled wheel says when it begins to keep memory for the next burst (wheel/slab.h), and a thread sleeps for QUIET_S,
gives back what no burst took, and ends if no more is kept.

Rule 1: `begin` is called by destructors, in any thread, at any moment: it waits for no lock, and raises nothing.
Rule 2: there is one such thread at most. In a forked child there is none.
"""

from __future__ import annotations

from _thread import (
    allocate_lock,
    start_new_thread,
)  # threading's own start waits, and holds locks that are not re-entrant

from waterclock.timer.forking import make_new_in_child
from waterclock.wheel import QUIET_S, tidy


class Tidier:
    """The thread, and whether it is there: then `_serves` is locked."""

    def __init__(self) -> None:
        self._after_fork()
        make_new_in_child(self)

    def _after_fork(self) -> None:
        self._serves = allocate_lock()

    def begin(self) -> None:
        """There is something to be given back in a second."""
        serves = self._serves
        if serves.acquire(blocking=False):
            try:
                start_new_thread(self._serve, ())
            except BaseException:  # no thread can be had: the next turn of any wheel gives it back
                serves.release()

    def _serve(self) -> None:
        silence = allocate_lock()
        silence.acquire()
        while True:
            silence.acquire(timeout=QUIET_S)
            if not tidy():
                self._serves.release()
                if not tidy() or not self._serves.acquire(blocking=False):  # more came just now, and nobody looks
                    return
