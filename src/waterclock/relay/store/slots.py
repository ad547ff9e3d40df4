"""Slots: a number for each pair of span and target that something is pending for, and how much is.

Rule 1: a slot stands for its pair until its span is dropped; then it is given again.
Rule 2: the numbers end at 65,535. When few are left, what is for other topics of a span shares one slot: `OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from waterclock.relay.store.rows import Array

SLOT: Final = np.dtype([("slot", "<u2"), ("span", "<i8"), ("target", "<u2")])
FIRST_SLOT: Final = 8  # below it: states.py
LAST_SLOT: Final = 65_535
OTHER: Final = 65_535  # in the place of a target
SPARE: Final = 16_384  # slots kept for `OTHER`


class SpanSlots:
    """The table of slots. `count` is how many are pending in each."""

    def __init__(self) -> None:
        self.span = np.zeros(LAST_SLOT + 1, "i8")
        self.target = np.zeros(LAST_SLOT + 1, "u2")
        self.count = np.zeros(LAST_SLOT + 1, "i8")
        self._numbers: dict[tuple[int, int], int] = {}
        self._free = list(range(LAST_SLOT, FIRST_SLOT - 1, -1))

    def numbers(self, spans: Array, targets: Array) -> tuple[Array, Array]:
        """The slot of each pair, and the slots that are new, as SLOT rows."""
        found, which = np.unique(spans * (LAST_SLOT + 1) + targets, return_inverse=True)
        new: list[tuple[int, int, int]] = []
        pairs = (divmod(pair, LAST_SLOT + 1) for pair in found.tolist())
        slots = [self._number(span, target, new) for span, target in pairs]
        return np.array(slots, "<u2")[which], np.array(new, SLOT)

    def _number(self, span: int, target: int, new: list[tuple[int, int, int]]) -> int:
        if (known := self._numbers.get((span, target))) is not None:
            return known
        if len(self._free) < SPARE and target != OTHER:
            return self._number(span, OTHER, new)
        slot = self._free[-1]
        self.take(slot, span, target)
        new.append((slot, span, target))
        return slot

    def take(self, slot: int, span: int, target: int) -> None:
        """Slot `slot` stands for this pair from now on."""
        if self._free[-1] == slot:
            self._free.pop()
        else:
            self._free.remove(slot)
        self._numbers[span, target] = slot
        self.span[slot], self.target[slot], self.count[slot] = span, target, 0

    def add(self, slots: Array, each: int) -> None:
        """So many more, or fewer, are pending: `each` for every time that a slot is named."""
        counts = np.bincount(slots)
        self.count[: len(counts)] += each * counts

    def free(self, span: int) -> None:
        """The span was dropped."""
        for pair in [pair for pair in self._numbers if pair[0] == span]:
            self._free.append(self._numbers.pop(pair))

    def table(self) -> Array:
        """All slots in use."""
        return np.array([(slot, *pair) for pair, slot in self._numbers.items()], SLOT)

    def pending(self) -> Iterator[tuple[int, int, int]]:
        """Span, target, count of each slot in use."""
        for (span, target), slot in self._numbers.items():
            yield span, target, int(self.count[slot])
