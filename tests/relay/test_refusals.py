"""What Kafka refuses about one target or one record is a dead letter, and everything else goes on; what it refuses about
the relay ends it with a sentence. Each code of the table is answered by our broker on purpose; what can be provoked for
real is shown on Apache Kafka too (test_refusals_on_kafka.py)."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import KafkaError

from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.kafka.errors import CODES, VERDICTS, Meaning, Verdict, verdict_of
from waterclock.relay.relay import Relay
from waterclock.testing import Error


def codes(verdict: Verdict, *without: Meaning) -> list[KafkaError]:
    """The codes of that verdict that a broker answers with: librdkafka's own are below 0."""
    meanings = [meaning for meaning in CODES if VERDICTS.get(meaning) is verdict and meaning not in without]
    return [KafkaError(code) for meaning in meanings for code in CODES[meaning] if code > 0]


def name_of(error: KafkaError) -> str:
    return str(error.name())


def other_topic(world: World) -> str:
    """One more target."""
    name = f"{world.topic}.other"
    world.broker.create_topic(name)
    return name


def due_for_both(world: World, relay: Relay, refusing: str) -> None:
    """Messages for both targets are due."""
    for number in range(3):
        world.put(b"%d" % number, deliver_to=refusing, deliver_at=world.now_ms + 1_000)
        world.send(f"good {number}", in_ms=1_000)
    step_quietly(relay)
    world.advance_ms(1_000)


def passes(world: World) -> None:
    """Pauses pass, and what was heard of topics is not believed any more."""
    world.advance_ms(50)


# Of one target, of one record


@pytest.mark.parametrize("error", [*codes(Verdict.RECORD), *codes(Verdict.TOPIC, Meaning.UNKNOWN)], ids=name_of)
def test_what_a_target_refuses_is_a_letter_with_the_reason_and_the_others_are_delivered(
    error: KafkaError, world: World
) -> None:
    relay, refusing = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", Error(error.code()), times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.letters()) == 3, relay)
        step_quietly(relay)
    assert world.values() == ["good 0", "good 1", "good 2"]
    assert world.values(refusing) == []
    assert sorted(world.values(f"{world.topic}.dead")) == ["0", "1", "2"]
    for letter in world.letters():
        reason = (letter["dead-reason"] or b"").decode()
        assert (reason.startswith(f"{refusing} does not take it: "), reason.endswith(f"{error.str()}.")) == (True, True)
    assert relay._counts.breaks == 0


def test_a_target_that_refused_gets_what_comes_when_it_refuses_no_more(world: World) -> None:
    """librdkafka would refuse for it, until it asks for its topics again: 5 minutes."""
    relay, refusing = world.started(), other_topic(world)
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    with world.broker.faults.answer("Produce", refused, times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.letters()) == 3, relay)
    relay._context.targets.forget([refusing])  # five seconds later
    world.put(b"now it may", deliver_to=refusing, deliver_at=world.now_ms)
    step_until(lambda: world.values(refusing), relay)
    assert (world.values(refusing), len(world.letters())) == (["now it may"], 3)


@pytest.mark.long(seconds=4)
def test_a_target_that_was_deleted_gets_what_comes_when_it_is_made_again(world: World) -> None:
    """The producer has heard that there is no such topic: it would refuse by itself for 5 minutes, and what came meanwhile
    was put aside."""
    relay, gone = world.started(), other_topic(world)
    relay._context.targets.refusing([gone])  # it is there, and is believed to be
    world.admin.remove([gone])
    world.put(b"too early", deliver_to=gone, deliver_at=world.now_ms)
    step_until(lambda: passes(world) or world.letters(), relay)
    world.admin.make(gone, 1)
    relay._context.targets.forget([gone])  # five seconds later
    world.put(b"in time", deliver_to=gone, deliver_at=world.now_ms)
    step_until(lambda: passes(world) or world.values(gone) or len(world.letters()) > 1, relay)
    assert (world.values(gone), world.values(f"{world.topic}.dead")) == (["in time"], ["too early"])


def test_what_waits_for_a_target_in_doubt_can_be_cancelled_and_is_loaded_once(world: World) -> None:
    relay, refusing = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", Error.UNKNOWN_SERVER_ERROR, times=None, topic=refusing):
        world.put(b"gone", deliver_to=refusing, deliver_at=world.now_ms + 1_000, delay_id="x")
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.values()) == 3, relay)
        world.put(None, delay_id="x", delay_action="cancel")
        step_until(lambda: passes(world) or world.replies(), relay)
        (owner,) = relay.owners.values()
        owner._loaded_until -= 1  # a span was split: all that is near is loaded anew
        owner._load()
    step_until(lambda: world.advance_ms(1_000) or len(world.values(refusing)) == 3, relay)
    step_quietly(relay)
    assert (world.replies(), world.values(refusing)) == ([("x", "cancelled", 1)], ["0", "1", "2"])


# Many


def test_those_that_are_too_large_cost_their_target_a_transaction_each_and_what_fits_compressed_is_delivered(
    world: World,
) -> None:
    """Each had cost a take-over: ten of them held everything for a minute."""
    relay = world.started()
    world.alter(world.target, "max.message.bytes", 5_000)
    values = [os.urandom(20_000), b"fits" * 5_000, *(os.urandom(20_000) for _ in range(8)), b"fits too" * 2_500]
    for number, value in enumerate(values):
        world.put(value, deliver_to=world.target, deliver_at=world.now_ms + 1_000)
        world.send(f"small {number}", in_ms=1_000)
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(lambda: passes(world) or len(world.letters()) == 9, relay)
    step_until(lambda: passes(world) or len(world.values()) == 13, relay)
    small = [f"small {number}" for number in range(11)]
    assert world.values() == [small[0], "fits" * 5_000, *small[1:10], "fits too" * 2_500, small[10]]
    assert relay._counts.breaks == 0


