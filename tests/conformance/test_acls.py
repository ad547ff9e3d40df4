"""Who may do what, on a broker with Kafka's StandardAuthorizer: one row for each request, tried under every kind of ACL.

What is asked for is mostly not there: whoever may ask is told so, whoever may not is refused, and nothing is left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.conformance.acls import CLUSTER, DENY, PREFIXED, Acl, Granting, acl, filter_of, settled
from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, fetch_fields, produce_fields
from tests.conformance.wire import Wire


class Row(NamedTuple):
    """A request as its user sees it: `ask(wire, name)` gives the error's name; what is needed; what is answered then."""

    ask: Callable[[Wire, str], str]
    operation: str
    kind: str
    allowed: str
    refused: str


NAMES = {
    "topic": "topic_authorization_failed",
    "group": "group_authorization_failed",
    "cluster": "cluster_authorization_failed",
    "transactional id": "transactional_id_authorization_failed",
}


def row(ask: Callable[[Wire, str], Any], operation: str, kind: str, allowed: str) -> Row:
    def error(wire: Wire, name: str) -> str:
        answer = ask(wire, name)
        return str(getattr(answer, "error_code", answer).name)

    return Row(error, operation, kind, allowed, NAMES[kind])


def resource(name: str, kind: int = 2, **fields: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, **fields}]


