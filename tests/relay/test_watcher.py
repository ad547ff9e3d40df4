"""What is asked of the cluster is heard in a later step; that a relay has one AdminClient: test_away.py. Somebody deletes a
topic of a relay that runs, and makes it again: nothing that came is taken for delivered, and nothing that was delivered
comes again. Somebody changes a topic's settings: what would delete what is pending is logged.
"""

from __future__ import annotations

import logging
import re
from concurrent.futures import Future

import pytest
from confluent_kafka.admin import NewPartitions

from tests.relay.world import World, step_quietly, step_until
from waterclock.clock import ManualClock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.relay.cluster.watcher import AGAIN_NS, RETENTION_NS, SAME_LOGS_NS, Answers, SameLogs, Watcher
from waterclock.relay.relay import Relay
from waterclock.relay.wire.topics import KEPT
from waterclock.testing import Error


class Asked:
    """Notes what was asked, and what was heard."""

    def __init__(self) -> None:
        self.futures: list[Future[str]] = []
        self.heard: list[str] = []

    def ask(self) -> Answers:
        self.futures.append(Future())
        return {"one": self.futures[-1]}

    def hear(self, answers: Answers) -> None:
        self.heard.append(answers["one"].result())


def test_nothing_is_asked_anew_before_it_was_heard_and_nobody_waits(clock: ManualClock) -> None:
    watcher, asked = Watcher(None, clock), Asked()
    watcher.ask(1_000_000_000, asked.ask, asked.hear)
    watcher.step()
    assert not asked.futures
    clock.advance_s(1)
    for _ in range(3):
        watcher.step()
        clock.advance_s(1)
    assert (len(asked.futures), watcher.is_waiting, asked.heard) == (1, True, [])
    asked.futures[0].set_result("a")
    watcher.step()
    assert (len(asked.futures), watcher.is_waiting, asked.heard) == (1, False, ["a"])
    watcher.step()
    assert len(asked.futures) == 2


