"""Several relays of one group: they share the partitions, and go on with those of one that is gone."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.relay.world import World, step_until
from waterclock.relay.relay import Relay

PARTITIONS = 4


def share(*relays: Relay) -> None:
    """Steps until each has its part."""
    part = PARTITIONS // len(relays)
    step_until(lambda: all(len(relay.owners) == part for relay in relays), *relays)


def send(world: World, count: int) -> list[str]:
    values = [str(number) for number in range(count)]
    for number, value in enumerate(values):
        world.send(value, in_ms=1_000, partition=number % PARTITIONS)
    return values


def test_two_relays_share_the_partitions_and_each_message_comes_once(wide: World) -> None:
    one = wide.relay("one")
    step_until(lambda: len(one.owners) == PARTITIONS, one)
    kept = dict(one.owners)
    values = send(wide, 40)
    two = wide.relay("two")
    share(one, two)
    assert all(one.owners[number] is kept[number] for number in one.owners)  # what stays is not taken over again
    wide.advance_ms(1_000)
    step_until(lambda: len(wide.values()) >= 40, one, two)
    assert sorted(wide.values(), key=int) == values


@pytest.mark.parametrize(
    "after_s", [0, 0.02, *(pytest.param(s, marks=pytest.mark.long(seconds=1)) for s in (0.01, 0.05))]
)
def test_one_that_ends_while_it_is_given_partitions_ends(after_s: float, wide: World) -> None:
    """librdkafka hangs in `close` at some of these moments."""
    for name in ("one", None):
        relay = wide.relay(name=name)
        time.sleep(after_s)  # the moment is what is tried here
        wide.close(relay)


# Is given partitions, and dies as soon as it has given some of them back.
MEMBER = """
import os, sys
from confluent_kafka import Consumer
servers, topic, group = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.instance.id": "one",
                     "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6000})
def given(consumer, places):
    consumer.incremental_assign(places)
    print("given", flush=True)
consumer.subscribe([topic], on_assign=given, on_revoke=lambda consumer, places: os.kill(os.getpid(), 9))
while True:
    consumer.poll(0.1)
"""


@pytest.mark.long(seconds=8)
def test_what_a_relay_gave_back_before_it_died_is_given_to_somebody(
    wide: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The group thinks that it is still there, and waits for nobody to ask for what it gave back."""
    words = [sys.executable, "-c", MEMBER, wide.broker.bootstrap, wide.topic, wide.topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"given\n"
        two = wide.relay("two")
        step_until(lambda: dying.poll() is not None, two)
    one = wide.relay("one")
    step_until(lambda: wide.advance_ms(50) or len(one.owners) + len(two.owners) == PARTITIONS, one, two)
    assert f"nobody has 0, 1 of {wide.topic}" in caplog.text or f"nobody has 2, 3 of {wide.topic}" in caplog.text


@pytest.mark.long(seconds=4)
def test_one_that_leaves_hands_over_what_it_had(wide: World) -> None:
    one, two = wide.relay("one", name=None), wide.relay("two", name=None)
    share(one, two)
    values = send(wide, 40)
    wide.close(one)
    step_until(lambda: len(two.owners) == PARTITIONS, two)
    wide.advance_ms(1_000)
    step_until(lambda: len(wide.values()) >= 40, two)
    assert sorted(wide.values(), key=int) == values
