"""What a user sees of topics and does with them, right by right: topics that are there, and some of many."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.acls import CLUSTER, DENY, OPERATIONS, PREFIXED, Granting, acl, settled
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, fetch_fields, produce_fields
from tests.conformance.waiting import until
from tests.conformance.wire import Closed, Wire

REFUSED = "topic_authorization_failed"
UNKNOWN = "unknown_topic_or_partition"
NOBODY_ASKED = -(2**31)


def bits(*operations: str) -> int:
    return sum(1 << OPERATIONS[one] for one in operations)


@pytest.fixture
def there(root: Dialogue, name: str) -> str:
    """A topic that the super user has made."""
    return root.create_topic(name)


def written(wire: Wire, topic: str, version: int = 9) -> str:
    fields = produce_fields(topic, batch(b"x"))
    if version >= 13:
        fields["topic_data"] = [{**fields["topic_data"][0], "topic_id": topic}]
        del fields["topic_data"][0]["name"]
    answer = wire.ask("produce", version, **fields).responses[0]
    return str(answer.partition_responses[0].error_code.name)


def test_who_may_write_writes_and_who_may_read_reads(alice: Wire, there: str, granting: Granting) -> None:
    assert written(alice, there) == REFUSED
    granting.create(acl("write", "topic", there))
    assert settled(lambda: written(alice, there), "none") == "none"
    assert Dialogue(alice).fetch(there).partition.error_code.name == REFUSED
    granting.create(acl("read", "topic", there))
    assert until(lambda: Dialogue(alice).fetch(there).batches)


def test_a_right_that_is_taken_away_is_gone_for_connections_that_used_it(
    alice: Wire, there: str, granting: Granting
) -> None:
    granting.create(acl("write", "topic", there))
    assert settled(lambda: written(alice, there), "none") == "none"
    granting.clear()
    assert settled(lambda: written(alice, there), REFUSED) == REFUSED


def test_topics_named_by_their_ids_are_guarded_by_their_names(
    alice: Wire, there: str, root: Dialogue, granting: Granting
) -> None:
    topic_id: Any = root.topic_id(there)
    fields = fetch_fields(there, 0)
    fields["topics"] = [{"topic_id": topic_id, "partitions": fields["topics"][0]["partitions"]}]

    def read() -> str:
        return str(alice.ask("fetch", 13, **fields).responses[0].partitions[0].error_code.name)

    assert (written(alice, topic_id, 13), read()) == (REFUSED, REFUSED)
    granting.create(acl("write", "topic", there), acl("read", "topic", there))
    assert settled(lambda: (written(alice, topic_id, 13), read()), ("none", "none")) == ("none", "none")


def test_some_of_the_topics_of_a_request_are_refused_and_the_others_served(
    alice: Wire, there: str, granting: Granting, root: Dialogue
) -> None:
    other = root.create_topic(there + "b")
    granting.create(acl("write", "topic", there), acl("read", "topic", there))
    both = [produce_fields(one, batch(b"x"))["topic_data"][0] for one in (there, other)]

    def wrote() -> dict[str, str]:
        answer = alice.ask("produce", 9, **{**produce_fields(there, None), "topic_data": both})
        return {one.name: one.partition_responses[0].error_code.name for one in answer.responses}

    assert settled(wrote, {there: "none", other: REFUSED}) == {there: "none", other: REFUSED}
    wanted = [fetch_fields(one, 0)["topics"][0] for one in (there, other)]
    answer = alice.ask("fetch", 12, **{**fetch_fields(there, 0), "topics": wanted})
    found = {one.topic: one.partitions[0] for one in answer.responses}
    assert found[other].error_code.name == REFUSED
    assert not found[other].records
    assert found[there].records


def test_a_refused_write_that_asks_for_no_answer_closes_the_connection(alice: Wire, there: str) -> None:
    alice.send("produce", 9, **produce_fields(there, batch(b"x"), acks=0))
    with pytest.raises((Closed, OSError)):
        alice.ask("metadata", 12, topics=[])


def test_whoever_calls_itself_a_replica_needs_the_right_to(alice: Wire, there: str, granting: Granting) -> None:
    granting.create(acl("read", "topic", there))

    def read(replica: int) -> str:
        answer = alice.ask("fetch", 12, **{**fetch_fields(there, 0), "replica_id": replica})
        return str(answer.responses[0].partitions[0].error_code.name)

    assert settled(lambda: read(-1), "none") == "none"
    assert read(5) == REFUSED


def test_the_end_of_an_epoch_is_told_to_brokers_too(alice: Wire, there: str, granting: Granting) -> None:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}

    def told() -> str:
        topics = [{"topic": there, "partitions": [wanted]}]
        answer = alice.ask("offset_for_leader_epoch", 4, replica_id=-1, topics=topics)
        return str(answer.topics[0].partitions[0].error_code.name)

    assert told() == REFUSED
    granting.create(acl("cluster action", "cluster", CLUSTER))
    assert settled(told, "none") == "none"


def seen(wire: Wire) -> set[str]:
    return {topic.name for topic in wire.ask("metadata", 12, topics=None).topics}


def test_of_all_topics_those_are_listed_that_may_be_described(
    alice: Wire, there: str, root: Dialogue, granting: Granting
) -> None:
    hidden = root.create_topic(there + "b")
    granting.create(acl("describe", "topic", there))
    assert settled(lambda: seen(alice), {there}) == {there}
    assert {there, hidden} <= seen(root.wire)
    answer = alice.ask("describe_topic_partitions", 0, topics=[], response_partition_limit=99)
    assert [topic.name for topic in answer.topics] == [there]


@pytest.mark.parametrize("right", ["read", "write", "delete", "alter", "describe", "all"])
def test_what_implies_that_a_topic_may_be_described(alice: Wire, there: str, granting: Granting, right: str) -> None:
    granting.create(acl(right, "topic", there))
    assert settled(lambda: seen(alice), {there}) == {there}


@pytest.mark.parametrize("right", ["create", "describe configs", "alter configs"])
def test_what_does_not(alice: Wire, there: str, granting: Granting, right: str) -> None:
    granting.create(acl(right, "topic", there))
    assert seen(alice) == set()
    assert Dialogue(alice).metadata(there).error_code.name == REFUSED


def test_what_is_forbidden_forbids_nothing_that_it_would_imply(alice: Wire, there: str, granting: Granting) -> None:
    granting.create(acl("write", "topic", there), acl("read", "topic", there, permission=DENY))
    assert settled(lambda: seen(alice), {there}) == {there}


def test_a_topic_that_may_not_be_described_is_hidden_by_its_id(alice: Wire, there: str, root: Dialogue) -> None:
    topic_id: Any = root.topic_id(there)
    row = alice.ask("metadata", 12, topics=[{"topic_id": topic_id, "name": None}]).topics[0]
    assert (row.error_code.name, row.name, row.topic_id, row.partitions) == (REFUSED, None, topic_id, ())
    row = Dialogue(alice).metadata(there)
    assert (row.error_code.name, row.name, row.partitions) == (REFUSED, there, ())


def asked_for(wire: Wire, name: str) -> str:
    return str(
        wire.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True).topics[0].error_code.name
    )


@pytest.mark.parametrize(("resource", "on"), [("topic", None), ("cluster", CLUSTER)])
def test_asking_makes_a_topic_where_its_making_is_granted(
    alice: Wire, name: str, granting: Granting, root: Dialogue, resource: str, on: str | None
) -> None:
    granting.create(acl("describe", "topic", name))
    assert settled(lambda: asked_for(alice, name), REFUSED) == REFUSED
    assert Dialogue(alice).metadata(name).error_code.name == UNKNOWN
    granting.create(acl("create", resource, on or name))
    assert settled(lambda: asked_for(alice, name), "none") == "none"


def topic_bits(wire: Wire, name: str) -> int:
    rows = wire.ask("metadata", 12, topics=[{"name": name}], include_topic_authorized_operations=True).topics
    return int(rows[0].topic_authorized_operations)


def test_rights_are_told_as_bits(alice: Wire, there: str, granting: Granting, root: Dialogue) -> None:
    granting.create(acl("write", "topic", there), acl("alter configs", "topic", there))
    wanted = bits("write", "describe", "describe configs", "alter configs")
    assert settled(lambda: topic_bits(alice, there), wanted) == wanted
    every = bits(*(one for one in OPERATIONS if one not in ("all", "cluster action", "idempotent write")))
    assert topic_bits(root.wire, there) == every
    answer = alice.ask("describe_topic_partitions", 0, topics=[{"name": there}], response_partition_limit=9)
    assert answer.topics[0].topic_authorized_operations == wanted


def cluster_bits(wire: Wire) -> tuple[int, int]:
    told = {"include_cluster_authorized_operations": True}
    described = wire.ask("describe_cluster", 1, **told).cluster_authorized_operations
    return described, wire.ask("metadata", 9, topics=[], **told).cluster_authorized_operations


def test_rights_on_the_cluster_are_told_to_whoever_may_describe_it(alice: Wire, granting: Granting) -> None:
    assert cluster_bits(alice) == (0, 0)
    granting.create(acl("create", "cluster", CLUSTER))
    assert cluster_bits(alice) == (0, 0)
    granting.create(acl("alter", "cluster", CLUSTER))
    wanted = bits("create", "alter", "describe")
    assert settled(lambda: cluster_bits(alice), (wanted, wanted)) == (wanted, wanted)


def deleted(wire: Wire, **named: Any) -> tuple[Any, ...]:
    row = wire.ask("delete_topics", 6, topics=[named], timeout=9000).responses[0]
    return row.name, row.error_code.name


def test_who_may_not_delete_learns_of_a_topic_what_it_may_describe(
    alice: Wire, there: str, root: Dialogue, granting: Granting
) -> None:
    topic_id: Any = root.topic_id(there)
    assert deleted(alice, name=there) == (there, REFUSED)
    assert deleted(alice, name=None, topic_id=topic_id) == (None, REFUSED)
    granting.create(acl("describe", "topic", there))
    wanted = (there, REFUSED)
    assert settled(lambda: deleted(alice, name=None, topic_id=topic_id), wanted) == wanted
    assert deleted(alice, name=there) == wanted
    granting.create(acl("delete", "topic", there[:-1], pattern=PREFIXED))
    assert settled(lambda: deleted(alice, name=there), (there, "none")) == (there, "none")


def test_whoever_may_delete_on_the_cluster_may_delete_every_topic(alice: Wire, there: str, granting: Granting) -> None:
    granting.create(acl("delete", "cluster", CLUSTER))
    assert settled(lambda: deleted(alice, name=there), (there, "none")) == (there, "none")


def test_a_topic_is_made_without_its_settings_being_told(alice: Wire, name: str, granting: Granting) -> None:
    granting.create(acl("create", "topic", name))
    wanted = [{"name": name, "num_partitions": 2, "replication_factor": 1}]

    def made() -> Any:
        row = alice.ask("create_topics", 7, topics=wanted, timeout=9000, validate_only=True).topics[0]
        return row.error_code.name, row.topic_config_error_code, row.num_partitions, row.replication_factor, row.configs

    assert settled(made, ("none", 29, -1, -1, ())) == ("none", 29, -1, -1, ())
    granting.create(acl("describe configs", "topic", name))
    assert until(lambda: found if (found := made())[1] == 0 else None)[:4] == ("none", 0, 2, 1)


def test_of_several_topics_those_are_made_that_may(alice: Wire, name: str, granting: Granting) -> None:
    granting.create(acl("create", "topic", name))
    wanted = [{"name": one, "num_partitions": 1, "replication_factor": 1} for one in (name, name + "b")]

    def made() -> dict[str, str]:
        rows = alice.ask("create_topics", 7, topics=wanted, timeout=9000, validate_only=True).topics
        return {row.name: row.error_code.name for row in rows}

    assert settled(made, {name: "none", name + "b": REFUSED}) == {name: "none", name + "b": REFUSED}


def test_an_id_that_nobody_has_is_unknown_to_everybody(alice: Wire, name: str) -> None:
    from uuid import uuid4

    assert deleted(alice, name=None, topic_id=uuid4()) == (None, "unknown_topic_id")
    row = alice.ask("metadata", 12, topics=[{"topic_id": uuid4(), "name": None}]).topics[0]
    assert row.error_code.name == "unknown_topic_id"
