"""Settings of topics and of the broker: told, changed, refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue
from tests.conformance.settings import SETTINGS
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_BROKER_FILE, FROM_DEFAULT = 1, 4, 5


def described(wire: Wire, name: str, *keys: str, kind: int = TOPIC, version: int = 4, **fields: Any) -> Any:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return wire.ask("describe_configs", version, resources=[asked], **fields).results[0]


def value(wire: Wire, name: str, key: str) -> tuple[str | None, int]:
    """A setting's value and where it comes from."""
    (reply,) = described(wire, name, key).configs
    return reply.value, reply.config_source


def changed(wire: Wire, name: str, key: str, operation: int, new: str | None, **fields: Any) -> str:
    change = {"name": key, "config_operation": operation, "value": new}
    asked = {"resource_type": TOPIC, "resource_name": name, "configs": [change]}
    answer = wire.ask("incremental_alter_configs", 1, resources=[asked], **fields)
    return str(answer.responses[0].error_code.name)


@pytest.mark.parametrize("version", range(1, 5))
def test_the_settings_of_a_topic_are_told_in_every_version(wire: Wire, topic: str, version: int) -> None:
    reply = {c.name: c.value for c in described(wire, topic, version=version).configs}
    assert reply["cleanup.policy"] == "delete"
    assert reply["max.message.bytes"] == "1048588"
    assert reply["message.timestamp.type"] == "CreateTime"
    assert reply["min.insync.replicas"] == "1"
    assert reply["compression.type"] == "producer"


def test_only_the_settings_asked_for_are_told(wire: Wire, topic: str) -> None:
    assert [c.name for c in described(wire, topic, "retention.ms").configs] == ["retention.ms"]
    assert described(wire, topic, "no.such.setting").configs == ()


def test_a_setting_tells_where_it_comes_from(wire: Wire, new_topic: Any) -> None:
    topic = new_topic(**{"max.message.bytes": 5000})
    assert value(wire, topic, "max.message.bytes") == ("5000", FROM_TOPIC)
    assert value(wire, topic, "retention.ms") == (SETTINGS["log.retention.ms"], FROM_BROKER_FILE)
    assert value(wire, topic, "cleanup.policy") == ("delete", FROM_DEFAULT)


def test_synonyms_are_told_where_asked_for(wire: Wire, topic: str) -> None:
    (reply,) = described(wire, topic, "retention.ms", include_synonyms=True).configs
    assert "log.retention.ms" in {s.name for s in reply.synonyms}
    assert described(wire, topic, "retention.ms").configs[0].synonyms == ()


def test_the_type_of_a_setting_is_told(wire: Wire, topic: str) -> None:
    reply = {c.name: c.config_type for c in described(wire, topic).configs}
    # boolean 1, string 2, int 3, long 5, double 6, list 7
    assert (reply["preallocate"], reply["max.message.bytes"], reply["retention.ms"]) == (1, 3, 5)
    assert reply["cleanup.policy"] == 7


