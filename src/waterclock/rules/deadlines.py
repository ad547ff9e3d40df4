"""The wheel of deadlines of one bucket of keys: coarse slots that rest, and one fine wheel for the slot that is open.

A deadline far away lies in a coarse slot: a plain list that nothing looks at, and that a store need not load. When the
watermark enters a slot, its deadlines go down into the timing wheel (the cascade of a wheel, done on stored state).

Rule 1: never early: a deadline fires only when due <= watermark.
Rule 2: by due time; equal ones, and ones overdue when made, in the order in which they were made, also after a save.
Rule 3: nothing is cancelled here; whoever made a deadline knows whether it still means something when it fires.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from waterclock.wheel import TimingWheel

# (due in microseconds, what it is, key, and two values that only its maker reads)
Deadline = tuple[int, str, Any, Any, Any]

SLOT_BITS = 32  # a slot is 2**32 microseconds, about 72 minutes


class Deadlines:
    """Deadlines in, due ones out through `fire(deadline)`, which may add more."""

    def __init__(self, fire: Callable[[Deadline], None]) -> None:
        self._fire = fire
        self._far: dict[int, list[Deadline]] = {}
        self._near: dict[int, Deadline] = {}
        self._wheel: TimingWheel | None = None
        self._base_us = 0  # the wheel's zero: event times before 1970 are negative, a wheel's are not
        self._open_slot = 0
        self._made = 0

    def __len__(self) -> int:
        return len(self._near) + sum(map(len, self._far.values()))

    def add(self, deadline: Deadline) -> None:
        """Take a deadline; one that is due already fires at the next `advance`, or in the one that is running."""
        slot = deadline[0] >> SLOT_BITS
        if self._wheel is None or slot > self._open_slot:
            self._far.setdefault(slot, []).append(deadline)
        else:
            self._arm(deadline)

    def advance(self, watermark: int) -> None:
        """Fire everything due at `watermark`, in order."""
        wheel = self._wheel or self._start(watermark)
        while self._far and (slot := min(self._far)) <= watermark >> SLOT_BITS:
            wheel.advance((slot << SLOT_BITS) - 1 - self._base_us)
            self._cascade(slot)
        self._open_slot = max(self._open_slot, watermark >> SLOT_BITS)
        wheel.advance(watermark - self._base_us)

    def next_due(self) -> int | None:
        """The earliest due time; None when nothing is pending."""
        nearest = [d[0] for d in self._near.values()]
        return min(nearest) if nearest else min(self._first_due(), default=None)

    def dump(self) -> list[Deadline]:
        """All pending deadlines, so that `load` gives the same firing order."""
        far = [d for slot in sorted(self._far) for d in self._far[slot]]
        return [*self._near.values(), *far]

    def load(self, deadlines: list[Deadline]) -> None:
        """Take what `dump` gave; only on a fresh object."""
        for deadline in deadlines:
            self._far.setdefault(deadline[0] >> SLOT_BITS, []).append(deadline)

    def _first_due(self) -> list[int]:
        return [min(d[0] for d in self._far[min(self._far)])] if self._far else []

    def _start(self, watermark: int) -> TimingWheel:
        self._base_us = min(watermark, *self._first_due(), watermark)
        self._open_slot = self._base_us >> SLOT_BITS
        self._wheel = TimingWheel()
        self._cascade(self._open_slot)
        return self._wheel

    def _cascade(self, slot: int) -> None:
        self._open_slot = max(self._open_slot, slot)
        for deadline in self._far.pop(slot, ()):
            self._arm(deadline)

    def _arm(self, deadline: Deadline) -> None:
        assert self._wheel is not None
        self._made += 1
        self._near[self._made] = deadline
        self._wheel.add_at(max(0, deadline[0] - self._base_us), partial(self._due, self._made))

    def _due(self, made: int) -> None:
        self._fire(self._near.pop(made))
