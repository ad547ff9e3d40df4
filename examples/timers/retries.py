"""A message that is sent until it is taken, with pauses that double; after a day it is given up. Suite: test_retries.py.

    state      leaves it by                          then
    trying     the receiver takes it                 taken
               the receiver refuses                  waits
    waits      the pause is over                     trying
               a day is over                         given up

Rule 1: a message ends once, taken or given up; then no timer of it is left.
"""

from __future__ import annotations

from collections.abc import Callable

from waterclock import Timer

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 3_600.0
GIVE_UP_S = 86_400.0


class Delivery:
    """One message. `send` is True where it was taken; `ended` gets "taken" or "given up"."""

    def __init__(self, timer: Timer, send: Callable[[], bool], ended: Callable[[str], None]) -> None:
        self._timer = timer
        self._send = send
        self._ended = ended
        self._pause_s = FIRST_PAUSE_S
        self._day = timer.call_later(GIVE_UP_S, self._give_up)
        self._next = timer.call_later(0, self._try)

    def _try(self) -> None:
        if self._send():
            self._day.cancel()
            self._ended("taken")
            return
        self._next = self._timer.call_later(self._pause_s, self._try)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _give_up(self) -> None:
        self._next.cancel()
        self._ended("given up")