def test_what_was_asked_once_is_heard_once(clock: ManualClock) -> None:
    watcher, asked = Watcher(None, clock), Asked()
    watcher.once(asked.ask(), asked.hear)
    watcher.step()
    asked.futures[0].set_result("a")
    watcher.step()
    watcher.step()
    assert (asked.heard, watcher.is_waiting) == (["a"], False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


MADE_AGAIN = "was deleted and made again while this relay worked: what it held is lost. Start the relay again"


def delivered(world: World) -> Relay:
    """A relay that has delivered three messages."""
    relay = world.started()
    for value in ("old", "older", "oldest"):
        world.send(value, in_ms=0)
        step_quietly(relay)
    world.advance_ms(1_000)
    step_quietly(relay)  # which writes a checkpoint
    return relay


def make_again(world: World, topic: str) -> None:
    world.remove(topic)
    world.admin.make(topic, 1, KEPT)


def look(world: World, relay: Relay) -> None:
    """Time goes on until it ends."""
    step_until(lambda: world.advance_ms(100), relay)


@pytest.mark.long(seconds=1)
def test_an_input_that_was_made_again_ends_the_relay_and_its_next_start_delivers_what_came(world: World) -> None:
    """The offsets of the new one were those of messages that the old one had: they counted as delivered."""
    relay = delivered(world)
    make_again(world, world.topic)
    world.send("new", in_ms=0)
    with pytest.raises(UsageError, match=re.escape(f"The topic {world.topic} {MADE_AGAIN}")):
        step_until(lambda: False, relay)
    world.crash(relay)
    step_quietly(world.started())
    assert world.values() == ["old", "older", "oldest", "new"]


def test_and_so_does_one_that_is_longer_by_then_of_which_the_client_says_nothing(world: World) -> None:
    relay = world.started()
    make_again(world, world.topic)
    world.send(*map(str, range(9)), in_ms=3_600_000)
    with pytest.raises(UsageError, match=MADE_AGAIN):
        look(world, relay)


@pytest.mark.long(seconds=1)
def test_settlements_that_were_made_again_end_the_relay_and_nobody_delivers_again_what_they_held(world: World) -> None:
    """What came between two looks was settled in the new one, and the files were discarded as those of another log."""
    relay = delivered(world)
    make_again(world, f"{world.topic}.settled")
    world.send("last", in_ms=0)
    step_until(lambda: "last" in world.values(), relay)
    with pytest.raises(UsageError, match=re.escape(f"The topic {world.topic}.settled {MADE_AGAIN}")):
        look(world, relay)
    relay.close(checkpoint=False)
    world._relays.remove(relay)
    with pytest.raises(
        UsageError, match=r"ends at offset 2, and the files know it up to \d+. It was made again, or cut"
    ):
        world.started()
    assert world.values() == ["old", "older", "oldest", "last"]


@pytest.mark.long(seconds=3)
def test_partitions_that_the_input_alone_was_given_hold_nobody_up_and_are_delivered_when_both_have_them(
    world: World,
) -> None:
    """For half a minute at each attempt nothing was delivered: the end of what is not there was waited for."""
    relay = world.started(settings={"topic.metadata.refresh.interval.ms": 100})
    add_partitions(world, world.topic)
    step_until(lambda: world.lost, relay)
    assert f"{world.topic}.settled has 1 partitions, so {world.topic}-1 cannot be delivered." in str(world.lost[0])
    world.send("other", in_ms=0)
    step_until(lambda: world.values() == ["other"], relay)
    add_partitions(world, f"{world.topic}.settled")
    world.send("waited", in_ms=0, partition=1)
    step_until(lambda: world.advance_ms(100) or world.values() == ["other", "waited"], relay)
    world.advance_ms(1_000)
    step_quietly(relay)
    assert relay.statistics().partitions_of_topic == 2


def add_partitions(world: World, topic: str) -> None:
    world.admin.client.create_partitions([NewPartitions(topic, 2)])[topic].result()


def test_a_topic_that_is_gone_is_not_another_one(world: World) -> None:
    watcher = Watcher(world.admin.client, world.clock)
    same_logs = SameLogs(watcher, {world.target: world.admin.topic_id(world.target)})
    same_logs.check()
    world.remove(world.target)
    with pytest.raises(ConnectionLost, match=f"Kafka does not describe the topic {world.target}"):
        same_logs.check()
    world.clock.advance_s(SAME_LOGS_NS / 1e9)
    watcher.step()
    assert watcher.is_waiting
    step_until(lambda: watcher.step() or not watcher.is_waiting)


def look_at_settings(world: World, relay: Relay, after_ns: int = RETENTION_NS) -> None:
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
    look_at_settings(world, relay)
    assert not caplog.records
    world.alter(topic, "retention.ms", "86400000")
    look_at_settings(world, relay)
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"The topic {topic} has retention.ms=86400000: Kafka would delete what is pending. Mend it" in told.message
    assert (
        f"--bootstrap-server {world.broker.bootstrap} --alter --entity-type topics --entity-name {topic}"
        in told.message
    )
    look_at_settings(world, relay)
    assert len(caplog.records) == 1  # not each minute
    look_at_settings(world, relay, AGAIN_NS)
    assert len(caplog.records) == 2
    world.alter(topic, "cleanup.policy", "compact")
    look_at_settings(world, relay)
    assert "has cleanup.policy=compact and retention.ms=86400000" in caplog.records[-1].getMessage()
    world.alter(topic, "retention.ms", "-1")
    world.alter(topic, "cleanup.policy", "delete")
    look_at_settings(world, relay)
    look_at_settings(world, relay)
    assert [record.getMessage() for record in caplog.records[3:]] == [f"{topic} keeps all that it has again"]
    world.send("delivered", in_ms=0)
    step_quietly(relay)
    assert world.values() == ["delivered"]


def test_what_kafka_does_not_say_is_asked_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """And is not taken for mended."""
    relay = world.started()
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    world.alter(world.topic, "retention.ms", "1000000000")
    for _ in range(2):
        with world.broker.faults.answer("DescribeConfigs", refused, times=None):
            look_at_settings(world, relay)
        look_at_settings(world, relay)
    assert len(caplog.records) == 1
