"""Topics made, grown, deleted and described: refusals, assignments, and that nobody hears of what is not durable."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import create
from tests.conformance.wire import Wire
from waterclock.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def placed(*partitions: tuple[int, list[int]], **fields: int) -> dict[str, Any]:
    rows = [{"partition_index": number, "broker_ids": brokers} for number, brokers in partitions]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": rows, **fields}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (placed((0, [1]), (1, [1])), "none"),
        (placed((1, [1]), (0, [1])), "none"),
        (placed((0, [2])), "invalid_replica_assignment"),
        (placed((0, [])), "invalid_replica_assignment"),
        (placed((0, [1, 1])), "invalid_replica_assignment"),
        (placed((1, [1])), "invalid_replica_assignment"),
        (placed((0, [1]), (0, [1])), "invalid_replica_assignment"),
        (placed((0, [1]), num_partitions=1), "invalid_request"),
        (placed((0, [1]), replication_factor=1), "invalid_request"),
        ({"num_partitions": 0}, "invalid_partitions"),
        ({"num_partitions": -2}, "invalid_partitions"),
        ({"num_partitions": 10_001}, "policy_violation"),
        ({"replication_factor": 2}, "invalid_replication_factor"),
        ({"replication_factor": 0}, "invalid_replication_factor"),
        ({"configs": {"retention.ms": None}}, "invalid_config"),
        ({"configs": {"nope": "1"}}, "invalid_config"),
        ({"configs": {"retention.ms": "soon"}}, "invalid_config"),
    ],
)
def test_a_topic_is_made_or_refused(wire: Wire, fields: dict[str, Any], error: str) -> None:
    row = create(wire, "t", **fields)
    assert row.error_code.name == error
    assert (row.topic_id is None) == (error != "none")
    names = [topic.name for topic in wire.ask("metadata", 12, topics=None).topics]
    assert names == (["t"] if error == "none" else [])


def test_an_answer_about_a_new_topic_has_its_settings(wire: Wire) -> None:
    row = create(wire, "t", num_partitions=3, configs={"retention.ms": "7"})
    reply = {config.name: (config.value, config.config_source) for config in row.configs}
    assert (row.num_partitions, row.replication_factor) == (3, 1)
    assert reply["retention.ms"] == ("7", 1)
    assert reply["segment.ms"] == ("604800000", 5)
    assert list(reply) == sorted(reply)


def test_the_longest_name_fits_the_file_system_with_many_partitions(wire: Wire) -> None:
    first, second = "x" * 248 + "1", "x" * 248 + "2"
    assert [create(wire, name, num_partitions=12).error_code.value for name in (first, second)] == [0, 0]


def test_nobody_hears_of_a_topic_that_is_not_durable(wire: Wire, broker: Broker) -> None:
    """Thread A asks for a topic by Metadata, B asks too and appends: without waiting, its records could be durable
    before the topic is, and the next start would remove the folder of a topic that nobody knows."""
    store = broker.inside.store
    held: list[Any] = []
    broker.call(lambda: setattr(store, "put", lambda *change: held.append(change)))
    with Wire(broker.bootstrap) as other:
        for asking in (wire, other):
            asking.send("metadata", 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert wire.is_quiet()
        assert other.is_quiet()
        assert "t" not in broker.call(lambda: broker.inside.topics.by_name)
        broker.call(lambda: held[0][3](True))
        assert [w.receive("metadata", 12).topics[0].error_code.value for w in (wire, other)] == [0, 0]
        assert len(held) == 1


def test_a_topic_that_the_disk_refused_is_not_there(wire: Wire, broker: Broker) -> None:
    broker.call(lambda: setattr(broker.inside.store, "put", lambda *change: change[3](False)))
    assert create(wire, "t").error_code.name == "kafka_storage_error"
    reply = wire.ask("metadata", 12, topics=[{"name": "t"}], allow_auto_topic_creation=False).topics[0]
    assert reply.error_code.name == "unknown_topic_or_partition"
    assert broker.call(lambda: list(Path(broker.inside.topics.folder).iterdir())) == []


def test_partitions_that_the_disk_refused_are_not_there_and_may_be_asked_for_again(wire: Wire, broker: Broker) -> None:
    create(wire, "t")
    put = broker.inside.store.put
    broker.call(lambda: setattr(broker.inside.store, "put", lambda *change: change[3](False)))
    assert grown(wire, 3) == "kafka_storage_error"
    assert len(wire.ask("metadata", 12, topics=[{"name": "t"}]).topics[0].partitions) == 1
    broker.call(lambda: setattr(broker.inside.store, "put", put))
    assert grown(wire, 2) == "none"
    assert len(wire.ask("metadata", 12, topics=[{"name": "t"}]).topics[0].partitions) == 2


def grown(wire: Wire, count: int, assignments: list[list[int]] | None = None, **fields: Any) -> str:
    placed = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    row = {"name": "t", "count": count, "assignments": placed}
    answer = wire.ask("create_partitions", 3, topics=[row], timeout=5000, **fields)
    return str(answer.results[0].error_code.name)


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (3, None, "none"),
        (3, [[1], [1]], "none"),
        (1, None, "invalid_partitions"),
        (0, None, "invalid_partitions"),
        (10_001, None, "invalid_partitions"),
        (3, [[1]], "invalid_replica_assignment"),
        (2, [[2]], "invalid_replica_assignment"),
        (2, [[1, 1]], "invalid_replica_assignment"),
        (2, [[]], "invalid_replica_assignment"),
    ],
)
def test_a_topic_grows_or_stays(wire: Wire, count: int, assignments: list[list[int]] | None, error: str) -> None:
    create(wire, "t")
    assert grown(wire, count, assignments, validate_only=True) == error
    assert grown(wire, count, assignments) == error
    partitions = wire.ask("metadata", 12, topics=[{"name": "t"}]).topics[0].partitions
    assert len(partitions) == (count if error == "none" else 1)


def test_a_change_of_settings_beside_a_growth_loses_no_partition(tmp_path: Path) -> None:
    """Both write the topic's row: the second must not write the number of partitions from before the first."""
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
        topics = broker.inside.topics
        topic = topics.by_name["t"]
        grown: Future[bool] = Future()
        broker.call(lambda: (topics.grow(topic, 4, grown.set_result), topics.configure(topic, {"retention.ms": "1"})))
        assert grown.result(10)
    with Broker(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert len(wire.ask("metadata", 12, topics=[{"name": "t"}]).topics[0].partitions) == 4


def deleted(wire: Wire, *topics: dict[str, Any]) -> list[str]:
    rows = wire.ask("delete_topics", 6, topics=list(topics), timeout=5000).responses
    return [str(row.error_code.name) for row in rows]


def test_what_is_to_be_deleted_is_named_once_and_one_way(wire: Wire) -> None:
    topic_id = create(wire, "t").topic_id
    by_name, by_id = {"name": "t", "topic_id": None}, {"name": None, "topic_id": topic_id}
    assert deleted(wire, by_name, by_name) == ["invalid_request"]
    assert deleted(wire, {"name": "t", "topic_id": topic_id}) == ["invalid_request"]
    assert deleted(wire, {"name": None, "topic_id": None}) == ["invalid_request"]
    assert deleted(wire, {"name": "u", "topic_id": None}) == ["unknown_topic_or_partition"]
    assert deleted(wire, {"name": None, "topic_id": uuid.uuid4()}) == ["unknown_topic_id"]
    assert deleted(wire, by_id) == ["none"]
    assert deleted(wire, by_id) == ["unknown_topic_id"]


def described(wire: Wire, names: list[str], most: int, cursor: tuple[str, int] | None = None) -> tuple[Any, Any]:
    start = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    asked = [{"name": name} for name in names]
    answer = wire.ask("describe_topic_partitions", 0, topics=asked, response_partition_limit=most, cursor=start)
    rows = [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics]
    following = answer.next_cursor
    return rows, None if following is None else (following.topic_name, following.partition_index)


def test_partitions_are_described_in_portions(wire: Wire) -> None:
    for name in ("a", "b"):
        create(wire, name, num_partitions=3)
    assert described(wire, [], 2) == ([("a", [0, 1])], ("a", 2))
    assert described(wire, [], 2, ("a", 2)) == ([("a", [2]), ("b", [0])], ("b", 1))
    assert described(wire, [], 2, ("b", 1)) == ([("b", [1, 2])], None)
    assert described(wire, ["b", "a"], 3) == ([("a", [0, 1, 2])], ("b", 0))
    assert described(wire, ["nobody"], 3) == ([("nobody", [])], None)


def test_what_anybody_may_do_is_told_where_asked(wire: Wire) -> None:
    create(wire, "t")
    reply = wire.ask("metadata", 12, topics=[{"name": "t"}], include_topic_authorized_operations=True).topics[0]
    assert reply.topic_authorized_operations == 3576
    assert wire.ask("metadata", 12, topics=[{"name": "t"}]).topics[0].topic_authorized_operations == -(2**31)
    cluster = wire.ask("describe_cluster", 2, endpoint_type=1, include_cluster_authorized_operations=True)
    assert cluster.cluster_authorized_operations == 8096


@pytest.mark.parametrize(("kind", "error"), [(2, "mismatched_endpoint_type"), (3, "unsupported_endpoint_type")])
def test_a_cluster_has_brokers_only(wire: Wire, kind: int, error: str) -> None:
    assert wire.ask("describe_cluster", 2, endpoint_type=kind).error_code.name == error


def test_log_folders_tell_the_size_of_each_partition(wire: Wire) -> None:
    create(wire, "t", num_partitions=2)
    folder = wire.ask("describe_log_dirs", 5, topics=None).results[0]
    assert [(t.name, [p.partition_size for p in t.partitions]) for t in folder.topics] == [("t", [0, 0])]
    assert folder.total_bytes > folder.usable_bytes > 0
    assert wire.ask("describe_log_dirs", 4, topics=[{"topic": "u", "partitions": [0]}]).results[0].topics == ()


def test_what_is_absent_is_answered(wire: Wire) -> None:
    acl = {"resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "principal": "User:a", "host": "*"}
    rows = wire.ask("create_acls", 3, creations=[acl, acl]).results
    assert [row.error_code.name for row in rows] == ["security_disabled"] * 2
    assert wire.ask("describe_acls", 3).error_code.name == "security_disabled"
    assert wire.ask("list_partition_reassignments", 0, topics=None, timeout=1).topics == ()
    assert wire.ask("describe_client_quotas", 1, components=[], strict=False).entries == ()
