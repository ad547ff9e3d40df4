"""Which APIs and versions a broker speaks, and what it says to others."""

from __future__ import annotations

import struct

import pytest

from tests.conformance.wire import KEYS, Closed, Wire

# What Apache Kafka 4.3 speaks of what its clients, the Python clients and Spark ask for.
RANGES = {
    "produce": (0, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "sasl_handshake": (0, 1),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "txn_offset_commit": (0, 5),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "sasl_authenticate": (0, 2),
    "create_partitions": (0, 3),
    "delete_groups": (0, 2),
    "incremental_alter_configs": (0, 1),
    "offset_delete": (0, 0),
    "describe_cluster": (0, 2),
    "describe_producers": (0, 0),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
}
# Version 3 and later must name the client's software.
CLIENT = {"client_software_name": "conformance", "client_software_version": "1"}
LEAST = {
    "api_versions": CLIENT,
    "produce": {"acks": -1},
    # Without any transaction Apache Kafka 4.3 never answers versions 4 and 5.
    "add_partitions_to_txn": {"transactions": [{"transactional_id": "none", "producer_id": 1}]},
}
# Produce 0-2 are told since librdkafka needs to see them, and refused all the same (KIP-896).
OLDEST = {"produce": 3}


@pytest.mark.parametrize("api", RANGES)
def test_an_api_is_told_with_the_versions_of_apache_kafka(wire: Wire, api: str) -> None:
    reply = {k.api_key: (k.min_version, k.max_version) for k in wire.ask("api_versions", 3, **CLIENT).api_keys}
    assert reply[KEYS[api]] == RANGES[api]


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, v) for api, (low, high) in RANGES.items() for v in range(max(low, OLDEST.get(api, 0)), high + 1)],
)
def test_every_version_of_every_api_is_answered(wire: Wire, api: str, version: int) -> None:
    # As empty as can be: what the answer says is other tests' business; here it must parse to its last byte.
    wire.ask(api, version, **LEAST.get(api, {}))


def test_api_versions_newer_than_known_are_refused_in_the_oldest_form_with_the_table(wire: Wire) -> None:
    # The broker cannot know how that newer answer looks, so it answers as version 0 (KIP-511); the table holds one
    # row, ApiVersions itself, from which the client learns what to ask next.
    wire.send_frame(struct.pack(">hhih", KEYS["api_versions"], 99, 77, -1) + b"\0")
    frame = wire.receive_frame()
    correlation, error, count = struct.unpack_from(">ihi", frame)
    rows = [struct.unpack_from(">hhh", frame, 10 + 6 * i) for i in range(count)]
    assert (correlation, error) == (77, 35)
    assert (KEYS["api_versions"], *RANGES["api_versions"]) in rows
    assert len(frame) == 10 + 6 * count


def test_after_a_refused_api_versions_the_connection_goes_on(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", KEYS["api_versions"], 99, 77, -1) + b"\0")
    wire.receive_frame()
    assert wire.ask("api_versions", 0).error_code == 0


UNKNOWN = [(api, 99) for api in ("produce", "fetch", "metadata", "list_offsets", "join_group")]
DROPPED = [("produce", 2), ("fetch", 3), ("list_offsets", 0), ("create_topics", 1)]


@pytest.mark.parametrize(("api", "version"), [*UNKNOWN, *DROPPED, ("of no name", 0)])
def test_a_version_or_an_api_that_nobody_knows_closes_the_connection(wire: Wire, api: str, version: int) -> None:
    # Only ApiVersions has an answer for this (KIP-511).
    wire.send_frame(struct.pack(">hhih", KEYS.get(api, 999), version, 1, -1) + b"\0" * 40)
    with pytest.raises(Closed):
        wire.receive_frame()


def test_api_versions_tell_the_transaction_protocol(wire: Wire) -> None:
    # transaction.version 2 is KIP-890: an epoch of its own for each transaction.
    features = {f.name: f.max_version_level for f in wire.ask("api_versions", 3, **CLIENT).finalized_features}
    assert features["transaction.version"] == 2


@pytest.mark.parametrize("name", ["", "-bad-", "a name"])
def test_api_versions_without_a_proper_name_of_the_client_are_refused(wire: Wire, name: str) -> None:
    # Letters, digits, dots and hyphens within (KIP-511): the name goes into metrics.
    answer = wire.ask("api_versions", 3, client_software_name=name, client_software_version="1")
    assert answer.error_code.name == "invalid_request"
    assert answer.api_keys == ()
