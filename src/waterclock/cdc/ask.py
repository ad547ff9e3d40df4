"""`waterclock cdc snapshot NAME --tables a,b`: have tables of a running capture come again, beside its changes."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from waterclock.cdc.requests import ANSWER, TABLES, topic_of_requests
from waterclock.clock import Clock, SystemClock
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.kafka import library
from waterclock.kafka.admin import Admin
from waterclock.kafka.errors import words_of
from waterclock.kafka.settings import READING, base_settings, from_file
from waterclock.outside import os
from waterclock.signals import heard
from waterclock.wording import counted

WAIT_S, _KAFKA_S = 30.0, 10.0


def run_snapshot(arguments: Namespace) -> int:
    """Ask, and print the answer; 1 if a table does not come."""
    name, tables = arguments.asks, [each for text in arguments.tables for each in text.split(",") if each]
    if not tables:
        raise UsageError("--tables: name the tables that are to come, such as --tables shop.item,shop.sale.")
    scheme, _, rest = arguments.to.partition("://")
    if scheme != "kafka" or not rest:
        raise UsageError(f"--to {arguments.to}: write kafka://host:9092.")
    settings = base_settings(rest.partition("/")[0], from_file("--kafka-config", arguments.kafka_config))
    with heard():
        answer = ask(settings, name, tables, SystemClock(), WAIT_S)
    print(json.dumps(answer) if arguments.json else "\n".join(_lines(answer)))
    return 1 if answer["refused"] else 0


def ask(settings: Mapping[str, Any], name: str, tables: list[str], clock: Clock, wait_s: float) -> dict[str, Any]:
    """The answer of the capture `name`, the fields of a SnapshotAnswer; UsageError if there is no such capture,
    EnvironmentMissing if it does not answer. Whoever leaves without an answer takes the request back."""
    topic, key = _topic(settings, name), os.urandom(16).hex().encode()
    producer = library.Producer({**settings, "acks": "all", "enable.idempotence": True})
    consumer = library.Consumer({**settings, **READING, "group.id": f"{topic}.reader"})
    with closing(consumer):
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_KAFKA_S)
        except KafkaException as error:
            raise EnvironmentMissing(f"{topic} cannot be read: {words_of(error)}.") from None
        consumer.assign([TopicPartition(topic, 0, end)])
        found = None
        try:
            _send(producer, topic, key, json.dumps({TABLES: tables}).encode())
            found = _answer(consumer, key, clock, wait_s)
        finally:
            if found is None:
                _send(producer, topic, key, None)
        found = found or _answer(consumer, key, clock, _KAFKA_S)  # it may have come before that
    if found is None:
        raise EnvironmentMissing(
            f"The capture {name} did not answer within {wait_s:g} seconds: it does not run, or is within a very large "
            "transaction. Start it, and ask again: this request is taken back."
        )
    return found


def _topic(settings: Mapping[str, Any], name: str) -> str:
    topic, admin = topic_of_requests(name), Admin(settings)
    if topic in admin.known([topic]):
        return topic
    captures = sorted(each.removesuffix(".position") for each in admin.topics() if each.endswith(".position"))
    if name in captures:
        raise UsageError(
            f"The capture {name} was never run so that it can be asked: start it without --once, and ask again."
        )
    raise UsageError(f"No capture is called {name} in this Kafka. There is: {', '.join(captures) or 'none'}.")


def _answer(consumer: library.Consumer, key: bytes, clock: Clock, wait_s: float) -> dict[str, Any] | None:
    """Step 4; None if none came, or the request was taken back before."""
    until_s = clock.monotonic_s() + wait_s
    while clock.monotonic_s() < until_s:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None or message.key() != key:
            continue
        if message.value() is None:
            return None
        fields: dict[str, Any] = json.loads(message.value())
        if ANSWER in fields:
            return dict(fields[ANSWER])
    return None


def _send(producer: library.Producer, topic: str, key: bytes, value: bytes | None) -> None:
    refused: list[KafkaError] = []
    producer.produce(topic, value, key, 0, on_delivery=lambda error, _: refused.append(error) if error else None)
    if producer.flush(_KAFKA_S) or refused:
        why = words_of(refused[0]) if refused else "it does not answer"
        raise EnvironmentMissing(f"Kafka did not take the request for {topic}: {why}.")


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    for table, rows in answer["tables"].items():
        yield f"{table}: about {counted(rows, 'row')} come again, beside the changes behind {answer['place']}"
    for table, why in answer["refused"].items():
        yield f"{table}: refused. {why}"
