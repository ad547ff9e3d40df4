"""How messages for later are put in, and how they are taken, by kind of keeper: the same verbs for each.

    kafka      requests into the relay's input; deliveries from the target, committed ones only
    redis      a sorted set by due time with the payloads in a hash; a script pops what is due, 1,000 at a time
    table      rows of PostgreSQL by COPY; taken by the workers of bench/polling
    jobs       procrastinate: batch_defer with schedule_at; its own worker takes them

Rule 1: a message is a number in twelve digits and 188 bytes behind it; it can be cancelled by its number.
Rule 2: a message counts as scheduled when its keeper has acknowledged it, and as had when it is in the taker's hands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

PAYLOAD: Final = b"x" * 188
TOPIC: Final = "delays"
PENDING, PAYLOADS = "pending", "payloads"
POPPED: Final = 1_000
POP: Final = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {} end
local found = redis.call('HMGET', KEYS[2], unpack(ids))
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(ids))
return found"""
EMPTY_S: Final = 0.001  # between two questions that found nothing
PATIENCE_S: Final = 180.0  # a relay that has never had ten million messages reads them first
Came = Iterator[list[tuple[int, int, int]]]  # number, microseconds since 1970, partition that it came through


class Putter(Protocol):
    """Puts messages in: numbers with their due times in ms; `flush` returns when all are acknowledged."""

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None: ...

    def flush(self) -> None: ...


def named(number: int) -> bytes:
    """A message's id.

    >>> named(17)
    b'000000000017'
    """
    return b"%012d" % number


def value_of(number: int) -> bytes:
    """A message: 200 bytes.

    >>> len(value_of(1))
    200
    """
    return named(number) + PAYLOAD


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


# The relay


class IntoKafka:
    """Requests: any producer's, with headers."""

    def __init__(self, address: str, target: str) -> None:
        from confluent_kafka import Producer

        from waterclock.kafka.settings import SENDING, base_settings

        self._producer = Producer({**base_settings(address, {}), **SENDING, "on_delivery": self._hear})
        self._target, self._failed = target, 0

    def _hear(self, error: Any, message: Any) -> None:
        self._failed += error is not None

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None:
        for number, due_ms in zip(numbers, dues_ms, strict=True):
            id = named(number)
            headers = [("deliver-to", self._target), ("deliver-at", b"%d" % due_ms), ("delay-id", id)]
            self._produce(id + PAYLOAD, id, headers)
        self._producer.poll(0)

    def _produce(self, value: bytes, key: bytes, headers: list[tuple[str, Any]]) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, key, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.01)

    def flush(self) -> None:
        if self._producer.flush(PATIENCE_S) or self._failed:
            raise RuntimeError(f"{self._failed} requests were refused, or never answered")


def from_kafka(address: str, target: str) -> Came:
    """What is delivered to a topic, from its start."""
    from confluent_kafka import Consumer, TopicPartition

    from waterclock.kafka.settings import READING, base_settings

    quick = {"fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 1, "queued.max.messages.kbytes": 262_144}
    settings = {**base_settings(address, {}), **READING, **quick, "enable.partition.eof": False, "group.id": "unused"}
    reader = Consumer(settings)
    partitions = reader.list_topics(target, timeout=10).topics[target].partitions
    reader.assign([TopicPartition(target, number, 0) for number in partitions])
    while True:
        first = reader.poll(0.1)
        messages = [] if first is None else [first, *reader.consume(10_000, 0)]
        at_us = now_us()
        # the partition is that of the input through which it came: both have as many, and go by the hash of the key
        yield [(int(m.value()[:12]), at_us, m.partition()) for m in messages if m.error() is None]


# A sorted set


class IntoRedis:
    """Two commands a message, in pipelines of a thousand messages."""

    def __init__(self, address: str, target: str) -> None:
        self._redis = redis_at(address)

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None:
        for first in range(0, len(numbers), POPPED):
            some = slice(first, first + POPPED)
            pipeline = self._redis.pipeline(transaction=False)
            for number, due_ms in zip(numbers[some], dues_ms[some], strict=True):
                pipeline.hset(PAYLOADS, named(number), value_of(number))
                pipeline.zadd(PENDING, {named(number): due_ms})
            pipeline.execute()

    def flush(self) -> None:
        """Each pipeline was answered."""


def redis_at(address: str) -> Any:
    """A client; the package is not one of ours, so it may be missing."""
    import redis

    return redis.Redis(unix_socket_path=address)


def from_redis(address: str, target: str) -> Came:
    """A popper by hand: what it has taken is gone from Redis; should it die then, the message is lost."""
    import redis

    client = redis_at(address)
    pop = client.register_script(POP)
    while True:
        try:
            found = pop(keys=[PENDING, PAYLOADS], args=[now_us() // 1000, POPPED])
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError, redis.exceptions.ResponseError):
            found = []  # killed, or still reading its file
        at_us = now_us()
        if not found:
            time.sleep(EMPTY_S)
        yield [(int(value[:12]), at_us, 0) for value in found]


# A table


class IntoTable:
    """COPY, which is quicker than any insert; a commit for each call."""

    def __init__(self, address: str, target: str) -> None:
        from waterclock.bench.polling.tasks import connected

        self._connection, self._payload = connected(address), PAYLOAD.decode()

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None:
        with self._connection.cursor().copy("copy task (id, due, payload) from stdin") as copy:
            for number, due_ms in zip(numbers, dues_ms, strict=True):
                copy.write_row((number, moment(due_ms), named(number).decode() + self._payload))

    def flush(self) -> None:
        """Each call was committed."""


def moment(ms: int) -> datetime:
    """What databases take.

    >>> moment(1_500).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return datetime.fromtimestamp(ms / 1000, UTC)


def _into_jobs(address: str, target: str) -> Putter:
    from waterclock.bench.relay.jobs import IntoJobs

    return IntoJobs(address)


def _from_jobs(address: str, target: str) -> Came:
    from waterclock.bench.relay.jobs import from_jobs

    return from_jobs(address)


INTO: Final[dict[str, Callable[[str, str], Putter]]] = {
    "kafka": IntoKafka,
    "redis": IntoRedis,
    "table": IntoTable,
    "jobs": _into_jobs,
}
FROM: Final[dict[str, Callable[[str, str], Came]]] = {"kafka": from_kafka, "redis": from_redis, "jobs": _from_jobs}
