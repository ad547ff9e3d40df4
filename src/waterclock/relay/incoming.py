"""Records of the input on their way into the files, as columns, read in one pass: there are ten thousand at a time.

Rule 1: a record that is no request has no place in the columns; it is bad, with a sentence.
Rule 2: a copy (moves.py) is filed as what it is a copy of, and answered no more.
Rule 3: nothing is kept here, and nothing fails: who files the columns may be refused, and reads the same records again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Message

from waterclock.relay.letters import Command
from waterclock.relay.moves import Moves
from waterclock.relay.request import Action, BadRequest, request_of
from waterclock.relay.store import pack


class Incoming(NamedTuple):
    """`messages`, `targets`, `dues`, `origins` and `blobs` are columns of what is to be delivered some time, in the
    order of their offsets. `last` is the
    last record that was looked at, `looked_at` how many there were."""

    messages: list[Message]
    targets: list[str]
    dues: list[int]
    origins: list[int]
    blobs: list[bytes]
    commands: list[Command]
    bad: list[tuple[Message, str]]
    looked_at: int
    last: Message | None


def read(messages: Sequence[Message], position: int, moves: Moves) -> Incoming:
    """The requests of records, leaving out those before `position`."""
    kept: list[Message] = []
    targets: list[str] = []
    dues: list[int] = []
    origins: list[int] = []
    blobs: list[bytes] = []
    commands: list[Command] = []
    bad: list[tuple[Message, str]] = []
    count, message, copies_end = 0, None, moves.end
    for message in messages:
        if (offset := message.offset()) < position:
            continue
        count += 1
        origin = offset
        asked, timestamp_ms = message.headers(), message.timestamp()[1]
        if offset < copies_end:
            origin, asked, timestamp_ms = moves.asked(message)
        try:
            action, target, due_ms, id, headers = request_of(asked, timestamp_ms)
        except BadRequest as error:
            bad.append((message, str(error)))
            continue
        if target:
            kept.append(message)
            targets.append(target)
            dues.append(due_ms)
            origins.append(origin)
            blobs.append(pack(message.value(), message.key(), id, headers))
        if action is not Action.SCHEDULE and origin == offset:
            commands.append(Command(origin, action, id))
    return Incoming(kept, targets, dues, origins, blobs, commands, bad, count, message)
