"""A pipeline's client of Kafka, and the records of some ranges of partitions, read by one consumer. No Spark in this file.

A range ends where a record at its end or behind it is seen, or where the client says that the partition ends there: the
offset before a range's end need not be a record, it may be a transaction's marker, aborted, or compacted away.

Rule 1: what comes out depends on the ranges alone, not on how the broker's answers are cut: records of one partition come
        in order, CHUNK at a time.
Rule 2: a range whose records are gone is an error, or with `on_loss` "go on" what is left of it.
Rule 3: offsets live with the results; what keeps that promise wins over [source.client].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from operator import methodcaller
from typing import Any

from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing, WaterclockError, pip_install
from waterclock.kafka import Offsets, Partition
from waterclock.kafka.settings import READING, base_settings
from waterclock.streaming.toml.topics import Topics, Where
from waterclock.streaming.topics.offsets import Range
from waterclock.streaming.topics.records import UNREADABLE, Headers, Records

try:
    from confluent_kafka import KafkaError, TopicPartition

    from waterclock.kafka.client import Client, Remedies
    from waterclock.kafka.errors import Meaning, meaning_of
except ImportError as error:
    raise EnvironmentMissing(f"{error.name} is missing: {pip_install('kafka')}", door="kafka") from error

_FOR_BATCHES = {
    "group.id": "waterclock",  # librdkafka wants a name; nobody joins under it
    # a request that waits for more at the end of a partition stands in the way of the next batch's first one
    "fetch.wait.max.ms": "20",
    "queued.max.messages.kbytes": "16384",  # what is read ahead of a batch's end is thrown away
}
_REMEDIES = Remedies(settings="[source.client]", servers="'servers' in [source]")


def settings_of(topics: Topics) -> dict[str, Any]:
    """The settings of librdkafka for reading these topics."""
    return {**_FOR_BATCHES, **base_settings(topics.servers, topics.client), **READING}


def client_for(settings: Mapping[str, Any], patience_s: float, clock: Clock | None = None) -> Client:
    """A client whose errors name the parts of a pipeline's file; UsageError for a setting that there is not."""
    return Client(settings, patience_s, _REMEDIES, clock)


def resolved(client: Client, where: Where, partitions: Iterable[Partition]) -> Offsets:
    """The offsets that `starting` or `ending` of a pipeline's file mean; of `partitions` that it leaves out: the first."""
    wanted = list(partitions)
    if isinstance(where, Mapping):
        given = {(topic, partition): where[topic][partition] for topic in where for partition in where[topic]}
        return {**client.starts(wanted), **given}
    if isinstance(where, int):
        return client.at(wanted, where)
    return client.starts(wanted) if where == "earliest" else client.ends(wanted)


CHUNK = 10_000  # records that are packed together
PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.5
_GONE_AFTER_S = 5.0
BEHIND_A_LOSS = 'Set on_loss = "go on" in [source] to go on with what is there, or start over with --fresh.'
_AGAIN_AFTER_S = 0.2
# `message.headers()` leaves its error behind for whoever comes next, once Python has made that call a fast one
_ask_headers = methodcaller("headers")


@lru_cache(maxsize=2)
def kept(settings: frozenset[tuple[str, str]]) -> Client:
    """A client that this process keeps: a Python worker reads batch after batch, and connecting costs more than reading."""
    return client_for(dict(settings), PATIENCE_S)


def gone(place: Partition, start: int, end: int) -> WaterclockError:
    """The error of records that are no more."""
    return WaterclockError(
        f"records of {place[0]}/{place[1]} from offset {start} to {end} are gone before they were read: the topic was cut "
        f"shorter, made anew or deleted. {BEHIND_A_LOSS}"
    )


