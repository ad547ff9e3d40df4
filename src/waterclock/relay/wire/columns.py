"""Records of the input on their way into the files, as columns, read in one pass: there are ten thousand at a time.

Rule 1: a record that is no request has no place in the columns; it is bad, with a sentence.
Rule 2: a copy is filed as what it is a copy of, and asks for nothing else: its commands and its faults were the first's.
Rule 3: nothing is kept here, and nothing fails: who files the columns may be refused, and reads the same records again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from confluent_kafka import Message

from waterclock.relay.store import pack
from waterclock.relay.wire.letters import Command
from waterclock.relay.wire.moves import Moves
from waterclock.relay.wire.request import Action, BadRequest, Flag, Header, headers_of, occurrence_of, request_of

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
