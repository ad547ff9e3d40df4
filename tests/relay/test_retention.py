"""The settings of the topics, looked at again while the relay runs: what would delete what is pending is said."""

from __future__ import annotations

import logging

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.cluster.watcher import AGAIN_NS, LOOK_NS
from waterclock.relay.relay import Relay
from waterclock.testing import Error


def look(world: World, relay: Relay, after_ns: int = LOOK_NS) -> None:
    """The next look, and all that it is told."""
    world.clock.advance_s(after_ns / 1e9)
    relay.step(0)
    step_until(lambda: not relay._watcher.is_waiting, relay)


@pytest.mark.parametrize("which", ["input", "settled"])
def test_a_retention_that_somebody_sets_is_said_with_what_mends_it_and_the_relay_goes_on(
    which: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    relay = world.started()
    topic = getattr(relay.topics, which)
    look(world, relay)
    assert not caplog.records
    world.alter(topic, "retention.ms", "86400000")
    look(world, relay)
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"The topic {topic} has retention.ms=86400000: Kafka would delete what is pending. Mend it" in told.message
    assert (
        f"--bootstrap-server {world.broker.bootstrap} --alter --entity-type topics --entity-name {topic}"
        in told.message
    )
    look(world, relay)
    assert len(caplog.records) == 1  # not each minute
    look(world, relay, AGAIN_NS)
    assert len(caplog.records) == 2
    world.alter(topic, "cleanup.policy", "compact")
    look(world, relay)
    assert "has cleanup.policy=compact and retention.ms=86400000" in caplog.records[-1].message
    world.alter(topic, "retention.ms", "-1")
    world.alter(topic, "cleanup.policy", "delete")
    look(world, relay)
    look(world, relay)
    assert [record.message for record in caplog.records[3:]] == [f"{topic} keeps all that it has again"]
    world.send("delivered", in_ms=0)
    step_quietly(relay)
    assert world.values() == ["delivered"]


def test_what_kafka_does_not_tell_is_asked_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """And is not taken for mended."""
    relay = world.started()
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    world.alter(world.topic, "retention.ms", "1000000000")
    for _ in range(2):
        with world.broker.faults.answer("DescribeConfigs", refused, times=None):
            look(world, relay)
        look(world, relay)
    assert len(caplog.records) == 1
