"""A topic as the sink where ACLs decide: the rights that the document names are enough, and none of them is too many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Kind

from tests.relay.test_rights import CAROL, SETTINGS, login
from tests.sinks.stores import SCHEMA, batch
from tests.test_readme import ROOT
from waterclock.broker import Access
from waterclock.errors import UsageError
from waterclock.sinks import TopicSink, apply_once
from waterclock.testing import Broker

Op = AclOperation
Right = tuple[Kind, str, AclOperation]
PARTS = ("", "_dead_letters", "_batches")
ON_TOPICS = (Op.WRITE, Op.CREATE, Op.DESCRIBE_CONFIGS)
RIGHTS: list[Right] = [
    *((Kind.TOPIC, f"late{part}", operation) for part in PARTS for operation in ON_TOPICS),
    (Kind.TOPIC, "late_batches", Op.READ),
    (Kind.TRANSACTIONAL_ID, "waterclock-sink-late", Op.WRITE),
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(access=Access(users=("admin:secret", "carol:hers")), settings=SETTINGS) as broker:
        yield broker


def give(broker: Broker, rights: Sequence[Right]) -> None:
    """Carol has these, and no others."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    made = [AclBinding(kind, name, literal, "User:carol", "*", operation, allow) for kind, name, operation in rights]
    admin = AdminClient(login(broker, "admin", "secret"))
    for done in admin.create_acls(made).values():
        done.result()


def run(broker: Broker) -> None:
    """A pipeline's sink: the topics are made, a batch is written; another start sees it and goes on."""
    for number in (0, 1):
        with closing(TopicSink(broker.bootstrap, "late", partitions=1, settings=CAROL)) as sink:
            sink.open(SCHEMA)
            assert apply_once(sink, batch(number)) is True


def test_the_rights_that_the_document_names_are_enough(broker: Broker) -> None:
    give(broker, RIGHTS)
    run(broker)


def test_and_the_document_names_them() -> None:
    (line,) = re.findall(r"- ACLs: .*?\.$", (ROOT / "docs" / "topics.md").read_text(), re.S | re.M)
    for _, _, operation in RIGHTS:
        assert operation.name.title().replace("_", "") in line


@pytest.mark.parametrize("missing", RIGHTS, ids=[f"{name} {operation.name}" for _, name, operation in RIGHTS])
def test_with_one_of_them_missing_it_is_refused_in_words(missing: Right, broker: Broker) -> None:
    """A right to write was taken for a connection that breaks, and so was that to read what was written last."""
    give(broker, [right for right in RIGHTS if right != missing])
    with pytest.raises(UsageError, match=r"(?i)late.*: .*authorization failed") as raised:
        run(broker)
    assert not str(raised.value).endswith("..")