# every setting that Apache Kafka 4.3 describes of a topic, by the type that it has there
TOPIC_SETTINGS = {
    1: {
        "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable",
        "unclean.leader.election.enable",
    },
    2: {
        "compression.type", "message.timestamp.type",
    },
    3: {
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "index.interval.bytes",
        "max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes",
    },
    5: {
        "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms", "local.retention.bytes",
        "local.retention.ms", "max.compaction.lag.ms", "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms", "min.compaction.lag.ms", "retention.bytes", "retention.ms",
        "segment.jitter.ms", "segment.ms",
    },
    6: {
        "min.cleanable.dirty.ratio",
    },
    7: {
        "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    },
}  # fmt: skip
# those that mean nothing without what Kafka has them for, with the value that means nothing
NEUTRAL = {
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
}


def test_every_setting_of_a_topic_is_described_with_its_type(wire: Wire, topic: str) -> None:
    found: dict[int, set[str]] = {}
    for one in described(wire, topic).configs:
        found.setdefault(one.config_type, set()).add(one.name)
    assert found == TOPIC_SETTINGS


@pytest.mark.parametrize(("key", "neutral"), NEUTRAL.items())
def test_a_setting_for_what_a_broker_need_not_have_is_taken_with_the_value_that_means_nothing(
    wire: Wire, new_topic: Any, key: str, neutral: str
) -> None:
    topic = new_topic(**{key: neutral})
    assert value(wire, topic, key) == (neutral, FROM_TOPIC)
    assert changed(wire, topic, key, SET, neutral) == "none"


@pytest.mark.parametrize(("key", "text"), [("remote.storage.enable", "true"), (list(NEUTRAL)[-1], "bad")])
def test_and_refused_with_another(wire: Wire, topic: str, key: str, text: str) -> None:
    assert changed(wire, topic, key, SET, text) == "invalid_config"


def test_where_clients_find_the_broker_is_described(wire: Wire, bootstrap: str) -> None:
    node = wire.ask("metadata", 12, topics=[]).brokers[0].node_id
    (reply,) = described(wire, str(node), "advertised.listeners", kind=BROKER).configs
    assert f"PLAINTEXT://{bootstrap}" in reply.value.split(",")
    assert (reply.read_only, reply.config_type) == (True, 7)


def test_the_settings_of_an_unknown_topic_are_an_error(wire: Wire, name: str) -> None:
    assert described(wire, name).error_code.name == "unknown_topic_or_partition"


def test_the_settings_of_a_name_that_cannot_be_are_an_error(wire: Wire) -> None:
    assert described(wire, "a b").error_code.name == "invalid_topic_exception"


def test_the_settings_of_the_broker_are_told(wire: Wire) -> None:
    node = wire.ask("metadata", 12, topics=[]).brokers[0].node_id
    reply = {c.name: c for c in described(wire, str(node), kind=BROKER).configs}
    assert reply["socket.request.max.bytes"].value == SETTINGS["socket.request.max.bytes"]
    assert reply["num.partitions"].value == "1"
    assert reply["auto.create.topics.enable"].value == "true"
    assert reply["socket.request.max.bytes"].read_only


@pytest.mark.parametrize("broker", ["999", "one"])
def test_the_settings_of_another_broker_are_an_error(wire: Wire, broker: str) -> None:
    assert described(wire, broker, kind=BROKER).error_code.name == "invalid_request"


def test_a_kind_of_resource_nobody_knows_is_an_error(wire: Wire) -> None:
    assert described(wire, "x", kind=99).error_code.name in {"invalid_request", "unsupported_version"}


def test_a_setting_is_changed_and_taken_back(wire: Wire, topic: str) -> None:
    assert changed(wire, topic, "max.message.bytes", SET, "2000") == "none"
    until(lambda: value(wire, topic, "max.message.bytes") == ("2000", FROM_TOPIC))
    assert changed(wire, topic, "max.message.bytes", DELETE, None) == "none"
    until(lambda: value(wire, topic, "max.message.bytes") == ("1048588", FROM_DEFAULT))


def test_a_changed_setting_is_in_force(dialogue: Dialogue, topic: str) -> None:
    changed(dialogue.wire, topic, "max.message.bytes", SET, "100")
    until(lambda: dialogue.produce(topic, batch(b"a" * 500)).error_code.name == "message_too_large")


def test_a_list_grows_and_shrinks(wire: Wire, topic: str) -> None:
    assert changed(wire, topic, "cleanup.policy", APPEND, "compact") == "none"
    until(lambda: value(wire, topic, "cleanup.policy")[0] == "delete,compact")
    assert changed(wire, topic, "cleanup.policy", SUBTRACT, "delete") == "none"
    until(lambda: value(wire, topic, "cleanup.policy")[0] == "compact")


def test_what_is_no_list_does_not_grow(wire: Wire, topic: str) -> None:
    assert changed(wire, topic, "retention.ms", APPEND, "1") == "invalid_config"


def test_a_change_that_cannot_be_is_refused(wire: Wire, topic: str) -> None:
    assert changed(wire, topic, "no.such.setting", SET, "1") == "invalid_config"
    assert changed(wire, topic, "retention.ms", SET, "often") == "invalid_config"
    assert changed(wire, topic, "retention.ms", SET, None) in {"invalid_config", "invalid_request"}


def test_a_change_of_an_unknown_topic_is_refused(wire: Wire, name: str) -> None:
    assert changed(wire, name, "retention.ms", SET, "1") == "unknown_topic_or_partition"


def test_only_looking_changes_nothing(wire: Wire, topic: str) -> None:
    assert changed(wire, topic, "max.message.bytes", SET, "2000", validate_only=True) == "none"
    assert value(wire, topic, "max.message.bytes") == ("1048588", FROM_DEFAULT)


def test_the_older_change_replaces_all_settings(wire: Wire, new_topic: Any) -> None:
    # AlterConfigs, of which IncrementalAlterConfigs (KIP-339) is the better: what is not told is taken back.
    topic = new_topic(**{"max.message.bytes": 5000})
    asked = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "777"}]}
    assert wire.ask("alter_configs", 2, resources=[asked]).responses[0].error_code.name == "none"
    until(lambda: value(wire, topic, "retention.ms") == ("777", FROM_TOPIC))
    assert value(wire, topic, "max.message.bytes") == ("1048588", FROM_DEFAULT)
