"""Making, growing and deleting topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.batches import batch
from tests.conformance.dialogue import LATEST, Dialogue
from tests.conformance.waiting import until
from tests.conformance.wire import Wire


def made(wire: Wire, name: str, *, version: int = 7, validate_only: bool = False, **fields: Any) -> Any:
    """CreateTopics of one topic, one partition unless told."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
    return wire.ask("create_topics", version, topics=[topic], timeout=5_000, validate_only=validate_only).topics[0]


def error(wire: Wire, name: str, **fields: Any) -> str:
    return str(made(wire, name, **fields).error_code.name)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_in_every_version(dialogue: Dialogue, name: str, version: int) -> None:
    assert error(dialogue.wire, name, version=version, num_partitions=2) == "none"
    until(lambda: len(dialogue.metadata(name).partitions) == 2)


def test_a_new_topic_is_told_whole(dialogue: Dialogue, name: str) -> None:
    reply = made(dialogue.wire, name, num_partitions=3)
    assert (reply.num_partitions, reply.replication_factor) == (3, 1)
    until(lambda: dialogue.metadata(name).error_code == 0)
    assert reply.topic_id == dialogue.topic_id(name)
    assert {"cleanup.policy", "retention.ms", "max.message.bytes"} <= {c.name for c in reply.configs}


def test_without_numbers_the_brokers_defaults_hold(wire: Wire, name: str) -> None:
    # -1 since version 4 (KIP-464): num.partitions and default.replication.factor
    reply = made(wire, name, num_partitions=-1, replication_factor=-1)
    assert (reply.error_code.name, reply.num_partitions, reply.replication_factor) == ("none", 1, 1)


def test_a_topic_that_is_there_is_not_made_again(wire: Wire, topic: str) -> None:
    reply = made(wire, topic)
    assert reply.error_code.name == "topic_already_exists"
    assert topic in reply.error_message


@pytest.mark.parametrize("bad", ["", "a b", "ä", "a/b", ".", "..", "x" * 250])
def test_a_name_that_cannot_be_is_refused(wire: Wire, bad: str) -> None:
    assert error(wire, bad) == "invalid_topic_exception"


def test_names_that_differ_in_dot_and_underscore_only_collide(wire: Wire, name: str) -> None:
    # Metrics write both as an underscore.
    assert error(wire, name + ".a") == "none"
    assert error(wire, name + "_a") == "invalid_topic_exception"


def test_the_longest_name_is_249_letters(wire: Wire, name: str) -> None:
    assert error(wire, name.ljust(249, "x")) == "none"


@pytest.mark.parametrize("count", [0, -2])
def test_a_number_of_partitions_that_cannot_be_is_refused(wire: Wire, name: str, count: int) -> None:
    assert error(wire, name, num_partitions=count) == "invalid_partitions"


@pytest.mark.parametrize("factor", [0, -2, 9])
def test_a_number_of_replicas_that_cannot_be_is_refused(wire: Wire, name: str, factor: int) -> None:
    assert error(wire, name, replication_factor=factor) == "invalid_replication_factor"


def test_a_setting_nobody_knows_is_refused(wire: Wire, name: str) -> None:
    assert error(wire, name, configs=[{"name": "no.such.setting", "value": "1"}]) == "invalid_config"


@pytest.mark.parametrize(
    ("key", "value"), [("retention.ms", "often"), ("cleanup.policy", "burn"), ("max.message.bytes", "-5")]
)
def test_a_value_that_cannot_be_is_refused(wire: Wire, name: str, key: str, value: str) -> None:
    assert error(wire, name, configs=[{"name": key, "value": value}]) == "invalid_config"


def test_only_looking_makes_nothing(dialogue: Dialogue, name: str) -> None:
    assert error(dialogue.wire, name, validate_only=True) == "none"
    assert dialogue.metadata(name).error_code.name == "unknown_topic_or_partition"


def test_only_looking_refuses_as_making_does(wire: Wire, topic: str, name: str) -> None:
    assert error(wire, topic, validate_only=True) == "topic_already_exists"
    assert error(wire, name, validate_only=True, num_partitions=0) == "invalid_partitions"


