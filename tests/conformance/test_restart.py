"""What a broker knows after `kill -9` and after a clean stop: everything it acknowledged.

Rule 1: one broker for this file; what must survive is written before, by one fixture, and read by one test each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch, values
from tests.conformance.dialogue import EARLIEST, LATEST, Dialogue
from tests.conformance.groups import committed, offset_of
from tests.conformance.readiness import await_coordinators
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire
from waterclock.bench.servers.server import Server


class Before(NamedTuple):
    """What was told before the end."""

    topic_id: Any
    cluster_id: str
    producer: int
    committed: Transactional
    open: Transactional


@pytest.fixture(scope="module", params=["kill", "stop"])
def brought_back(
    request: pytest.FixtureRequest, start: Callable[[Mapping[str, str]], Server]
) -> Iterator[tuple[Server, Before]]:
    """A broker that was written to, ended, and started again."""
    server = start({})
    with Wire(server.bootstrap) as wire:
        before = write(Dialogue(wire))
    getattr(server, request.param)()
    server.restart()
    await_coordinators(server.bootstrap)
    yield server, before
    server.kill()


def write(dialogue: Dialogue) -> Before:
    wire = dialogue.wire
    dialogue.create_topic("plain", 2, **{"max.message.bytes": 5000})
    dialogue.create_topic("shared", 1)
    for number in range(3):
        dialogue.produce("plain", batch(Record(b"%d" % number, timestamp_ms=LONG_AGO_MS + number)))
    dialogue.create_topic("cut", 1)
    dialogue.produce("cut", batch(b"a", b"b"))
    topics = [{"name": "cut", "partitions": [{"partition_index": 0, "offset": 1}]}]
    wire.ask("delete_records", 2, topics=topics, timeout=5_000)
    producer = dialogue.init_producer(None).producer_id
    dialogue.produce("plain", batch(b"once").but(producer_id=producer, producer_epoch=0, sequence=0), partition=1)
    assert committed(wire, "plain", 2, group_id="kept") == "none"
    first, second = Transactional(dialogue, "first"), Transactional(dialogue, "second")
    first.put("shared", b"committed")
    first.offer("kept", "shared", 5)
    first.commit()
    until(lambda: first.described().transaction_state == "CompleteCommit")
    second.put("shared", b"open")
    cluster = wire.ask("metadata", 12, topics=[]).cluster_id
    return Before(dialogue.topic_id("plain"), cluster, producer, first, second)


@pytest.fixture
def ended(request: pytest.FixtureRequest, brought_back: object) -> str:
    """How the broker ended: `kill` or `stop`."""
    return str(request.node.callspec.params["brought_back"])


@pytest.fixture
def before(brought_back: tuple[Server, Before]) -> Before:
    return brought_back[1]


@pytest.fixture
def after(brought_back: tuple[Server, Before]) -> Iterator[Dialogue]:
    """A connection to the broker that came back."""
    server, answer = brought_back
    with Wire(server.bootstrap) as wire:
        dialogue = Dialogue(wire)
        answer.committed.dialogue = answer.open.dialogue = dialogue
        yield dialogue


def test_records_are_there(after: Dialogue) -> None:
    assert values(after.read("plain")) == [b"0", b"1", b"2"]


def test_an_append_goes_on_where_the_log_ended(after: Dialogue) -> None:
    assert after.produce("cut", batch(b"next")).base_offset == 2


def test_the_first_offset_is_where_records_were_deleted(after: Dialogue, ended: str) -> None:
    # Apache Kafka writes first offsets down once a minute: a crash brings deleted records back.
    assert after.offset("cut", EARLIEST).offset in ({0, 1} if ended == "kill" else {1})


def test_times_are_found(after: Dialogue) -> None:
    assert after.offset("plain", LONG_AGO_MS + 1).offset == 1


def test_the_topic_keeps_id_and_settings(after: Dialogue, before: Before) -> None:
    assert after.topic_id("plain") == before.topic_id
    asked = {"resource_type": 2, "resource_name": "plain", "configuration_keys": ["max.message.bytes"]}
    assert after.wire.ask("describe_configs", 4, resources=[asked]).results[0].configs[0].value == "5000"


def test_the_cluster_keeps_its_id(after: Dialogue, before: Before) -> None:
    assert after.wire.ask("metadata", 12, topics=[]).cluster_id == before.cluster_id


def test_a_group_keeps_its_offsets(after: Dialogue) -> None:
    assert [offset_of(after.wire, "kept", topic).committed_offset for topic in ("plain", "shared")] == [2, 5]


def test_a_duplicate_is_still_known(after: Dialogue, before: Before) -> None:
    again = batch(b"once").but(producer_id=before.producer, producer_epoch=0, sequence=0)
    assert after.produce("plain", again, partition=1).base_offset == 0
    assert after.offset("plain", LATEST, partition=1).offset == 1


def test_a_new_producer_gets_an_id_that_was_never_given(after: Dialogue, before: Before) -> None:
    assert after.init_producer(None).producer_id > max(before.producer, before.committed.id, before.open.id)


def test_a_committed_transaction_is_readable_and_the_open_one_is_hidden(after: Dialogue, before: Before) -> None:
    assert values(after.read("shared", isolation_level=1))[:1] == [b"committed"]
    assert after.fetch("shared").partition.last_stable_offset >= 2


def test_an_open_transaction_may_be_committed(after: Dialogue, before: Before) -> None:
    assert before.open.described().transaction_state == "Ongoing"
    before.open.commit()
    until(lambda: after.fetch("shared").partition.last_stable_offset == 4)
    assert values(after.read("shared", isolation_level=1)) == [b"committed", b"open"]


def test_the_transactional_id_keeps_its_producer_and_fences_as_before(after: Dialogue, before: Before) -> None:
    answer = after.init_producer("first")
    assert (answer.producer_id, answer.producer_epoch) == (before.committed.id, before.committed.epoch + 1)


def test_the_leader_epoch_is_never_lower(after: Dialogue) -> None:
    # Apache Kafka raises it after a crash, since the controller elected again.
    assert after.metadata("plain").partitions[0].leader_epoch >= 0
    epoch = after.metadata("plain").partitions[0].leader_epoch
    wanted = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    answer = after.wire.ask(
        "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": "plain", "partitions": wanted}]
    )
    assert answer.topics[0].partitions[0].end_offset == 3
    if epoch > 0:
        assert after.fetch("plain", leader_epoch=0).partition.error_code.name == "fenced_leader_epoch"
