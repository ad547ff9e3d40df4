"""A topic that is gone with the broker that led, or deleted under a capture, is made anew by its next pass."""

from __future__ import annotations

import pytest

from waterclock.broker import Broker
from waterclock.cdc.produce import CaptureTopics, Target
from waterclock.errors import EnvironmentMissing
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings


def test_a_topic_that_is_gone_is_no_fault_of_the_users(broker: Broker) -> None:
    settings = base_settings(broker.bootstrap, {})
    target = Target(broker.bootstrap, "gone", topics="per-table")
    topics = CaptureTopics(settings, target, "gone.position", "gone.schema")
    topics.make("gone.shop.item")
    Admin(settings).remove(["gone.shop.item"])
    with pytest.raises(EnvironmentMissing, match="another broker leads, which never had it"):
        topics.limit("gone.shop.item")


def test_a_list_that_lags_says_neither_how_many_partitions_there_are_nor_that_no_schema_was_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncate goes to all partitions, and a change is read by the schema that was written."""
    settings = base_settings(broker.bootstrap, {})
    Admin(settings).make("lags.shop.item", 6)
    target = Target(broker.bootstrap, "lags", topics="per-table")
    assert CaptureTopics(settings, target, "lags.position", "lags.schema").of_schemas() is False
    monkeypatch.setattr(Admin, "topics", lambda admin: {})
    topics = CaptureTopics(settings, target, "lags.position", "lags.schema")
    assert topics.of("shop", "item") == ("lags.shop.item", 6)
    assert topics.of_schemas() is True
