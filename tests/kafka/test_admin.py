"""Topics over confluent-kafka: listed, made once, looked at; what Kafka refuses is a sentence."""

from __future__ import annotations

import pytest

from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.kafka import admin as admins
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.testing import Broker, Error


@pytest.fixture
def admin(kafka_broker: Broker) -> Admin:
    return Admin(base_settings(kafka_broker.bootstrap, {}))


def test_topics_are_listed_with_their_partitions(admin: Admin, kafka_broker: Broker, kafka_topic: str) -> None:
    kafka_broker.create_topic(f"{kafka_topic}-more", 3)
    topics = admin.topics()
    assert (topics[kafka_topic], topics[f"{kafka_topic}-more"]) == (1, 3)


def test_a_topic_is_made_with_its_settings_and_again_is_the_same(admin: Admin, kafka_topic: str) -> None:
    name = f"{kafka_topic}-made"
    admin.make(name, 2, {"cleanup.policy": "compact"})
    admin.make(name, 5, {"cleanup.policy": "delete"})  # as if somebody had made it meanwhile
    assert admin.topics()[name] == 2
    assert admin.settings(name)["cleanup.policy"] == "compact"


def test_a_topic_that_kafka_does_not_make_is_told_by_its_name(admin: Admin) -> None:
    with pytest.raises(UsageError, match=r"^Kafka does not make the topic a b: .*\.$"):
        admin.make("a b", 1)


def test_settings_that_kafka_does_not_show_are_told_by_their_topic(
    admin: Admin, kafka_broker: Broker, kafka_topic: str
) -> None:
    with (
        kafka_broker.faults.answer("DescribeConfigs", Error.TOPIC_AUTHORIZATION_FAILED),
        pytest.raises(UsageError, match=rf"^Kafka does not show the settings of the topic {kafka_topic}: .*\.$"),
    ):
        admin.settings(kafka_topic)


def test_a_topic_that_was_made_just_now_and_is_not_known_everywhere_yet_is_asked_for_again(
    admin: Admin, kafka_broker: Broker, kafka_topic: str
) -> None:
    """Apache Kafka answers CreateTopics before its own metadata has the topic: a relay that had made its topics ended."""
    with kafka_broker.faults.answer("DescribeConfigs", Error.UNKNOWN_TOPIC_OR_PARTITION, times=2):
        assert admin.settings(kafka_topic)["cleanup.policy"] == "delete"


def test_a_topic_that_is_not_there_is_told_after_a_while(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admins, "_MADE_WITHIN_S", 0.2)
    with pytest.raises(UsageError, match=r"^Kafka does not show the settings of the topic nowhere: "):
        admin.settings("nowhere")


def test_no_kafka_is_told_with_its_address_and_with_a_way_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admins, "CALL_S", 0.2)
    with pytest.raises(
        EnvironmentMissing, match=r"^There is no Kafka to talk to at 127\.0\.0\.1:1: .*`waterclock broker` starts one"
    ):
        Admin(base_settings("127.0.0.1:1", {}), patience_s=0.2).topics()


def test_a_kafka_that_goes_away_is_no_refusal(admin: Admin, kafka_broker: Broker, kafka_topic: str) -> None:
    with (
        kafka_broker.faults.answer("CreateTopics", Error.REQUEST_TIMED_OUT),
        pytest.raises(EnvironmentMissing, match=r"^Kafka does not make the topic later: .*\.$"),
    ):
        admin.make("later", 1)
