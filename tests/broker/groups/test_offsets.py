"""Offsets: who may commit which, what is fetched, what is deleted, and when they are too old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.groups.clients import (
    COMMIT,
    FETCH,
    REMOVE,
    Client,
    Turned,
    people,
    stable_group,
)
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.wire.errors import Error

MINUTE_MS = 60_000


@pytest.fixture
def served() -> Iterator[Turned]:
    with Turned({"offsets.retention.minutes": "60"}) as turned:
        yield turned


@pytest.fixture
def client(served: Turned) -> Iterator[Client]:
    client = Client(served)
    client.create_topic("t", 2)
    yield client
    client.close()


def remove(client: Client, group: str, topic: str = "t", partition: int = 0) -> Any:
    return client.ask(
        REMOVE, 0, group_id=group, topics=[{"name": topic, "partitions": [{"partition_index": partition}]}]
    )


def removed(client: Client, group: str, **place: Any) -> int:
    return int(remove(client, group, **place).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(1, 8))
def test_every_version_of_one_group_fetches(client: Client, version: int) -> None:
    client.commit("g", 7)
    asked = [{"name": "t", "partition_indexes": [0, 1]}]
    answer = client.ask(FETCH, version, group_id="g", topics=asked, require_stable=False)
    assert [row.committed_offset for row in answer.topics[0].partitions] == [7, -1]
    if version >= 2:
        everything = client.ask(FETCH, version, group_id="g", topics=None, require_stable=False)
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in everything.topics] == [("t", [0])]


def test_topics_are_named_by_id_from_version_10_on(client: Client) -> None:
    topic_id = client.topic_id("t")
    assert client.commit("g", 7, version=10, topic_id=topic_id) == Error.NONE
    assert client.commit("g", 7, version=10, topic_id=uuid4()) == Error.UNKNOWN_TOPIC_ID
    asked = [{"topic_id": one, "partition_indexes": [0]} for one in (topic_id, uuid4())]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1}
    named = client.ask(FETCH, 10, groups=[{**group, "topics": asked}], require_stable=False).groups[0]
    rows = [(t.partitions[0].committed_offset, t.partitions[0].error_code) for t in named.topics]
    assert rows == [(7, 0), (-1, Error.UNKNOWN_TOPIC_ID)]
    everything = client.ask(FETCH, 10, groups=[{**group, "topics": None}], require_stable=False).groups[0]
    assert [(t.topic_id, t.partitions[0].committed_offset) for t in everything.topics] == [(topic_id, 7)]


def test_what_is_not_there_cannot_be_committed_for(client: Client) -> None:
    assert client.commit("g", 7, topic="other") == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit("g", 7, partition=2) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert client.listed() == []


def test_one_bad_partition_does_not_spoil_the_others(client: Client) -> None:
    rows = [
        {"partition_index": n, "committed_offset": n, "committed_leader_epoch": -1, "committed_metadata": text}
        for n, text in ((0, "x" * 4097), (1, "x" * 4096), (5, ""))
    ]
    answer = client.ask(
        COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": "t", "partitions": rows}],
    )  # fmt: skip
    errors = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    assert errors == {0: Error.OFFSET_METADATA_TOO_LARGE, 1: Error.NONE, 5: Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert (client.fetched("g").committed_offset, client.fetched("g", partition=1).committed_offset) == (-1, 1)


@pytest.mark.parametrize(("version", "error"), [(8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_is_not_there_is_refused(client: Client, version: int, error: Error) -> None:
    assert client.commit("g", 7, member="ann", generation=1, version=version) == error


def test_only_a_member_of_this_generation_commits_for_a_group_in_use(served: Turned, client: Client) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann)
        assert client.commit("g", 1) == Error.UNKNOWN_MEMBER_ID
        assert client.commit("g", 1, member="made up", generation=1) == Error.UNKNOWN_MEMBER_ID
        assert client.commit("g", 1, instance="made up") == Error.UNKNOWN_MEMBER_ID
        assert ann.commits(1, generation=0) == Error.ILLEGAL_GENERATION
        assert ann.commits(1, generation=-1) == Error.ILLEGAL_GENERATION
        assert ann.commits(1) == Error.NONE


def test_a_member_may_commit_while_others_join_but_not_before_it_has_its_share(served: Turned, client: Client) -> None:
    with people(served, "ann", "bob") as (ann, bob):
        stable_group(ann)
        bob.comes()
        served.settle()
        assert ann.commits(1) == Error.NONE
        ann.takes(ann.joins())
        assert ann.commits(2) == Error.REBALANCE_IN_PROGRESS


def test_anybody_may_commit_for_an_empty_group(served: Turned, client: Client) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann)
        ann.leaves()
        assert client.commit("g", 5) == Error.NONE
        assert ann.commits(5) == Error.UNKNOWN_MEMBER_ID


def test_transactions_commit_with_less(served: Turned) -> None:
    """TxnOffsetCommit's older versions name no member, and a rebalance does not matter to it."""
    with people(served, "ann") as (ann,):
        ann.takes(ann.comes())

        def check(member: str, generation: int, transactional: bool) -> Error:
            coordinator = served.broker.inside.groups
            return served.broker.call(lambda: coordinator.check_commit("g", member, None, generation, transactional))

        assert check("", -1, True) == Error.NONE
        assert check("", -1, False) == Error.UNKNOWN_MEMBER_ID
        assert check(ann.member, 1, True) == Error.NONE
        assert check(ann.member, 1, False) == Error.REBALANCE_IN_PROGRESS
        assert check(ann.member, 2, True) == Error.ILLEGAL_GENERATION
        assert check("made up", 1, True) == Error.UNKNOWN_MEMBER_ID


