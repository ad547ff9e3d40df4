"""What a turn brings about besides deliveries: answers to commands; the next occurrences of series; what has expired.

Rule 1: all of it stands in the turn's transaction: an occurrence is delivered, or put aside, with the request for the next
        one, both or neither. The next one is a request of its own, in the same partition of the input: its origin is new.
Rule 2: what is later than its delay-expires or delay-ttl allows is not delivered: it is a dead letter, whose reason begins
        with `expired`. The letter can be sent as a request again. A series goes on behind it, until delay-expires.
Rule 3: what is done about occurrences that no relay was there to deliver, by delay-missed:
        once    what was due first is delivered, late; the others are left out: the next one is the next from now on
        all     each is delivered, one after the other, in order
        skip    what is later than a minute is not delivered; the next one is the next from now on
Rule 4: if there is no next one within 50 years, or no way to find it, the series has ended: that is a dead letter too.
Rule 5: a command is answered by what stands before it in the input, and by what earlier commands of the turn cancelled; and
        by next occurrences, wherever these stand: they belong to a series that began before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np

from waterclock.durations import from_us
from waterclock.relay.owner.context import Context
from waterclock.relay.store import PartitionStore, Payload, State, pack, unpack
from waterclock.relay.store.ids import Found
from waterclock.relay.store.rows import MOST_DUE, Array
from waterclock.relay.wire.cron import next_ms
from waterclock.relay.wire.letters import Command, Letter, Reply, outcome
from waterclock.relay.wire.request import (
    AT,
    CRON,
    EXPIRES,
    ID,
    KEPT,
    MISSED,
    OCCURRENCE,
    TO,
    WAYS,
    WHICH,
    ZONE,
    BadRequest,
    Flag,
    Header,
    expiry_ms,
    headers_of,
    occurrence_of,
    request_in,
)

REPORT_EVERY: Final = 10_000  # records
MISSED_MS: Final = 60_000  # later than that an occurrence was missed: an expression's times are minutes
_ONCE, _ALL, _SKIP = WAYS


# what is known of requests for next occurrences that stand in the input; by id: their origins -> where the series began
Nexts = dict[bytes, dict[int, int]]


class Next(NamedTuple):
    """A request for a next occurrence that a turn is to write, `after` the one with that origin; the series `began` at that
    offset."""

    after: int
    began: int
    id: bytes
    value: bytes | None
    key: bytes | None
    headers: list[Header]


class FollowUps(NamedTuple):
    """What a turn has to do. `rows` and `blobs` are those to be delivered, with the headers that are handed on; `aside` the
    origins of the others, each of which is settled; `missed`: how many of these were skipped, without a dead letter."""

    rows: Array
    blobs: list[bytes]
    nexts: list[Next]
    letters: list[Letter]
    aside: list[int]
    missed: int


class _Known:
    """The messages of one id, looked up once, whatever the number of commands; these come in the order of the input."""

    def __init__(self, found: Sequence[Found]) -> None:
        self._ahead = [*reversed(found)]  # not looked at yet; they come by origin, and the next one is the last
        self.states: set[State] = set()  # of what stands before the last command

    def take(self, offset: int, gone: Mapping[int, State]) -> list[int]:
        """The origins before `offset` that are pending. A command takes them, so they are not pending for a later one."""
        pending: list[int] = []
        if State.PENDING in self.states:  # an earlier command of this turn has cancelled these
            self.states.add(State.CANCELLED)
        while self._ahead and self._ahead[-1].origin < offset:
            one = self._ahead.pop()
            state = gone.get(one.origin, one.state)
            self.states.add(state)
            if state is State.PENDING:
                pending.append(one.origin)
        return pending

    def take_others(self, others: Mapping[int, State], pending: list[int], gone: Mapping[int, State]) -> list[int]:
        """`pending`, and the pending ones of `others`, which may stand before or behind the command."""
        states = {origin: gone.get(origin, state) for origin, state in others.items()}
        self.states |= set(states.values())
        return list(dict.fromkeys([*pending, *(origin for origin, state in states.items() if state is State.PENDING)]))


def replies_to(
    commands: Sequence[Command],
    store: PartitionStore,
    nexts_of: Callable[[Command], Mapping[int, State]] | None,
    gone: dict[int, State],
    prefix: str,
) -> list[Reply]:
    """The answers to these commands, which come in the order of the input. What they cancel is added to `gone`, what the
    turn settles besides deliveries. `nexts_of`: the next occurrences that a command is for; None if there are none.
    `prefix`: of an origin in this partition."""
    ids = list({command.id: None for command in commands})  # each once: one may have a hundred thousand messages
    known = dict(zip(ids, map(_Known, store.find_many(ids)), strict=True))
    replies = []
    for command in commands:
        messages = known[command.id]
        pending = messages.take(command.offset, gone)
        if nexts_of is not None:
            pending = messages.take_others(nexts_of(command), pending, gone)
        gone.update(dict.fromkeys(pending, State.CANCELLED))
        count, states, place = len(pending), messages.states, f"{prefix}{command.offset}"
        became = outcome(command.action, count, State.CANCELLED in states, State.DELIVERED in states)
        replies.append(Reply(command.id.decode(), command.action.value, became, count, place))
    return replies


def follow_ups(rows: Array, blobs: Sequence[bytes], targets: Sequence[str], now_ms: int) -> FollowUps:
    """What these messages, due by `now_ms`, bring about; `blobs` as the store keeps them."""
    blobs, aside, missed = list(blobs), list[int](), 0
    nexts, letters = list[Next](), list[Letter]()
    for place in np.flatnonzero(rows["flags"]).tolist():
        row = rows[place]
        due = _Due(row[["due", "origin", "flags"]].item(), unpack(blobs[place]), targets[row["target"]], now_ms)
        blobs[place] = due.handed_on()
        nexts += due.nexts()
        letters += due.letters()
        if due.has_expired or due.is_missed:
            aside.append(due.origin)
            missed += not due.has_expired
    if aside:
        stays = ~np.isin(rows["origin"], aside)
        rows, blobs = rows[stays], list(compress(blobs, stays.tolist()))
    return FollowUps(rows, blobs, nexts, letters, aside, missed)


def open_nexts(known: Nexts, written: Nexts, answered: int) -> Nexts:
    """The next occurrences that stand at `answered` or behind it: a command that is not answered may be for them.

    >>> open_nexts({b"x": {3: 0, 9: 0}, b"y": {4: 1}}, {b"x": {12: 0}}, 9)
    {b'x': {9: 0, 12: 0}}
    """
    found: dict[bytes, dict[int, int]] = {}
    for nexts in (known, written):
        for id, origins in nexts.items():
            kept = {origin: began for origin, began in origins.items() if origin >= answered}
            if kept:
                found.setdefault(id, {}).update(kept)
    return found


def next_occurrences(context: Context, number: int, offsets: range) -> Iterator[tuple[bytes, int, int]]:
    """Id, offset, and where the series began, of each next occurrence that a relay wrote into this part of a partition.

    Commands are answered before the end of the input is reached if they are too many to wait for it. The next occurrence
    stands behind whatever came meanwhile: a command before it, which was not read when the occurrence before was delivered,
    is for it too. Answered without it, the series would go on behind a cancel, and beside what a replace has put in its
    place. Nothing is kept of the other records: it is a second reading of what is left, once in a take-over."""
    topic = context.topics.input
    for count, message in enumerate(context.logs.read(topic, number, offsets.start, offsets.stop)):
        offset = message.offset()
        if not count % REPORT_EVERY:
            context.reading(f"{topic}-{number}", offset - offsets.start, len(offsets))
        if any(name == OCCURRENCE for name, _ in headers_of(message) or ()):
            try:
                request = request_in(message)
            except BadRequest:  # a copy too: what it is a copy of was noted when that was read
                continue
            if request.flags & Flag.NEXT:
                yield request.id, offset, occurrence_of(request.headers, offset)[1]


class _Due:
    """One message that is due, and has headers that are for the relay: KEPT of wire/request.py."""

    def __init__(self, row: tuple[int, ...], payload: Payload, target: str, now_ms: int) -> None:
        self.due_ms, self.origin, flags = row
        self._payload = payload
        self._target = target
        self._now_ms = now_ms
        self._kept = {name: text for name, text in payload.headers if name in KEPT}
        end_ms = expiry_ms(self._kept, self.due_ms)
        self._is_series = bool(flags & Flag.SERIES)
        self._way = self._kept.get(MISSED, _ONCE)
        self._number, self._began = occurrence_of(payload.headers, self.origin)
        self.has_expired = end_ms is not None and now_ms > end_ms
        self.is_missed = self._is_series and self._way == _SKIP and now_ms - self.due_ms > MISSED_MS

    def handed_on(self) -> bytes:
        """The message as it is delivered, packed."""
        headers = [header for header in self._payload.headers if header[0] not in self._kept]
        number = [(WHICH, b"%d" % self._number)] if self._is_series else []
        return pack(self._payload.value, self._payload.key, self._payload.id, [*headers, *number])

    def letters(self) -> list[Letter]:
        """Rules 2 and 4."""
        late = f"expired: it was due at {_moment(self.due_ms)}, and it is {_moment(self._now_ms)}."
        letters = [self._letter(late, True)] if self.has_expired else []
        if self._is_series and self._next_ms() is None:
            ended = f"the series has ended: there is nothing after {_moment(self.due_ms)} that can be found."
            letters.append(self._letter(ended, False))
        return letters

    def _letter(self, reason: str, pending: bool) -> Letter:
        headers = [*self._request(self.due_ms), *self._payload.headers]
        return Letter(self.origin, reason, self._payload.value, self._payload.key, headers, pending)

    def nexts(self) -> list[Next]:
        """The request for the next occurrence, if there is one."""
        due_ms = self._next_ms() if self._is_series else None
        last_ms = self._kept.get(EXPIRES)
        if due_ms is None or (last_ms is not None and due_ms > int(last_ms)):
            return []
        headers = [header for header in self._payload.headers if header[0] != OCCURRENCE]
        number = (OCCURRENCE, b"%d %d" % (self._number + 1, self._began))
        payload = self._payload
        made = [*headers, *self._request(due_ms), number]
        return [Next(self.origin, self._began, payload.id, payload.value, payload.key, made)]

    def _request(self, due_ms: int) -> list[Header]:
        id = self._payload.id
        return [(TO, self._target.encode()), (AT, b"%d" % due_ms), *([(ID, id)] if id else [])]

    def _next_ms(self) -> int | None:
        """Rule 3."""
        after_ms = self.due_ms if self._way == _ALL else max(self.due_ms, self._now_ms)
        cron, zone = (self._kept.get(CRON) or b"").decode(), (self._kept.get(ZONE) or b"UTC").decode()
        try:
            found = next_ms(cron, zone, after_ms)
        except ValueError:  # it could be read when it came: a zone that is not known any more
            return None
        return found if found is not None and found < MOST_DUE else None


def _moment(ms: int) -> str:
    return from_us(1000 * ms).isoformat(timespec="milliseconds")