UNKNOWN = "unknown_topic_or_partition"
ROWS = {
    "Produce": row(
        lambda w, n: w.ask("produce", 9, **produce_fields(n, batch(b"x"))).responses[0].partition_responses[0],
        "write", "topic", UNKNOWN,
    ),
    "Fetch": row(
        lambda w, n: w.ask("fetch", 12, **fetch_fields(n, 0)).responses[0].partitions[0], "read", "topic", UNKNOWN
    ),
    "ListOffsets": row(lambda w, n: Dialogue(w).offset(n, -1), "describe", "topic", UNKNOWN),
    "Metadata": row(lambda w, n: Dialogue(w).metadata(n), "describe", "topic", UNKNOWN),
    "DescribeTopicPartitions": row(
        lambda w, n: w.ask("describe_topic_partitions", 0, topics=[{"name": n}], response_partition_limit=9).topics[0],
        "describe", "topic", UNKNOWN,
    ),
    "OffsetForLeaderEpoch": row(
        lambda w, n: w.ask(
            "offset_for_leader_epoch", 4, replica_id=-1,
            topics=[{"topic": n, "partitions": [{"partition": 0, "current_leader_epoch": -1}]}],
        ).topics[0].partitions[0],
        "describe", "topic", UNKNOWN,
    ),
    "CreateTopics": row(
        lambda w, n: w.ask(
            "create_topics", 7, topics=[{"name": n, "num_partitions": 1, "replication_factor": 1}],
            timeout=9000, validate_only=True,
        ).topics[0],
        "create", "topic", "none",
    ),
    "CreateTopics of any": row(
        lambda w, n: w.ask(
            "create_topics", 7, topics=[{"name": f"t{time.time_ns()}", "num_partitions": 1, "replication_factor": 1}],
            timeout=9000, validate_only=True,
        ).topics[0],
        "create", "cluster", "none",
    )._replace(refused=NAMES["topic"]),
    "DeleteTopics of one that is not there": row(
        lambda w, n: w.ask("delete_topics", 6, topics=[{"name": n}], timeout=9000).responses[0],
        "describe", "topic", UNKNOWN,
    ),
    "CreatePartitions": row(
        lambda w, n: w.ask(
            "create_partitions", 3, topics=[{"name": n, "count": 2}], timeout=9000, validate_only=True
        ).results[0],
        "alter", "topic", UNKNOWN,
    ),
    "DeleteRecords": row(
        lambda w, n: w.ask(
            "delete_records", 2, timeout=9000,
            topics=[{"name": n, "partitions": [{"partition_index": 0, "offset": 0}]}],
        ).topics[0].partitions[0],
        "delete", "topic", UNKNOWN,
    ),
    "DescribeConfigs": row(
        lambda w, n: w.ask("describe_configs", 4, resources=resource(n)).results[0],
        "describe configs", "topic", UNKNOWN,
    ),
    "DescribeConfigs of a broker": row(
        lambda w, n: w.ask("describe_configs", 4, resources=resource("1", 4)).results[0],
        "describe configs", "cluster", "none",
    ),
    "IncrementalAlterConfigs": row(
        lambda w, n: w.ask(
            "incremental_alter_configs", 1, resources=resource(n, configs=[]), validate_only=True
        ).responses[0],
        "alter configs", "topic", UNKNOWN,
    ),
    "IncrementalAlterConfigs of a broker": row(
        lambda w, n: w.ask(
            "incremental_alter_configs", 1, resources=resource("1", 4, configs=[]), validate_only=True
        ).responses[0],
        "alter configs", "cluster", "none",
    ),
    "AlterConfigs": row(
        lambda w, n: w.ask("alter_configs", 2, resources=resource(n, configs=[]), validate_only=True).responses[0],
        "alter configs", "topic", UNKNOWN,
    ),
    "DescribeProducers": row(
        lambda w, n: w.ask(
            "describe_producers", 0, topics=[{"name": n, "partition_indexes": [0]}]
        ).topics[0].partitions[0],
        "read", "topic", UNKNOWN,
    ),
    "FindCoordinator of a group": row(
        lambda w, n: w.ask("find_coordinator", 4, key_type=0, coordinator_keys=[n]).coordinators[0],
        "describe", "group", "none",
    ),
    "FindCoordinator of old": row(
        lambda w, n: w.ask("find_coordinator", 3, key_type=0, key=n), "describe", "group", "none"
    ),
    "FindCoordinator of a transaction": row(
        lambda w, n: w.ask("find_coordinator", 4, key_type=1, coordinator_keys=[n]).coordinators[0],
        "describe", "transactional id", "none",
    ),
    "JoinGroup": row(
        lambda w, n: w.ask("join_group", 7, group_id=n, session_timeout=10, protocol_type="consumer", protocols=[]),
        "read", "group", "invalid_session_timeout",
    ),
    "SyncGroup": row(
        lambda w, n: w.ask(
            "sync_group", 5, group_id=n, generation_id=1, member_id="m", protocol_type="t", protocol_name="p"
        ),
        "read", "group", "unknown_member_id",
    ),
    "Heartbeat": row(
        lambda w, n: w.ask("heartbeat", 4, group_id=n, generation_id=1, member_id="m"),
        "read", "group", "unknown_member_id",
    ),
    "LeaveGroup of old": row(
        lambda w, n: w.ask("leave_group", 2, group_id=n, member_id="m"), "read", "group", "unknown_member_id"
    ),
    "LeaveGroup": row(
        lambda w, n: w.ask("leave_group", 5, group_id=n, members=[{"member_id": "m"}]), "read", "group", "none"
    ),
    "OffsetCommit": row(
        lambda w, n: w.ask(
            "offset_commit", 9, group_id=n, generation_id_or_member_epoch=-1,
            topics=[{"name": "none", "partitions": [{"partition_index": 0}]}],
        ).topics[0].partitions[0],
        "read", "group", NAMES["topic"],
    ),
    "OffsetFetch": row(
        lambda w, n: w.ask("offset_fetch", 8, groups=[{"group_id": n, "topics": None}]).groups[0],
        "describe", "group", "none",
    ),
    "OffsetFetch of old": row(
        lambda w, n: w.ask("offset_fetch", 7, group_id=n, topics=None), "describe", "group", "none"
    ),
    "OffsetDelete": row(
        lambda w, n: w.ask("offset_delete", 0, group_id=n, topics=[]), "delete", "group", "group_id_not_found"
    ),
    "DescribeGroups": row(
        lambda w, n: w.ask("describe_groups", 6, groups=[n]).groups[0], "describe", "group", "group_id_not_found"
    ),
    "ConsumerGroupDescribe": row(
        lambda w, n: w.ask("consumer_group_describe", 1, group_ids=[n]).groups[0],
        "describe", "group", "group_id_not_found",
    ),
    "ConsumerGroupHeartbeat": row(
        lambda w, n: w.ask("consumer_group_heartbeat", 1, group_id=n, member_id="m", member_epoch=5),
        "read", "group", "group_id_not_found",
    ),
    "DeleteGroups": row(
        lambda w, n: w.ask("delete_groups", 2, groups_names=[n]).results[0], "delete", "group", "group_id_not_found"
    ),
    "InitProducerId": row(
        lambda w, n: w.ask("init_producer_id", 4, transactional_id=n, transaction_timeout=0, producer_id=-1,
                           producer_epoch=-1),
        "write", "transactional id", "invalid_transaction_timeout",
    ),
    "InitProducerId without a transaction": row(
        lambda w, n: w.ask("init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1),
        "idempotent write", "cluster", "none",
    ),
    "AddPartitionsToTxn": row(
        lambda w, n: w.ask(
            "add_partitions_to_txn", 3, v3_and_below_transactional_id=n, v3_and_below_producer_id=1,
            v3_and_below_topics=[{"name": "none", "partitions": [0]}],
        ).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        "write", "transactional id", NAMES["topic"],
    ),
    "EndTxn": row(
        lambda w, n: w.ask("end_txn", 4, transactional_id=n, producer_id=1),
        "write", "transactional id", "invalid_producer_id_mapping",
    ),
    "DescribeTransactions": row(
        lambda w, n: w.ask("describe_transactions", 0, transactional_ids=[n]).transaction_states[0],
        "describe", "transactional id", "transactional_id_not_found",
    ),
    "AddPartitionsToTxn of brokers": row(
        lambda w, n: w.ask("add_partitions_to_txn", 4, transactions=[{"transactional_id": n, "topics": [
            {"name": "none", "partitions": [0]}]}]),
        "cluster action", "cluster", "none",
    ),
    "DescribeLogDirs": row(lambda w, n: w.ask("describe_log_dirs", 4, topics=None), "describe", "cluster", "none"),
    "ElectLeaders": row(
        lambda w, n: w.ask("elect_leaders", 2, election_type=0, topic_partitions=[], timeout=9000),
        "alter", "cluster", "none",
    ),
    "ListPartitionReassignments": row(
        lambda w, n: w.ask("list_partition_reassignments", 0, timeout=9000, topics=None), "describe", "cluster", "none"
    ),
    "DescribeClientQuotas": row(
        lambda w, n: w.ask("describe_client_quotas", 1, components=[]), "describe configs", "cluster", "none"
    ),
    "DescribeUserScramCredentials": row(
        lambda w, n: w.ask("describe_user_scram_credentials", 0, users=[]), "describe", "cluster", "none"
    ),
    "AlterUserScramCredentials": row(
        lambda w, n: w.ask(
            "alter_user_scram_credentials", 0, deletions=[{"name": n, "mechanism": 1}]
        ).results[0],
        "alter", "cluster", "resource_not_found",
    ),
    "ListConfigResources": row(
        lambda w, n: w.ask("list_config_resources", 1, resource_types=[2]), "describe configs", "cluster", "none"
    ),
    "DescribeAcls": row(lambda w, n: w.ask("describe_acls", 3, **filter_of()), "describe", "cluster", "none"),
    "CreateAcls": row(
        lambda w, n: w.ask("create_acls", 3, creations=[acl("read", "topic", "x", principal="x").creation()]).results[0],
        "alter", "cluster", "invalid_request",
    ),
    "DeleteAcls": row(
        lambda w, n: w.ask("delete_acls", 3, filters=[filter_of(name=n, pattern=3)]).filter_results[0],
        "alter", "cluster", "none",
    ),
}  # fmt: skip


def situations(operation: str, kind: str, name: str) -> dict[str, tuple[list[Acl], bool]]:
    """Sets of ACLs about a resource, each with whether Alice may then."""
    granted = acl(operation, kind, name)
    begins = {"name": name[:-2], "pattern": PREFIXED}
    found = {
        "nothing is granted": ([], False),
        "it is granted": ([granted], True),
        "it is granted, and forbidden": ([granted, granted._replace(permission=DENY)], False),
        "it is granted to everybody": ([granted._replace(principal="User:*")], True),
        "it is granted to somebody else": ([granted._replace(principal="User:carol")], False),
        "it is granted from elsewhere": ([granted._replace(host="192.0.2.1")], False),
        "everything is granted": ([acl("all", kind, name)], True),
        "everything is forbidden": ([granted, acl("all", kind, name, permission=DENY)], False),
    }
    if kind != "cluster":
        found["it is granted on all that begin so"] = [granted._replace(**begins)], True
        found["what begins so is forbidden"] = [granted, granted._replace(permission=DENY, **begins)], False
    return found


@pytest.mark.parametrize("api", [api for api, row in ROWS.items() if row.kind != "cluster"])
def test_who_may_and_who_may_not(api: str, alice: Wire, super_user: Wire, granting: Granting, name: str) -> None:
    """Each situation has a resource of its own, so that all ACLs are made at once."""
    row = ROWS[api]
    told = [f"{letter}{name}" for letter in "abcdefghij"]
    tried = {one: situations(row.operation, row.kind, one) for one in told}
    chosen = {title: (one, tried[one][title]) for one, title in zip(told, tried[told[0]], strict=True)}
    granting.create(*(acl for _, (acls, _) in chosen.values() for acl in acls))
    wanted = {title: row.allowed if may else row.refused for title, (_, (_, may)) in chosen.items()}
    assert settled(lambda: {title: row.ask(alice, one) for title, (one, _) in chosen.items()}, wanted) == wanted
    assert row.ask(super_user, told[0]) in (row.allowed, UNKNOWN)
    granting.create(acl(row.operation, row.kind, "*"))
    assert settled(lambda: row.ask(alice, told[0]), row.allowed) == row.allowed
    forbidden = chosen["what begins so is forbidden"][0]
    assert row.ask(alice, forbidden) == row.refused


@pytest.mark.parametrize("api", [api for api, row in ROWS.items() if row.kind == "cluster"])
def test_who_may_and_who_may_not_with_the_cluster(
    api: str, alice: Wire, super_user: Wire, granting: Granting, name: str
) -> None:
    row = ROWS[api]
    for situation, (acls, may) in situations(row.operation, row.kind, CLUSTER).items():
        granting.create(*acls)
        wanted = row.allowed if may else row.refused
        assert (situation, settled(lambda: row.ask(alice, name), wanted)) == (situation, wanted)
        granting.clear()
    assert row.ask(super_user, name) == row.allowed
