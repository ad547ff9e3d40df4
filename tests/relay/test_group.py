"""Leaving the group: a consumer of Kafka's that does not close keeps no relay from ending."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient

from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.cluster import group
from waterclock.testing import Broker


class Stuck:
    """A consumer that has nothing, and whose `close` ends when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def assignment(self) -> list[object]:
        return []

    def unsubscribe(self) -> None:
        """It does."""

    def poll(self, wait_s: float) -> None:
        """Nothing comes."""

    def close(self) -> None:
        self.let_go.wait(30)


def test_a_consumer_that_does_not_close_is_left_behind_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "CLOSING_S", 0.05)
    stuck = Stuck()
    with caplog.at_level(logging.WARNING):
        group.leave(stuck)
    assert "the consumer does not close" in caplog.text
    stuck.let_go.set()


def stands(admin: AdminClient, group: str, shares: list[int]) -> bool:
    """Whether the group rests, and its members have so many partitions."""
    told = admin.describe_consumer_groups([group])[group].result()
    found = [len(one.assignment.topic_partitions) for one in told.members]
    return told.state == ConsumerGroupState.STABLE and found == shares


def polled(condition: Callable[[], bool], *consumers: Consumer) -> None:
    until_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until_s
        for consumer in consumers:
            consumer.poll(0.01)


@pytest.mark.long(seconds=3)
def test_one_that_is_shut_out_before_it_has_heard_what_is_given_to_it_closes(
    relay_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka waited in `close` for its answer, for ever, with a thread that used a whole processor."""
    topic, settings = "given-unheard", base_settings(relay_broker.bootstrap, {})
    admin = AdminClient(settings)
    Admin(settings).make(topic, 2)

    def joined(name: str | None) -> Consumer:
        given, taken = Consumer.incremental_assign, Consumer.incremental_unassign
        return group.join(settings, topic, topic, name=name, on_given=given, on_taken=taken)

    one, two = joined("one"), joined(None)
    polled(lambda: [len(each.assignment()) for each in (one, two)] == [1, 1], one, two)
    polled(lambda: stands(admin, topic, [1, 1]) and one.poll(0.1) is None, one, two)
    group.leave(two)
    polled(lambda: stands(admin, topic, [2]))
    successor = joined("one")
    polled(lambda: len(successor.assignment()) == 2, successor)
    time.sleep(5 * group.HEARTBEAT_MS / 1_000)  # it is told so with a heartbeat, and nobody asks it
    group.leave(one)
    group.leave(successor)
    assert "does not close" not in caplog.text
