"""A relay in its group. It leaves it: a consumer of Kafka's that does not close keeps no relay from ending. Several share
the partitions, and go on with those of one that is gone. One that may have missed what came, or that hears of another of
its name, looks again before it delivers.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, Message
from confluent_kafka.admin import AdminClient

from tests.relay.test_take_over import End
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.cluster import group
from waterclock.relay.relay import Relay
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
    assert set(one.owners).isdisjoint(two.owners)
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


def kept_waiting(world: World, relay: Relay) -> None:
    world.advance_ms(1_500)


def asleep(world: World, relay: Relay) -> None:
    """A machine: its monotonic clock stood still meanwhile, and its date did not."""
    world.clock._date_ns += 1_500_000_000


def cut_off(world: World, relay: Relay) -> None:
    relay._member.on_error(KafkaError(KafkaError._TRANSPORT))
    world.advance_ms(900)


@pytest.mark.parametrize("befalls", [kept_waiting, asleep, cut_off])
def test_what_came_meanwhile_and_is_due_earlier_goes_first(
    befalls: Callable[[World, Relay], None], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    world.send("late", in_ms=800)
    step_quietly(relay)
    world.send("early", in_ms=500)
    with monkeypatch.context() as patch:
        patch.setattr(relay, "_read", lambda wait_s: [])
        befalls(world, relay)
        for _ in range(3):
            relay.step(0)
        assert world.values() == []
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["early", "late"]


def test_a_word_that_the_end_was_reached_is_not_believed_of_another_reading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka may say it of the one before: what stands in between would be overtaken."""
    relay = world.started()
    world.send("late", in_ms=1_000)
    step_quietly(relay)
    relay.owners[0].checkpoint()
    world.crash(relay)
    world.send("early", in_ms=500)
    world.advance_ms(1_500)
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    with monkeypatch.context() as patch:
        patch.setattr(relay, "_read", lambda wait_s: [End()])
        relay.step(0)
        relay.step(0)
    step_until(lambda: len(world.values()) == 2, relay)
    assert world.values() == ["early", "late"]


class Fenced:
    """What the client says when the group has its name for another's."""

    def __len__(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.FENCED_INSTANCE_ID)


def fenced_once(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    real, said = relay._read, [Fenced()]

    def read(wait_s: float) -> list[Message]:
        return [said.pop(), *real(0)] if said else real(wait_s)  # type: ignore[list-item]

    monkeypatch.setattr(relay, "_read", read)


def test_one_that_hears_of_another_of_its_name_joins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two requests to join, the first one may be delayed, and come last: it is the relay itself that is meant."""
    relay = world.started()
    world.send("a", in_ms=1_000)
    step_quietly(relay)
    fenced_once(relay, monkeypatch)
    relay.step(0)
    assert not relay.owners
    world.advance_ms(1_000)
    step_until(world.values, relay)
    step_quietly(relay)
    assert world.values() == ["a"]


def test_one_that_hears_of_it_a_third_time_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that came back from a power cut as the leader had lost its second join: one alone was refused."""
    relay = world.started()
    for _ in range(2):
        fenced_once(relay, monkeypatch)
        relay.step(0)
        step_until(lambda: relay.owners, relay)
    fenced_once(relay, monkeypatch)
    with pytest.raises(UsageError, match="give each its own"):
        relay.step(0)
