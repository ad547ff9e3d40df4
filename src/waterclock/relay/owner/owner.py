"""The owner of one input partition: it files what comes, and knows what is due. Its turns stand in turn.py.

Rule 1: a record of the input is looked at once for each of its two sides: it is filed if it lies behind the data position,
        and answered (a cancel, a replace, a bad request) if it lies behind the command position.
Rule 2: whether a target is there is asked when the request comes, and again when it is due. A request without a target
        is filed all the same, and settled with its dead letter: who reads the log again later, when there is such a
        topic, must not take it for pending.
Rule 3: what is due within `NEAR_MS` waits in the wheel, the rest on the disk.
Rule 4: where the disk refuses, what was read is held as it came, and filed before anything that comes later. Where it
        refuses to have a coarse span split, nothing is delivered that is due later than all that was loaded: it could
        overtake.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.logs.logs import fingerprint_of
from waterclock.relay.owner.ahead import next_occurrences
from waterclock.relay.owner.around import Around
from waterclock.relay.owner.doubts import Doubts
from waterclock.relay.owner.extent import EACH, Extent
from waterclock.relay.owner.near import Near
from waterclock.relay.owner.pace import MOST, Pace, Rest
from waterclock.relay.owner.room import Room
from waterclock.relay.store import ROW, PartitionStore, State, StoreDamaged, rows_of
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.columns import Requests, read
from waterclock.relay.wire.letters import Command, Letter
from waterclock.relay.wire.request import headers_of

NEAR_MS: Final = 600_000
SLICE: Final = 100_000  # rows loaded at once: 50 ms
TURN_BYTES: Final = 64 << 20  # of messages that are in memory at once
CHECKPOINT_NS: Final = 1_000_000_000
_DONE: Final = object()


class Start(NamedTuple):
    """Where an owner begins: up to where the input is filed and answered, its end, and that of what is settled; how much of
    both logs there is."""

    filed: int
    answered: int
    end: int
    settled: int
    extent: Extent


class Owner:
    """What a process knows of a partition while it owns it; `TakeOver` makes it.

    `position`: the input was read up to here. `command_position`: answered and committed up to here. `refused`: which
    origins Kafka did not take, and why; for a letter, the complement of its offset. `doubts`: targets that are delivered to
    by themselves; `was_alone`: the last turn was for one of these. `is_naming`: the next one hears of each message.
    `most_letters`: of one turn. `unasked`: targets that refused, and of which the producer has not asked Kafka since.
    `anew`: so many turns in a row were thrown away for nobody's fault. `held`: records that wait for room on the disk.
    `is_in_doubt`: the input may have gone on unseen.
    """

    def __init__(
        self,
        around: Around,
        number: int,
        store: PartitionStore,
        producer: TransactionalProducer,
        start: Start,
    ) -> None:
        self.around, self.number, self.store, self.producer = around, number, store, producer
        self.position, self.command_position = min(start.filed, start.answered), start.answered
        self.settled_position, self.extent = start.settled, start.extent
        self.waiting: list[Command] = []
        self.letters: list[Letter] = []
        self.refused: dict[int, str] = {}
        self.doubts, self.is_naming, self.was_alone, self.most_letters = Doubts(around.clock), False, False, MOST
        self.anew, self.unasked = 0, set[str]()
        self.pace = Pace()
        self.room = Room(around.place_of(number), around.clock)
        self.held: list[Sequence[Message]] = []
        self.nexts: dict[bytes, dict[int, int]] = {}  # `nexts_of`, by id: origin -> where the series began
        self.ready = np.empty(0, ROW)  # due, and not delivered yet
        self.rest, self.rest_until_ns, self.committed_ns = Rest(), 0, 0
        self._filed, self._catch_up_to, self._fingerprint = start.filed, start.end, store.fingerprint
        self.has_work, self._reached, self.is_in_doubt = True, 0, False
        self._looked_to = 0  # the input was looked at ahead up to here
        self._steps: Iterator[None] | None = None  # of a checkpoint that is being written
        self.heard()
        self._checkpointed_ns, self._changed = around.clock.monotonic_ns(), True
        store.unload()
        self.near = Near(around.clock.wall_ms())
        self._loaded_until = 0  # what is due before is in the wheel, or was
        with self.room.asking():
            self._load()

    # What comes in

    def ingest(self, messages: Sequence[Message]) -> int:
        """File and note records of the input, in their order; how many were new. Without room on the disk they are held."""
        self.heard()
        self.held.append(messages)
        return self._take_in() if self.room.is_time else 0

    def _take_in(self) -> int:
        done = 0
        with self.room.asking():
            while self.held:
                done += self._ingest(self.held[0])
                del self.held[0]
        return done

    def _ingest(self, messages: Sequence[Message]) -> int:
        news = read(messages, self.position, self.extent.moves)
        if news.last is None or not news.looked_at:
            return 0
        absent = self.around.targets.missing(set(news.targets))
        self._file(news)
        self._note(news, absent)  # what was filed is filed: from here on nothing fails
        self.position = news.last.offset() + 1
        self.extent.volume.grow(self.position, sum(map(len, news.blobs)) + EACH * news.looked_at)
        if self.position > self._filed:
            self._fingerprint, self._changed = fingerprint_of(news.last), True
        return news.looked_at

    def reached(self, offset: int) -> None:
        """It is said that the input was read up to here. No position moves for it: only a record does that, so that no word
        of librdkafka's can leave one out. Where deliveries would begin with it, the log itself is asked: it may have been
        said of a reading that is over."""
        self.heard()
        if self.position < self._catch_up_to <= offset and not self.held and self._stands_before(offset):
            return
        self._reached = max(self._reached, offset)

    def _stands_before(self, end: int) -> bool:
        """Whether a record that was not read yet stands before this end."""
        logs, topic = self.around.logs, self.around.topics.input
        return next(iter(logs.read(topic, self.number, self.position, end)), None) is not None

    def catch_up(self, end: int) -> None:
        """Nothing is delivered before the input was read to this end."""
        self._catch_up_to, self.is_in_doubt = max(end, self._catch_up_to), False

    @property
    def reads_to(self) -> int:
        """Nothing is delivered before the input was read to here."""
        return self._catch_up_to

    def look_ahead(self) -> None:
        """Before commands are answered of an input that was not read to its end (there are too many to keep): know the next
        occurrences that stand further on. One of them may be what a command is for."""
        if self._looked_to >= self._catch_up_to or self.has_caught_up:
            return
        for id, offset, began in next_occurrences(self.around, self.number, range(self.position, self._catch_up_to)):
            self.nexts.setdefault(id, {})[offset] = began
        self._looked_to = self._catch_up_to

    def heard(self) -> None:
        """Something came of the input just now."""
        self._heard_ns = self.around.clock.monotonic_ns()

    def idle_ns(self) -> int:
        """For how long nothing came."""
        return self.around.clock.monotonic_ns() - self._heard_ns

    @property
    def has_caught_up(self) -> bool:
        """Whether it has read what stood in the input when it took over."""
        read = self.position if self.held else max(self.position, self._reached)
        return not self.is_in_doubt and read >= self._catch_up_to

    @property
    def copies_to_come(self) -> bool:
        """Whether copies stand in the input that were not read: a command that waits may be of what they are copies of."""
        return self.extent.moves.end > self.position

    @property
    def is_behind(self) -> bool:
        """Whether the group should hear how far the input was read: seldom, where nothing is delivered."""
        since_ns = self.around.clock.monotonic_ns() - self.rest_until_ns
        return self.command_position < self.position and since_ns >= CHECKPOINT_NS

    def _file(self, news: Requests) -> None:
        """What lies behind the data position."""
        first = bisect_left(news.offsets, self._filed)
        if first == len(news.offsets):
            return
        rows = rows_of(news.dues[first:], news.origins[first:])
        rows["flags"] = news.flags[first:]
        rows = self.store.append(rows, news.blobs[first:], news.targets[first:])
        self.room.took()
        self.near.add(rows[rows["due"] < self.store.loaded_until])

    def _note(self, news: Requests, absent: dict[str, str]) -> None:
        """What lies behind the command position. A replace without a target replaces nothing."""
        answered = self.command_position
        letters = [letter_of(message, why, False) for message, why in news.bad]
        aside = self._without_target(news, absent) if absent else []
        self.letters += [letter for letter in (*letters, *aside) if letter.offset >= answered]
        nowhere = {letter.offset for letter in aside}
        self.waiting += [each for each in news.commands if each.offset >= answered and each.offset not in nowhere]
        for id, offset, began in news.nexts:
            if offset >= answered:
                self.nexts.setdefault(id, {})[offset] = began

    @staticmethod
    def _without_target(news: Requests, absent: dict[str, str]) -> list[Letter]:
        named = zip(news.messages, news.offsets, news.origins, news.targets, strict=True)
        return [
            letter_of(message, absent[target], True)
            for message, offset, origin, target in named
            if target in absent and offset == origin
        ]

    # What is due

    def due(self, now_ms: int, most: int) -> Array:
        """What is to be delivered now, by due time, then in the order of the input; `most` or TURN_BYTES at once."""
        rows = self.near.take(min(now_ms, self._loaded_until - 1))
        if len(rows) and len(self.ready):
            rows = np.concatenate([self.ready, rows])
            rows = rows[np.lexsort((rows["origin"], rows["due"]))]
        elif len(self.ready):
            rows = self.ready
        most = min(most, max(1, int(np.searchsorted(np.cumsum(rows["length"], dtype="i8"), TURN_BYTES))))
        self.ready = rows[most:]
        return rows[:most]

    def put_back(self, rows: Array) -> None:
        """These are for the next turn: what `due` gave last, from some row on."""
        self.ready = np.concatenate([rows, self.ready])

    def answered(self, position: int) -> None:
        """It is committed that what stands before this is answered."""
        self.command_position = position
        self.waiting = [command for command in self.waiting if command.offset >= position]
        self.letters = [letter for letter in self.letters if letter.offset >= position]

    def drop(self, origins: Sequence[int]) -> None:
        """These are not to be delivered."""
        gone = np.array(origins, "<i8")
        self.near.remove(gone)
        self.doubts.remove(gone)
        self.ready = self.ready[~np.isin(self.ready["origin"], gone)]

    def next_due_ms(self) -> int | None:
        """When something is to be delivered, or put aside; None where nothing is near."""
        if len(self.ready):
            return int(self.ready["due"][0])
        if (waits_ms := self.doubts.next_due_ms) is not None:
            return waits_ms
        due_ms = self.near.next_due()
        return due_ms if due_ms is None or due_ms < self._loaded_until else None

    # Now and then

    def keep_up(self) -> int:
        """File what is held, load what has come near, go on with a checkpoint by a step: each where it is time for it. How
        many held records were filed."""
        if not self.room.is_time:
            return 0
        done = self._take_in() if self.held else 0
        now_ns = self.around.clock.monotonic_ns()
        with self.room.asking():
            if now_ns - self._checkpointed_ns >= CHECKPOINT_NS:
                self._checkpointed_ns, self.has_work = now_ns, True
                self._load()
                if self._changed and self._steps is None:
                    self._steps = self._checkpoint()
            self._go_on()
        return done

    def _go_on(self) -> None:
        """A step of the checkpoint that is being written; of one that fails, nothing more."""
        steps, self._steps = self._steps, None
        try:
            if steps is not None and next(steps, _DONE) is not _DONE:
                self._steps = steps
            elif steps is not None and not self.held:
                self.room.took()
        except OSError:
            self._changed = True
            raise

    def tidy(self) -> None:
        """A few milliseconds of work on the files, while nothing else is to be done."""
        had_work, self.has_work = self.has_work, False
        if self.room.is_time:
            with self.room.asking():
                self.has_work = self._steps is not None or (had_work and self.store.tidy())

    def checkpoint(self) -> None:
        """What was filed and settled so far outlasts a crash, unless the disk refuses it."""
        with self.room.asking():
            for steps in (self._steps or (), self._checkpoint()):
                for _ in steps:
                    pass
        self._steps = None

    def _checkpoint(self) -> Iterator[None]:
        # where nothing waits for its answer, all that was read is answered: a new start need not read it again
        read = self.command_position if self.waiting or self.letters else self.position
        self.extent.answered = max(self.command_position, read)
        self._changed, self.store.notes = False, self.extent.notes()
        filed = max(self._filed, self.position)
        return self.store.checkpoint_steps(filed, self._fingerprint, self.settled_position)

    def nexts_of(self, command: Command) -> dict[int, State]:
        """The next occurrences, by origin, of series that a command is for: those that began before it. They may stand
        behind it, and may not have been read: when the occurrence before was delivered, the command was not read."""
        nexts = self.nexts.get(command.id, {})
        origins = sorted(origin for origin, began in nexts.items() if began < command.offset)
        settled = self.store.is_settled(np.array(origins, "<i8")).tolist()
        states = [State.CANCELLED if is_settled else State.PENDING for is_settled in settled]
        return dict(zip(origins, states, strict=True))

    def settled(self, origins: Array, state: State) -> None:
        """It is committed that these are settled."""
        if len(origins):
            self.extent.unsaved += 64 + origins.nbytes
            with self.room.asking():  # it is settled all the same, and the next checkpoint writes it down
                self.store.settle(origins, state)
        self.changed()

    def changed(self) -> None:
        """There is something for the next checkpoint."""
        self._changed = True

    def set_aside(self, error: StoreDamaged) -> None:
        """The files do not hold what was written: they are empty from now on."""
        with self.room.asking():  # where not even that can be, the damage is found again
            self.store.set_aside(str(error), self.around.begins(self.number))

    def close(self) -> None:
        """Let go: what is not committed is thrown away, what was not written down is read again."""
        self.producer.close()
        self.store.close()

    def _load(self) -> None:
        """Have all in the wheel that is due within `NEAR_MS`. OSError where a span is to be split for it and cannot: then
        the next attempt begins anew."""
        now_ms, near, loaded = self.around.clock.wall_ms(), self.near, 0
        taken = np.concatenate([self.ready["origin"], self.doubts.origins])
        if self._loaded_until < self.store.loaded_until:
            near = Near(now_ms)
            self.store.unload()
        for rows in self.store.load(now_ms + NEAR_MS, SLICE):
            loaded += len(rows)
            self.around.reading(f"the files of {self.around.place_of(self.number)}", loaded, self.store.pending)
            near.add(rows if near is self.near else rows[~np.isin(rows["origin"], taken)])
        self.near, self._loaded_until = near, self.store.loaded_until


def letter_of(message: Message, reason: str, pending: bool) -> Letter:
    """The dead letter of a record."""
    return Letter(message.offset(), reason, message.value(), message.key(), headers_of(message) or [], pending)
