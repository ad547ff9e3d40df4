"""Somebody deletes a topic of a relay that runs, and makes it again: nothing that came is taken for delivered, and nothing
that was delivered comes again."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.admin import NewPartitions

from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import ConnectionLost, UsageError
from waterclock.relay.cluster.watcher import LOOK_NS, SameLogs, Watcher
from waterclock.relay.relay import Relay
from waterclock.relay.wire.topics import KEPT

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
    world.clock.advance_s(LOOK_NS / 1e9)
    watcher.step()
    assert watcher.is_waiting
    step_until(lambda: watcher.step() or not watcher.is_waiting)
