"""Settings asked for and changed by clients: sources and synonyms, refusals, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.admin import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, change, create, described, setting
from tests.conformance.wire import Wire
from waterclock.broker import Access, Broker

THIS, ALL = "1", ""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.retention.ms": "5000"}) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        create(wire, "t", configs={"cleanup.policy": "compact"})
        yield wire


def test_a_topics_setting_tells_who_said_what(wire: Wire) -> None:
    change(wire, BROKER, THIS, ("log.retention.ms", SET, "3000"))
    change(wire, BROKER, ALL, ("log.retention.ms", SET, "4000"))
    change(wire, TOPIC, "t", ("retention.ms", SET, "2000"))
    row = described(wire, TOPIC, "t", "retention.ms", include_synonyms=True).configs[0]
    assert [(word.name, word.value, word.source) for word in row.synonyms] == [
        ("retention.ms", "2000", 1),
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "4000", 3),
        ("log.retention.ms", "5000", 4),
        ("log.retention.ms", "604800000", 5),
    ]


def test_what_is_taken_back_leaves_the_next_word(wire: Wire) -> None:
    change(wire, BROKER, THIS, ("log.retention.ms", SET, "3000"))
    assert setting(wire, TOPIC, "t", "retention.ms") == ("3000", 2)
    change(wire, BROKER, THIS, ("log.retention.ms", DELETE, None))
    assert setting(wire, TOPIC, "t", "retention.ms") == ("5000", 4)


def test_a_changed_setting_of_the_broker_holds_for_a_topic_at_once(wire: Wire, broker: Broker) -> None:
    change(wire, BROKER, THIS, ("message.max.bytes", SET, "77"))
    assert broker.call(lambda: broker.inside.topics.by_name["t"].settings.max_message_bytes) == 77


def test_documentation_and_synonyms_come_where_they_are_asked_for_only(wire: Wire) -> None:
    bare = described(wire, TOPIC, "t", "retention.ms").configs[0]
    full = described(wire, TOPIC, "t", "retention.ms", include_synonyms=True, include_documentation=True).configs[0]
    assert (bare.documentation, bare.synonyms) == (None, ())
    assert full.documentation.startswith("how long records stay")
    assert full.synonyms


def test_no_names_mean_all_names(wire: Wire) -> None:
    assert len(described(wire, TOPIC, "t").configs) > 20
    asked = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": []}
    assert len(wire.ask("describe_configs", 4, resources=[asked]).results[0].configs) > 20


def test_what_cannot_change_at_run_time_is_told_read_only_and_refused(wire: Wire) -> None:
    assert described(wire, BROKER, THIS, "num.partitions").configs[0].read_only
    assert not described(wire, BROKER, THIS, "log.retention.ms").configs[0].read_only
    assert change(wire, BROKER, THIS, ("num.partitions", SET, "3")) == "invalid_request"


@pytest.mark.parametrize(
    ("kind", "name", "deed", "error"),
    [
        (TOPIC, "t", ("nope", SET, "1"), "invalid_config"),
        (TOPIC, "t", ("nope", DELETE, None), "none"),
        (TOPIC, "t", ("retention.ms", SET, "soon"), "invalid_config"),
        (TOPIC, "t", ("retention.ms", SET, "1_000"), "invalid_config"),
        (TOPIC, "t", ("retention.ms", SET, "-2"), "invalid_config"),
        (TOPIC, "t", ("retention.ms", SET, str(2**63)), "invalid_config"),
        (TOPIC, "t", ("segment.bytes", SET, str((1 << 20) - 1)), "invalid_config"),
        (TOPIC, "t", ("segment.bytes", SET, str(2**31)), "invalid_config"),
        (TOPIC, "t", ("min.cleanable.dirty.ratio", SET, "1.1"), "invalid_config"),
        (TOPIC, "t", ("min.cleanable.dirty.ratio", SET, "nan"), "invalid_config"),
        (TOPIC, "t", ("retention.ms", SET, None), "invalid_request"),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), "invalid_config"),
        (TOPIC, "t", ("retention.ms", 9, "1"), "invalid_request"),
        (TOPIC, "nobody", ("retention.ms", SET, "1"), "unknown_topic_or_partition"),
        (TOPIC, "a/b", ("retention.ms", SET, "1"), "invalid_topic_exception"),
        (TOPIC, "", ("retention.ms", SET, "1"), "invalid_request"),
        (BROKER, "2", ("log.retention.ms", SET, "1"), "invalid_request"),
        (BROKER, "one", ("log.retention.ms", SET, "1"), "invalid_request"),
        (BROKER, THIS, ("log.retention.ms", SET, "soon"), "invalid_request"),
        (BROKER, THIS, ("nope", SET, "1"), "invalid_config"),
        (99, "x", ("retention.ms", SET, "1"), "invalid_request"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    wire: Wire, kind: int, name: str, deed: tuple[str, int, str | None], error: str
) -> None:
    assert change(wire, kind, name, deed) == error
    assert setting(wire, TOPIC, "t", "retention.ms") == ("5000", 4)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("remote.storage.enable", "true", "must be false here: all records are on this broker's disk"),
        ("remote.log.copy.disable", "true", "must be false here: all records are on this broker's disk"),
        ("local.retention.ms", "1000", "must be -2 here: without remote storage retention.ms"),
        ("local.retention.bytes", "-1", "must be -2 here: without remote storage retention.ms"),
        ("leader.replication.throttled.replicas", "*", "must be empty here: a follower copies as fast as it can"),
        ("follower.replication.throttled.replicas", "0:1", "must be empty here: a follower copies as fast as it can"),
    ],
)
def test_what_means_nothing_here_is_refused_with_the_reason_where_it_would_mean_something(
    wire: Wire, name: str, text: str, why: str
) -> None:
    made = create(wire, "new", configs={name: text})
    assert made.error_code.name == "invalid_config"
    assert why in made.error_message
    assert change(wire, TOPIC, "t", (name, SET, text)) == "invalid_config"


def test_where_clients_find_a_broker_cannot_be_changed_while_it_runs(wire: Wire) -> None:
    deed = ("advertised.listeners", SET, "PLAINTEXT://elsewhere:1")
    assert change(wire, BROKER, THIS, deed) == change(wire, BROKER, ALL, deed) == "invalid_request"


@pytest.mark.parametrize(("advertise", "source"), [(None, 5), ("kafka.example.com", 4), ("kafka.example.com:7", 4)])
def test_where_clients_find_a_broker_is_what_it_advertises(advertise: str | None, source: int) -> None:
    with Broker(access=Access(advertise=advertise)) as broker, Wire(broker.bootstrap) as wire:
        host, port = (advertise or "127.0.0.1").partition(":")[::2]
        assert setting(wire, BROKER, THIS, "advertised.listeners") == (
            f"PLAINTEXT://{host}:{port or broker.bootstrap.split(':')[1]}",
            source,
        )


def test_one_wrong_setting_spoils_the_others_of_its_resource(wire: Wire) -> None:
    assert change(wire, TOPIC, "t", ("retention.ms", SET, "1"), ("nope", SET, "1")) == "invalid_config"
    assert setting(wire, TOPIC, "t", "retention.ms") == ("5000", 4)


def test_a_name_or_a_resource_that_comes_twice_is_refused(wire: Wire) -> None:
    assert change(wire, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == "invalid_request"
    row = {"name": "retention.ms", "config_operation": SET, "value": "5"}
    twice = [{"resource_type": TOPIC, "resource_name": "t", "configs": [row]}] * 2
    rows = wire.ask("incremental_alter_configs", 1, resources=twice).responses
    assert [row.error_code.name for row in rows] == ["invalid_request"] * 2


def test_a_list_grows_without_doubles_and_shrinks_to_nothing(wire: Wire) -> None:
    for deed, value, then in (
        (APPEND, "delete", "compact,delete"),
        (APPEND, "delete,compact", "compact,delete"),
        (SUBTRACT, "compact", "delete"),
        (SUBTRACT, "delete", ""),
    ):
        assert change(wire, TOPIC, "t", ("cleanup.policy", deed, value)) == "none"
        assert setting(wire, TOPIC, "t", "cleanup.policy") == (then, 1)


def test_a_list_that_nobody_has_set_grows_from_what_holds(wire: Wire) -> None:
    create(wire, "u")
    change(wire, TOPIC, "u", ("cleanup.policy", APPEND, "compact"))
    assert setting(wire, TOPIC, "u", "cleanup.policy") == ("delete,compact", 1)


def test_only_looking_changes_nothing_and_refuses_all_the_same(wire: Wire) -> None:
    assert change(wire, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == "none"
    assert change(wire, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True) == "invalid_config"
    assert setting(wire, TOPIC, "t", "retention.ms") == ("5000", 4)


def test_what_clients_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        create(wire, "t")
        change(wire, BROKER, THIS, ("log.retention.ms", SET, "3000"))
        change(wire, BROKER, ALL, ("log.roll.ms", SET, "4000"))
        change(wire, TOPIC, "t", ("flush.ms", SET, "7"))
    with Broker(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert setting(wire, TOPIC, "t", "retention.ms") == ("3000", 2)
        assert setting(wire, TOPIC, "t", "segment.ms") == ("4000", 3)
        assert setting(wire, TOPIC, "t", "flush.ms") == ("7", 1)
        assert broker.call(lambda: broker.inside.topics.by_name["t"].settings["retention.ms"]) == 3000


def test_the_settings_of_a_start_are_told_as_such_after_a_change_and_a_restart(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings={"log.retention.ms": "5000"})
    for _ in range(2):
        with broker, Wire(broker.bootstrap) as wire:
            change(wire, BROKER, THIS, ("log.retention.ms", SET, "3000"))
    with broker, Wire(broker.bootstrap) as wire:
        change(wire, BROKER, THIS, ("log.retention.ms", DELETE, None))
        assert setting(wire, BROKER, THIS, "log.retention.ms") == ("5000", 4)


def test_resources_with_settings_are_listed(wire: Wire) -> None:
    rows = wire.ask("list_config_resources", 1, resource_types=[]).config_resources
    assert [(row.resource_type, row.resource_name) for row in rows] == [(BROKER, "1"), (TOPIC, "t")]
    assert wire.ask("list_config_resources", 1, resource_types=[TOPIC]).config_resources[0].resource_name == "t"
    assert wire.ask("list_config_resources", 1, resource_types=[77]).error_code.name == "unsupported_version"
    assert wire.ask("list_config_resources", 0).config_resources == ()
