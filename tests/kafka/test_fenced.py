"""Two producers under one name: the later one writes, the earlier one is told, whichever way it hears."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from tests.kafka.reader import Failed, Make, Values, send
from waterclock.kafka.errors import Meaning
from waterclock.kafka.transactions import TransactionalProducer


def test_the_later_of_two_with_one_name_writes_and_the_earlier_one_is_fenced(
    producer: TransactionalProducer, make: Make, kafka_topic: str, values: Values
) -> None:
    send(producer, kafka_topic, b"earlier")
    later = make()
    later.fence()
    later.begin()
    send(later, kafka_topic, b"later")
    with pytest.raises(Failed) as raised:
        producer.commit()
    assert raised.value.meaning is Meaning.FENCED
    later.commit()
    assert values() == [b"later"]


def test_the_earlier_one_is_fenced_too_where_only_its_client_knows_why(
    producer: TransactionalProducer, make: Make, kafka_topic: str
) -> None:
    """`produce` says then only that the client can do no more."""
    send(producer, kafka_topic, b"earlier")
    make().fence()
    with pytest.raises(KafkaException):
        producer.producer.commit_transaction(10)
    with pytest.raises(Failed) as raised:
        producer.send(kafka_topic, b"more")
    assert raised.value.meaning is Meaning.FENCED


def _pass_over(number: int, error: KafkaError | None, message: Message) -> None:
    """A report is heard."""


class Served:
    """A producer's client that takes no more records; the reports of those that it has are heard with `poll`."""

    def __init__(self, client: Any) -> None:
        self._client, self.poll = client, client.poll

    def produce(self, *_: object, **__: object) -> None:
        """Nothing is sent."""

    def abort_transaction(self, *timeout_s: float) -> None:
        self._client.abort_transaction(*timeout_s)


def fenced(make: Make, topic: str) -> TransactionalProducer:
    """One whose client knows that it is; its records are to be reported."""
    producer = make()
    producer.fence()
    producer.begin()
    make().fence()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            producer.producer.produce(topic, b"x", on_delivery=partial(_pass_over, 0))
        except KafkaException:
            producer.producer = Served(producer.producer)
            return producer
        time.sleep(0.01)
    raise AssertionError("it was not told")


@pytest.mark.parametrize("many", [False, True])
def test_one_that_hears_that_it_is_fenced_while_it_serves_reports_says_so_too(
    many: bool, make: Make, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.kafka.transactions._SERVED_EVERY", 1)
    producer = fenced(make, kafka_topic)
    with pytest.raises(Failed) as raised:
        producer.send_many([kafka_topic], [(b"more", None, [])]) if many else producer.send(kafka_topic, b"more")
    assert raised.value.meaning is Meaning.FENCED


def test_and_where_python_takes_that_for_a_fault_of_the_clients(
    make: Make, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's error waits to be raised while a report of each record is made: then it is a SystemError."""
    monkeypatch.setattr("waterclock.kafka.transactions._SERVED_EVERY", 1)
    producer = fenced(make, kafka_topic)

    def poll(wait_s: float) -> None:
        raise SystemError("<built-in method> returned a result with an exception set")

    producer.producer.poll = poll
    with pytest.raises(Failed) as raised:
        producer.send(kafka_topic, b"more")
    assert raised.value.meaning is Meaning.FENCED


def test_who_names_a_topic_has_a_connection_before_the_coordinator_is_asked_for(make: Make, kafka_topic: str) -> None:
    """Without one, librdkafka asked again half a second later, in one of five cases."""
    producer, asked = make(), list[str]()

    class Client:
        def list_topics(self, topic: str, timeout: float) -> None:
            asked.append(topic)

        def init_transactions(self, timeout: float) -> None:
            asked.append("coordinator")

    producer.producer = Client()
    producer.fence(kafka_topic)
    producer.fence()
    assert asked == [kafka_topic, kafka_topic, "coordinator", "coordinator"]
