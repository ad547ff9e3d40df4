"""One turn of one partition: what is due is delivered, and what was asked is answered, in one transaction.

    1. answer    all waiting commands, in the order of the input
    2. take      what is due, by (due time, origin)
    3. read      the messages from the files, and see what they bring about (follow_ups.py)
    4. deliver   them to their topics, and the next occurrences of series to the input
    5. settle    their origins; replies and dead letters
    6. position  of the commands, for the group
    7. commit
    8. mark      in the files and in memory

Where Kafka refuses one of the messages, or a target of theirs, somewhere between 4 and 7:

    9. abort     the transaction: nothing of the turn is there
   10. undo      in memory what 2 did, and learn from it (refusals.py): the next turn goes on without what was refused

A turn that only asks whether a target takes a message (a probe: rule 3 of doubts.py) is 1 to 4, then 9 and 10.

Rule 1: nothing in the files changes before 8: a crash, an error or an answer that never comes leads to the same place, the
        take-over, which reads from the logs what became of the turn. A turn that is undone was aborted first: its
        messages cannot be there, and its owner is the one that Kafka knows.
Rule 2: a command sees what stands before it in the input, and what this turn settled before it. What is delivered by this
        turn was not: its cancel, which can only come later, hears so.
Rule 3: a target that refuses, or may, is delivered to in turns of its own (doubts.py), in between the others'. What is
        known before is not tried: a message whose target is not there, or takes nothing of this relay, is put aside.
Rule 4: a turn carries no more than the owner's pace says. Where more commands wait, it answers the first of them, and
        delivers nothing: a cancel is heard before what is due goes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.errors import ConnectionLost
from waterclock.relay.owner.choice import choose, put_back
from waterclock.relay.owner.context import NOTE, RecordRefused
from waterclock.relay.owner.follow_ups import Next, follow_ups, open_nexts
from waterclock.relay.owner.owner import Owner, letter_of
from waterclock.relay.owner.pace import MOST
from waterclock.relay.owner.refusals import AbortedTurn, Reports, learn
from waterclock.relay.statistics import Counts
from waterclock.relay.store import State, handed_on, unpack
from waterclock.relay.store.ids import Found
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import ORIGIN, REASON, Command, Letter, Reply, outcome
from waterclock.relay.wire.request import AT, FROM, ID, TO, UNTIL, Header
from waterclock.relay.wire.settlement import settlements

PROBED_S: Final = 5.0  # so long Kafka is waited for


class _Known:
    """The messages of one id, looked at once, whatever the number of commands; these come in the order of the input."""

    def __init__(self, found: Sequence[Found]) -> None:
        self._behind = [*reversed(found)]  # they come by origin; the next one is the last
        self.states: set[State] = set()  # of what stands before the last command

    def take(self, offset: int, gone: Mapping[int, State]) -> list[int]:
        """The origins before `offset` that are pending, which they are no more."""
        pending: list[int] = []
        self.states |= {State.CANCELLED} if State.PENDING in self.states else set()
        while self._behind and self._behind[-1].origin < offset:
            one = self._behind.pop()
            state = gone.get(one.origin, one.state)
            self.states.add(state)
            if state is State.PENDING:
                pending.append(one.origin)
        return pending

    def take_others(self, others: Mapping[int, State], pending: list[int], gone: Mapping[int, State]) -> list[int]:
        """`pending`, and those of `others` that are; these stand wherever they do."""
        states = {origin: gone.get(origin, state) for origin, state in others.items()}
        self.states |= set(states.values())
        return list(dict.fromkeys([*pending, *(origin for origin, state in states.items() if state is State.PENDING)]))


class Turn:
    """The steps of the file, once: `begin`, `end`, then `mark`, or `undo` if it `is_thrown_away`. `counts` hear of what is
    committed."""

    def __init__(self, owner: Owner, counts: Counts) -> None:
        self.owner, self._counts = owner, counts
        self._context = owner.context
        self._began_ns = owner.context.clock.monotonic_ns()
        self._most = owner.pace.most
        self._alone = self._probes = False
        self._reports = Reports()
        self._refusal: RecordRefused | None = None
        self._taken: Array = owner.ready[:0]  # of what is due, whatever becomes of it
        self._gone: dict[int, State] = {}  # what this turn settles besides deliveries
        self._replies: list[Reply] = []
        self._letters: list[Letter] = []
        self._rows: Array = owner.ready[:0]
        self._blobs: list[bytes] = []  # of each of these
        self._nexts: list[Next] = []
        self._written: dict[bytes, dict[int, int]] = {}  # these, as `Owner.nexts`
        self._missed = 0
        self._position = owner.position  # of the commands, once this is committed
        self._settled_position = owner.settled_position

    def begin(self) -> None:
        """Steps 1 to 5. Whatever is raised, here and later, the owner is of no more use."""
        if not self.owner.has_caught_up:
            self.owner.look_ahead()
        with self._smaller_where_it_fails():
            self.answer()
            if self.owner.has_caught_up and self._position == self.owner.position:
                self.take()
                self.read()
            self.deliver()
            if not self._is_probe:
                self.settle()

    def end(self) -> None:
        """Steps 6 and 7, or 9. They wait for Kafka, and may do so in another thread: nobody else looks at the owner
        meanwhile."""
        owner, clock = self.owner, self._context.clock
        since_ns = clock.monotonic_ns()
        with self._smaller_where_it_fails():
            if not self.is_thrown_away:
                self.send_position()
                self.commit()
        if self.is_thrown_away:
            self.abort()
            return
        now_ns = clock.monotonic_ns()
        owner.pace = owner.pace.took(now_ns - self._began_ns)
        owner.rest = owner.rest.took(now_ns - since_ns, self._began_ns - owner.committed_ns)
        owner.committed_ns = now_ns

    @contextmanager
    def _smaller_where_it_fails(self) -> Iterator[None]:
        try:
            yield
        except RecordRefused as refusal:
            self._refusal = refusal
        except ConnectionLost:
            self.owner.pace = self.owner.pace.failed(self.carried)
            raise

    @property
    def is_thrown_away(self) -> bool:
        """Whether Kafka has refused something of it, or is only asked whether it would."""
        return self._refusal is not None or self._is_probe

    @property
    def _is_probe(self) -> bool:
        return self._probes and len(self._rows) == 1 and not self._letters

    @property
    def carried(self) -> int:
        """How many deliveries and answers it carries."""
        return len(self._rows) + len(self._replies) + len(self._letters)

    def answer(self) -> None:
        """Step 1."""
        owner, most, most_letters = self.owner, self._most, self.owner.most_letters
        waiting, letters = owner.waiting, owner.letters
        if len(waiting) + len(letters) > min(most, most_letters):  # rule 4
            of_letters = sorted({each.offset for each in letters})
            offsets = sorted({each.offset for each in waiting}.union(of_letters))
            position = min([self._position, *offsets[most : most + 1], *of_letters[most_letters : most_letters + 1]])
            waiting = [command for command in waiting if command.offset < position]
            letters = [letter for letter in letters if letter.offset < position]
            self._position = position
        self._letters = sorted(letters, key=lambda letter: letter.offset)
        self._gone.update({letter.offset: State.CANCELLED for letter in self._letters if letter.pending})
        if waiting:
            ids = list({command.id: None for command in waiting})  # each once: one may have a hundred thousand messages
            known = dict(zip(ids, map(_Known, owner.store.find_many(ids)), strict=True))
            place = self._context.place(owner.number, 0)[:-1]
            self._replies = [self._reply(command, known[command.id], place) for command in waiting]
        if self._gone:
            owner.drop(list(self._gone))

    def _reply(self, command: Command, known: _Known, place: str) -> Reply:
        pending = known.take(command.offset, self._gone)
        if self.owner.nexts:
            pending = known.take_others(self.owner.nexts_of(command), pending, self._gone)
        for origin in pending:
            self._gone[origin] = State.CANCELLED
        became = outcome(command.action, len(pending), State.CANCELLED in known.states, State.FIRED in known.states)
        return Reply(command.id.decode(), command.action.value, became, len(pending), f"{place}{command.offset}")

    def take(self) -> None:
        """Step 2."""
        chosen = choose(self.owner, self._most, self.owner.most_letters - len(self._letters))
        if len(chosen.aside):  # else Kafka would be asked for the bounds of the log
            self._letters += self._put_aside(chosen.aside, chosen.reasons)
            self._gone.update(dict.fromkeys(chosen.aside["origin"].tolist(), State.CANCELLED))
        self._rows = chosen.rows
        self._alone, self._probes = chosen.is_alone, chosen.is_probe
        self._taken = np.concatenate([chosen.aside, chosen.rows])

    def _put_aside(self, rows: Array, reasons: Mapping[int, str]) -> list[Letter]:
        """The records as they came; what is cut off by now, as it is in the files."""
        origins, owner, letters = rows["origin"].tolist(), self.owner, list[Letter]()
        records = self._context.logs.records(self._context.topics.input, owner.number, origins)
        for place, origin in enumerate(origins):
            if origin in records:
                letters.append(letter_of(records[origin], reasons[origin], True))
                continue
            row = rows[place : place + 1]
            (payload,) = map(unpack, owner.store.read(row))
            request = [(TO, owner.store.targets[row["target"][0]].encode()), (AT, b"%d" % row["due"][0])]
            request += [(ID, payload.id)] if payload.id else []
            headers = [*request, *payload.headers]
            letters.append(Letter(origin, reasons[origin], payload.value, payload.key, headers, True))
        return letters

    def read(self) -> None:
        """Step 3."""
        owner = self.owner
        blobs = list(owner.store.read(self._rows))
        if self._rows["flags"].any():
            found = follow_ups(self._rows, blobs, owner.store.targets, self._context.clock.wall_ms())
            self._rows, blobs = found.rows, found.blobs
            self._nexts, self._missed = found.nexts, found.missed
            self._letters += found.letters
            self._gone.update(dict.fromkeys(found.aside, State.CANCELLED))
        self._blobs = blobs

    def deliver(self) -> None:
        """Step 4."""
        owner, producer = self.owner, self.owner.producer
        producer.begin()
        topics = map(owner.store.targets.__getitem__, self._rows["target"].tolist())
        messages = handed_on(self._blobs, self._headers_of_delivery())
        if self._is_named:
            for origin, topic, (value, key, headers) in zip(
                self._rows["origin"].tolist(), topics, messages, strict=True
            ):
                hear = partial(self._reports.of_message, origin)
                producer.send(topic, value, key, headers=headers, on_delivery=hear)
        else:
            producer.send_many(topics, messages)
        for each in self._nexts:
            hear = partial(self._hear_next, each)
            topic = self._context.topics.input
            producer.send(topic, each.value, each.key, owner.number, headers=each.headers, on_delivery=hear)
        self._blobs = []  # the client has them

    @property
    def _is_named(self) -> bool:
        """Whether there is a report of each message: it takes a tenth of a turn's time."""
        return self._alone or self.owner.is_naming

    def _headers_of_delivery(self) -> Iterator[list[Header]]:
        """The headers by which whoever gets a message knows its request and its due time."""
        prefix, last, until = self._context.place(self.owner.number, 0)[:-1].encode(), None, (UNTIL, b"")
        for origin, due in zip(self._rows["origin"].tolist(), self._rows["due"].tolist(), strict=True):
            if due != last:
                last, until = due, (UNTIL, b"%d" % due)
            yield [(FROM, b"%s%d" % (prefix, origin)), until]

    def settle(self) -> None:
        """Step 5."""
        owner, topics = self.owner, self._context.topics
        gone = np.array(list(self._gone), "<i8")
        parts = [(State.FIRED, self._rows["origin"]), *([(State.CANCELLED, gone)] if len(gone) else [])]
        for state, origins in parts:
            for value in settlements(state, origins, self._position, self._context.mark):
                owner.producer.send(topics.settled, value, None, owner.number, on_delivery=self._hear_settled)
        replies = ((reply.as_json(), reply.id.encode(), list[Header]()) for reply in self._replies)
        owner.producer.send_many(repeat(topics.replies, len(self._replies)), replies)
        for letter in self._letters:
            place = self._context.place(owner.number, letter.offset)
            headers: list[Header] = [(REASON, letter.reason.encode()), (ORIGIN, place.encode())]
            if ~letter.offset in owner.refused:  # the letter itself: it is said without the record
                headers.append(("dead-record", f"too much for this topic: it stands at {place}".encode()))
                owner.producer.send(topics.dead, None, None, headers=headers)
            else:
                headers, hear = [*letter.headers, *headers], partial(self._reports.of_letter, letter.offset)
                owner.producer.send(topics.dead, letter.value, letter.key, headers=headers, on_delivery=hear)

    def send_position(self) -> None:
        """Step 6."""
        place = (self._context.topics.input, self.owner.number)
        self.owner.producer.send_offsets({place: self._position}, self._context.member(), NOTE)

    def commit(self) -> None:
        """Step 7; when it returns, Kafka has it all."""
        self.owner.producer.commit()

    def mark(self) -> None:
        """Step 8."""
        owner = self.owner
        gone = np.array(list(self._gone), "<i8")
        for origins, state in ((self._rows["origin"], State.FIRED), (gone, State.CANCELLED)):
            if len(origins):
                owner.log_span.unsaved += 64 + origins.nbytes
                with owner.disk.asking():  # it is settled all the same, and the next checkpoint writes it down
                    owner.store.settle(origins, state)
        owner.checkpoints.is_changed = True
        owner.settled_position = self._settled_position
        owner.command_position = answered = self._position
        owner.waiting = [command for command in owner.waiting if command.offset >= answered]
        owner.letters = [letter for letter in owner.letters if letter.offset >= answered]
        if owner.nexts or self._written:
            owner.nexts = open_nexts(owner.nexts, self._written, answered)
        owner.rest_until_ns = self._context.clock.monotonic_ns() + owner.rest.ns
        for letter in self._letters:  # what was learned of refusals
            owner.refused.pop(letter.offset, None)
            owner.refused.pop(~letter.offset, None)
        owner.most_letters, owner.anew = min(MOST, max(owner.most_letters, 2 * len(self._letters))), 0
        if not self._alone:
            owner.is_naming = False
        elif len(self._rows):
            owner.doubts.took(int(self._rows["target"][0]), len(self._rows))
        self._counts.turn(self._context.clock.wall_ms(), self._rows["due"], self._replies, self._letters, self._missed)

    def abort(self) -> None:
        """Step 9; when it returns, nothing of what was sent is there. ConnectionLost if that is not known."""
        if self._is_probe and self._refusal is None:
            self.owner.producer.arrive(PROBED_S)
        self.owner.producer.abort()

    def undo(self) -> None:
        """Step 10."""
        owner, refusal = self.owner, self._refusal or self._reports.refusal()
        if refusal is None:
            owner.doubts.probe(int(self._rows["target"][0]), False)
        else:
            letters, carried = len(self._letters), self.carried
            learn(owner, AbortedTurn(self._rows, letters, carried, self._is_named, self._alone, refusal), self._reports)
        rows = self._taken[np.lexsort((self._taken["origin"], self._taken["due"]))]
        are_refused = np.isin(rows["origin"], list(owner.refused))
        owner.doubts.refused(rows[are_refused])
        put_back(owner, rows[~are_refused], self._alone)

    def _hear_settled(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._settled_position = max(self._settled_position, message.offset() + 1)
        self._reports.of_own(error, message)

    def _hear_next(self, what: Next, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._written.setdefault(what.id, {})[message.offset()] = what.began
        self._reports.of_next(what.after, error, message)