def test_offsets_are_deleted_unless_the_topic_is_subscribed_to(served: Turned, client: Client) -> None:
    client.create_topic("other")
    said = {"range": bytes.fromhex("0000 00000001 0001 74 ffffffff")}  # subscribes to the topic "t"
    with people(served, "ann") as (ann,):
        stable_group(ann, protocols=said)
        ann.commits(5)
        ann.commits(6, topic="other")
        assert removed(client, "g") == Error.GROUP_SUBSCRIBED_TO_TOPIC
        assert removed(client, "g", topic="other") == Error.NONE
        assert client.fetched("g", "other").committed_offset == -1
        ann.leaves()
        assert removed(client, "g") == Error.NONE
        assert client.fetched("g").committed_offset == -1
        assert removed(client, "g", partition=7) == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_of_a_group_of_another_kind_stay_while_it_is_in_use(served: Turned, client: Client) -> None:
    with people(served, "ann") as (ann,):
        stable_group(ann, kind="connect")
        assert remove(client, "g").error_code == Error.NON_EMPTY_GROUP
        assert remove(client, "nobody").error_code == Error.GROUP_ID_NOT_FOUND


def test_what_is_written_for_a_topic_that_is_gone_cannot_be_named_by_id(served: Turned, client: Client) -> None:
    """A transaction may end after its topic."""
    written = {("gone", 0): CommittedOffset(9, -1, "", 0), ("t", 0): CommittedOffset(8, -1, "", 0)}
    served.broker.call(lambda: served.broker.inside.groups.offsets.apply("g", written))
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
    found = client.ask(FETCH, 10, groups=[group], require_stable=False).groups[0]
    assert [topic.partitions[0].committed_offset for topic in found.topics] == [8]


class TestRetention:
    """An hour here, looked at every ten minutes."""

    def test_counts_from_the_commit_in_a_simple_group(self, served: Turned, client: Client) -> None:
        client.commit("g", 5)
        served.advance_ms(30 * MINUTE_MS)
        client.commit("g", 6, partition=1)
        served.advance_ms(29 * MINUTE_MS)
        assert client.fetched("g").committed_offset == 5
        served.advance_ms(1 * MINUTE_MS)
        assert (client.fetched("g").committed_offset, client.fetched("g", partition=1).committed_offset) == (-1, 6)
        served.advance_ms(30 * MINUTE_MS)
        assert client.listed() == []

    def test_counts_from_when_the_group_became_empty(self, served: Turned, client: Client) -> None:
        with people(served, "ann") as (ann,):
            stable_group(ann, session=600_000)
            ann.commits(5)
            for _ in range(12):
                served.advance_ms(9 * MINUTE_MS)
                assert ann.beats() == Error.NONE
            assert client.fetched("g").committed_offset == 5
            ann.leaves()
            served.advance_ms(59 * MINUTE_MS)
            assert client.fetched("g").committed_offset == 5
            served.advance_ms(10 * MINUTE_MS)
            assert client.fetched("g").committed_offset == -1

    def test_takes_from_a_group_in_use_only_what_it_no_longer_subscribes_to(
        self, served: Turned, client: Client
    ) -> None:
        client.create_topic("other")
        said = {"range": bytes.fromhex("0000 00000001 0001 74 ffffffff")}
        with people(served, "ann") as (ann,):
            stable_group(ann, protocols=said, session=1_800_000)
            ann.commits(5)
            ann.commits(6, topic="other")
            for _ in range(3):
                served.advance_ms(25 * MINUTE_MS)
                ann.beats()
            assert client.fetched("g").committed_offset == 5
            assert client.fetched("g", "other").committed_offset == -1

    def test_is_what_an_old_client_says(self, served: Turned, client: Client) -> None:
        client.commit("g", 5, version=4, retention=5 * MINUTE_MS)
        served.advance_ms(10 * MINUTE_MS)
        assert client.fetched("g").committed_offset == -1

    def test_spares_what_a_transaction_is_about_to_write(self, served: Turned, client: Client) -> None:
        client.commit("g", 5)
        offsets = served.broker.inside.groups.offsets
        served.broker.call(lambda: offsets.hold("g", 1000, {("t", 0): CommittedOffset(9, -1, "", 0)}))
        served.advance_ms(120 * MINUTE_MS)
        assert client.fetched("g").committed_offset == 5
