"""The wheel of deadlines of one bucket of keys, made to be stored: slots that rest until the watermark reaches them.

    level 4   slots of 2**42 us (51 days)      everything beyond the open slot; may stay packed in a store
    level 3   slots of 2**37 us (38 hours)     the deadlines of the open level-4 slot
    level 2   slots of 2**32 us (72 minutes)   the deadlines of the open level-3 slot
    level 1   slots of 2**24 us (17 seconds)   the deadlines of the open level-2 slot
    due       sorted                           what the watermark has passed, for the length of one `advance`

When the watermark enters a slot, its deadlines go down a level (the cascade of a timing wheel, done on stored state). A
slot that rests is never looked at, so a step costs what is due and what is new, whatever is pending.

Rule 1: never early: a deadline fires only when due <= watermark.
Rule 2: by due time, equal ones in the order in which they were made, also across slots and a save.
Rule 3: nothing is cancelled here; whoever made a deadline knows whether it still means something when it fires.

Why not handles in a `TimingWheel`: a stored bucket is loaded for every batch, and re-arming 60,000 handles a batch took
more time than the rules themselves; slots of plain tuples are carried over unread.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

# (due in microseconds, what it is, key, and two values that only its maker reads)
Deadline = tuple[int, str, Any, Any, Any]
Pack = Callable[[list[list[Deadline]]], list[Any]]  # the deadlines of some slots -> a chunk for each
Unpack = Callable[[Any], list[Deadline]]
Rested = Callable[[list[Any]], list[Any]]  # the chunks of a slot -> as they shall rest on
Chunks = dict[int, list[Any]]  # slot -> packed chunks, the oldest first

LEVEL_BITS = 42, 37, 32, 24

due_of = itemgetter(0)


class Slots:
    """One level: deadlines by slot; those of an earlier save lie there packed."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.packed: Chunks = {}
        self.fresh: dict[int, list[Deadline]] = {}

    def add(self, deadline: Deadline) -> None:
        slot = deadline[0] >> self.bits
        waiting = self.fresh.get(slot)
        if waiting is None:
            self.fresh[slot] = [deadline]
        else:
            waiting.append(deadline)

    def up_to(self, slot: int) -> list[int]:
        """The used slots up to and with `slot`, in order."""
        return sorted({s for s in (*self.packed, *self.fresh) if s <= slot})

    def take(self, slot: int, unpack: Unpack) -> list[Deadline]:
        """Empty a slot; its deadlines in the order in which they were made."""
        taken = [deadline for chunk in self.packed.pop(slot, ()) for deadline in unpack(chunk)]
        taken.extend(self.fresh.pop(slot, ()))
        return taken

    def first(self) -> int | None:
        return min((*self.packed, *self.fresh), default=None)

    def pack(self, pack: Pack) -> None:
        """What is fresh becomes a chunk more of each slot."""
        for slot, chunk in zip(self.fresh, pack(list(self.fresh.values())), strict=True):
            self.packed.setdefault(slot, []).append(chunk)
        self.fresh = {}

    def rest(self, rested: Rested) -> None:
        self.packed = {slot: rested(chunks) for slot, chunks in self.packed.items()}

    def dump(self) -> list[tuple[int, list[Any]]]:
        return [(slot, list(chunks)) for slot, chunks in self.packed.items()]


class Deadlines:
    """Deadlines in, due ones out through `fire(deadline)`, which may add more.

    Of deadlines with the same due time, those of the kinds `ahead` fire first; the others in the order of making.
    """

    def __init__(
        self,
        fire: Callable[[Deadline], None],
        watermark: int,
        unpack: Unpack = list,
        ahead: Container[str] = (),
        announce: Callable[[list[Deadline]], None] = lambda due: None,
    ) -> None:
        """`announce` sees the deadlines that rested and will fire now, before the first of them does."""
        self._fire = fire
        self._unpack = unpack
        self._is_behind: Callable[[Deadline], bool] = lambda deadline: deadline[1] not in ahead
        self._announce = announce
        self._levels = [Slots(bits) for bits in LEVEL_BITS]
        self._move(watermark)
        self._overdue: list[tuple[int, int, Deadline]] = []  # a heap: what was due when it was added
        self._made = 0
        self._given_back = -(2**62)

    def add(self, deadline: Deadline) -> None:
        """Take a deadline; one that is due already fires at the next `advance`, or in the one that is running."""
        due = deadline[0]
        if due <= self._watermark:
            self._made += 1
            place = self._made if self._is_behind(deadline) else self._made - 2**63
            heappush(self._overdue, (due, place, deadline))
        else:
            self._rest(deadline)

    def give_back(self, deadline: Deadline) -> None:
        """One that fired and had to wait is due still: it fires as `add` says, before those of its time that are behind."""
        self._given_back += 1
        heappush(self._overdue, (deadline[0], self._given_back, deadline))

    def advance(self, watermark: int) -> None:
        """Fire everything due at `watermark`, in order."""
        overdue, fire = self._overdue, self._fire
        passed: list[Deadline] = []  # what rested and is due now; the rest of an opened slot goes down
        if watermark > self._watermark:
            self._move(watermark)
            for level in self._levels:
                for slot in level.up_to(watermark >> level.bits):
                    for deadline in level.take(slot, self._unpack):
                        if deadline[0] <= watermark:
                            passed.append(deadline)
                        else:
                            self._rest(deadline)
            passed.sort(key=self._is_behind)
            passed.sort(key=due_of)
        self._announce(passed)
        for deadline in passed:
            while overdue and overdue[0] < (deadline[0], 0):
                fire(heappop(overdue)[2])
            fire(deadline)
        while overdue:
            fire(heappop(overdue)[2])

    def _rest(self, deadline: Deadline) -> None:
        """Put a deadline into the highest level whose open slot it lies behind, else into the lowest."""
        due = deadline[0]
        for upto, level in self._lower:
            if due < upto:
                level.add(deadline)
                return
        self._levels[0].add(deadline)

    def _move(self, watermark: int) -> None:
        self._watermark = watermark
        # the levels below the highest, the lowest first, each with the end of what it takes: the open slot of the next
        opened = [((watermark >> bits) + 1) << bits for bits in LEVEL_BITS[:-1]]
        self._lower = list(zip(opened, self._levels[1:], strict=True))[::-1]

    def next_due(self) -> int | None:
        """The earliest due time, None if nothing is pending; if that slot is packed, the start of the slot.

        Always behind the watermark: an alarm at or before it rings at once, does nothing, and is gone.
        """
        for level in reversed(self._levels):
            slot = level.first()
            if slot is not None:
                known = level.fresh[slot] if slot not in level.packed else ()
                return min((d[0] for d in known), default=max(slot << level.bits, self._watermark + 1))
        return None

    def dump(self, pack: Pack = list, rested: Rested = list) -> Any:
        """Slots with their deadlines through `pack`; what will rest for long, or has rested, then through `rested`."""
        assert not self._overdue
        *far, near = self._levels
        near.rest(rested)  # before it has what is fresh: much of that is due at the next advance
        for level in self._levels:
            level.pack(pack)
        for level in far:
            level.rest(rested)
        return [level.dump() for level in self._levels]

    def load(self, plain: Any) -> None:
        """Take what `dump` gave; only on a fresh object."""
        for level, slots in zip(self._levels, plain, strict=True):
            level.packed = {slot: list(chunks) for slot, chunks in slots}
