"""What is asked of a broker, over confluent-kafka: which partitions there are, and from where to where they go.

Rule 1: only what is committed is seen: the end of a partition is its last stable offset.
Rule 2: no group is joined and nothing is committed there: offsets live with the results.
Rule 3: a broker that does not answer is waited for, a refusal is told at once; both in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from waterclock.clock import Clock, SystemClock
from waterclock.errors import EnvironmentMissing, UsageError, WaterclockError
from waterclock.spark.kafka.offsets import Offsets, Partition
from waterclock.spark.toml.topics import Topics, Where

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: pip install 'waterclock[kafka]'") from error

T = TypeVar("T")
_EARLIEST, _LATEST = -2, -1  # times that are none, in the protocol
_ANSWER_S = 5.0
_AGAIN_AFTER_S = 0.1
_FOR_READING = {
    "group.id": "waterclock",  # librdkafka wants a name; nobody joins under it
    "log_level": "0",
    # a request that waits for more at the end of a partition stands in the way of the next batch's first one
    "fetch.wait.max.ms": "20",
    "queued.max.messages.kbytes": "16384",  # what is read ahead of a batch's end is thrown away
}
_OWN = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
REFUSALS = frozenset(
    (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._FATAL,
    )
)
UNKNOWN = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION))


def settings_of(topics: Topics) -> dict[str, str]:
    """The settings of librdkafka for reading these topics."""
    return {**_FOR_READING, **topics.client, **_OWN, "bootstrap.servers": topics.servers}


class Client:
    """A connection that is kept. `patience_s`: how long a broker that does not answer is waited for."""

    def __init__(self, settings: Mapping[str, str], patience_s: float, clock: Clock | None = None) -> None:
        self.servers = settings["bootstrap.servers"]
        self.clock = clock or SystemClock()
        self.patience_s = patience_s
        self.refusal: Any = None
        self.trouble: Any = None
        try:
            self.consumer = Consumer({**settings, "error_cb": self.note})
        except (KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"[source.client]: the Kafka client cannot be made: {_words(error)}") from error

    def close(self) -> None:
        self.consumer.close()

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """The partitions of the topics that are there, in order."""
        return sorted(place for topic in topics for place in self._patiently(partial(self._of, topic)))

    def ends(self, places: Iterable[Partition]) -> Offsets:
        """Where the committed records of each partition end; a partition that is gone is left out."""
        return self._offsets(places, _LATEST)

    def starts(self, places: Iterable[Partition]) -> Offsets:
        """The first offset of each partition that is kept still."""
        return self._offsets(places, _EARLIEST)

    def at(self, places: Iterable[Partition], time_ms: int) -> Offsets:
        """The first offset with that timestamp or a later one; the end where there is none."""
        wanted = list(places)
        found = {place: offset for place, offset in self._offsets(wanted, time_ms).items() if offset >= 0}
        return {**self.ends([place for place in wanted if place not in found]), **found}

    def resolved(self, where: Where, places: Iterable[Partition]) -> Offsets:
        """The offsets that `starting` or `ending` of a pipeline's file mean; of `places` that it leaves out: the first."""
        wanted = list(places)
        if isinstance(where, Mapping):
            told = {(topic, partition): where[topic][partition] for topic in where for partition in where[topic]}
            return {**self.starts(wanted), **told}
        if isinstance(where, int):
            return self.at(wanted, where)
        return self.starts(wanted) if where == "earliest" else self.ends(wanted)

    def note(self, error: Any) -> None:
        """Remember what the client tells of its connections."""
        if error.code() in REFUSALS or error.fatal():
            self.refusal = error
        self.trouble = error

    def refused(self) -> WaterclockError | None:
        """The error to raise where the broker has refused this client."""
        if self.refusal is None:
            return None
        return UsageError(
            f"the broker at {self.servers} refuses the client: {self.refusal.str()}. Look at [source.client]"
        )

    def silent(self) -> WaterclockError:
        """The error to raise where the broker has not answered for `patience_s`."""
        why = f" ({self.trouble.str()})" if self.trouble is not None else ""
        return EnvironmentMissing(f"no broker answers at {self.servers}{why}: start it, or mend 'servers' in [source]")

    def _of(self, topic: str) -> list[Partition]:
        found = self.consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if found.error is not None and found.error.code() not in UNKNOWN:
            raise KafkaException(found.error)
        return [(topic, partition) for partition in found.partitions]

    def _offsets(self, places: Iterable[Partition], time_ms: int) -> Offsets:
        asked = [TopicPartition(topic, partition, time_ms) for topic, partition in places]
        return self._patiently(partial(self._ask, asked)) if asked else {}

    def _ask(self, asked: list[Any]) -> Offsets:
        answers = self.consumer.offsets_for_times(asked, timeout=_ANSWER_S)
        for answer in answers:
            if answer.error is not None and answer.error.code() not in UNKNOWN:
                raise KafkaException(answer.error)
        return {(a.topic, a.partition): a.offset for a in answers if a.error is None}

    def _patiently(self, ask: Callable[[], T]) -> T:
        until_s = self.clock.monotonic_s() + self.patience_s
        while True:
            try:
                answer = ask()
                self.refusal = self.trouble = None  # whatever it was: it is over
                return answer
            except KafkaException as error:
                self.note(error.args[0])
            self.consumer.poll(0)  # lets the client tell of its connections
            if refused := self.refused():
                raise refused
            if self.clock.monotonic_s() >= until_s:
                raise self.silent()
            self.clock.sleep_s(_AGAIN_AFTER_S)


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.str() if isinstance(told, KafkaError) else str(told)