def test_a_limit_that_cannot_be_known_is_found_by_halving(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that may not see a topic's settings."""
    relay = world.started()
    monkeypatch.setattr(relay._context.targets, "limit", lambda topic: None)
    world.alter(world.target, "max.message.bytes", 5_000)
    world.send(*(os.urandom(300).hex() for _ in range(40)), in_ms=1_000)
    world.put(os.urandom(20_000), deliver_to=world.target, deliver_at=world.now_ms + 1_000)
    step_quietly(relay)
    world.advance_ms(1_000)
    step_until(lambda: passes(world) or (len(world.letters()) == 1 and len(world.values()) == 40), relay)
    step_quietly(relay)
    assert (len(world.values()), len(world.letters()), relay._counts.breaks) == (40, 1, 0)


# Named by nobody


def test_a_target_that_refuses_the_whole_transaction_is_found_out_and_the_others_are_delivered(world: World) -> None:
    """A right is asked for all topics of a transaction at once: no record is named, and what came behind it waited for
    good."""
    relay, refusing = world.started(), other_topic(world)
    third = f"{world.topic}.third"
    world.broker.create_topic(third)
    world.put(b"third", deliver_to=third, deliver_at=world.now_ms + 1_000)
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    with world.broker.faults.answer("AddPartitionsToTxn", refused, times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.letters()) == 3, relay)
        step_quietly(relay)
        assert (world.values(), world.values(third)) == (["good 0", "good 1", "good 2"], ["third"])
    world.put(b"now it may", deliver_to=refusing, deliver_at=world.now_ms)
    relay._context.targets.forget([refusing])  # five seconds later
    step_until(lambda: world.values(refusing), relay)
    assert world.values(refusing) == ["now it may"]
    assert (
        relay._counts.breaks <= 1
    )  # where the refusal comes before anything else: librdkafka cannot abort what is empty


@pytest.mark.parametrize(
    "error", [Error.TRANSACTION_ABORTABLE, Error.INVALID_PRODUCER_ID_MAPPING], ids=lambda error: error.name
)
def test_what_is_nobodys_fault_puts_nothing_aside(error: Error, world: World) -> None:
    relay, other = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", error, topic=other) as fault:
        due_for_both(world, relay, other)
        step_until(lambda: passes(world) or len(world.values(other)) == 3, relay)
        step_quietly(relay)
    assert (fault.met, world.values(other), world.letters()) == (1, ["0", "1", "2"], [])
    assert world.values() == ["good 0", "good 1", "good 2"]


# Of the relay itself

APIS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn")


def ends(world: World, relay: Relay, error: KafkaError) -> None:
    """It does, with a sentence, and nothing was put aside."""
    with pytest.raises(UsageError) as raised:
        step_until(lambda: False, relay)
    assert str(raised.value).startswith("Kafka refuses what the relay ")
    assert str(raised.value).endswith(". Look at --kafka-config and the rights.")
    assert error.str().removeprefix("Broker: ").lower() in str(raised.value).lower()
    assert (world.letters(), world.values()) == ([], [])


@pytest.mark.parametrize("error", codes(Verdict.CLIENT), ids=name_of)
def test_what_kafka_refuses_about_the_relay_itself_ends_it_with_a_sentence(error: KafkaError, world: World) -> None:
    relay = world.started()
    with world.broker.faults.answer("Produce", Error(error.code()), times=None, topic=world.target):
        world.send("a", in_ms=0)
        ends(world, relay, error)


@pytest.mark.parametrize("api", APIS)
def test_in_whatever_it_asks(api: str, world: World) -> None:
    relay = world.relay() if api == "InitProducerId" else world.started()
    world.send("a", in_ms=0)
    refused = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with world.broker.faults.answer(api, refused, times=None):
        ends(world, relay, KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


# Of one target, for now


def test_a_record_that_kafka_does_not_take_in_time_is_not_refused() -> None:
    """It says nothing about the record: a broker that is slow would have everything put aside."""
    assert verdict_of(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)) is Verdict.RECORD
    assert verdict_of(KafkaError(KafkaError._MSG_TIMED_OUT)) is Verdict.AGAIN


@pytest.mark.parametrize(
    "error", [Error.NOT_ENOUGH_REPLICAS, Error.NOT_LEADER_OR_FOLLOWER], ids=lambda error: error.name
)
@pytest.mark.long(seconds=20)
def test_a_target_that_cannot_be_written_to_for_now_waits_by_itself_and_gets_all_in_order_later(
    error: Error, world: World
) -> None:
    """A topic that lacks replicas held back everything else of its partition of the input."""
    relay, refusing = world.started(), other_topic(world)
    with world.broker.faults.answer("Produce", error, times=None, topic=refusing):
        due_for_both(world, relay, refusing)
        step_until(lambda: passes(world) or len(world.values()) == 3, relay)
        world.send("later", in_ms=0)
        step_until(lambda: passes(world) or len(world.values()) == 4, relay)
        assert world.values(refusing) == []
    step_until(lambda: world.advance_ms(1_000) or len(world.values(refusing)) == 3, relay)
    step_quietly(relay)
    assert (world.values(refusing), world.letters()) == (["0", "1", "2"], [])
