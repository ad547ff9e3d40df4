"""One turn of one partition: what is due is delivered, and commands are answered, in one transaction.

    1. answer    all waiting commands, in the order of the input (follow_ups.py)
    2. take      what is due, by (due time, origin); what cannot go becomes a dead letter (refusals.py)
    3. read      the messages from the files, and see what they bring about (follow_ups.py)
    4. deliver   them to their topics, and the next occurrences of series to the input
    5. settle    their origins; replies and dead letters
    6. position  of the commands: the offset of the group. It never falls
    7. commit
    8. apply     to the files and in memory what is committed now

If Kafka refuses one of the messages, or a target of theirs, somewhere between 4 and 7:

    9. abort     the transaction: nothing of the turn is there
   10. undo      in memory what 2 did, and learn from it (refusals.py): the next turn goes on without what was refused

A turn that only asks whether a target takes a message (a probe: rule 6 of pace.py) is 1 to 4, then 9 and 10.

Rule 1: nothing in the files changes before 8: a crash, an error or an answer that never comes leads to the same place, the
        take-over, which reads from the logs what became of the turn. A turn that is undone was aborted first: its
        messages cannot be there, and its owner is the one that Kafka knows.
Rule 2: commands are answered before anything is delivered: they see what stands before them in the input, and what earlier
        commands of this turn cancelled. A cancel of a message that this turn delivers comes in a later turn, and is
        answered `already delivered`. If step 2, or the turns before, waited for Kafka longer than GAP_NS, all that it took
        is put back: what has come meanwhile may be due earlier. Not twice in a row: Kafka may always be that slow.
Rule 3: a target that refuses, or may, is delivered to in turns of its own (pace.py), in between the others'.
Rule 4: a turn carries no more than the owner's pace says. If more commands wait, it answers the first of them, and
        delivers nothing: a cancel is heard before what is due goes out.

The turns of all partitions that one relay owns are begun one after the other, and committed side by side (`OwnerTurns`):
steps 1 to 5, 8 and 10 in the relay's own thread, 6, 7 and 9 each in a thread that waits for Kafka while the next one is
begun.

Rule 5: all have ended when `OwnerTurns.run` returns, those that failed too. So nothing else that the relay does meets a
        turn on its way: not what comes in, no checkpoint, nothing that the group takes away or gives.
Rule 6: turns know nothing of each other: a partition has its own producer and its own transaction. One that fails is the
        matter of its owner alone, the others are applied. They wait for it, for `ENDED_S` at most: the logs say what it is.
Rule 7: at most `AT_ONCE` are on their way. Each has up to `owner.TURN_BYTES` with the client.
Rule 8: if the relay itself ends meanwhile (Ctrl-C, an error that no other attempt mends), what is on its way is given
        up: nobody waits for Kafka's answer, and the next owner reads in the logs what became of it.
Rule 9: librdkafka cannot abort a transaction of which Kafka has nothing, since each partition of it was refused: that is an
        error for good. Where a refusal is at hand, the position goes first. Where none was, such a turn is a take-over,
        and what was refused is learned of before: the next owner does not meet it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.errors import ConnectionLost
from waterclock.outside import futures
from waterclock.relay.owner.context import NOTE, RecordRefused
from waterclock.relay.owner.follow_ups import Next, follow_ups, open_nexts, replies_to
from waterclock.relay.owner.log_span import RECORD_BYTES
from waterclock.relay.owner.owner import CHECKPOINT_NS, GAP_NS, Owner
from waterclock.relay.owner.pace import ENDED_S, MOST
from waterclock.relay.owner.refusals import AbortedTurn, Reports, choose, give_back, learn
from waterclock.relay.statistics import Counts
from waterclock.relay.store import State, handed_on
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import ORIGIN, REASON, Letter, Reply
from waterclock.relay.wire.request import FROM, UNTIL, Header
from waterclock.relay.wire.settlement import settlements

PROBED_S: Final = 5.0  # so long Kafka is waited for
AT_ONCE: Final = 4
MOST_WAITING: Final = 50_000  # commands that wait for the end of the input to be reached
MOST_LETTERS: Final = 1_000  # likewise of dead letters: each is a whole record
Action = Callable[[Owner], int]


class Turn:
    """The steps of the file, once: `begin`, `end`, then `apply`, or `undo` if it `is_thrown_away`. `counts` hear of what is
    committed."""

    def __init__(self, owner: Owner, counts: Counts) -> None:
        self.owner, self._counts = owner, counts
        self._context = owner.context
        self._began_ns = owner.context.clock.monotonic_ns()
        self._most = owner.pace.most
        self._is_alone = self._probes = False
        self._reports = Reports()
        self._refusal: RecordRefused | None = None
        self._taken: Array = owner.ready[:0]  # of what is due, whatever becomes of it
        self._gone: dict[int, State] = {}  # what this turn settles besides deliveries
        self._replies: list[Reply] = []
        self._letters: list[Letter] = []
        self._rows: Array = owner.ready[:0]
        self._blobs: list[bytes] = []  # of each of these
        self._nexts: list[Next] = []
        self._written: dict[bytes, dict[int, int]] = {}  # `_nexts` with their offsets, in the form of `Owner.nexts`
        self._missed = 0
        self._position = max(owner.position, owner.command_position)  # of the commands, once this is committed
        self._settled_position = owner.settled_position

    def begin(self) -> None:
        """Steps 1 to 5. Whatever is raised, here and later, the owner is of no more use."""
        if not self.owner.has_caught_up:
            self.owner.look_ahead()
        with self._smaller_if_it_fails():
            self.answer()
            answers_all = self._position >= self.owner.position  # rule 4
            if self.owner.has_caught_up and answers_all:
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
        with self._smaller_if_it_fails():
            if not self.is_thrown_away:
                if not self._has_reports:
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
    def _smaller_if_it_fails(self) -> Iterator[None]:
        """A refusal is kept for `undo`; after another error the owner's next turn has half as many."""
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
            nexts_of, prefix = owner.nexts_of if owner.nexts else None, self._context.prefix(owner.number)
            self._replies = replies_to(waiting, owner.store, nexts_of, self._gone, prefix)
        if self._gone:
            owner.drop(list(self._gone))

    def take(self) -> None:
        """Step 2."""
        owner, chosen = self.owner, choose(self.owner, self._most, self.owner.most_letters - len(self._letters))
        taken = np.concatenate([chosen.aside, chosen.rows])
        owner.was_late = not owner.was_late and self._context.clock.monotonic_ns() - owner.known_ns > GAP_NS
        if owner.was_late:  # rule 2
            owner.may_have_missed_input = True
            return give_back(owner, taken, chosen.is_alone)
        self._taken = taken
        self._letters += chosen.letters
        self._gone.update(dict.fromkeys(chosen.aside["origin"].tolist(), State.CANCELLED))
        self._rows = chosen.rows
        self._is_alone, self._probes = chosen.is_alone, chosen.is_probe
        return None

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
        if self._has_reports:  # rule 9
            self.send_position()
        topics = map(owner.store.targets.__getitem__, self._rows["target"].tolist())
        messages = handed_on(self._blobs, self._headers_of_delivery())
        if self._has_reports:
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
    def _has_reports(self) -> bool:
        """Whether there is a report of each message: it takes a tenth of a turn's time."""
        return self._is_alone or self.owner.reports_each

    def _headers_of_delivery(self) -> Iterator[list[Header]]:
        """The headers by which whoever gets a message knows its request and its due time."""
        prefix, last, until = self._context.prefix(self.owner.number).encode(), None, (UNTIL, b"")
        for origin, due in zip(self._rows["origin"].tolist(), self._rows["due"].tolist(), strict=True):
            if due != last:
                last, until = due, (UNTIL, b"%d" % due)
            yield [(FROM, b"%s%d" % (prefix, origin)), until]

    def settle(self) -> None:
        """Step 5."""
        owner, topics = self.owner, self._context.topics
        gone = np.array(list(self._gone), "<i8")
        parts = [(State.DELIVERED, self._rows["origin"]), *([(State.CANCELLED, gone)] if len(gone) else [])]
        for state, origins in parts:
            for value in settlements(state, origins, self._position, self._context.input_hash):
                owner.producer.send(topics.settled, value, None, owner.number, on_delivery=self._hear_settled)
        replies = ((reply.as_json(), reply.id.encode(), list[Header]()) for reply in self._replies)
        owner.producer.send_many(repeat(topics.replies, len(self._replies)), replies)
        for letter in self._letters:
            place = self._context.place(owner.number, letter.offset)
            headers: list[Header] = [(REASON, letter.reason.encode()), (ORIGIN, place.encode())]
            if letter.offset in owner.refused_letters:  # the letter itself: it goes without the record
                headers.append(("dead-record", f"too much for this topic: it stands at {place}".encode()))
                owner.producer.send(topics.dead, None, None, headers=headers)
            else:
                headers, hear = [*letter.headers, *headers], partial(self._reports.of_letter, letter.offset)
                owner.producer.send(topics.dead, letter.value, letter.key, headers=headers, on_delivery=hear)

    def send_position(self) -> None:
        """Step 6."""
        place = (self._context.topics.input, self.owner.number)
        self.owner.producer.send_offsets({place: self._position}, self._context.outsider, NOTE)

    def commit(self) -> None:
        """Step 7; when it returns, Kafka has it all."""
        self.owner.producer.commit(ENDED_S)

    def apply(self) -> None:
        """Step 8."""
        owner = self.owner
        gone = np.array(list(self._gone), "<i8")
        for origins, state in ((self._rows["origin"], State.DELIVERED), (gone, State.CANCELLED)):
            if len(origins):
                owner.log_span.unsaved += RECORD_BYTES + origins.nbytes
                with owner.disk.noting():  # it is settled all the same, and the next checkpoint writes it down
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
            owner.refused_letters.pop(letter.offset, None)
        owner.most_letters, owner.anew = min(MOST, max(owner.most_letters, 2 * len(self._letters))), 0
        if not self._is_alone:
            owner.reports_each = False
        elif len(self._rows):
            owner.doubts.took(int(self._rows["target"][0]), len(self._rows))
        done = self._rows["due"], self._replies, self._letters, self._missed
        self._counts.turn(self._context.clock.wall_ms(), *done, f"{self._context.topics.input}-{owner.number}")

    def abort(self) -> None:
        """Step 9; when it returns, nothing of what was sent is there. ConnectionLost if that is not known."""
        if self._is_probe and self._refusal is None:
            self.owner.producer.arrive(PROBED_S)
        self.owner.producer.abort(ENDED_S)

    def undo(self) -> None:
        """Step 10."""
        owner = self.owner
        if not self.learn():
            owner.doubts.probe(int(self._rows["target"][0]), False)
        give_back(owner, self._taken, self._is_alone)

    def learn(self) -> bool:
        """Of a refusal, if there was one."""
        refusal = self._refusal or self._reports.refusal()
        if refusal is not None:
            parts = len(self._letters), self.carried, self._has_reports, self._is_alone
            learn(self.owner, AbortedTurn(self._rows, *parts, refusal), self._reports)
        return refusal is not None

    def _hear_settled(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._settled_position = max(self._settled_position, message.offset() + 1)
        self._reports.of_own(error, message)

    def _hear_next(self, what: Next, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._written.setdefault(what.id, {})[message.offset()] = what.began
        self._reports.of_next(what.after, error, message)


class OwnerTurns:
    """`counts` hear of what is committed; `of(number, action)` does something with the owner of a partition, and deals with
    its failure."""

    def __init__(self, counts: Counts, of: Callable[[int, Action], int]) -> None:
        self._counts, self._of = counts, of
        self._pool = futures.ThreadPoolExecutor(AT_ONCE, "turns")
        self._under_way: deque[tuple[Turn, futures.Future[None]]] = deque()

    def is_wanted(self, owner: Owner) -> bool:
        """Whether there is something for a turn, and the last one was long enough ago."""
        context = owner.context
        if owner.may_have_missed_input:
            owner.known_ns = context.clock.monotonic_ns()
            owner.catch_up(context.logs.bounds(context.topics.input, owner.number)[1])
        if owner.rest_until_ns > context.clock.monotonic_ns():
            return False
        if not owner.has_caught_up:
            are_many = len(owner.waiting) > MOST_WAITING or len(owner.letters) > MOST_LETTERS
            # a cancel that waits may be for a message of which only a copy is left, which was not read yet (wire/moves.py)
            return are_many and owner.log_span.moves.end <= owner.position
        if not owner.is_quiet(0):
            return True
        # if nothing is delivered, the group's offset is committed seldom
        since_ns = context.clock.monotonic_ns() - owner.rest_until_ns
        return owner.command_position < owner.position and since_ns >= CHECKPOINT_NS

    def run(self, owners: Sequence[Owner]) -> int:
        """A turn of each; how much they carried, committed or thrown away: 0 if none was begun."""
        done = 0
        try:
            for owner in owners:
                if len(self._under_way) == AT_ONCE:
                    done += self._finish()
                self._of(owner.number, self._begin)
            while self._under_way:
                done += self._finish()
        finally:
            for turn, _ in self._under_way:  # rule 8
                turn.owner.producer.give_up()
            futures.wait([ended for _, ended in self._under_way])
            self._under_way.clear()
        return done

    def _begin(self, owner: Owner) -> int:
        turn = Turn(owner, self._counts)
        turn.begin()
        self._under_way.append((turn, self._pool.submit(turn.end)))
        return 1

    def _finish(self) -> int:
        """Wait for the one that was begun first, and apply it."""
        turn, ended = self._under_way[0]
        futures.wait([ended])
        self._under_way.popleft()

        def apply(owner: Owner) -> int:
            try:
                ended.result()
            except ConnectionLost:
                turn.learn()  # rule 9
                raise
            turn.undo() if turn.is_thrown_away else turn.apply()
            return max(1, turn.carried)  # or at least the position of the commands

        return self._of(turn.owner.number, apply)

    def close(self) -> None:
        """No more turns."""
        self._pool.shutdown()