def test_partitions_may_be_placed_by_hand(dialogue: Dialogue, name: str) -> None:
    node = dialogue.wire.ask("metadata", 12, topics=[]).brokers[0].node_id
    places = [{"partition_index": p, "broker_ids": [node]} for p in range(2)]
    by_hand = {"num_partitions": -1, "replication_factor": -1, "assignments": places}
    assert error(dialogue.wire, name, **by_hand) == "none"
    until(lambda: len(dialogue.metadata(name).partitions) == 2)


def test_a_place_that_is_no_broker_is_refused(wire: Wire, name: str) -> None:
    places = [{"partition_index": 0, "broker_ids": [999]}]
    by_hand = {"num_partitions": -1, "replication_factor": -1, "assignments": places}
    assert error(wire, name, **by_hand) == "invalid_replica_assignment"


def test_places_and_numbers_together_are_refused(wire: Wire, name: str) -> None:
    places = [{"partition_index": 0, "broker_ids": [1]}]
    assert error(wire, name, num_partitions=1, assignments=places) == "invalid_request"


def test_a_topic_named_twice_in_a_request_is_refused(wire: Wire, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = wire.ask("create_topics", 7, topics=[topic, topic], timeout=5_000)
    assert {t.error_code.name for t in answer.topics} == {"invalid_request"}


def test_one_bad_topic_does_not_keep_the_others_from_being_made(dialogue: Dialogue, name: str) -> None:
    topics = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in (name, "a b")]
    answer = dialogue.wire.ask("create_topics", 7, topics=topics, timeout=5_000)
    assert {t.name: t.error_code.name for t in answer.topics} == {name: "none", "a b": "invalid_topic_exception"}


def grown(wire: Wire, topic: str, count: int, **fields: Any) -> str:
    wanted = {"name": topic, "count": count, "assignments": None, **fields}
    return str(wire.ask("create_partitions", 3, topics=[wanted], timeout=5_000).results[0].error_code.name)


def test_a_topic_grows_and_keeps_its_records(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(b"a"))
    assert grown(dialogue.wire, topic, 3) == "none"
    until(lambda: dialogue.is_led(topic, 3))
    assert [dialogue.offset(topic, LATEST, partition=p).offset for p in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_topic_does_not_shrink_or_stay(wire: Wire, new_topic: Callable[..., str], count: int) -> None:
    assert grown(wire, new_topic(2), count) == "invalid_partitions"


def test_an_unknown_topic_does_not_grow(wire: Wire, name: str) -> None:
    assert grown(wire, name, 3) == "unknown_topic_or_partition"


@pytest.mark.parametrize("version", range(1, 6))
def test_a_topic_is_deleted_by_its_name(dialogue: Dialogue, topic: str, version: int) -> None:
    answer = dialogue.wire.ask("delete_topics", version, topic_names=[topic], timeout=5_000)
    assert [(r.name, r.error_code.name) for r in answer.responses] == [(topic, "none")]
    until(lambda: dialogue.metadata(topic).error_code.name == "unknown_topic_or_partition")


def test_a_topic_is_deleted_by_its_id(dialogue: Dialogue, topic: str) -> None:
    asked = {"name": None, "topic_id": dialogue.topic_id(topic)}
    (reply,) = dialogue.wire.ask("delete_topics", 6, topics=[asked], timeout=5_000).responses
    assert (reply.error_code.name, reply.name, reply.topic_id) == ("none", topic, asked["topic_id"])


def test_an_unknown_topic_is_not_deleted(dialogue: Dialogue, name: str, topic: str) -> None:
    real = dialogue.topic_id(topic)
    asked = [{"name": name}, {"name": None, "topic_id": type(real)(int=real.int ^ 1)}]
    reply = dialogue.wire.ask("delete_topics", 6, topics=asked, timeout=5_000).responses
    assert {t.name: t.error_code.name for t in reply} == {name: "unknown_topic_or_partition", None: "unknown_topic_id"}


def test_a_deleted_topic_made_again_is_empty(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(b"old"))
    dialogue.wire.ask("delete_topics", 6, topics=[{"name": topic}], timeout=5_000)
    until(lambda: dialogue.metadata(topic).error_code != 0)
    dialogue.create_topic(topic)
    assert dialogue.read(topic) == []
    assert dialogue.produce(topic, batch(b"new")).base_offset == 0
