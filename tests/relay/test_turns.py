"""Turns: what one asks of Kafka, and how those of several partitions are committed side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.relay.test_kills import Death, run_until_death
from tests.relay.world import QUICK, World, step_quietly, step_until
from waterclock.clock import ManualClock
from waterclock.errors import ConnectionLost
from waterclock.kafka.client import Client
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.logs import Logs
from waterclock.relay.owner import context
from waterclock.relay.owner.take_over import TakeOver
from waterclock.relay.owner.turn import AT_ONCE, Turn
from waterclock.relay.relay import BESIDE_S, Relay

PARTITIONS = 6
PATIENCE_S = 20


def test_a_turn_that_puts_nothing_aside_asks_nothing_of_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two questions to Kafka for each turn were a tenth of what it took."""
    relay = world.started()
    world.send("a", in_ms=900)
    step_quietly(relay)
    asked: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(Logs, "bounds", lambda self, topic, partition: asked.append(partition) or (0, 0))
        world.advance_ms(900)
        step_until(lambda: relay._counts.delivered, relay)
    assert world.values() == ["a"]
    assert not asked


@pytest.mark.parametrize(("given", "backoff"), [({}, 10), ({"retry.backoff.ms": 70}, 70)])
def test_what_kafka_sends_away_is_asked_for_again_soon_unless_a_user_says_otherwise(
    given: dict[str, int], backoff: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka sends away what comes while it writes the markers of the transaction before."""
    made = list[int]()
    monkeypatch.setattr(
        context, "TransactionalProducer", lambda settings, *_: made.append(settings["retry.backoff.ms"])
    )
    world.relay(settings={**QUICK, **given})._context.make_producer(0)
    assert made == [backoff]


# Side by side


def due_in_each(world: World, partitions: int) -> tuple[Relay, list[str]]:
    """A relay with a message in each of so many partitions; all of them are due."""
    relay = world.started()
    values = [f"{number}" for number in range(partitions)]
    for number, value in enumerate(values):
        world.send(value, in_ms=900, partition=number)
    step_quietly(relay)
    world.advance_ms(900)
    return relay, values


def commit_with(patch: pytest.MonkeyPatch, action: Callable[[Turn], object]) -> None:
    """Have something happen before each commit of what is delivered."""
    real = Turn.commit

    def commit(self: Turn) -> None:
        if len(self._rows):
            action(self)
        real(self)

    patch.setattr(Turn, "commit", commit)


def test_turns_of_several_partitions_wait_for_kafka_side_by_side(wide: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, values = due_in_each(wide, AT_ONCE)
    others = threading.Barrier(AT_ONCE)
    commit_with(monkeypatch, lambda turn: others.wait(PATIENCE_S))
    step_until(lambda: len(wide.values()) == AT_ONCE, relay)
    assert sorted(wide.values()) == values
    assert relay._counts.breaks == 0


def test_no_more_than_a_few_are_on_their_way_at_once(wide: World, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, values = due_in_each(wide, PARTITIONS)
    began, counts = Turn.begin, list[int]()

    def begin(self: Turn) -> None:
        counts.append(len(relay._turns._under_way))
        began(self)

    monkeypatch.setattr(Turn, "begin", begin)
    step_until(lambda: len(wide.values()) == PARTITIONS, relay)
    assert sorted(wide.values()) == values
    assert max(counts) == AT_ONCE - 1


def test_what_is_due_earlier_and_comes_while_a_turn_waits_for_others_goes_first(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more partitions than turns at once: the last one's begins when Kafka has answered the first."""
    relay, _ = due_in_each(wide, PARTITIONS)
    first, *_, waits = relay.owners
    once = [first]

    def commit(turn: Turn) -> None:
        if turn.owner.number in once:
            once.pop()
            wide.send("early", in_ms=-1_000, partition=waits)
            wide.advance_ms(1_001)

    commit_with(monkeypatch, commit)
    step_until(lambda: len(wide.values()) > PARTITIONS, relay)
    values = wide.values()
    assert values.index("early") < values.index(f"{waits}")


def both_there(fails: Callable[[Turn], object]) -> Callable[[Turn], object]:
    """What befalls the turn of partition 0 when it and another one are about to be committed; once."""
    there, once = threading.Barrier(2), [fails]

    def befall(turn: Turn) -> None:
        if once or turn.owner.number:
            there.wait(PATIENCE_S)
        if not turn.owner.number and once:
            once.pop()(turn)

    return befall


def lose(turn: Turn) -> None:
    raise ConnectionLost("a test wants it")


def fence(turn: Turn) -> None:
    """Another one takes the partition over: Kafka hears nothing more of this owner."""
    turn._context.make_producer(turn.owner.number).fence()


@pytest.mark.parametrize("befalls", [lose, fence])
def test_a_turn_that_fails_beside_another_fails_alone_and_each_message_comes_once(
    befalls: Callable[[Turn], object], wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, values = due_in_each(wide, 2)
    kept = relay.owners[1]
    with monkeypatch.context() as patch:
        commit_with(patch, both_there(befalls))
        step_until(lambda: relay._counts.breaks, relay)
    assert relay.owners[1] is kept
    assert kept.store.pending == 0
    step_until(lambda: len(wide.values()) >= 2, relay)
    step_quietly(relay)
    assert sorted(wide.values()) == values


class NoAnswer:
    """A client whose commits nobody answers, though all else goes on: that transaction's coordinator alone is away."""

    def __init__(self, client: Any) -> None:
        self._client, self._left = client, 20

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit_transaction(self, timeout: float) -> None:
        self._left -= 1
        assert self._left, "it is asked for ever"
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, retriable=True))


