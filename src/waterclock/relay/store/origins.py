"""What is known of each origin: pending, and in which slot, or settled, and how. Two bytes an origin, in chunks of 65,536.

    0 nothing is known   1..7 settled: `State`   8..65,535 pending, the slot

Rule 1: this alone says what is pending. An index names rows that were settled since; a file is never changed for it.
Rule 2: an origin that is not known is remembered as settled, unless its message would be known: everything from `began` up
    to the data position was filed. (The settlement of a copy may be read before the copy.)
Rule 3: a chunk in which nothing is pending any more, below the data position, is kept packed: some bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import numpy as np

from waterclock.relay.store.rows import Array
from waterclock.relay.store.slots import FIRST_SLOT, LAST_SLOT, Slots

CHUNK: Final = 65_536  # origins


class State(IntEnum):
    """What became of a message."""

    UNKNOWN = 0
    FIRED = 1
    CANCELLED = 2
    MOVED = 3
    PENDING = 8


class Origins:
    """The states of all origins; see the rules above."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.open: dict[int, Array] = {}
        self.packed: dict[int, bytes] = {}
        self._pending: dict[int, int] = {}  # by open chunk

    def values(self, origins: Array) -> Array:
        """The two bytes of each."""
        found = np.zeros(len(origins), "u2")
        for number, which in _by_chunk(origins):
            chunk = self.open.get(number)
            if chunk is None and number in self.packed:
                chunk = _unpacked(self.packed[number])
            if chunk is not None:
                found[which] = chunk[origins[which] % CHUNK]
        return found

    def place(self, origins: Array, slots: Array) -> None:
        """They are pending in these slots. What was pending elsewhere is not any more."""
        self.slots.count += np.bincount(slots, minlength=LAST_SLOT + 1)
        for number, which in _by_chunk(origins):
            chunk, at = self._opened(number), origins[which] % CHUNK
            before = chunk[at]
            moved = before[before >= FIRST_SLOT]
            self.slots.count -= np.bincount(moved, minlength=LAST_SLOT + 1) if len(moved) else 0
            chunk[at] = slots[which]
            self._pending[number] += len(at) - len(moved)

    def settle(self, origins: Array, state: State, known: range) -> Array:
        """They are settled; returns those of which this is news. Each origin at most once; rule 2: `known`."""
        news = []
        gone = np.zeros(LAST_SLOT + 1, "i8")
        for number, which in _by_chunk(origins):
            if len(found := self._settle_in(number, origins[which], state, known, gone)):
                news.append(found)
        self.slots.count -= gone
        return np.concatenate(news) if news else origins[:0]

    def _settle_in(self, number: int, origins: Array, state: State, known: range, gone: Array) -> Array:
        at = origins % CHUNK
        before = self.open[number][at] if number in self.open else self.values(origins)
        pending = before >= FIRST_SLOT
        unknown = (before == 0) & ((origins < known.start) | (origins >= known.stop))
        if not (news := pending | unknown).any():
            return origins[:0]
        gone += np.bincount(before[pending], minlength=LAST_SLOT + 1)
        self._opened(number)[at[news]] = state
        self._pending[number] -= int(pending.sum())
        return np.asarray(origins[news])

    def pack(self, below: int) -> None:
        """Pack the chunks below an offset in which nothing is pending. Rule 3."""
        for number in [n for n, pending in self._pending.items() if not pending and (n + 1) * CHUNK <= below]:
            self.packed[number] = zlib.compress(self.open.pop(number).astype("u1").tobytes(), 1)
            del self._pending[number]

    def restore(self, number: int, chunk: Array) -> None:
        """Take an open chunk as it was stored."""
        self.open[number] = chunk
        pending = chunk[chunk >= FIRST_SLOT]
        self._pending[number] = len(pending)
        self.slots.count += np.bincount(pending, minlength=LAST_SLOT + 1)

    def _opened(self, number: int) -> Array:
        if number not in self.open:
            packed = self.packed.pop(number, None)
            self.open[number] = np.zeros(CHUNK, "<u2") if packed is None else _unpacked(packed)
            self._pending[number] = 0
        return self.open[number]


def _unpacked(packed: bytes) -> Array:
    return np.frombuffer(zlib.decompress(packed), "u1").astype("<u2")


def _by_chunk(origins: Array) -> Iterator[tuple[int, Array | slice]]:
    """Number of a chunk, and which of the origins lie in it."""
    if not len(origins):
        return
    numbers = origins // CHUNK
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    order = np.argsort(numbers, kind="stable")
    for which in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        yield int(numbers[which[0]]), which
