"""The two logs of an input partition as a relay reads them, beside the group.

    Logs           one partition from one offset to another, or a single record, by who waits for it
    Reader         one partition from an offset on, for who does not wait
    TailConsumer   all partitions that are followed, as they come: one consumer, which waits for nothing

Rule 1: only what is committed is seen; a partition ends where the first open transaction begins.
Rule 2: nothing is committed here, and no group is joined.
Rule 3: each reading of `Logs` has a consumer of its own. One that was used for offsets before begins to read up to a second
        later: librdkafka does not wake the thread that would fetch.
Rule 4: a followed partition that was read before, and is to be read at another offset, gets a new consumer, as all others
        do: nothing that the old one had fetched may be taken for what comes next.
Rule 5: what is not taken yet of followed partitions stays with librdkafka, `_QUEUED` at most: whoever is slow reads slowly.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException, Message, TopicPartition

from waterclock.clock import Clock, SystemClock
from waterclock.errors import ConnectionLost, EnvironmentMissing
from waterclock.kafka import Partition, library
from waterclock.kafka.client import HARMLESS, PATIENCE_S, Client, Remedies, committed
from waterclock.kafka.errors import words_of
from waterclock.kafka.settings import READING
from waterclock.relay.wire.request import headers_of

_AHEAD: Final = {"queued.max.messages.kbytes": 8_192, "fetch.message.max.bytes": 1 << 20}
_NEAR: Final = 2_000  # offsets


class Logs:
    """Reads single partitions; a Kafka that does not answer is waited for as long as `patience_s`."""

    def __init__(self, settings: Mapping[str, Any], clock: Clock | None = None, patience_s: float = PATIENCE_S) -> None:
        remedies = Remedies("--kafka-config", "--bootstrap")
        self._clock, self._patience_s = clock or SystemClock(), patience_s
        self._settings = {**settings, **READING, "group.id": "unused", "fetch.wait.max.ms": 10}
        self._client = Client(self._settings, patience_s, remedies, self._clock)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def asking_for(self, most_s: float) -> Iterator[None]:
        """Meanwhile who leads a partition is asked where it ends for no longer than that, or one question lasts."""
        usual_s = self._client.patience_s
        self._client.patience_s = min(usual_s, most_s)
        try:
            yield
        finally:
            self._client.patience_s = usual_s

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that is kept, and the end of what is committed; ConnectionLost if Kafka does not say."""
        one = [(topic, partition)]
        try:
            return self._client.starts(one)[topic, partition], self._client.ends(one)[topic, partition]
        except EnvironmentMissing as error:  # it was there when this began, and may come back
            raise ConnectionLost(f"Kafka does not say where {topic}-{partition} ends: {words_of(error)}.") from None
        except KeyError:
            raise ConnectionLost(f"Kafka does not know {topic}-{partition}.") from None

    def partitions(self, topic: str) -> int:
        """How many the topic has, as far as Kafka knows; ConnectionLost if it does not say."""
        try:
            return len(self._client.partitions([topic]))
        except EnvironmentMissing as error:
            raise ConnectionLost(f"Kafka does not say how many partitions {topic} has: {words_of(error)}.") from None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """The records from `start` to before `end`; ConnectionLost if they do not come."""
        yield from committed(self._settings, (topic, partition), start, end, self._clock, self._patience_s)  # rule 3

    def reading(self, topic: str, partition: int, start: int) -> Reader:
        """The records from `start` on, for who does not wait."""
        return Reader({**self._settings, **_AHEAD}, topic, partition, start)

    def record(self, topic: str, partition: int, offset: int) -> Message | None:
        """The record at that offset; None if there is none."""
        return self.records(topic, partition, [offset]).get(offset)

    def records(self, topic: str, partition: int, offsets: Iterable[int]) -> dict[int, Message]:
        """The records at these offsets, as far as there are any. Those that lie near each other are read together: each
        reading costs some tens of milliseconds."""
        low, _ = self.bounds(topic, partition)
        wanted, found = sorted(offset for offset in offsets if offset >= low), dict[int, Message]()
        cuts = [n for n in range(1, len(wanted)) if wanted[n] - wanted[n - 1] > _NEAR]
        for first, last in zip([0, *cuts], [*cuts, len(wanted)], strict=True):
            some = set(wanted[first:last])
            for message in self.read(topic, partition, min(some, default=0), max(some, default=-1) + 1):
                if message.offset() in some:
                    found[message.offset()] = message
        return found


