"""The owner of one input partition: it files what comes, and knows what is due. Its turns stand in turn.py.

Rule 1: a record of the input is looked at once for each of its two sides: it is filed if it lies behind the data position,
        and answered (a cancel, a replace, a bad request) if it lies behind the command position.
Rule 2: whether a target is there is asked when the request comes, and again when it is due. A request without a target
        is filed all the same, and settled with its dead letter: who reads the log again later, when there is such a
        topic, must not take it for pending.
Rule 3: what is due within `NEAR_MS` waits in the wheel, the rest on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Message

from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.around import Around
from waterclock.relay.headers import headers_of, request_in
from waterclock.relay.letters import Command, Letter
from waterclock.relay.logs import fingerprint_of
from waterclock.relay.near import Near
from waterclock.relay.request import Action, BadRequest, Request
from waterclock.relay.store import ROW, PartitionStore, State, pack, rows_of
from waterclock.relay.store.rows import Array

NEAR_MS: Final = 600_000
SLICE: Final = 100_000  # rows loaded at once: 50 ms
TURN_BYTES: Final = 64 << 20  # of messages that are in memory at once
CHECKPOINT_NS: Final = 1_000_000_000
_DONE: Final = object()


class Start(NamedTuple):
    """Where an owner begins: up to where the input is filed and answered, its end, and that of what is settled."""

    filed: int
    answered: int
    end: int
    settled: int


class Owner:
    """What a process knows of a partition while it owns it; `TakeOver` makes it.

    `position`: the input was read up to here. `command_position`: answered and committed up to here. `alone`: the producer
    sends each record in a batch of its own. `refused` hears which origins Kafka did not take, and why.
    """

    def __init__(
        self,
        around: Around,
        number: int,
        store: PartitionStore,
        producer: TransactionalProducer,
        start: Start,
        alone: bool,
    ) -> None:
        self.around, self.number, self.store, self.producer, self.alone = around, number, store, producer, alone
        self.position, self.command_position = min(start.filed, start.answered), start.answered
        self.settled_position = start.settled
        self.waiting: list[Command] = []
        self.letters: list[Letter] = []
        self.refused: dict[int, str] = {}
        self.ready = np.empty(0, ROW)  # due, and not delivered yet
        self.rest_until_ns = 0
        self._filed, self._catch_up_to, self._fingerprint = start.filed, start.end, store.fingerprint
        self.has_work, self._reached = True, 0
        self._steps: Iterator[None] | None = None  # of a checkpoint that is being written
        self.heard()
        self._checkpointed_ns, self._changed = around.clock.monotonic_ns(), True
        store.unload()
        now_ms = around.clock.wall_ms()
        self.near = Near(now_ms)
        self._load(now_ms + NEAR_MS)

    # What comes in

    def ingest(self, messages: Sequence[Message]) -> int:
        """File and note records of the input, in their order; how many were new."""
        self.heard()
        news = [message for message in messages if message.offset() >= self.position]
        if not news:
            return 0
        missing = self.around.targets.missing
        requests = [(message, self._request(message)) for message in news]
        absent = missing({request.target for _, request in requests if request is not None and request.target})
        self._file([(message, request) for message, request in requests if request and message.offset() >= self._filed])
        for message, request in requests:
            if request is not None and message.offset() >= self.command_position:
                self._note(message, request, absent)
        self.position = news[-1].offset() + 1
        if self.position > self._filed:
            self._fingerprint, self._changed = fingerprint_of(news[-1]), True
        return len(news)

    def reached(self, offset: int) -> None:
        """It is said that the input was read up to here. No position moves for it: only a record does that, so that no word
        of librdkafka's can leave one out."""
        self.heard()
        self._reached = max(self._reached, offset)

    def heard(self) -> None:
        """Something came of the input just now."""
        self._heard_ns = self.around.clock.monotonic_ns()

    def idle_ns(self) -> int:
        """For how long nothing came."""
        return self.around.clock.monotonic_ns() - self._heard_ns

    @property
    def has_caught_up(self) -> bool:
        """Whether it has read what stood in the input when it took over."""
        return max(self.position, self._reached) >= self._catch_up_to

    @property
    def is_behind(self) -> bool:
        """Whether the group should hear how far the input was read: seldom, where nothing is delivered."""
        since_ns = self.around.clock.monotonic_ns() - self.rest_until_ns
        return self.command_position < self.position and since_ns >= CHECKPOINT_NS

    def _request(self, message: Message) -> Request | None:
        try:
            return request_in(message)
        except BadRequest as error:
            if message.offset() >= self.command_position:
                self.letters.append(letter_of(message, str(error), False))
            return None

    def _file(self, requests: Sequence[tuple[Message, Request]]) -> None:
        requests = [each for each in requests if each[1].target]
        if not requests:
            return
        rows = rows_of([request.due_ms for _, request in requests], [message.offset() for message, _ in requests])
        blobs = [pack(message.value(), message.key(), request.id, request.headers) for message, request in requests]
        rows = self.store.append(rows, blobs, [request.target for _, request in requests])
        self.near.add(rows[rows["due"] < self.store.loaded_until])

    def _note(self, message: Message, request: Request, absent: dict[str, str]) -> None:
        if request.target in absent:  # a replace, too: what it would replace stays, or neither would be delivered
            self.letters.append(letter_of(message, absent[request.target], True))
        elif request.action is not Action.SCHEDULE:
            self.waiting.append(Command(message.offset(), request.action, request.id))

    # What is due

    def due(self, now_ms: int, most: int) -> Array:
        """What is to be delivered now, by due time, then in the order of the input; `most` or TURN_BYTES at once."""
        rows = self.near.take(now_ms)
        if len(rows) and len(self.ready):
            rows = np.concatenate([self.ready, rows])
            rows = rows[np.lexsort((rows["origin"], rows["due"]))]
        elif len(self.ready):
            rows = self.ready
        most = min(most, max(1, int(np.searchsorted(np.cumsum(rows["length"], dtype="i8"), TURN_BYTES))))
        self.ready = rows[most:]
        return rows[:most]

    def drop(self, origins: Sequence[int]) -> None:
        """These are not to be delivered."""
        gone = np.array(origins, "<i8")
        self.near.remove(gone)
        self.ready = self.ready[~np.isin(self.ready["origin"], gone)]

    def next_due_ms(self) -> int | None:
        """When something is to be delivered; None where nothing is near."""
        return int(self.ready["due"][0]) if len(self.ready) else self.near.next_due()

    # Now and then

    def keep_up(self) -> None:
        """Load what has come near, and go on with a checkpoint by a step, where it is time for one."""
        now_ns = self.around.clock.monotonic_ns()
        if now_ns - self._checkpointed_ns >= CHECKPOINT_NS:
            self._checkpointed_ns = now_ns
            self._load(self.around.clock.wall_ms() + NEAR_MS)
            self.has_work = True
            if self._changed and self._steps is None:
                self._steps = self._checkpoint()
        if self._steps is not None and next(self._steps, _DONE) is _DONE:
            self._steps = None

    def tidy(self) -> None:
        """A few milliseconds of work on the files, while nothing else is to be done."""
        self.has_work = self._steps is not None or (self.has_work and self.store.tidy())

    def checkpoint(self) -> None:
        """What was filed and settled so far outlasts a crash."""
        for steps in (self._steps or (), self._checkpoint()):
            for _ in steps:
                pass
        self._steps = None

    def _checkpoint(self) -> Iterator[None]:
        self._changed = False
        filed = max(self._filed, self.position)
        return self.store.checkpoint_steps(filed, self._fingerprint, self.settled_position)

    def settled(self, origins: Array, state: State) -> None:
        """It is committed that these are settled."""
        if len(origins):
            self.store.settle(origins, state)
        self._changed = True

    def close(self) -> None:
        """Let go: what is not committed is thrown away, what was not written down is read again."""
        self.producer.close()
        self.store.close()

    def _load(self, until_ms: int) -> None:
        for rows in self.store.load(until_ms, SLICE):
            self.near.add(rows)


def letter_of(message: Message, reason: str, pending: bool) -> Letter:
    """The dead letter of a record."""
    return Letter(message.offset(), reason, message.value(), message.key(), headers_of(message) or [], pending)
