"""What a client does to a broker, in a process of its own: each workload prints its figures as one line of JSON.

    python -m waterclock.bench.broker.workloads BOOTSTRAP NAME TOPIC SECONDS

Rule 1: every contender is asked by the same client code, librdkafka's, with the same settings.
Rule 2: what was sent is counted again when it is read, or acknowledged one by one: a fast wrong answer is an error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from waterclock.errors import WrongAnswer

BATCHED = {"linger.ms": 5, "batch.size": 262_144, "acks": "all", "queue.buffering.max.messages": 1_000_000}
ONE_BY_ONE = {"linger.ms": 0, "acks": "all"}
QUIET = {"log_level": 0}


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of all do not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def produce(bootstrap: str, topic: str, seconds: float, size: int) -> dict[str, float]:
    """Messages of `size` bytes as fast as they go, for `seconds`; all must be acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, **BATCHED, **QUIET})
    value, failed, sent = b"x" * size, 0, 0

    def reported(error: Any, message: Any) -> None:
        nonlocal failed
        failed += error is not None

    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(1000):
            _offer(producer, topic, value, reported)
        producer.poll(0)
        sent += 1000
    left = producer.flush(60)
    took = time.perf_counter() - start
    if failed or left:
        raise WrongAnswer(f"{failed} messages refused, {left} never answered, of {sent}")
    return {"messages": sent, "per_s": sent / took, "mb_per_s": sent * size / took / 1e6}


def _offer(producer: Producer, topic: str, value: bytes, reported: Callable[[Any, Any], None]) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=reported)
            return
        except BufferError:
            producer.poll(0.01)


def consume(bootstrap: str, topic: str, seconds: float, size: int) -> dict[str, float]:
    """Read the topic from its start to the end that it has now; every offset must come, in order."""
    consumer = _reader(bootstrap, topic)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    start, read, deadline = time.perf_counter(), 0, time.perf_counter() + 120
    while read < end and time.perf_counter() < deadline:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None and message.offset() != read:
                raise WrongAnswer(f"offset {message.offset()} came where {read} was expected")
            read += message.error() is None
    took = time.perf_counter() - start
    consumer.close()
    if read < end:
        raise WrongAnswer(f"{read} of {end} messages could be read")
    return {"messages": read, "per_s": read / took, "mb_per_s": read * size / took / 1e6}


def _reader(bootstrap: str, topic: str, **settings: Any) -> Consumer:
    settings = {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 1 << 20, **settings}
    settings["fetch.queue.backoff.ms"] = 1  # else librdkafka rests for a second whenever 100,000 messages wait
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"bench-{topic}", **QUIET, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def one_by_one(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    """Each message waits for the acknowledgement of the one before it."""
    producer = Producer({"bootstrap.servers": bootstrap, **ONE_BY_ONE, **QUIET})
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        while len(producer):
            producer.poll(1)
        times.append((time.perf_counter() - start) * 1e3)
    times = times[len(times) // 10 :]
    return {"messages": len(times), "p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}


def latency(bootstrap: str, topic: str, seconds: float, rate: int = 1000) -> dict[str, float]:
    """From produce to consume at `rate` messages a second, without lingering."""
    consumer = _reader(bootstrap, topic, **{"fetch.wait.max.ms": 100})
    consumer.poll(1.0)
    producer = Producer({"bootstrap.servers": bootstrap, **ONE_BY_ONE, **QUIET})
    start, sent, times = time.perf_counter(), 0, []
    while (now := time.perf_counter() - start) < seconds:
        while sent < now * rate:
            producer.produce(topic, repr(time.perf_counter()).encode())
            sent += 1
        producer.poll(0)
        times += _ages(consumer, 0.0002)
    deadline = time.perf_counter() + 10
    while len(times) < sent and time.perf_counter() < deadline:
        times += _ages(consumer, 0.1)
    consumer.close()
    if len(times) < sent:
        raise WrongAnswer(f"{len(times)} of {sent} messages came")
    times = times[len(times) // 10 :]
    return {"messages": len(times), "p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}


def _ages(consumer: Consumer, wait_s: float) -> Iterator[float]:
    message = consumer.poll(wait_s)
    while message is not None:
        if message.error() is None:
            yield (time.perf_counter() - float(message.value())) * 1e3
        message = consumer.poll(0)


def transactions(bootstrap: str, topic: str, seconds: float, messages: int) -> dict[str, float]:
    """Transactions of so many messages, one after the other; afterwards all must be readable as committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"bench-{topic}", **ONE_BY_ONE, **QUIET})
    producer.init_transactions(30)
    commits: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        producer.begin_transaction()
        for _ in range(messages):
            producer.produce(topic, b"x" * 100)
        producer.flush(30)
        before = time.perf_counter()
        producer.commit_transaction(30)
        commits.append((time.perf_counter() - before) * 1e3)
    took = time.perf_counter() - start
    _count_committed(bootstrap, topic, len(commits) * messages)
    return {
        "messages": len(commits) * messages,
        "per_s": len(commits) / took,
        "messages_per_s": len(commits) * messages / took,
        "p50_ms": percentile(commits, 0.5),
        "p99_ms": percentile(commits, 0.99),
    }


def _count_committed(bootstrap: str, topic: str, expected: int) -> None:
    consumer = _reader(bootstrap, topic, **{"isolation.level": "read_committed", "enable.partition.eof": True})
    read = 0
    while True:
        message = consumer.poll(10)
        if message is None or message.error() is not None:
            break
        read += 1
    consumer.close()
    if read != expected:
        raise WrongAnswer(f"{read} committed messages can be read, {expected} were committed")


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """A fresh topic; old records stay."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    for made in admin.create_topics([new], operation_timeout=30).values():
        made.result(30)
    _await_leader(_reader(bootstrap, topic), TopicPartition(topic, partitions - 1))


def _await_leader(consumer: Consumer, last: TopicPartition) -> None:
    """Apache Kafka answers before the partitions are led."""
    deadline = time.perf_counter() + 30
    while True:
        try:
            consumer.get_watermark_offsets(last, timeout=5)
            consumer.close()
            return
        except KafkaException:
            if time.perf_counter() > deadline:
                raise


WORKLOADS: dict[str, Callable[[str, str, float], dict[str, float]]] = {
    "produce-100": lambda b, t, s: produce(b, t, s, 100),
    "produce-1k": lambda b, t, s: produce(b, t, s, 1000),
    "consume-100": lambda b, t, s: consume(b, t, s, 100),
    "consume-1k": lambda b, t, s: consume(b, t, s, 1000),
    "one-by-one": one_by_one,
    "latency": latency,
    "transactions-1": lambda b, t, s: transactions(b, t, s, 1),
    "transactions-1000": lambda b, t, s: transactions(b, t, s, 1000),
}


def main() -> None:
    bootstrap, name, topic, seconds = sys.argv[1:]
    try:
        figures = WORKLOADS[name](bootstrap, topic, float(seconds))
    except (KafkaException, WrongAnswer) as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