class Reader:
    """Records of one partition as they come. `position`: the first one that is kept or will come; `is_awaited`: the
    last call of `ahead` had none to give."""

    def __init__(self, settings: Mapping[str, Any], topic: str, partition: int, start: int) -> None:
        self._topic = topic
        self.position = start
        self.is_awaited = True
        self._ahead: list[Message] = []
        self._consumer = library.Consumer(dict(settings))
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def ahead(self, offset: int, most: int) -> list[Message]:
        """`most` or more of the records from `offset` on, or as many as have come by now; they are kept, for the next call.
        ConnectionLost if they are not to be had."""
        self.position = offset
        if len(self._ahead) < most:
            for message in self._consumer.consume(most, 0):
                if (error := message.error()) is None:
                    self._ahead.append(message)
                elif error.code() not in HARMLESS:
                    raise ConnectionLost(f"{self._topic} cannot be read: {words_of(error)}.")
        self._ahead = [message for message in self._ahead if message.offset() >= offset]
        self.is_awaited = not self._ahead
        return self._ahead

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()


_FINGERPRINT: Final = struct.Struct("<q16s")


def fingerprint_of(message: Message) -> bytes:
    """What tells this record from any other that may stand at its offset: the offset, and a digest of all it holds."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((message.timestamp(), message.key(), message.value(), headers_of(message) or None)).encode())
    return _FINGERPRINT.pack(message.offset(), digest.digest())


def offset_of(fingerprint: bytes) -> int:
    """The offset of the record that has this fingerprint."""
    return int(_FINGERPRINT.unpack(fingerprint)[0])


_QUEUED: Final = {"queued.max.messages.kbytes": 16_384, "fetch.message.max.bytes": 1 << 20}
_CONSUMER: Final = {**READING, **_QUEUED, "group.id": "unused", "fetch.wait.max.ms": 500, "fetch.queue.backoff.ms": 5}


class TailConsumer:
    """Reads partitions from their offsets on."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_CONSUMER}
        self._consumer: library.Consumer | None = None
        self._next: dict[Partition, int] = {}  # what is read, and which offset comes next
        self._known: set[Partition] = set()  # what this consumer ever read
        self._paused: set[Partition] = set()

    def add(self, place: Partition, offset: int) -> None:
        """Read it from there on."""
        self._next[place] = offset
        if self._consumer is None or place in self._known:  # rule 4
            self.close()
            self._consumer = library.Consumer(self._settings)
            self._known = set(self._next)
            self._consumer.assign([TopicPartition(*one, start) for one, start in self._next.items()])
        else:
            self._known.add(place)
            self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def reads(self, place: Partition) -> bool:
        """Whether it is read."""
        return place in self._next

    def remove(self, place: Partition) -> None:
        """Read it no more."""
        if self._next.pop(place, None) is not None and self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(*place)])
            self._paused.discard(place)

    def pause(self, place: Partition, is_paused: bool) -> None:
        """Have nothing come of it for now, or go on with it."""
        if self._consumer is None or (place in self._paused) is is_paused:
            return
        (self._consumer.pause if is_paused else self._consumer.resume)([TopicPartition(*place)])
        (self._paused.add if is_paused else self._paused.discard)(place)

    def take(self, most: int) -> list[Message]:
        """What has come, `most` at most: records, ends of partitions, and errors."""
        messages: list[Message] = [] if self._consumer is None else self._consumer.consume(most, 0)
        for message in messages:
            place = message.topic(), message.partition()
            if message.error() is None and place in self._next:
                self._next[place] = message.offset() + 1
        return messages

    def bounds(self, place: Partition) -> tuple[int, int] | None:
        """Where it began and ended when it was last fetched; None if that is not known."""
        if self._consumer is None:
            return None
        try:
            low, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        except KafkaException:
            return None
        return (int(low), int(end)) if low >= 0 and end >= low else None

    def close(self) -> None:
        """Read nothing any more."""
        consumer, self._consumer = self._consumer, None
        self._known, self._paused = set(), set()
        if consumer is not None:
            consumer.close()
