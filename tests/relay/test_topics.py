"""The relay's topics: made where they are missing, refused where Kafka would delete what is pending."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.outbox.log import OutboxLog
from waterclock.relay.wire.topics import Topics, make_what_is_gone, prepare
from waterclock.testing import Broker, Error

_numbers = count()


@pytest.fixture
def topics() -> Topics:
    return Topics.of(f"topics{next(_numbers)}")


def admin_of(broker: Broker) -> Admin:
    return Admin(base_settings(broker.bootstrap, {}))


def make(broker: Broker, topic: str, partitions: int, **settings: Any) -> None:
    client = AdminClient(base_settings(broker.bootstrap, {}))
    named = {name.replace("_", "."): value for name, value in settings.items()}
    client.create_topics([NewTopic(topic, partitions, config=named)])[topic].result()


def test_a_topic_that_is_not_known_at_once_is_asked_for_again(relay_broker: Broker, topics: Topics) -> None:
    """Apache Kafka says that a topic is made before it can say anything about it."""
    admin, unknown = admin_of(relay_broker), Error.UNKNOWN_TOPIC_OR_PARTITION
    make(relay_broker, topics.input, 3, retention_ms=-1)
    faults = relay_broker.faults
    with faults.answer("DescribeConfigs", unknown) as one, faults.answer("DescribeTopicPartitions", unknown) as other:
        assert admin.settings(topics.input)["retention.ms"] == "-1"
        assert admin.topic_id(topics.input)
    assert one.met + other.met


def test_what_is_missing_is_made_and_kept_for_ever(relay_broker: Broker, topics: Topics) -> None:
    admin = admin_of(relay_broker)
    assert prepare(admin, topics, 5, "h:1") == 5
    there = admin.topics()
    assert [there[topic] for topic in topics] == [5, 5, 5, 5]
    for topic in (topics.input, topics.settled):
        settings = admin.settings(topic)
        assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")
    assert prepare(admin, topics, 3, "h:1") == 5  # what is there is not changed


def test_a_topic_that_is_there_says_how_many_partitions_the_others_get(relay_broker: Broker, topics: Topics) -> None:
    make(relay_broker, topics.input, 2, retention_ms="-1")
    assert prepare(admin_of(relay_broker), topics, 5, "h:1") == 2
    assert admin_of(relay_broker).topics()[topics.settled] == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "retention.ms=604800000"),
        ({"retention_ms": "-1", "retention_bytes": "1000000"}, "retention.bytes=1000000"),
        ({"retention_ms": "-1", "cleanup_policy": "compact"}, "cleanup.policy=compact"),
    ],
)
@pytest.mark.parametrize("which", ["input", "settled"])
def test_a_topic_of_which_kafka_deletes_is_refused_with_the_command_that_mends_it(
    which: str, settings: dict[str, str], told: str, relay_broker: Broker, topics: Topics
) -> None:
    topic = getattr(topics, which)
    make(relay_broker, topic, 3, **settings)
    with pytest.raises(UsageError) as raised:
        prepare(admin_of(relay_broker), topics, 3, "h:1")
    assert f"The topic {topic} has {told}" in str(raised.value)
    mended = told.partition("=")[0] + ("=delete" if "cleanup" in told else "=-1")
    assert f"kafka-configs.sh --bootstrap-server h:1 --alter --entity-type topics --entity-name {topic}" in str(
        raised.value
    )
    assert f"--add-config {mended}" in str(raised.value)


def test_partition_counts_that_differ_are_refused_with_the_command_that_mends_it(
    relay_broker: Broker, topics: Topics
) -> None:
    make(relay_broker, topics.input, 4, retention_ms="-1")
    make(relay_broker, topics.settled, 3, retention_ms="-1")
    with pytest.raises(UsageError, match=f"--alter --topic {topics.settled} --partitions 4"):
        prepare(admin_of(relay_broker), topics, 3, "h:1")


def test_a_list_that_lags_says_nothing_of_what_is_there(
    relay_broker: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or another relay made them meanwhile: with its own number, and none of them was deleted."""
    admin = admin_of(relay_broker)
    assert prepare(admin, topics, 3, "h:1") == 3
    monkeypatch.setattr(Admin, "topics", lambda admin: {})
    assert prepare(admin, topics, 5, "h:1") == 3
    make_what_is_gone(admin, topics, 3)
    assert not caplog.messages
    outbox = OutboxLog(base_settings(relay_broker.bootstrap, {}), topics, (int, int))
    outbox.open()
    assert outbox._partitions == 3
