"""The owner of one input partition: it files what comes, and knows what is due. Its turns stand in turn.py.

Rule 1: a record of the input has two sides, filing and answering. It is filed if it stands at the data position or behind
        it, and answered (a cancel, a replace, a bad request) if it stands at the command position or behind it.
Rule 2: whether a target is there is asked when the request comes, and again when it is due. A request without a target
        is filed all the same, and settled with its dead letter: who reads the log again later, when there is such a
        topic, must not take it for pending.
Rule 3: what is due within `SOON_MS` waits in the wheel, the rest on the disk.
Rule 4: if the disk refuses (context.py), what was read is held as it came, and filed before anything that comes later. A
        span that is longer than an hour is split on the disk before it is loaded. If the disk refuses that, nothing is
        delivered that is due later than all that was loaded: it could overtake what is not loaded yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.logs import fingerprint_of
from waterclock.relay.owner.context import Context, DiskSpace
from waterclock.relay.owner.due_soon import DueSoonWheel
from waterclock.relay.owner.follow_ups import Nexts, next_occurrences
from waterclock.relay.owner.log_span import EACH, LogSpan
from waterclock.relay.owner.pace import MOST, Doubts, Pace, Rest
from waterclock.relay.store import ROW, PartitionStore, State, StoreDamaged, rows_of
from waterclock.relay.store.checkpoints import Checkpoints
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import Command, Letter
from waterclock.relay.wire.moves import Requests, read
from waterclock.relay.wire.request import headers_of

SOON_MS: Final = 600_000
SLICE: Final = 100_000  # rows loaded at once: 50 ms
TURN_BYTES: Final = 64 << 20  # of messages that are in memory at once
CHECKPOINT_NS: Final = 1_000_000_000
GAP_NS: Final = 1_000_000_000  # so long the machine, or a slow Kafka, may keep what comes from being read


class Start(NamedTuple):
    """Where an owner begins: up to where the input is filed and answered, its end, and that of what is settled; how much of
    both logs there is."""

    filed: int
    answered: int
    end: int
    settled: int
    log_span: LogSpan


class Owner:
    """What a process knows of a partition while it owns it; `TakeOver` makes it.

    `position`: the input was read up to here. `command_position`: answered and committed up to here. `refused`: which
    origins Kafka did not take, and why; `refused_letters`: the same of dead letters, by their offsets. `doubts`: targets
    that are delivered to by themselves; `was_alone`: the last turn was for one of these. `reports_each`: the next turn has
    a delivery report of each message. `most_letters`: of one turn. `to_ask_again`: targets that refused; the producer asks
    Kafka about them once they do not refuse any more. `anew`: so many turns in a row were thrown away for an error that
    means ANEW. `held`: records that wait for room on the disk. `may_have_missed_input`: the input may be longer than known;
    `known_ns`: what had come by then is known; `was_late`: the last turn was put back, as that was too long ago.
    """

    def __init__(
        self, context: Context, number: int, store: PartitionStore, producer: TransactionalProducer, start: Start
    ) -> None:
        self.context, self.number = context, number
        self.store, self.producer = store, producer
        # how far both logs were read, answered and filed
        self.position = min(start.filed, start.answered)
        self.command_position = start.answered
        self.settled_position = start.settled
        self.log_span = start.log_span
        self.reads_to = start.end  # nothing is delivered before the input was read to here
        self.may_have_missed_input = self.was_late = False
        self._filed = start.filed
        self._fingerprint = store.fingerprint
        self._reached = 0  # librdkafka says that the input was read up to here
        self._looked_to = 0  # `look_ahead` has read it up to here
        self.disk = DiskSpace(context.place_of(number), context.clock)
        self.held: list[Sequence[Message]] = []
        # what waits for a turn
        self.waiting: list[Command] = []
        self.letters: list[Letter] = []
        self.nexts: Nexts = {}
        self.ready = np.empty(0, ROW)  # due, and not delivered yet
        # what is known of Kafka
        self.refused, self.refused_letters = dict[int, str](), dict[int, str]()
        self.doubts = Doubts(context.clock)
        self.to_ask_again = set[str]()
        self.reports_each = self.was_alone = False
        self.most_letters, self.anew = MOST, 0
        self.pace, self.rest = Pace(), Rest()
        self.rest_until_ns = self.committed_ns = 0
        self.known_ns = self.heard_ns = context.clock.monotonic_ns()
        self.has_work = True
        self.checkpoints = Checkpoints(self._checkpoint, CHECKPOINT_NS, context.clock)
        self.checkpoints.is_changed = True
        store.unload()
        self.due_soon = DueSoonWheel(context.clock.wall_ms())
        self._loaded_until = 0  # what is due before is in the wheel, or was
        with self.disk.noting():
            self._load()

    # What comes in

    def ingest(self, *came: Sequence[Message]) -> int:
        """File and note records of the input that came, in their order, behind those that are held. Returns how many were
        new. Without room on the disk they are held too."""
        if came:
            self.heard()
            self.held += came
        done = 0
        if self.held and self.disk.is_time:
            with self.disk.noting():
                while self.held:
                    done += self._file(self.held[0])
                    del self.held[0]
        return done

    def _file(self, messages: Sequence[Message]) -> int:
        """Rules 1 and 2."""
        news = read(messages, self.position, self.log_span.moves)
        if news.last is None or not news.looked_at:
            return 0
        absent = self.context.targets.missing(set(news.targets))
        first = bisect_left(news.offsets, self._filed)
        if first < len(news.offsets):  # what lies behind the data position
            rows = rows_of(news.dues[first:], news.origins[first:])
            rows["flags"] = news.flags[first:]
            rows = self.store.append(rows, news.blobs[first:], news.targets[first:])
            self.disk.took()
            self.due_soon.add(rows[rows["due"] < self.store.loaded_until])
        if absent or news.bad or news.commands or news.nexts:
            self._note(news, absent)  # what was filed is filed: from here on nothing fails
        self.position = news.last.offset() + 1
        self.log_span.volume.grow(self.position, sum(map(len, news.blobs)) + EACH * news.looked_at)
        if self.position > self._filed:
            self._fingerprint = fingerprint_of(news.last)
            self.checkpoints.is_changed = True
        return news.looked_at

    def _note(self, news: Requests, absent: dict[str, str]) -> None:
        """Note what stands at the command position or behind it. A replace without a target replaces nothing."""
        answered = self.command_position
        letters = [letter_of(message, why, False) for message, why in news.bad]
        aside = []
        if absent:
            named = zip(news.messages, news.offsets, news.origins, news.targets, strict=True)
            aside = [
                letter_of(message, absent[target], True)
                for message, offset, origin, target in named
                if target in absent and offset == origin  # else it is a copy
            ]
        self.letters += [letter for letter in (*letters, *aside) if letter.offset >= answered]
        nowhere = {letter.offset for letter in aside}
        self.waiting += [each for each in news.commands if each.offset >= answered and each.offset not in nowhere]
        for id, offset, began in news.nexts:
            if offset >= answered:
                self.nexts.setdefault(id, {})[offset] = began

    def reached(self, offset: int) -> int:
        """librdkafka says (end of partition) that the input was read up to here. No position moves for it: only a record
        does that, so that nothing that librdkafka says can leave one out. If deliveries would begin with it, the log itself
        is looked at: the word may be of a reading that is over. Returns 0: no record came."""
        self.heard()
        came_to = (self.held[-1][-1].offset() or 0) + 1 if self.held else self.position
        if came_to < self.reads_to <= offset:
            records = self.context.logs.read(self.context.topics.input, self.number, came_to, offset)
            if next(iter(records), None) is not None:  # one stands there that was not read yet
                return 0
        self._reached = max(self._reached, offset)
        return 0

    def catch_up(self, end: int) -> None:
        """Nothing is delivered before the input was read to this end."""
        self.reads_to = max(end, self.reads_to)
        self.may_have_missed_input = False

    def look_ahead(self) -> None:
        """Before commands are answered of an input that was not read to its end (there are too many to keep): know the next
        occurrences that stand further on. One of them may be what a command is for."""
        if self._looked_to >= self.reads_to:
            return
        for id, offset, began in next_occurrences(self.context, self.number, range(self.position, self.reads_to)):
            self.nexts.setdefault(id, {})[offset] = began
        self._looked_to = self.reads_to

    def heard(self) -> None:
        """A record or the end of the input came just now."""
        self.heard_ns = self.context.clock.monotonic_ns()

    def is_quiet(self, for_ms: int) -> bool:
        """Whether nothing is due for so long, and nothing waits for its answer."""
        due_ms = self.next_due_ms()
        is_due = due_ms is not None and due_ms <= self.context.clock.wall_ms() + for_ms
        return not (is_due or self.waiting or self.letters)

    @property
    def has_caught_up(self) -> bool:
        """Whether it has read what stood in the input when it took over."""
        read = self.position if self.held else max(self.position, self._reached)
        return not self.may_have_missed_input and read >= self.reads_to

    # What is due

    def due(self, now_ms: int, most: int) -> Array:
        """What is to be delivered now, by due time, then in the order of the input; `most` or TURN_BYTES at once. What was
        ready before the clock was set back waits again."""
        rows = self.due_soon.take(min(now_ms, self._loaded_until - 1))
        if len(rows) and len(self.ready):
            rows = np.concatenate([self.ready, rows])
            rows = rows[np.lexsort((rows["origin"], rows["due"]))]
        elif len(self.ready):
            rows = self.ready
        most = min(most, max(1, int(np.searchsorted(np.cumsum(rows["length"], dtype="i8"), TURN_BYTES))))
        most = min(most, int(np.searchsorted(rows["due"], now_ms, "right")))
        self.ready = rows[most:]
        return rows[:most]

    def put_back(self, rows: Array) -> None:
        """These are for the next turn, and come before what is `ready`: they were due before it, or become dead letters."""
        self.ready = np.concatenate([rows, self.ready])

    def drop(self, origins: Sequence[int]) -> None:
        """Messages with these origins are not to be delivered."""
        gone = np.array(origins, "<i8")
        self.due_soon.remove(gone)
        self.doubts.remove(gone)
        self.ready = self.ready[~np.isin(self.ready["origin"], gone)]

    def next_due_ms(self) -> int | None:
        """When something is to be delivered, or becomes a dead letter; None if nothing is near."""
        soon_ms = self.due_soon.next_due()
        dues = [
            self.doubts.next_due_ms,
            soon_ms if (soon_ms or 0) < self._loaded_until else None,
            *self.ready["due"][:1],
        ]
        return min((int(due_ms) for due_ms in dues if due_ms is not None), default=None)

    # Now and then

    def keep_up(self) -> int:
        """File what is held, load what has come near, go on with a checkpoint by a step: each if it is time for it. Returns
        how many held records were filed."""
        if not self.disk.is_time:
            return 0
        done = self.ingest()
        with self.disk.noting():
            if self.checkpoints.is_time:
                self.has_work = True
                self._load()
                self.checkpoints.begin()
            if self.checkpoints.step() and not self.held:
                self.disk.took()
        return done

    def tidy(self) -> None:
        """A few milliseconds of work on the files, while nothing else is to be done."""
        had_work, self.has_work = self.has_work, False
        if self.disk.is_time:
            with self.disk.noting():
                self.has_work = self.checkpoints.is_under_way or (had_work and self.store.tidy())

    def checkpoint(self) -> None:
        """Write down what was filed and settled so far, so that it outlasts a crash, unless the disk refuses it."""
        with self.disk.noting():
            self.checkpoints.finish()

    def _checkpoint(self) -> Iterator[None]:
        # if nothing waits for its answer, all that was read is answered: a new start need not read it again
        read = self.command_position if self.waiting or self.letters else self.position
        self.log_span.answered = max(self.command_position, read)
        self.store.notes = self.log_span.notes()
        filed = max(self._filed, self.position)
        return self.store.checkpoint_steps(filed, self._fingerprint, self.settled_position)

    def nexts_of(self, command: Command) -> dict[int, State]:
        """The next occurrences, by origin, of the series that a command means: those that began before it. One may
        stand behind the command in the input: it was written while the command was not read yet."""
        nexts = self.nexts.get(command.id, {})
        origins = sorted(origin for origin, began in nexts.items() if began < command.offset)
        settled = self.store.is_settled(np.array(origins, "<i8")).tolist()
        states = [State.CANCELLED if is_settled else State.PENDING for is_settled in settled]
        return dict(zip(origins, states, strict=True))

    def set_aside(self, error: StoreDamaged) -> None:
        """The files do not hold what was written: they are empty from now on."""
        with self.disk.noting():  # if not even that can be, the damage is found again
            self.store.set_aside(str(error), self.context.begins(self.number))

    def close(self) -> None:
        """Let go: what is not committed is thrown away, what was not written down is read again."""
        self.producer.close()
        self.store.close()

    def _load(self) -> None:
        """Have all in the wheel that is due within `SOON_MS`. OSError if a span is to be split for it and cannot: then
        the next attempt begins anew."""
        now_ms, near, loaded = self.context.clock.wall_ms(), self.due_soon, 0
        taken = np.concatenate([self.ready["origin"], self.doubts.origins])
        if self._loaded_until < self.store.loaded_until:
            near = DueSoonWheel(now_ms)
            self.store.unload()
        for rows in self.store.load(now_ms + SOON_MS, SLICE):
            loaded += len(rows)
            self.context.reading(f"the files of {self.context.place_of(self.number)}", loaded, self.store.pending)
            near.add(rows if near is self.due_soon else rows[~np.isin(rows["origin"], taken)])
        self.due_soon, self._loaded_until = near, self.store.loaded_until


def letter_of(message: Message, reason: str, pending: bool) -> Letter:
    """The dead letter of a record."""
    return Letter(message.offset(), reason, message.value(), message.key(), headers_of(message) or [], pending)
