"""A producer of transactions against our broker: all or nothing, one process under a name, through faults and kills."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.kafka.kill_steps import STEPS
from tests.kafka.reader import Failed, Make, Values, producer_of, send
from waterclock.kafka.errors import Meaning
from waterclock.kafka.settings import SENDING, base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.testing import Broker, Error, ManualClock


def test_what_is_sent_is_there_after_the_commit_and_not_before(
    producer: TransactionalProducer, kafka_topic: str, values: Values
) -> None:
    send(producer, kafka_topic, b"a", b"b")
    assert values() == []
    producer.commit()
    assert (values(), producer.is_open) == ([b"a", b"b"], False)


def test_what_is_aborted_or_closed_is_never_there_and_another_transaction_goes_on(
    producer: TransactionalProducer, kafka_topic: str, values: Values
) -> None:
    send(producer, kafka_topic, b"aborted")
    producer.abort()
    producer.begin()
    producer.begin()  # again is the same
    send(producer, kafka_topic, b"kept")
    producer.commit()
    producer.begin()
    send(producer, kafka_topic, b"left open")
    producer.close()
    producer.close()
    assert values() == [b"kept"]


def test_more_is_sent_than_the_client_may_hold(make: Make, kafka_topic: str, values: Values) -> None:
    with patch.dict("waterclock.kafka.transactions.SENDING", {"queue.buffering.max.messages": 10}):
        producer = make()
    producer.fence()
    producer.begin()
    for number in range(2500):
        producer.send(kafka_topic, b"%d" % number)
    producer.commit()
    assert values() == [b"%d" % number for number in range(2500)]


# What is worth another try, and what is not


@pytest.mark.parametrize(
    "error", [Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.CONCURRENT_TRANSACTIONS]
)
def test_a_coordinator_that_is_not_ready_is_asked_again(
    error: Error, make: Make, kafka_broker: Broker, kafka_topic: str, values: Values
) -> None:
    producer = make()
    with kafka_broker.faults.answer("InitProducerId", error, times=2) as fencing:
        producer.fence()
    producer.begin()
    send(producer, kafka_topic, b"a")
    with kafka_broker.faults.answer("EndTxn", error, times=2) as ending:
        producer.commit()
    assert (fencing.met, ending.met, values()) == (2, 2, [b"a"])


def test_a_call_that_ran_out_of_time_is_made_again_and_what_it_had_begun_counts_once(
    make: Make, kafka_broker: Broker, kafka_topic: str, values: Values
) -> None:
    producer = make()
    with kafka_broker.faults.delay("InitProducerId", 1500, times=1) as fencing:
        producer.fence()
    producer.begin()
    send(producer, kafka_topic, b"a")
    with kafka_broker.faults.delay("EndTxn", 1500, times=1) as ending:
        producer.commit()
    assert (fencing.met, ending.met, values()) == (1, 1, [b"a"])


def test_a_commit_whose_answer_is_lost_is_a_commit(
    producer: TransactionalProducer, kafka_broker: Broker, kafka_topic: str, values: Values
) -> None:
    send(producer, kafka_topic, b"a")
    with kafka_broker.faults.drop("EndTxn", after=True) as lost:
        producer.commit()
    assert (lost.met, values()) == (1, [b"a"])


def test_a_record_whose_answer_is_lost_is_there_once(
    producer: TransactionalProducer, kafka_broker: Broker, kafka_topic: str, values: Values
) -> None:
    with kafka_broker.faults.drop("Produce", after=True) as lost:
        send(producer, kafka_topic, b"a")
    producer.commit()
    assert (lost.met, values()) == (1, [b"a"])


def test_a_name_that_is_not_allowed_is_not_asked_for_again(make: Make, kafka_broker: Broker) -> None:
    producer = make(ManualClock())
    refused = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with kafka_broker.faults.answer("InitProducerId", refused, times=None) as fault, pytest.raises(Failed) as raised:
        producer.fence()
    assert (fault.met, raised.value.code) == (1, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def test_fencing_ends_when_patience_is_over_and_a_commit_never_gives_up() -> None:
    clock = ManualClock()
    producer = TransactionalProducer(base_settings("127.0.0.1:1", {}), "t", Failed, clock)
    asked: list[str] = []

    def away(name: str, timeout_s: float) -> None:
        asked.append(name)
        clock.sleep_s(timeout_s)
        if len(asked) < 5000:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    class Away:
        init_transactions, commit_transaction = partial(away, "fence"), partial(away, "commit")
        poll = staticmethod(lambda wait_s: 0)

    producer.producer = Away()
    with pytest.raises(Failed):
        producer.fence()
    assert 50 < len(asked) < 60
    assert clock.monotonic_s() < 65
    producer.commit()
    assert len(asked) == 5000


@pytest.mark.parametrize("step", ["send", "commit"])
def test_a_record_that_is_too_large_for_its_topic_is_what_a_later_step_fails_for(
    step: str, producer: TransactionalProducer, kafka_broker: Broker, kafka_topic: str, values: Values
) -> None:
    admin = AdminClient(base_settings(kafka_broker.bootstrap, {}))
    small = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, kafka_topic, incremental_configs=[small])
    admin.incremental_alter_configs([topic])[topic].result()
    send(producer, kafka_topic, b"small")
    send(producer, kafka_topic, os.urandom(5000))
    with pytest.raises(Failed) as raised:
        producer.commit() if step == "commit" else producer.send(kafka_topic, b"more")
    assert raised.value.meaning is Meaning.TOO_LARGE
    producer.close()
    assert values() == []


def test_ctrl_c_is_heard_while_kafka_does_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        producer = producer_of(broker, "t")
        producer.fence()
        producer.begin()
        send(producer, "t", b"a")
    interrupt = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        producer.commit()
    assert time.monotonic() - began < 30
    interrupt.join()
    producer.close()


# Headers, timestamps, labels, offsets of a group


def read_whole(broker: Broker, topic: str) -> list[tuple[object, ...]]:
    """Each committed record of partition 0: value, key, headers, timestamp."""
    reading = {"group.id": "unused", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**base_settings(broker.bootstrap, {}), **reading})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[object, ...]] = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append((message.value(), message.key(), message.headers(), message.timestamp()[1]))
    consumer.close()
    return found


def test_a_record_keeps_its_headers_in_order_its_timestamp_and_that_it_has_no_value(
    producer: TransactionalProducer, kafka_broker: Broker, kafka_topic: str
) -> None:
    headers = [("b", b"1"), ("a", None), ("b", b"")]
    producer.send(kafka_topic, None, b"k", headers=headers, timestamp_ms=1_700_000_000_000)
    producer.commit()
    assert read_whole(kafka_broker, kafka_topic) == [(None, b"k", headers, 1_700_000_000_000)]


def test_who_asks_hears_which_of_its_records_were_refused(
    producer: TransactionalProducer, kafka_broker: Broker, kafka_topic: str
) -> None:
    heard: list[tuple[str, int | None]] = []

    def note(label: str, error: KafkaError | None, _: Message) -> None:
        heard.append((label, error and error.code()))

    with kafka_broker.faults.answer("Produce", Error.INVALID_RECORD):
        producer.send(kafka_topic, b"a", on_delivery=partial(note, "a"))
        producer.producer.flush(10)
    assert heard == [("a", KafkaError.INVALID_RECORD)]
    with pytest.raises(Failed):
        producer.commit()


def test_who_has_every_delivery_reported_knows_the_offsets_when_the_commit_is_done(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    sending = {**SENDING, "delivery.report.only.error": False}
    producer = TransactionalProducer(base_settings(kafka_broker.bootstrap, {}), kafka_topic, Failed, sending=sending)
    heard: list[tuple[int, bool]] = []
    producer.fence()
    producer.begin()
    for _ in range(3):
        producer.send(
            kafka_topic, b"a", on_delivery=lambda error, message: heard.append((message.offset(), error is None))
        )
    producer.commit()
    assert heard == [(0, True), (1, True), (2, True)]


@pytest.fixture
def group(kafka_broker: Broker, kafka_topic: str) -> Iterator[Consumer]:
    """A consumer that has joined a group named after the topic."""
    settings = {"group.id": kafka_topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**base_settings(kafka_broker.bootstrap, {}), **settings})
    consumer.subscribe([kafka_topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def offset_of(consumer: Consumer, topic: str) -> int:
    (committed_,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    return int(committed_.offset)


def test_the_offsets_of_a_group_count_with_the_commit_and_not_with_an_abort(
    producer: TransactionalProducer, group: Consumer, kafka_topic: str
) -> None:
    producer.send_offsets({(kafka_topic, 0): 7}, group.consumer_group_metadata())
    producer.commit()
    producer.begin()
    producer.send_offsets({(kafka_topic, 0): 9}, group.consumer_group_metadata())
    producer.abort()
    assert offset_of(group, kafka_topic) == 7


def test_a_member_that_its_group_no_longer_knows_cannot_send_offsets(
    producer: TransactionalProducer, group: Consumer, kafka_topic: str
) -> None:
    metadata = group.consumer_group_metadata()
    group.close()
    with pytest.raises(Failed) as raised:
        producer.send_offsets({(kafka_topic, 0): 7}, metadata)
    assert raised.value.code == KafkaError.UNKNOWN_MEMBER_ID


def test_who_fences_one_with_an_open_transaction_does_not_wait_for_half_a_second(
    make: Make, kafka_topic: str, values: Values
) -> None:
    """librdkafka asks again so late if it was told that the old transaction is being thrown away. The quickest of five: a
    machine may be busy."""
    took_s, old = list[float](), make()
    old.fence(kafka_topic)
    for _ in range(5):
        old.begin()
        send(old, kafka_topic, b"left open")
        began_s, new = time.monotonic(), make()
        new.fence(kafka_topic)
        took_s.append(time.monotonic() - began_s)
        with pytest.raises(Failed):
            old.commit()
        old = new
    old.begin()
    send(old, kafka_topic, b"a")
    old.commit()
    assert values() == [b"a"]
    assert min(took_s) < 0.5


# Kills


@pytest.mark.parametrize(("step", "when"), [*product(STEPS, ("before", "after"))])
def test_a_kill_around_each_step_leaves_all_or_nothing(
    step: str, when: str, kafka_broker: Broker, kafka_topic: str, make: Make, values: Values
) -> None:
    command = [sys.executable, "-m", "tests.kafka.kill_steps", kafka_broker.bootstrap, kafka_topic, step, when]
    died = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    expected = [b"one", b"two"] if (step, when) == ("commit", "after") else []
    assert values() == expected
    producer = make()
    producer.fence()  # what the killed one left open is thrown away: it stands in no reader's way
    producer.begin()
    producer.send(kafka_topic, b"next", b"k")
    producer.commit()
    assert values() == [*expected, b"next"]


def clients() -> int:
    """How many threads of librdkafka run in this process."""
    return sum(task.read_text().startswith("rdk:") for task in Path("/proc/self/task").glob("*/comm"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_producer_that_is_gone_leaves_no_client_that_tries_to_connect(kafka_broker: Broker, kafka_topic: str) -> None:
    gc.collect()
    gc.disable()
    try:
        before = clients()
        producer = producer_of(kafka_broker, kafka_topic)
        producer.fence()
        producer.close()
        del producer
        assert clients() <= before
    finally:
        gc.enable()
