"""One turn of one partition: what is due is delivered, and what was asked is answered, in one transaction.

    1. answer    all waiting commands, in the order of the input
    2. take      what is due, by (due time, origin)
    3. read      the messages from the files, and see what they bring about (follow_ups.py)
    4. deliver   them to their topics, and the next occurrences of series to the input
    5. settle    their origins; replies and dead letters
    6. position  of the commands, for the group
    7. commit
    8. mark      in the files and in memory

Rule 1: nothing in the files changes before 8: a crash, an error or an answer that never comes leads to the same place, the
        take-over, which reads from the logs what became of the turn.
Rule 2: a command sees what stands before it in the input, and what this turn settled before it. What is delivered by this
        turn was not: its cancel, which can only come later, is told so.
Rule 3: a record that Kafka refuses is put aside alone: the turn that meets it is thrown away, the next one sends each
        record in a batch of its own to find it, and the one after that writes a dead letter for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.relay.around import is_the_records
from waterclock.relay.follow_ups import Next, follow_ups, open_nexts
from waterclock.relay.letters import ORIGIN, REASON, Command, Letter, Reply, outcome
from waterclock.relay.owner import Owner, letter_of
from waterclock.relay.request import FROM, UNTIL
from waterclock.relay.settlement import settlements
from waterclock.relay.statistics import Counts
from waterclock.relay.store import Payload, State, unpack
from waterclock.relay.store.found import Found
from waterclock.relay.store.rows import Array

MOST: Final = 50_000  # deliveries of one transaction
MOST_ALONE: Final = 2_000  # where each is a batch of its own: a transaction has ten seconds
REST_NS: Final = (
    6_000_000  # after a commit: one begun while the last one's markers are written waits for longer than that
)


class Turn:
    """The steps of the file, once; `counts` hear of it when it is committed."""

    def __init__(self, owner: Owner, counts: Counts) -> None:
        self._owner, self._counts, self._around = owner, counts, owner.around
        self._gone: dict[int, State] = {}  # what this turn settles besides deliveries
        self._replies: list[Reply] = []
        self._letters: list[Letter] = []
        self._rows: Array = owner.ready[:0]
        self._payloads: list[Payload] = []
        self._nexts: list[Next] = []
        self._written: dict[bytes, dict[int, int]] = {}  # these, as `Owner.nexts`
        self._missed = 0
        self._settled_position = owner.settled_position

    def run(self) -> None:
        """Steps 1 to 8. Whatever is raised, the owner is of no more use."""
        self.answer()
        if self._owner.has_caught_up:
            self.take()
            self.read()
        for step in (self.deliver, self.settle, self.send_position, self.commit, self.mark):
            step()

    def answer(self) -> None:
        """Step 1."""
        self._letters = sorted(self._owner.letters, key=lambda letter: letter.offset)
        self._gone.update({letter.offset: State.CANCELLED for letter in self._letters if letter.pending})
        waiting = self._owner.waiting
        found = self._owner.store.find_many([command.id for command in waiting])
        self._replies = [self._reply(command, of_id) for command, of_id in zip(waiting, found, strict=True)]
        if self._gone:
            self._owner.drop(list(self._gone))

    def _reply(self, command: Command, found: Sequence[Found]) -> Reply:
        before = {one.origin: one.state for one in found if one.origin < command.offset}
        if self._owner.nexts:
            before |= self._owner.nexts_of(command)
        states = {origin: self._gone.get(origin, state) for origin, state in before.items()}
        pending = [origin for origin, state in states.items() if state is State.PENDING]
        self._gone.update(dict.fromkeys(pending, State.CANCELLED))
        told = outcome(command.action, len(pending), State.CANCELLED in states.values(), State.FIRED in states.values())
        request = self._around.place(self._owner.number, command.offset)
        return Reply(command.id.decode(), command.action.value, told, len(pending), request)

    def take(self) -> None:
        """Step 2."""
        owner = self._owner
        rows = owner.due(self._around.clock.wall_ms(), MOST_ALONE if owner.alone else MOST)
        targets = owner.store.targets
        names = {number: targets[number] for number in np.unique(rows["target"]).tolist()}
        absent = self._around.targets.missing(names.values()) if names else {}
        bad = dict(owner.refused)
        for number in (number for number, name in names.items() if name in absent):
            bad.update(dict.fromkeys(rows["origin"][rows["target"] == number].tolist(), absent[names[number]]))
        here = np.isin(rows["origin"], list(bad)) if bad else np.zeros(len(rows), bool)
        self._letters += [self._letter(origin, bad[origin]) for origin in rows["origin"][here].tolist()]
        self._gone.update(dict.fromkeys(rows["origin"][here].tolist(), State.CANCELLED))
        self._rows = rows[~here]

    def _letter(self, origin: int, reason: str) -> Letter:
        record = self._around.logs.record(self._around.topics.input, self._owner.number, origin)
        if record is None:
            return Letter(origin, reason, None, None, [], True)
        return letter_of(record, reason, True)

    def read(self) -> None:
        """Step 3."""
        blobs = list(self._owner.store.read(self._rows))
        if self._rows["flags"].any():
            now_ms, targets = self._around.clock.wall_ms(), self._owner.store.targets
            self._rows, blobs, self._nexts, letters, aside, self._missed = follow_ups(
                self._rows, blobs, targets, now_ms
            )
            self._letters += letters
            self._gone.update(dict.fromkeys(aside, State.CANCELLED))
        self._payloads = [unpack(blob) for blob in blobs]

    def deliver(self) -> None:
        """Step 4."""
        owner, send = self._owner, self._owner.producer.send
        owner.producer.begin()
        prefix, names = self._around.place(owner.number, 0)[:-1], owner.store.targets
        watch = partial(partial, self._hear) if owner.alone else _unwatched
        columns = (self._rows[name].tolist() for name in ("origin", "target", "due"))
        for origin, target, due, payload in zip(*columns, self._payloads, strict=True):
            headers = [*payload.headers, (FROM, f"{prefix}{origin}".encode()), (UNTIL, b"%d" % due)]
            send(names[target], payload.value, payload.key, headers=headers, on_delivery=watch(origin))
        for each in self._nexts:
            hear = partial(self._hear_next, each)
            send(self._around.topics.input, each.value, each.key, owner.number, headers=each.headers, on_delivery=hear)

    def settle(self) -> None:
        """Step 5."""
        owner, topics = self._owner, self._around.topics
        gone = np.array(list(self._gone), "<i8")
        parts = [(State.FIRED, self._rows["origin"]), *([(State.CANCELLED, gone)] if len(gone) else [])]
        for state, origins in parts:
            for value in settlements(state, origins, owner.position, self._around.mark):
                owner.producer.send(topics.settled, value, None, owner.number, on_delivery=self._hear_settled)
        for reply in self._replies:
            owner.producer.send(topics.replies, reply.as_json(), reply.id.encode())
        for letter in self._letters:
            self._send_letter(letter)

    def _send_letter(self, letter: Letter) -> None:
        owner, watch = self._owner, partial(self._hear, ~letter.offset)
        place = self._around.place(owner.number, letter.offset)
        said = [(REASON, letter.reason.encode()), (ORIGIN, place.encode())]
        if ~letter.offset in owner.refused:  # the letter itself: it is said without the record
            said.append(("dead-record", f"too much for this topic: it stands at {place}".encode()))
            owner.producer.send(self._around.topics.dead, None, None, headers=said)
        else:
            headers = [*letter.headers, *said]
            owner.producer.send(self._around.topics.dead, letter.value, letter.key, headers=headers, on_delivery=watch)

    def send_position(self) -> None:
        """Step 6."""
        owner = self._owner
        owner.producer.send_offsets({(self._around.topics.input, owner.number): owner.position}, self._around.member())

    def commit(self) -> None:
        """Step 7; when it returns, Kafka has it all."""
        self._owner.producer.commit()

    def mark(self) -> None:
        """Step 8."""
        owner = self._owner
        owner.settled(self._rows["origin"], State.FIRED)
        owner.settled(np.array(list(self._gone), "<i8"), State.CANCELLED)
        owner.settled_position, owner.command_position = self._settled_position, owner.position
        owner.nexts = open_nexts(owner.nexts, self._written, owner.command_position)
        owner.waiting.clear()
        owner.letters.clear()
        owner.refused.clear()
        owner.rest_until_ns = self._around.clock.monotonic_ns() + REST_NS
        self._counts.turn(self._around.clock.wall_ms(), self._rows["due"], self._replies, self._letters, self._missed)

    def _hear_settled(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._settled_position = max(self._settled_position, message.offset() + 1)

    def _hear_next(self, what: Next, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._written.setdefault(what.id, {})[message.offset()] = what.began
        elif self._owner.alone:
            self._hear(what.after, error, message)

    def _hear(self, origin: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and is_the_records(error):
            self._owner.refused[origin] = f"{message.topic()} does not take it: {error.str()}."


def _unwatched(origin: int) -> None:
    """Nobody asks what becomes of it."""
