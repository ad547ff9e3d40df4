"""What users do, with each of three Python clients: writing, reading, groups, times, passwords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.conformance.batches import LONG_AGO_MS, now_ms
from tests.conformance.clients import (
    Endpoint,
    Message,
    Producer,
    Reader,
    Reading,
    Refused,
    Writing,
    assigned,
    read,
)
from tests.conformance.dialogue import Dialogue
from tests.conformance.waiting import until
from waterclock.bench.servers.server import USERS, Server

CLIENTS = {
    "confluent-kafka": "tests.conformance.client_confluent:Confluent",
    "aiokafka": "tests.conformance.client_aiokafka:Aiokafka",
    "kafka-python": "tests.conformance.client_kafka_python:KafkaPython",
}
# kafka-python leaves sockets behind that fail whichever test runs when they are collected: `make test-servers` has it alone
ALL_CLIENTS = [pytest.param(name, marks=[pytest.mark.servers] if name == "kafka-python" else []) for name in CLIENTS]
HOUR_MS = 3_600_000


class Closing:
    """A client whose producers and readers are closed when the test ends."""

    def __init__(self, kind: str, endpoint: Endpoint, stack: ExitStack) -> None:
        self._kind, self._endpoint, self._stack = CLIENTS[kind], endpoint, stack

    def producer(self, **settings: Any) -> Producer:
        made: Producer = resolve_name(f"{self._kind}Producer")(self._endpoint, Writing(**settings))
        return self._stack.enter_context(closing(made))

    def reader(self, **settings: Any) -> Reader:
        made: Reader = resolve_name(f"{self._kind}Reader")(self._endpoint, Reading(**settings))
        return self._stack.enter_context(closing(made))


@pytest.fixture(params=ALL_CLIENTS)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Closing]:
    with ExitStack() as stack:
        yield Closing(request.param, Endpoint(bootstrap), stack)


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_messages_come_back_as_they_were_sent(client: Closing, topic: str, compression: str | None) -> None:
    sent = [Message(b"v%d" % i, b"k%d" % (i % 7), (("h", b"x"), ("h", b"y")), LONG_AGO_MS + i) for i in range(500)]
    client.producer(compression=compression).write(topic, sent)
    found = read(client.reader(partitions=[(topic, 0)]), 500)
    assert found == [m._replace(offset=offset) for offset, m in enumerate(sent)]


def test_null_values_and_keys_come_back_as_null(client: Closing, topic: str) -> None:
    client.producer().write(topic, [Message(None, b"k"), Message(b"", None)])
    found = read(client.reader(partitions=[(topic, 0)]), 2)
    assert [(m.key, m.value) for m in found] == [(b"k", None), (None, b"")]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement_writes(client: Closing, topic: str, acks: int) -> None:
    client.producer(acks=acks).write(topic, [Message(b"a"), Message(b"b")])
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)]), 2)] == [b"a", b"b"]


def test_an_idempotent_producer_keeps_order(client: Closing, topic: str) -> None:
    offsets = client.producer(idempotent=True).write(topic, [Message(b"%d" % i) for i in range(2000)])
    assert offsets == list(range(2000))
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)]), 2000)] == [b"%d" % i for i in range(2000)]


def test_a_large_message_comes_back(client: Closing, topic: str) -> None:
    client.producer().write(topic, [Message(b"x" * 900_000)])
    assert [len(m.value or b"") for m in read(client.reader(partitions=[(topic, 0)]), 1)] == [900_000]


def test_a_message_above_the_topics_limit_is_refused(client: Closing, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": 1000})
    with pytest.raises(Refused) as caught:
        client.producer().write(topic, [Message(b"x" * 5000)])
    assert caught.value.code == 10


def test_a_timestamp_hours_ahead_is_refused(client: Closing, topic: str) -> None:
    with pytest.raises(Refused) as caught:
        client.producer().write(topic, [Message(b"x", timestamp_ms=now_ms() + 5 * HOUR_MS)])
    assert caught.value.code == 32


def test_writing_makes_a_topic(client: Closing, name: str) -> None:
    # auto.create.topics.enable
    assert client.producer().write(name, [Message(b"a")]) == [0]


def test_a_time_is_found(client: Closing, topic: str) -> None:
    client.producer().write(topic, [Message(b"v", timestamp_ms=LONG_AGO_MS + 10 * i) for i in range(5)])
    reader = client.reader(partitions=[(topic, 0)])
    assert [reader.at(topic, 0, LONG_AGO_MS + t) for t in (0, 11, 40)] == [0, 2, 4]
    # librdkafka says END (-1 here as well), the others nothing
    assert reader.at(topic, 0, LONG_AGO_MS + 41) == -1


def test_both_ends_of_a_partition_are_told(client: Closing, topic: str, dialogue: Dialogue) -> None:
    client.producer().write(topic, [Message(b"v")] * 5)
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}]
    dialogue.wire.ask("delete_records", 2, topics=topics, timeout=5_000)
    assert client.reader(partitions=[(topic, 0)]).ends(topic, 0) == (2, 5)


def test_a_group_of_one_reads_every_partition(client: Closing, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic(3)
    client.producer().write(topic, [Message(b"%d" % i, partition=i % 3) for i in range(30)])
    found = read(client.reader(topics=[topic], group=name), 30)
    assert {m.value for m in found} == {b"%d" % i for i in range(30)}


def test_two_members_share_and_one_takes_over(client: Closing, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic(4)
    first = client.reader(topics=[topic], group=name)
    assigned(first, count=4)
    second = client.reader(topics=[topic], group=name)
    assigned(first, second, count=4)
    second.close()
    assigned(first, count=4)


def test_a_group_goes_on_where_it_committed(client: Closing, topic: str, name: str) -> None:
    producer = client.producer()
    producer.write(topic, [Message(b"a"), Message(b"b")])
    first = client.reader(topics=[topic], group=name)
    read(first, 2)
    first.commit()
    assert first.committed(topic, 0) == 2
    first.close()
    producer.write(topic, [Message(b"c")])
    assert [m.value for m in read(client.reader(topics=[topic], group=name), 1)] == [b"c"]


def test_a_group_that_did_not_commit_begins_again(client: Closing, topic: str, name: str) -> None:
    client.producer().write(topic, [Message(b"a")])
    first = client.reader(topics=[topic], group=name)
    read(first, 1)
    assert first.committed(topic, 0) == -1
    first.close()
    assert [m.value for m in read(client.reader(topics=[topic], group=name), 1)] == [b"a"]


def test_a_new_group_may_begin_at_the_end(client: Closing, topic: str, name: str) -> None:
    producer = client.producer()
    producer.write(topic, [Message(b"old")])
    reader = client.reader(topics=[topic], group=name, latest=True)
    assigned(reader, count=1)
    # where its end is, the reader finds out by and by: write until it has
    found: list[Message] = []
    until(lambda: producer.write(topic, [Message(b"new")]) and (found.extend(reader.poll()) or found))
    assert {m.value for m in found} == {b"new"}


def test_a_static_member_comes_back_to_its_partitions(
    client: Closing, new_topic: Callable[..., str], name: str, dialogue: Dialogue
) -> None:
    topic = new_topic(2)
    client.producer().write(topic, [Message(b"a"), Message(b"b", partition=1)])
    reader = client.reader(topics=[topic], group=name, instance="i1")
    assigned(reader, count=2)
    answer = dialogue.wire.ask("describe_groups", 5, groups=[name]).groups[0]
    assert [m.group_instance_id for m in answer.members] == ["i1"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("kind_of_client", ALL_CLIENTS)
def test_a_name_and_password_open_the_door(server: Server, kind_of_client: str, mechanism: str, name: str) -> None:
    if server.guarded is None:
        pytest.skip("this broker was started without a listener that asks for a password")
    endpoint = Endpoint(server.guarded, mechanism, "alice", USERS["alice"])
    with ExitStack() as stack:
        client = Closing(kind_of_client, endpoint, stack)
        assert client.producer().write(name, [Message(b"a")]) == [0]
        assert [m.value for m in read(client.reader(partitions=[(name, 0)]), 1)] == [b"a"]
