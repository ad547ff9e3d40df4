"""The records of the input as they are read: which are copies, of what, and what each asks for.

What is pending for long is moved on to the end of the input, so that its beginning can be cut off. A copy has the headers
of the request that it copies, as they came, and `delay-origin`: ORIGIN TIMESTAMP of the first. The record of TOPIC.settled
that names the copies of a transaction is a `Move` (settlement.py).

Rule 1: a copy is what stands at an offset that was named so. Whatever else has the header is a user's, and a bad request.
Rule 2: a message is known by its origin. It has one place: its last copy's, or else its origin.
Rule 3: below `swept` no pending message has its place. What is moved is moved from there, so everything is known of a
        place without a table of places; and the input may be cut off there.
Rule 4: a copy asks for what its first asked for when that came: a `delay` counts from the first timestamp.

`read` makes columns of them in one pass: there are ten thousand at a time.

Rule 5: a record that is no request has no place in the columns; it is bad, with a sentence.
Rule 6: a copy is filed as what it is a copy of, and asks for nothing else: its commands and its faults were the first's.
Rule 7: nothing is kept here, and nothing fails: who files the columns may be refused, and reads the same records again.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from waterclock.relay.store import pack
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import Command
from waterclock.relay.wire.request import (
    ORIGIN,
    Action,
    BadRequest,
    Flag,
    Header,
    headers_of,
    occurrence_of,
    request_of,
)


class Original(NamedTuple):
    """What a record of the input says, whichever copy it is: headers and timestamp of the first, and where that stood."""

    origin: int
    headers: Sequence[Header] | None
    timestamp_ms: int


class Moves:
    """Which offsets of the input are copies, and how far it is swept.

    >>> moves = Moves()
    >>> moves.note(9, [(20, 23), (24, 30)])
    >>> [moves.is_copy(offset) for offset in (19, 20, 22, 23)], moves.swept, moves.next_copy(23)
    ([False, True, True, False], 9, 24)
    """

    def __init__(self, swept: int = 0, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self.swept = swept
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.note(swept, stretches)

    def note(self, swept: int, stretches: Iterable[tuple[int, int]]) -> None:
        """It is committed that these are copies, and that it is swept up to there. Again is the same."""
        self.swept = max(self.swept, swept)
        for start, end in stretches:
            if self._ends and start < self._ends[-1]:  # among those that are known
                first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
                if first < last:
                    start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
                self._starts[first:last] = [start]
                self._ends[first:last] = [end]
            elif self._ends and start == self._ends[-1]:
                self._ends[-1] = end
            else:
                self._starts.append(start)
                self._ends.append(end)

    def forget(self, below: int) -> None:
        """The input begins there: what was before is not read again."""
        gone = bisect_right(self._ends, below)
        del self._starts[:gone], self._ends[:gone]

    def is_copy(self, offset: int) -> bool:
        """Whether a copy stands there."""
        if not self._ends or offset >= self._ends[-1]:
            return False
        return self._starts[bisect_right(self._ends, offset)] <= offset

    def next_copy(self, offset: int) -> int | None:
        """The first copy from this offset on."""
        which = bisect_right(self._ends, offset)
        return max(offset, self._starts[which]) if which < len(self._ends) else None

    @property
    def end(self) -> int:
        """That of the last copy; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Of all copies."""
        return list(zip(self._starts, self._ends, strict=True))

    def asked(self, message: Message) -> Original:
        """What a record of the input says (rule 4)."""
        offset, headers = message.offset(), message.headers()
        if not self.is_copy(offset):
            return Original(offset, headers, message.timestamp()[1])
        origin, timestamp_ms = map(int, (dict(headers or ())[ORIGIN] or b"").split())
        return Original(origin, [header for header in headers if header[0] != ORIGIN], timestamp_ms)


def copied(asked: Original) -> list[Header]:
    """The headers of a copy.

    >>> copied(Original(17, [("deliver-to", b"reminders"), ("delay", b"5")], 1_000))
    [('deliver-to', b'reminders'), ('delay', b'5'), ('delay-origin', b'17 1000')]
    """
    return [*(asked.headers or ()), (ORIGIN, b"%d %d" % (asked.origin, asked.timestamp_ms))]


def stretches_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Rising offsets as (from, to) of each run.

    >>> stretches_of([4, 5, 6, 9])
    [(4, 7), (9, 10)]
    """
    if not offsets:
        return []
    found: Array = np.array(offsets, "i8")
    cuts = np.flatnonzero(np.diff(found) != 1) + 1
    firsts, lasts = found[[0, *cuts.tolist()]], found[[*(cuts - 1).tolist(), -1]]
    return [(int(first), int(last) + 1) for first, last in zip(firsts, lasts, strict=True)]


def packed_numbers(numbers: Sequence[int]) -> str:
    """Many numbers that mostly rise, as a short text for the manifest.

    >>> numbers_of(packed_numbers([5, 7, 9, 4]))
    [5, 7, 9, 4]
    """
    return zlib.compress(np.diff(np.array(numbers, "<i8"), prepend=0).astype("<i8").tobytes(), 1).hex()


def numbers_of(text: str) -> list[int]:
    """What `packed_numbers` was given."""
    found: list[Any] = np.cumsum(np.frombuffer(zlib.decompress(bytes.fromhex(text)), "<i8")).tolist()
    return found


_NEXT: Final = Flag.NEXT.value  # a number: the flag itself would cost as much as a third of the rest, for each record


class Requests(NamedTuple):
    """`messages`, `offsets`, `targets`, `dues`, `origins`, `flags` and `blobs` are columns of what is to be delivered some
    time. `nexts` are next occurrences of series: id, offset, and where the series began. `last` is the last record that
    was looked at, `looked_at` how many there were."""

    messages: list[Message]
    offsets: list[int]
    targets: list[str]
    dues: list[int]
    origins: list[int]
    flags: list[int]
    blobs: list[bytes]
    commands: list[Command]
    nexts: list[tuple[bytes, int, int]]
    bad: list[tuple[Message, str]]
    looked_at: int
    last: Message | None


def read(messages: Sequence[Message], position: int, moves: Moves) -> Requests:
    """The requests of records, leaving out those before `position`; `moves` knows the copies."""
    news = Requests([], [], [], [], [], [], [], [], [], [], 0, None)
    kept, offsets, targets, dues, origins, flags, blobs, commands, nexts, bad, *_ = news  # an attribute costs a look-up
    count, message, copies_end = 0, None, moves.end
    asked: Sequence[Header] | None
    for message in messages:
        if (offset := message.offset()) < position:
            continue
        count += 1
        asked, timestamp_ms = headers_of(message), message.timestamp()[1]
        if asked is None:
            bad.append((message, "its headers cannot be read: a name in them is not UTF-8."))
            continue
        origin = offset
        if offset < copies_end:
            origin, asked, timestamp_ms = moves.asked(message)
        try:
            action, target, due_ms, id, headers, flag = request_of(asked, timestamp_ms)
        except BadRequest as error:
            if origin == offset:
                bad.append((message, str(error)))
            continue
        if target:
            kept.append(message)
            offsets.append(offset)
            targets.append(target)
            dues.append(due_ms)
            origins.append(origin)
            flags.append(flag)
            blobs.append(pack(message.value(), message.key(), id, headers))
        if action is not Action.SCHEDULE and origin == offset:
            commands.append(Command(offset, action, id))
        elif flag & _NEXT and origin == offset:
            nexts.append((id, offset, occurrence_of(headers, 0)[1]))
    return news._replace(looked_at=count, last=message)