class Fetcher:
    """One reading of some ranges, no two of the same partition."""

    def __init__(self, client: Client, ranges: Iterable[Range], on_loss: str) -> None:
        self._client, self._on_loss = client, on_loss
        self._left = {each.place: each for each in ranges}
        self._at = {each.place: each.start for each in self._left.values()}  # the offset that is next
        self._taken: dict[Partition, list[Any]] = {place: [] for place in self._left}

    def records(self) -> Iterator[Records]:
        """Everything, in chunks; WaterclockError if it cannot be had."""
        self._assign()
        heard_s = self._client.clock.monotonic_s()
        try:
            while self._left:
                before = self._progress()
                for message in self._next():
                    self._take(message)
                # Full chunks of every partition, and the rest of those that are over.
                for place, messages in self._taken.items():
                    whole = len(messages) // CHUNK * CHUNK if place in self._left else len(messages)
                    yield from chunks(place, messages[:whole])
                    del messages[:whole]
                now_s = self._client.clock.monotonic_s()
                heard_s = heard_s if self._progress() == before else now_s
                if now_s - heard_s > self._client.patience_s:
                    raise self._client.silent()
        finally:
            self._client.consumer.unassign()

    def _progress(self) -> tuple[int, int]:
        return len(self._left), sum(self._at.values())

    def _assign(self) -> None:
        """Read all that is left from where it is; what the client had read ahead, it reads again."""
        self._client.consumer.assign([TopicPartition(*place, self._at[place]) for place in self._left])

    def _next(self) -> list[Any]:
        """What is there by now; waits for the first message, and for no other."""
        consumer = self._client.consumer
        first = consumer.poll(_LOOK_EVERY_S)
        if first is None:
            if refused := self._client.refused():
                raise refused
            return []
        if first.error() is None:
            self._client.refusal = None  # of an earlier moment, or of another broker
        more = sum(each.end - self._at[place] for place, each in self._left.items())
        return [first, *consumer.consume(min(CHUNK, more), 0)]

    def _take(self, message: Any) -> None:
        place = message.topic(), message.partition()
        each = self._left.get(place)
        if message.error() is not None:
            self._trouble(message.error(), message.offset(), each)
        elif each is not None and (offset := message.offset()) >= self._at[place]:
            self._at[place] = offset + 1
            if offset < each.end:
                self._taken[place].append(message)
            if offset >= each.end - 1:
                self._finish(place)

    def _finish(self, place: Partition) -> None:
        del self._left[place]
        if self._left:
            # not `pause`: a partition stays paused when it is assigned again
            self._client.consumer.incremental_unassign([TopicPartition(*place)])

    # what is no record ---------------------------------------------------------------------------------------

    def _trouble(self, error: Any, offset: int, each: Range | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if each is not None and offset >= each.end:
                self._finish(each.place)
            elif each is not None and not self._comes_back(each):
                self._lost(each, offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and each is not None:
            self._lost(each, self._at[each.place])
        else:
            self._client.note(error)
            if meaning_of(error) is Meaning.UNKNOWN and each is not None and not self._comes_back(each):
                self._lost(each, self._at[each.place])

    def _comes_back(self, each: Range) -> bool:
        """Wait a little for the end of a range to be there again, and go on reading; False if it stays away.

        A broker that has just started may not know its topics yet, a leader that was just elected not all of their ends.
        """
        clock = self._client.clock
        until_s = clock.monotonic_s() + _GONE_AFTER_S
        while self._client.ends([each.place]).get(each.place, -1) < each.end:
            if clock.monotonic_s() > until_s:
                return False
            clock.sleep_s(_AGAIN_AFTER_S)
        self._assign()
        return True

    def _lost(self, each: Range, at: int) -> None:
        """Records from `at` on are not there: fail, or go on with what the partition still keeps of the range."""
        if self._on_loss == "fail":
            raise gone(each.place, at, each.end)
        first = self._client.starts([each.place]).get(each.place, each.end)
        if at < first < each.end:
            self._at[each.place] = first
        else:
            self._finish(each.place)
        self._assign()  # who asks a broker that is slow to answer polls, and may have taken a record


def chunks(place: Partition, messages: list[Any]) -> Iterator[Records]:
    """Messages of one partition, CHUNK at a time."""
    for start in range(0, len(messages), CHUNK):
        yield _records(place, messages[start : start + CHUNK])


def _records(place: Partition, messages: list[Any]) -> Records:
    return Records(
        *place,
        offsets=[message.offset() for message in messages],
        times_ms=[_time_ms(message) for message in messages],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=[_headers(message) for message in messages],
    )


def _time_ms(message: Any) -> int | None:
    kind, ms = message.timestamp()
    return ms if kind else None


def _headers(message: Any) -> Headers | None:
    """The client fails if a name is not UTF-8, and gives none of them; such a record must not stop its batch."""
    try:
        return _ask_headers(message)  # type: ignore[no-any-return]
    except (SystemError, UnicodeDecodeError):
        return UNREADABLE