def test_a_commit_that_nobody_answers_does_not_hold_back_the_other_partitions_for_ever(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was delivered of any partition of the relay for as long as one transaction's coordinator was away."""
    monkeypatch.setattr("waterclock.relay.owner.turn.ENDED_S", 0.5)
    waited = list[float]()
    fence = TransactionalProducer.fence

    def fenced(self: TransactionalProducer, topic: str, patience_s: float) -> None:
        waited.append(patience_s)
        fence(self, topic, patience_s)

    monkeypatch.setattr(TransactionalProducer, "fence", fenced)
    relay, values = due_in_each(wide, 2)
    first = relay.owners[0]
    monkeypatch.setattr(first.producer, "producer", NoAnswer(first.producer.producer))
    wide.send("later", in_ms=0, partition=1)
    step_until(lambda: len(wide.values()) == 3, relay)
    assert sorted(wide.values()) == [*values, "later"]
    assert relay.owners[0] is not first
    assert set(waited) == {BESIDE_S}  # whoever takes over beside others does not wait for its coordinator for a minute


def test_a_leader_that_is_away_does_not_hold_back_the_other_partitions_for_half_a_minute(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waterclock.relay.relay.BESIDE_S", 0.2)
    relay, ask, asked = wide.started(), Client._ask, list[float]()

    def away(self: Client, places: list[TopicPartition]) -> Any:
        if (places[0].topic, places[0].partition) == (wide.topic, 0):
            asked.append(self.patience_s)
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return ask(self, places)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_ask", away)
        with relay.lock:
            relay._fail(0, ConnectionLost("a test wants it"))
        wide.send("goes on", in_ms=0, partition=1)
        step_until(wide.values, relay)
    assert set(asked) == {0.2}
    step_until(lambda: 0 in relay.owners, relay)
    assert relay._logs._client.patience_s > 1


class Unled:
    """An admin client to which nobody says where a partition ends, or what a group committed."""

    def __init__(self, client: Any, asked: list[float]) -> None:
        self._client, self._asked = client, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def list_offsets(self, asked: dict[TopicPartition, Any], request_timeout: float, **options: Any) -> Any:
        self._asked.append(request_timeout)
        answer = Future[Any]()
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(asked, answer)

    def list_consumer_group_offsets(self, asked: list[Any], request_timeout: float, **options: Any) -> Any:
        self._asked.append(request_timeout)
        return self._client.list_consumer_group_offsets(asked, request_timeout=request_timeout, **options)


def test_what_a_take_over_asks_first_does_not_hold_back_the_other_partitions_either(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the group stands and where TOPIC.settled ends was waited for for ten seconds, at each attempt."""
    relay, asked = wide.started(), list[float]()
    with monkeypatch.context() as patch, relay.lock:
        patch.setattr(relay._watcher, "client", Unled(relay._watcher.client, asked))
        with pytest.raises(ConnectionLost, match="does not say where"):
            TakeOver(replace(relay._context, folder=wide.folder / "other"), 0, relay._patience_s).run()
    assert asked == [BESIDE_S, BESIDE_S]


def test_a_partition_that_cannot_be_had_makes_nothing_of_the_others_late(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay slept for 50 ms between two looks, whatever was due meanwhile, for as long as one had no leader."""
    relay = wide.started()
    monkeypatch.setattr("waterclock.relay.owner.take_over.RECONNECTING_S", (60.0,))
    with relay.lock:
        relay._fail(0, ConnectionLost("a test wants it"))
    wide.send("soon", in_ms=20, partition=1)
    step_until(lambda: relay.owners[1].next_due_ms() is not None, relay)
    step_until(lambda: relay.wait_s(0.25) > 0, relay)
    assert relay._pending
    assert relay.wait_s(0.25) <= 0.02
    wide.advance_ms(20)
    step_until(wide.values, relay)


def test_a_relay_that_dies_while_another_turn_is_on_its_way_leaves_no_thread_that_waits(
    wide: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is heard in one thread only, and Kafka may be away for long: what waits in another is given up."""
    relay, values = due_in_each(wide, 2)
    waited: list[bool] = []

    def die(turn: Turn) -> None:
        raise Death

    def wait_for_long(turn: Turn) -> None:
        given_up = threading.Event()
        monkeypatch.setattr(turn.owner.producer, "give_up", given_up.set)
        there.wait(PATIENCE_S)
        waited.append(given_up.wait(PATIENCE_S))
        raise ConnectionLost("it was given up")

    there = threading.Barrier(2)
    with monkeypatch.context() as patch:
        commit_with(
            patch, lambda turn: wait_for_long(turn) if turn.owner.number else (there.wait(PATIENCE_S), die(turn))
        )
        run_until_death(wide, relay)
    assert waited == [True]
    relay = wide.started()
    step_until(lambda: len(wide.values()) >= 2, relay)
    step_quietly(relay)
    assert sorted(wide.values()) == values


def test_whoever_waits_for_kafka_with_a_producer_that_is_given_up_waits_no_longer() -> None:
    clock = ManualClock()
    producer = TransactionalProducer(base_settings("127.0.0.1:1", {}), "t", lambda error: ConnectionLost("away"), clock)
    asked: list[float] = []

    class Away:
        def commit_transaction(self, timeout_s: float) -> None:
            asked.append(timeout_s)
            if len(asked) == 100:
                producer.give_up()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

        def poll(self, wait_s: float) -> None:
            """Nothing is reported."""

    producer.producer = Away()
    with pytest.raises(ConnectionLost):
        producer.commit()
    assert len(asked) == 100
