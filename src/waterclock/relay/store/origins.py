"""What is known of each origin: pending, and in which slot, or settled, and how. Two bytes an origin, in chunks of 65,536.

    0 nothing is known   1..7 settled: `State`   8..65,535 pending, the slot

A slot is the number of a pair of span and target that something is pending for.

Rule 1: this alone says what is pending. An index names rows that were settled since; a file is never changed for it.
Rule 2: an origin that is not known is remembered as settled, unless its message would be known: everything from `began` up
    to the data position was filed. (The settlement of a copy may be read before the copy.)
Rule 3: a chunk in which nothing is pending any more, below the data position, is kept packed: some bytes.
Rule 4: below `settled_below`, all is settled in chunks of which nothing else is known.
Rule 5: a slot stands for its pair until its span is dropped; then it is given again.
Rule 6: the numbers of slots end at 65,535. When few are left, what is for other topics of a span shares one: `OTHER`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import numpy as np

from waterclock.relay.store.rows import Array

SLOT: Final = np.dtype([("slot", "<u2"), ("span", "<i8"), ("target", "<u2")])
FIRST_SLOT: Final = 8  # below it: `State`
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


CHUNK: Final = 65_536  # origins


class State(IntEnum):
    """What became of a message."""

    UNKNOWN = 0
    DELIVERED = 1
    CANCELLED = 2
    MOVED = 3
    SETTLED = 4  # delivered or cancelled long ago: nobody knows which
    PENDING = 8


class Origins:
    """The states of all origins; see the rules above."""

    def __init__(self, slots: SpanSlots) -> None:
        self.slots = slots
        self.open: dict[int, Array] = {}
        self.packed: dict[int, bytes] = {}
        self._pending: dict[int, int] = {}  # by open chunk
        self.settled_below = 0

    def values(self, origins: Array) -> Array:
        """The two bytes of each."""
        found = np.zeros(len(origins), "u2")
        for number, which in by_chunk(origins):
            chunk = self.open.get(number)
            if chunk is None and number in self.packed:
                chunk = _unpacked(self.packed[number])
            if chunk is not None:
                found[which] = chunk[origins[which] % CHUNK]
            elif self._is_over(number):
                found[which] = State.SETTLED
        return found

    def place(self, origins: Array, slots: Array) -> None:
        """They are pending in these slots. What was pending elsewhere is not any more."""
        befores = []
        for number, which in by_chunk(origins):
            chunk, at = self._opened(number), origins[which] % CHUNK
            before = chunk[at]
            chunk[at] = slots[which]
            befores.append(before[before >= FIRST_SLOT])
            self._pending[number] += len(at) - len(befores[-1])
        self.slots.add(slots, 1)
        self.slots.add(np.concatenate(befores), -1)

    def settle(self, origins: Array, state: State, known: range) -> Array:
        """They are settled; returns those of which this is news. Each origin at most once; rule 2: `known`."""
        news, befores = [origins[:0]], [np.empty(0, "<u2")]
        for number, which in by_chunk(origins):
            some = origins[which]
            before = self.open[number][some % CHUNK] if number in self.open else self.values(some)
            unknown = (before == State.UNKNOWN) & ((some < known.start) | (some >= known.stop))
            pending = before >= FIRST_SLOT
            if (pending | unknown).any():
                news.append(some[pending | unknown])
                befores.append(before[pending])
                self._opened(number)[news[-1] % CHUNK] = state
                self._pending[number] -= len(befores[-1])
        self.slots.add(np.concatenate(befores), -1)
        return np.concatenate(news)

    def pack(self, below: int) -> None:
        """Pack the chunks below an offset in which nothing is pending. Rule 3."""
        for number in [n for n, pending in self._pending.items() if not pending and (n + 1) * CHUNK <= below]:
            self.packed[number] = zlib.compress(self.open.pop(number).astype("u1").tobytes())
            del self._pending[number]

    def restore(self, number: int, chunk: Array) -> None:
        """Take an open chunk as it was stored."""
        self.open[number] = chunk
        pending = chunk[chunk >= FIRST_SLOT]
        self._pending[number] = len(pending)
        self.slots.add(pending, 1)

    def _opened(self, number: int) -> Array:
        if number not in self.open:
            packed = self.packed.pop(number, None)
            empty = np.full(CHUNK, State.SETTLED if self._is_over(number) else State.UNKNOWN, "<u2")
            self.open[number] = empty if packed is None else _unpacked(packed)
            self._pending[number] = 0
        return self.open[number]

    def _is_over(self, number: int) -> bool:
        return (number + 1) * CHUNK <= self.settled_below

    # Snapshots

    def numbers(self, end: int) -> list[int]:
        """Of the chunks below an offset of which more is known than rule 4 says."""
        return sorted(number for number in {*self.open, *self.packed} if number * CHUNK < end)

    def has_pending(self, number: int) -> bool:
        """Whether something is pending in a chunk."""
        return bool(self._pending.get(number))

    def settled_of(self, number: int) -> bytes:
        """The states of a chunk, a byte each, compressed. What is pending is 0 there."""
        chunk = self.open.get(number)
        if chunk is None:
            return self.packed[number]
        return zlib.compress(np.where(chunk < FIRST_SLOT, chunk, State.UNKNOWN).astype("u1").tobytes(), 1)

    def begin_with(self, number: int, states: Array | None) -> None:
        """Settle what is settled in a chunk; all of it without `states`."""
        first = number * CHUNK
        given = np.full(CHUNK, State.SETTLED, "u1") if states is None else states
        self._opened(number)
        for state in np.unique(given[given > State.UNKNOWN]).tolist():
            self.settle(first + np.flatnonzero(given == state), State(state), range(0))

    def pending_below(self, offset: int) -> int:
        """How many origins before this offset are pending."""
        some = [n for n, pending in self._pending.items() if pending and n * CHUNK < offset]
        return sum(int(np.count_nonzero(self.open[n][: offset - n * CHUNK] >= FIRST_SLOT)) for n in some)

    def next_pending(self, offset: int) -> int | None:
        """The first origin from this offset on that is pending."""
        for number in sorted(n for n, pending in self._pending.items() if pending and (n + 1) * CHUNK > offset):
            pending = number * CHUNK + np.flatnonzero(self.open[number] >= FIRST_SLOT)
            which = int(np.searchsorted(pending, offset))
            if which < len(pending):
                return int(pending[which])
        return None


def _unpacked(packed: bytes) -> Array:
    return np.frombuffer(zlib.decompress(packed), "u1").astype("<u2")


def by_chunk(origins: Array) -> Iterator[tuple[int, Array | slice]]:
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
