"""Who reads what comes: reminders, answers and dead letters, committed ones only, from the first record to the last.

Rule 1: it reads in a thread of its own, which does nothing else: what it is late by counts as the relay's.
Rule 2: when all is over it reads to the ends that the topics have then: a second delivery would stand there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost
from waterclock.kafka.settings import READING, base_settings
from waterclock.relay.wire.request import FROM, UNTIL

from .sender import TARGET, TOPIC

REPLIES, DEAD = f"{TOPIC}.replies", f"{TOPIC}.dead"
_AT_ONCE: Final = 10_000
_PATIENCE_S: Final = 60.0
_ANSWER_S: Final = 10.0


class Delivery(NamedTuple):
    """A reminder that came, as it is; `came_ms` is when it could be read, since 1970."""

    value: bytes | None
    key: bytes | None
    origin: str
    due_ms: int
    came_ms: int


class Reader:
    """Reads until it is closed. `deliveries` in the order of each partition; `replies`; `dead`, the reasons."""

    def __init__(self, servers: str, partitions: dict[str, int], clock: WallClock) -> None:
        self._clock = clock
        # what is fetched is here at once; a small rest between two fetches that found nothing
        quick = {"fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 5, "queued.max.messages.kbytes": 65_536}
        settings = {**base_settings(servers, {}), **READING, **quick, "group.id": "unused"}
        self._places = [TopicPartition(t, n, 0) for t in (TARGET, REPLIES, DEAD) for n in range(partitions[t])]
        self._consumer, self._asking = Consumer(settings), Consumer(settings)
        self._consumer.assign(self._places)
        self._ends: dict[tuple[str, int], int] = {}  # where the end was seen
        self.deliveries: list[Delivery] = []
        self.replies: list[dict[str, Any]] = []
        self.dead: list[str] = []
        self.cancelled = 0  # of the replies, those that say so
        self._over, self._failure = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Of all that came."""
        return len(self.deliveries) + len(self.replies) + len(self.dead)

    @property
    def settled(self) -> int:
        """Of the reminders."""
        return len(self.deliveries) + self.cancelled

    def to_the_ends(self) -> None:
        """Read all that is there now. ConnectionLost where that does not come to its end."""
        ends = {(place.topic, place.partition): self._end_of(place) for place in self._places}
        until_s = self._clock.monotonic_s() + _PATIENCE_S
        while any(self._ends.get(place, 0) < end for place, end in ends.items()):
            self.check()
            if self._clock.monotonic_s() > until_s:
                raise ConnectionLost("what was delivered cannot be read to its end")
            self._clock.sleep_s(0.02)

    def check(self) -> None:
        """Raise what stopped the thread."""
        if self._failure:
            raise self._failure[0]

    def close(self) -> None:
        """Read no more."""
        self._over.set()
        self._thread.join()
        self._consumer.close()
        self._asking.close()

    def _end_of(self, place: TopicPartition) -> int:
        try:
            return int(self._asking.get_watermark_offsets(place, timeout=_ANSWER_S)[1])
        except KafkaException as error:
            raise ConnectionLost(f"Kafka does not say where {place.topic} ends: {error.args[0].str()}") from None

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                first = self._consumer.poll(0.1)
                if first is not None:
                    self._take([first, *self._consumer.consume(_AT_ONCE, 0)])
        except BaseException as error:
            self._failure.append(error)

    def _take(self, messages: Sequence[Message]) -> None:
        now_ms = self._clock.wall_ms()
        for message in messages:
            error = message.error()
            if error is None:
                self._note(message, now_ms)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.topic(), message.partition()] = message.offset()

    def _note(self, message: Message, now_ms: int) -> None:
        headers = dict(message.headers() or [])
        if message.topic() == TARGET:
            origin, due = (headers.get(name) or b"" for name in (FROM, UNTIL))
            self.deliveries.append(Delivery(message.value(), message.key(), origin.decode(), int(due or b"0"), now_ms))
        elif message.topic() == REPLIES:
            self.replies.append(json.loads(message.value()))
            self.cancelled += self.replies[-1]["outcome"] == "cancelled"
        else:
            self.dead.append((headers.get("dead-reason") or b"").decode())
