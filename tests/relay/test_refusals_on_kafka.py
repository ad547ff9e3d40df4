"""What Kafka refuses for real, on our broker and on Apache Kafka as they are by default: one that makes topics by itself,
and where ACLs decide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.relay.brokers import BOTH, running
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.relay.owner.turn import Turn

SETTINGS = {
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TOPIC, LITERAL, ANYBODY = ResourceType.TOPIC, ResourcePatternType.LITERAL, "User:ANONYMOUS"
KAFKAS = "__consumer_offsets"


@pytest.fixture(scope="module", params=BOTH)
def relay_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Each of the two."""
    with running(request.param, tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(world: World) -> AdminClient:
    return world.admin.client


def make(admin: AdminClient, topic: str, **settings: str) -> str:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    with suppress(KafkaException):
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    return topic


def deny(admin: AdminClient, topic: str) -> None:
    rules = [
        AclBinding(TOPIC, topic, LITERAL, ANYBODY, "*", AclOperation.WRITE, AclPermissionType.DENY),
        AclBinding(TOPIC, topic, LITERAL, ANYBODY, "*", AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    for done in admin.create_acls(rules).values():
        done.result()


def allow(admin: AdminClient, topic: str) -> None:
    denied = AclBindingFilter(TOPIC, topic, LITERAL, ANYBODY, "*", AclOperation.WRITE, AclPermissionType.DENY)
    admin.delete_acls([denied])[denied].result()


class Poison(NamedTuple):
    """A target's settings, the message, and what the letter says."""

    settings: dict[str, str]
    value: bytes
    words: str


POISONS = {
    "too large": Poison({"max_message_bytes": "5000"}, os.urandom(20_000), "Message size too large"),
    "no key for a compacted topic": Poison({"cleanup_policy": "compact"}, b"v", "does not take it: "),
}


def delivers_around(world: World, target: str, value: bytes = b"v") -> str:
    """A message for the target between two others: these are delivered. The reason why that one is not."""
    relay = world.started()
    world.send("before", in_ms=1_000)
    world.put(value, deliver_to=target, deliver_at=world.now_ms + 1_000)
    world.send("after", in_ms=1_000)
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(lambda: world.advance_ms(50) or (world.letters() and len(world.values()) == 2), relay)
    step_quietly(relay)
    assert (world.values(), relay._counts.breaks) == (["before", "after"], 0)
    (letter,) = world.letters()
    return (letter["dead-reason"] or b"").decode()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
def test_a_message_that_its_target_does_not_take_is_a_letter_and_the_others_are_delivered(
    poison: Poison, world: World, admin: AdminClient
) -> None:
    target = make(admin, f"{world.topic}.poison", **poison.settings)
    assert poison.words in delivers_around(world, target, poison.value)
    assert world.values(target) == []


def test_nothing_is_delivered_to_a_topic_of_kafkas_own(world: World) -> None:
    """On Apache Kafka one message for it stopped its partition of the input for good."""
    assert delivers_around(world, KAFKAS) == f"{KAFKAS} is Kafka's own: nothing is delivered there."


def test_a_target_that_is_absent_is_a_letter_and_is_not_made_though_the_broker_would(
    world: World, admin: AdminClient
) -> None:
    """What was for a misspelt topic went to one that nobody reads."""
    absent = f"{world.topic}.mispelt"
    assert delivers_around(world, absent) == f"there is no topic {absent} to deliver to."
    assert absent not in admin.list_topics(timeout=10).topics


def test_a_target_that_is_deleted_between_question_and_sending_is_a_letter_and_is_not_made_again(
    world: World, admin: AdminClient
) -> None:
    gone, relay = make(admin, f"{world.topic}.gone"), world.started()
    relay._context.targets.refusing([gone, world.target])  # it is there, and is believed to be
    admin.delete_topics([gone])[gone].result()
    world.put(b"v", deliver_to=gone, deliver_at=world.now_ms)
    world.send("good", in_ms=0)
    step_until(lambda: world.letters() and world.values(), relay)
    step_quietly(relay)
    assert (world.values(), relay._counts.breaks) == (["good"], 0)
    assert gone not in admin.list_topics(timeout=10).topics


def test_a_target_that_the_relay_may_not_write_to_is_a_letter_until_it_may(world: World, admin: AdminClient) -> None:
    secret = make(admin, f"{world.topic}.secret")
    deny(admin, secret)
    assert delivers_around(world, secret) == f"the relay has no right to write to {secret}."
    relay = next(iter(world._relays))
    allow(admin, secret)
    relay._context.targets.forget([secret])  # five seconds later
    world.put(b"now it may", deliver_to=secret, deliver_at=world.now_ms)
    step_until(lambda: world.values(secret), relay)
    assert world.values(secret) == ["now it may"]


def test_a_right_that_is_taken_away_between_question_and_sending_makes_letters_too(
    world: World, admin: AdminClient
) -> None:
    secret, relay = make(admin, f"{world.topic}.secret"), world.started()
    relay._context.targets.refusing([secret, world.target])
    deny(admin, secret)
    for number in range(3):
        world.put(b"%d" % number, deliver_to=secret, deliver_at=world.now_ms)
        world.send(f"good {number}", in_ms=0)
    step_until(lambda: world.advance_ms(50) or (len(world.letters()) == 3 and len(world.values()) == 3), relay)
    step_quietly(relay)
    assert world.values(secret) == []
    assert relay._counts.breaks <= 1  # librdkafka cannot abort a transaction of which Kafka has nothing
    allow(admin, secret)
    relay._context.targets.forget([secret])  # five seconds later
    world.put(b"now it may", deliver_to=secret, deliver_at=world.now_ms)
    step_until(lambda: world.values(secret), relay)


def test_a_target_that_is_refused_on_a_slow_machine_costs_one_take_over_and_no_more(
    world: World, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refused it before anything else of the turn was sent, librdkafka could not abort what was empty, and the next
    owner, who knew of nothing, did the same again: the partition stood still for as long as the machine was slow."""
    secret, relay = make(admin, f"{world.topic}.secret"), world.started()
    relay._context.targets.refusing([secret, world.target])
    deny(admin, secret)
    settle = Turn.settle

    def late(turn: Turn) -> None:
        turn.owner.producer.arrive(0.2)
        settle(turn)

    monkeypatch.setattr(Turn, "settle", late)
    for number in range(3):
        world.put(b"%d" % number, deliver_to=secret, deliver_at=world.now_ms)
        world.send(f"good {number}", in_ms=0)
    step_until(lambda: world.advance_ms(50) or (len(world.letters()) == 3 and len(world.values()) == 3), relay)
    assert (world.values(secret), relay._counts.breaks) == ([], 1)


@pytest.mark.parametrize("name", ["settled", "dead"])
def test_a_topic_of_its_own_that_it_may_not_write_to_ends_it_with_a_sentence(
    name: str, world: World, admin: AdminClient
) -> None:
    relay = world.started()
    deny(admin, f"{world.topic}.{name}")
    world.send("good", in_ms=0)
    world.put(b"bad")
    with pytest.raises(
        UsageError, match=f"(?s)does not take what the relay writes .*{world.topic}.{name}.* the rights"
    ):
        step_until(lambda: world.advance_ms(50), relay)


def test_targets_that_are_wanted_made_are_made(world: World, admin: AdminClient) -> None:
    relay = world.started(make_targets=True)
    wanted = f"{world.topic}.wanted"
    world.put(b"a", deliver_to=wanted, deliver_at=world.now_ms)
    step_until(lambda: wanted in admin.list_topics(timeout=10).topics and world.values(wanted), relay)
    assert (world.values(wanted), world.letters()) == (["a"], [])
