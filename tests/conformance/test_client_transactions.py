"""Transactions with each of three Python clients: exactly once, and who is fenced."""

from __future__ import annotations

import pytest

from tests.conformance.clients import Message, Producer, Refused, read
from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import offset_of
from tests.conformance.test_clients import Closing, client
from tests.conformance.waiting import until

__all__ = ["client"]


def test_a_reader_of_what_is_committed_sees_commits_only(client: Closing, topic: str, name: str) -> None:
    producer = client.producer(transactional_id=name)
    for value, end in ((b"a", producer.commit), (b"gone", producer.abort), (b"b", producer.commit)):
        producer.begin()
        producer.write(topic, [Message(value)] * 3)
        end()
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)], isolated=True), 6)] == [b"a"] * 3 + [b"b"] * 3
    assert [m.offset for m in read(client.reader(partitions=[(topic, 0)], isolated=True), 6)] == [0, 1, 2, 8, 9, 10]


def test_a_reader_of_everything_sees_what_was_aborted(client: Closing, topic: str, name: str) -> None:
    producer = client.producer(transactional_id=name)
    producer.begin()
    producer.write(topic, [Message(b"gone")])
    producer.abort()
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)]), 1)] == [b"gone"]


def test_an_open_transaction_is_hidden_until_its_commit(client: Closing, topic: str, name: str) -> None:
    producer = client.producer(transactional_id=name)
    producer.begin()
    producer.write(topic, [Message(b"a")])
    reader = client.reader(partitions=[(topic, 0)], isolated=True)
    assert [reader.poll() for _ in range(5)] == [[]] * 5
    producer.commit()
    assert [m.value for m in read(reader, 1)] == [b"a"]


def test_the_last_offset_for_a_reader_of_what_is_committed(client: Closing, topic: str, name: str) -> None:
    producer = client.producer(transactional_id=name)
    producer.begin()
    producer.write(topic, [Message(b"a")])
    assert client.reader(partitions=[(topic, 0)]).ends(topic, 0) == (0, 1)
    assert client.reader(partitions=[(topic, 0)], isolated=True).ends(topic, 0) == (0, 0)
    producer.commit()


def test_offsets_of_a_group_count_with_the_transaction_that_carries_them(
    client: Closing, topic: str, name: str, dialogue: Dialogue
) -> None:
    client.producer().write(topic, [Message(b"a"), Message(b"b")])
    reader = client.reader(topics=[topic], group=name)
    read(reader, 2)
    producer = client.producer(transactional_id=name)
    for offset, end, kept in ((1, producer.abort, -1), (2, producer.commit, 2)):
        producer.begin()
        producer.write(topic, [Message(b"out")])
        producer.offer(reader, topic, 0, offset)
        end()
        until(lambda: offset_of(dialogue.wire, name, topic, stable=True).error_code == 0)
        assert offset_of(dialogue.wire, name, topic).committed_offset == kept


def write_late(zombie: Producer, topic: str) -> None:
    zombie.write(topic, [Message(b"late")])
    zombie.commit()


def test_a_zombie_is_fenced(client: Closing, topic: str, name: str) -> None:
    zombie = client.producer(transactional_id=name)
    zombie.begin()
    zombie.write(topic, [Message(b"first")])
    heir = client.producer(transactional_id=name)
    heir.begin()
    heir.write(topic, [Message(b"second")])
    heir.commit()  # before the zombie wakes: kafka-python's claims the id anew when it is refused
    with pytest.raises(Refused):  # of the write, or of the commit where the client keeps it until then
        write_late(zombie, topic)
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)], isolated=True), 1)] == [b"second"]


def test_a_producer_that_comes_back_may_go_on(client: Closing, topic: str, name: str) -> None:
    first = client.producer(transactional_id=name)
    first.begin()
    first.write(topic, [Message(b"lost")])
    second = client.producer(transactional_id=name)
    second.begin()
    second.write(topic, [Message(b"kept")])
    second.commit()
    assert [m.value for m in read(client.reader(partitions=[(topic, 0)], isolated=True), 1)] == [b"kept"]
