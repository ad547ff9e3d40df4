"""How much of both logs there is: how many bytes stand behind an offset of the input, up to where a lap has swept it
(lap.py), and how much was settled since the last snapshot. No Kafka client in this file.

Rule 1: bytes are those of messages before compression, with `EACH` for what a record has besides. Of what is pending they
        are an estimate: for each span of due times of the files, as many as its messages have on average.
Rule 2: what is known here is written down with each checkpoint, and what TOPIC.settled says since is added at a take-over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from waterclock.relay.wire.moves import Moves, numbers_of, packed_numbers
from waterclock.relay.wire.settlement import Move

EACH: Final = 100  # bytes of a record besides its message
RECORD_BYTES: Final = 64  # of a record of TOPIC.settled, besides its origins or stretches
_MARKS: Final = 1_024


class Volume:
    """How many bytes of the input stand before an offset: marks, between which it is taken to be even.

    >>> volume = Volume()
    >>> for offset in (10, 20): volume.grow(offset, 1_000)
    >>> volume.since(0), volume.since(15), volume.since(20)
    (2000, 500, 0)
    """

    def __init__(self, offsets: list[int] | None = None, sums: list[int] | None = None) -> None:
        self._offsets, self._sums = offsets or [0], sums or [0]

    def grow(self, end: int, count: int) -> None:
        """So many bytes stand before `end` and behind all that was counted."""
        if end > self._offsets[-1]:
            self._offsets.append(end)
            self._sums.append(self._sums[-1] + count)
            if len(self._offsets) > 2 * _MARKS:
                self._offsets[1:-1], self._sums[1:-1] = self._offsets[1:-1:2], self._sums[1:-1:2]

    def since(self, offset: int) -> int:
        """The bytes from an offset to the end."""
        which = bisect_left(self._offsets, offset)
        if which in (0, len(self._offsets)):
            before = self._sums[0 if which == 0 else -1]
        else:
            (start, end), (least, most) = self._offsets[which - 1 : which + 1], self._sums[which - 1 : which + 1]
            before = least + (most - least) * (offset - start) // (end - start)
        return self._sums[-1] - before

    def forget(self, below: int) -> None:
        """Nobody will ask for what was before."""
        gone = bisect_left(self._offsets, below)
        if gone > 1:
            del self._offsets[: gone - 1], self._sums[: gone - 1]

    def stored(self) -> str:
        return packed_numbers([*self._offsets, *self._sums])

    @classmethod
    def restored(cls, text: str) -> Volume:
        numbers = numbers_of(text)
        return cls(numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])


class LogSpan:
    """How much of both logs of one partition there is.

    `low`: the input begins here. `settled_low`: TOPIC.settled does. `unsaved`: bytes of TOPIC.settled since the last
    snapshot, which had `saved` bytes. `answered`: the command position, -1 if none is known. `snapshots`: two offsets of
    TOPIC.settled, for the last snapshot but one and for the last one: with that snapshot it is read from there on.
    """

    def __init__(self) -> None:
        self.moves, self.volume = Moves(), Volume()
        self.low = self.settled_low = 0
        self.unsaved = self.saved = 0
        self.answered = -1
        self.snapshots: list[int] = []

    @classmethod
    def of(cls, notes: Mapping[str, Any]) -> LogSpan:
        """As a checkpoint has it."""
        made = cls()
        if notes:
            numbers = numbers_of(notes["copies"])  # stretches of offsets where copies stand: first, end
            made.moves = Moves(notes["swept"], zip(numbers[::2], numbers[1::2], strict=True))
            made.volume = Volume.restored(notes["volume"])
            made.unsaved, made.saved = notes["unsaved"], notes["saved"]
            made.snapshots = notes["snapshots"]
            made.answered = notes.get("answered", -1)  # files of an earlier version do not say it
        return made

    def notes(self) -> dict[str, Any]:
        """What `of` reads, for a checkpoint."""
        return {
            "swept": self.moves.swept,
            "copies": packed_numbers([number for stretch in self.moves.stretches for number in stretch]),
            "volume": self.volume.stored(),
            "unsaved": self.unsaved,
            "saved": self.saved,
            "answered": self.answered,
            "snapshots": self.snapshots,
        }

    def begins(self, low: int, settled_low: int) -> None:
        """The logs begin there."""
        self.low, self.settled_low = low, settled_low
        self.moves.forget(low)
        self.volume.forget(low)

    def moved(self, moved: Move) -> None:
        """This move is committed."""
        self.moves.note(moved.swept, moved.stretches)
        self.unsaved += RECORD_BYTES + 16 * len(moved.stretches)

    def snapshotted(self, replay_from: int, size: int) -> None:
        """A snapshot of so many bytes is committed; TOPIC.settled is read beside it from there on."""
        if replay_from not in self.snapshots:
            self.snapshots = [*self.snapshots[-1:], replay_from]
        self.saved, self.unsaved = size, 0
