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
