"""What a reader asks a broker: which partitions there are, from where to where they go; and the records of one of them.

Rule 1: only what is committed is seen: the end of a partition is its last stable offset.
Rule 2: no group is joined and nothing is committed there: whoever reads keeps the offsets.
Rule 3: a broker that does not answer is waited for, a refusal is an error at once; both in a sentence with the remedy.

`committed` reads the records of one partition, from one offset to another.

Rule 4: only what is committed is seen, whatever the settings say.
Rule 5: a reading ends where it was to end, or with an error: records that do not come are no end.
Rule 6: librdkafka looks for the group's coordinator all the same. Who has no right to the group hears so, and reads on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from waterclock.clock import Clock, SystemClock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka import Offsets, Partition, library
from waterclock.kafka.errors import Meaning, is_refusal, meaning_of, words_of
from waterclock.kafka.patience import patiently
from waterclock.kafka.settings import READING

T = TypeVar("T")
_EARLIEST, _LATEST = -2, -1  # times that are none, in the protocol
_ANSWER_S = 5.0
PATIENCE_S: Final = 30.0
_AT_ONCE: Final = 1000
_SOON: Final = {"fetch.wait.max.ms": 10}  # the end is asked for after the last record
HARMLESS: Final = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)  # rule 6


@dataclass(frozen=True, slots=True)
class Remedies:
    """Where a user finds what to mend: the client's `settings`, and the address of the `servers`."""

    settings: str
    servers: str


class Client:
    """A connection that is kept. `settings` hold READING; `patience_s`: how long a broker that does not answer is waited
    for; set to 0 by another thread, it is waited for no longer. UsageError for a setting that librdkafka does not know."""

    def __init__(
        self, settings: Mapping[str, Any], patience_s: float, remedies: Remedies, clock: Clock | None = None
    ) -> None:
        self.servers = settings["bootstrap.servers"]
        self.clock = clock or SystemClock()
        self.patience_s = patience_s
        self.refusal: KafkaError | None = None
        self.trouble: KafkaError | None = None
        self._remedies = remedies
        try:
            self.consumer = library.Consumer({**settings, "error_cb": self.note})
        except (KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"{remedies.settings}: the Kafka client cannot be made: {words_of(error)}") from error

    def close(self) -> None:
        self.consumer.close()

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """The partitions of the topics that are there, in order."""
        return sorted(partition for topic in topics for partition in self._patiently(partial(self._of, topic)))

    def ends(self, partitions: Iterable[Partition]) -> Offsets:
        """Where the committed records of each partition end; a partition that is gone is left out."""
        return self._offsets(partitions, _LATEST)

    def starts(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offset of each partition that is kept still."""
        return self._offsets(partitions, _EARLIEST)

    def at(self, partitions: Iterable[Partition], time_ms: int) -> Offsets:
        """The first offset with that timestamp or a later one; the end if there is none."""
        wanted = list(partitions)
        found = {partition: offset for partition, offset in self._offsets(wanted, time_ms).items() if offset >= 0}
        return {**self.ends([partition for partition in wanted if partition not in found]), **found}

    def note(self, error: KafkaError) -> None:
        """Remember what librdkafka says of its connections."""
        if is_refusal(error):
            self.refusal = error
        self.trouble = error

    def refused(self) -> WaterclockError | None:
        """The error to raise if the broker has refused this client."""
        if self.refusal is None:
            return None
        return UsageError(
            f"the broker at {self.servers} refuses the client: {words_of(self.refusal)}. Look at {self._remedies.settings}"
        )

    def silent(self) -> WaterclockError:
        """The error to raise if the broker has not answered for `patience_s`."""
        why = f" ({words_of(self.trouble)})" if self.trouble is not None else ""
        return EnvironmentMissing(
            f"no broker answers at {self.servers}{why}: start it, or mend {self._remedies.servers}"
        )

    def _of(self, topic: str) -> list[Partition]:
        found = self.consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if found.error is not None and meaning_of(found.error) is not Meaning.UNKNOWN:
            raise KafkaException(found.error)
        return [(topic, partition) for partition in found.partitions]

    def _offsets(self, partitions: Iterable[Partition], time_ms: int) -> Offsets:
        places = [TopicPartition(topic, partition, time_ms) for topic, partition in partitions]
        return self._patiently(partial(self._ask, places)) if places else {}

    def _ask(self, places: list[TopicPartition]) -> Offsets:
        answers = self.consumer.offsets_for_times(places, timeout=_ANSWER_S)
        for answer in answers:
            if answer.error is not None and meaning_of(answer.error) is not Meaning.UNKNOWN:
                raise KafkaException(answer.error)
        return {(a.topic, a.partition): a.offset for a in answers if a.error is None}

    def _patiently(self, ask: Callable[[], T]) -> T:
        try:
            answer = patiently(ask, self._is_refused, self.patience_s, self.clock, self.servers)
        except KafkaException:
            raise (self.refused() or self.silent()) from None
        self.refusal = self.trouble = None  # whatever it was: it is over
        return answer

    def _is_refused(self, error: KafkaError) -> bool:
        self.note(error)
        self.consumer.poll(0)  # lets librdkafka say what it knows of its connections
        return self.refusal is not None or not self.patience_s


def committed(
    settings: Mapping[str, Any],
    partition: Partition,
    start: int,
    end: int,
    clock: Clock,
    patience_s: float = PATIENCE_S,
) -> Iterator[Message]:
    """The records from `start` to before `end`; ConnectionLost if none comes for `patience_s`, UsageError if Kafka
    refuses them."""
    if start >= end:
        return
    consumer = library.Consumer({**_SOON, **settings, **READING, "group.id": settings.get("group.id", "unused")})
    consumer.assign([TopicPartition(*partition, start)])
    try:
        yield from _until(consumer, partition[0], end, clock, patience_s)
    finally:
        consumer.close()


def bounds(settings: Mapping[str, Any], partition: Partition, patience_s: float = PATIENCE_S) -> tuple[int, int]:
    """Where a partition begins, and where what is committed ends. EnvironmentMissing if Kafka does not say."""
    consumer = library.Consumer({**settings, **READING, "group.id": settings.get("group.id", "unused")})
    try:
        low, end = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=patience_s)
    except KafkaException as error:
        raise EnvironmentMissing(f"{partition[0]} cannot be read: {words_of(error)}.") from None
    finally:
        consumer.close()
    return low, end


def whole(settings: Mapping[str, Any], topic: str, start: int = 0) -> Iterator[Message]:
    """All that is committed now of a topic with one partition, from the offset `start` on."""
    low, end = bounds(settings, (topic, 0))
    yield from committed(settings, (topic, 0), max(start, low), end, SystemClock())


def _until(consumer: library.Consumer, topic: str, end: int, clock: Clock, patience_s: float) -> Iterator[Message]:
    until_s = clock.monotonic_s() + patience_s
    while clock.monotonic_s() < until_s:
        first = consumer.poll(0.5)
        for message in [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]:
            until_s = clock.monotonic_s() + patience_s
            error = message.error()
            if error is None and message.offset() < end:
                yield message
            elif error is not None and is_refusal(error):
                raise UsageError(f"Kafka refuses to have {topic} read: {words_of(error)}. Look at the rights.")
            elif error is not None and error.code() not in HARMLESS:
                raise ConnectionLost(f"{topic} cannot be read: {words_of(error)}.")
            if (message.offset() or 0) >= (end - 1 if error is None else end):
                return
    raise ConnectionLost(f"Kafka does not give the records of {topic}.")
