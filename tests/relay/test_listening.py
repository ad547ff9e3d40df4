"""`waterclock relay read`: what it says while nothing comes, and what ends it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tests.relay.world import World
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.settings import base_settings
from waterclock.relay.client.listening import _Heard, reading
from waterclock.relay.watching.listing import json_text


def test_what_the_topic_holds_is_read_and_then_what_comes(world: World) -> None:
    world.put_raw(b"x", [])
    with reading(base_settings(world.broker.bootstrap, {}), world.topic, False) as messages:
        assert next(messages).value() == b"x"
        world.put_raw(b"y", [])
        assert next(messages).value() == b"y"


def test_what_waiting_does_not_mend_is_an_error() -> None:
    """What was to be read next was deleted, for instance."""
    with pytest.raises(ConnectionLost, match=r"reminders cannot be read any more: .* Start the command again"):
        _Heard("reminders").of_partition(KafkaError(KafkaError._AUTO_OFFSET_RESET))


def test_a_right_that_is_missing_is_said() -> None:
    with pytest.raises(UsageError, match=r"Kafka refuses reminders: .* Look at --kafka-config and the rights"):
        _Heard("reminders").of_partition(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_that_kafka_is_away_is_said_once_until_something_comes(capsys: pytest.CaptureFixture[str]) -> None:
    heard, away = _Heard("reminders"), KafkaError(KafkaError._ALL_BROKERS_DOWN)
    for _ in range(3):
        heard.of_client(away)
        heard.of_client(KafkaError(KafkaError._TRANSPORT))
        heard.of_partition(KafkaError(KafkaError._TRANSPORT))
    assert len(capsys.readouterr().err.splitlines()) == 1
    heard.came()
    heard.of_client(away)
    assert "Kafka is away" in capsys.readouterr().err


def test_what_is_no_text_is_base64_under_another_name() -> None:
    assert json_text("value", b"\xff\x00") == {"value_base64": "/wA="}
    assert (json_text("value", None), json_text("value", "ü".encode())) == ({"value": None}, {"value": "ü"})
