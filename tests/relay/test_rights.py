"""A relay where ACLs decide: with the rights that the document names it works, and one that is taken away is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as Kind

from tests.relay.world import step_until
from tests.test_readme import ROOT
from waterclock.broker import Access
from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.relay import Delays
from waterclock.relay.cluster import group
from waterclock.relay.options import RelayOptions
from waterclock.relay.relay import Relay
from waterclock.testing import Broker

Op = AclOperation
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
CAROL = {**LOGIN, "sasl.username": "carol", "sasl.password": "hers"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
# what the document says that a relay of the input `later` needs, by the beginning of the names
RIGHTS = [
    (Kind.TOPIC, "later", Op.READ),
    (Kind.TOPIC, "later", Op.WRITE),
    (Kind.TOPIC, "later", Op.CREATE),
    (Kind.TOPIC, "later", Op.DELETE),
    (Kind.TOPIC, "later", Op.DESCRIBE_CONFIGS),
    (Kind.GROUP, "later", Op.READ),
    (Kind.TRANSACTIONAL_ID, "later", Op.WRITE),
]


def login(broker: Broker, user: str, password: str) -> dict[str, str]:
    return {**LOGIN, "bootstrap.servers": broker.bootstrap, "sasl.username": user, "sasl.password": password}


@pytest.fixture
def broker() -> Iterator[Broker]:
    users = ("admin:secret", "carol:hers")
    with Broker(access=Access(users=users), settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    made = AdminClient(login(broker, "admin", "secret"))
    allow, prefixed = AclPermissionType.ALLOW, ResourcePatternType.PREFIXED
    rights = [AclBinding(kind, name, prefixed, "User:carol", "*", op, allow) for kind, name, op in RIGHTS]
    for done in [*made.create_acls(rights).values(), *made.create_topics([NewTopic("later.to", 1)]).values()]:
        done.result()
    return made


def taken_away(admin: AdminClient, kind: Kind) -> AclBindingFilter:
    """Carol's rights of a kind; they are gone."""
    those = AclBindingFilter(
        kind, "later", ResourcePatternType.PREFIXED, "User:carol", "*", Op.ANY, AclPermissionType.ALLOW
    )
    admin.delete_acls([those])[those].result()
    return those


@pytest.fixture
def relay(broker: Broker, admin: AdminClient, tmp_path: Path) -> Iterator[Relay]:
    options = RelayOptions(broker.bootstrap, "later", tmp_path, "later", 1, settings=CAROL)
    made = Relay(options, ManualClock())
    yield made
    made.close()


def look(relay: Relay) -> None:
    """The next look at the group is over."""
    relay._clock.advance_s(group.LOOK_NS / 1e9)  # type: ignore[attr-defined]
    relay.step(0)
    step_until(lambda: not relay._watcher.is_waiting, relay)


def test_with_the_rights_that_the_document_names_a_relay_delivers_and_looks_after_its_group(
    broker: Broker, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    relay.step(0)
    with Delays(broker.bootstrap, "later", settings=CAROL) as delays:
        delays.send("later.to", "hello", at=relay._clock.wall_ms(), id="x")
        step_until(lambda: relay._counts.delivered == 1, relay)
    look(relay)
    look(relay)
    assert not caplog.records
    document = (ROOT / "docs" / "relay.md").read_text()
    for kind, _, operation in RIGHTS:
        assert f"{operation.name.title().replace('_', '')}" in document, (kind, operation)


def test_where_the_right_to_describe_the_group_is_taken_away_it_is_said_once(
    admin: AdminClient, relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    step_until(lambda: relay.owners, relay)
    deny, literal = AclPermissionType.DENY, ResourcePatternType.LITERAL
    denied = AclBinding(Kind.GROUP, "later", literal, "User:carol", "*", Op.DESCRIBE, deny)
    admin.create_acls([denied])[denied].result()
    step_until(lambda: look(relay) or caplog.records, relay)
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.message.startswith(
        "Kafka does not describe the group later (Broker: Group authorization failed). Should it"
    )
    assert told.message.endswith("The relay's user needs the right Describe of that group.")
    for _ in range(3):
        look(relay)
    assert len(caplog.records) == 1
    anyone = AclBindingFilter(Kind.GROUP, "later", literal, "User:carol", "*", Op.DESCRIBE, deny)
    admin.delete_acls([anyone])[anyone].result()
    step_until(lambda: look(relay) or relay._unassigned.may_look, relay)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", [Kind.GROUP, Kind.TRANSACTIONAL_ID], ids=["group", "transactional id"])
def test_without_the_right_to_its_group_or_its_transactions_a_relay_ends_with_a_sentence(
    kind: Kind, admin: AdminClient, broker: Broker, tmp_path: Path
) -> None:
    """It tried for ever, and said "Trying again"."""
    taken_away(admin, kind)
    relay = Relay(RelayOptions(broker.bootstrap, "later", tmp_path, "later", 1, settings=CAROL), ManualClock())
    told = r"Kafka refuses .*(?i:authorization.failed).* Look at --kafka-config and the rights"
    with closing(relay), pytest.raises(UsageError, match=told):
        step_until(lambda: False, relay)
