"""A topic is deleted, and made again: whatever was committed for the first one is not the second one's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.full_disks import full_disk, settle, slow_disk
from tests.broker.groups.clients import COMMIT, DELETE_TOPICS, Client, Turned
from tests.broker.replication.pairs import pair
from tests.broker.transactions import client as transactional
from waterclock.broker.groups.offsets import CommittedOffset

NOTHING = ("NONE", -1)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Turned]:
    with Turned(data=tmp_path) as turned:
        yield turned


@pytest.fixture
def client(served: Turned) -> Iterator[Client]:
    client = Client(served)
    client.create_topic("t")
    yield client
    client.close()


@pytest.fixture
def producer(served: Turned) -> Iterator[transactional.Client]:
    client = transactional.Client(served.bootstrap)
    yield client
    client.close()


def delete(client: Client, name: str = "t") -> None:
    answer = client.ask(DELETE_TOPICS, 5, topic_names=[name], timeout=10_000)
    assert answer.responses[0].error_code == 0


def make_again(client: Client) -> None:
    delete(client)
    client.create_topic("t")


def kept(served: Turned) -> dict[str, Any]:
    """The offsets in the store that belong to a topic that is there."""
    core = served.broker.inside
    there = {topic.id.hex for topic in core.topics}
    return {key: value[0] for key, value in core.store.load("offset").items() if value[5] in there}


def begun(producer: transactional.Client) -> transactional.Id:
    """An open transaction that holds an offset of the group g for the topic t."""
    made = producer.ready("n")
    assert producer.add_offsets("n", made, "g") == "NONE"
    assert producer.commit_offset("n", made, "g", "t", 7) == "NONE"
    return made


# Transactions


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_holds_nothing_for_the_successor(
    client: Client, producer: transactional.Client, commits: bool
) -> None:
    made = begun(producer)
    assert producer.offset("g", "t") == ("UNSTABLE_OFFSET_COMMIT", -1)
    make_again(client)
    assert producer.offset("g", "t") == NOTHING
    assert producer.end("n", made, commits) == "NONE"
    assert producer.offset("g", "t") == NOTHING


def test_a_transaction_that_ends_after_its_topic_leaves_no_offset_for_the_successor(
    client: Client, producer: transactional.Client
) -> None:
    made = begun(producer)
    delete(client)
    assert producer.end("n", made) == "NONE"
    client.create_topic("t")
    assert producer.offset("g", "t") == NOTHING


def test_a_restart_between_deletion_and_end_brings_no_offset_back(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served:
        client, producer = Client(served), transactional.Client(served.bootstrap)
        client.create_topic("t")
        made = begun(producer)
        make_again(client)
        for one in (client, producer):
            one.close()
    with Turned(data=tmp_path) as served:
        producer = transactional.Client(served.bootstrap)
        assert producer.offset("g", "t") == NOTHING
        assert producer.end("n", made) == "NONE"
        assert producer.offset("g", "t") == NOTHING
        assert served.broker.call(lambda: kept(served)) == {}
        producer.close()


def test_offsets_for_other_topics_of_the_same_transaction_are_committed(
    client: Client, producer: transactional.Client
) -> None:
    client.create_topic("other")
    made = begun(producer)
    assert producer.commit_offset("n", made, "g", "other", 5) == "NONE"
    make_again(client)
    assert producer.end("n", made) == "NONE"
    assert (producer.offset("g", "t"), producer.offset("g", "other")) == (NOTHING, ("NONE", 5))


# Commits on their way


def commit_soon(client: Client, offset: int) -> Any:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 0, "committed_metadata": None}
    answer = client.send(
        COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": "t", "partitions": [row]}],
    )  # fmt: skip
    read(client)
    return answer


def read(client: Client) -> None:
    """The broker has read what was sent."""
    for _ in range(2):
        client.served.broker.call(lambda: None)


@pytest.mark.parametrize("deletion", ["behind", "before"])
def test_a_commit_on_its_way_is_not_the_successors(
    served: Turned, client: Client, tmp_path: Path, deletion: str
) -> None:
    """The commit is handed to the store before the deletion, or behind it, while the topic is still there."""
    client.commit("g", 1)
    other = Client(served)
    with slow_disk(served.broker) as go_on:
        if deletion == "behind":
            answer = commit_soon(client, 5)
        gone = other.send(DELETE_TOPICS, 5, topic_names=["t"], timeout=10_000)
        read(other)
        if deletion == "before":
            answer = commit_soon(client, 5)
        go_on.set()
        assert gone.get().responses[0].error_code == 0
        answer.get()
    client.create_topic("t")
    assert client.fetched("g").committed_offset == -1
    assert client.fetched("g", stable=True).committed_offset == -1
    served.broker.close()
    other.close()
    with Turned(data=tmp_path) as again:
        client = Client(again)
        assert client.fetched("g").committed_offset == -1
        assert client.commit("g", 2) == 0
        assert client.fetched("g").committed_offset == 2
        client.close()


# The disk


def test_a_crash_before_the_offsets_went_brings_none_back(served: Turned, client: Client, tmp_path: Path) -> None:
    """The deletion is durable, what it takes along is not any more."""
    client.commit("g", 5)
    store = served.broker.inside.store
    real, count = type(store).commit_group, [0]

    def only_the_first(group: Any) -> bool:
        count[0] += 1
        return count[0] == 1 and bool(real(store, group))

    served.broker.call(lambda: setattr(store, "commit_group", only_the_first))
    delete(client)
    settle(served.broker)
    served.broker.call(lambda: delattr(store, "commit_group"))
    client.create_topic("t")
    assert client.fetched("g").committed_offset == -1
    served.broker.close()
    with Turned(data=tmp_path) as again:
        client = Client(again)
        assert client.fetched("g").committed_offset == -1
        settle(again.broker)
        assert again.broker.call(lambda: again.broker.inside.store.load("offset")) == {}  # and what says nothing goes
        client.close()


def test_a_deletion_that_the_disk_refuses_costs_no_offset(served: Turned, client: Client) -> None:
    client.commit("g", 5)
    with full_disk(served.broker):
        answer = client.ask(DELETE_TOPICS, 5, topic_names=["t"], timeout=10_000)
        assert answer.responses[0].error_code != 0
    assert client.fetched("g").committed_offset == 5


def test_an_offset_of_a_store_that_knew_no_ids_is_kept(tmp_path: Path) -> None:
    with Turned(data=tmp_path) as served:
        client = Client(served)
        client.create_topic("t")
        old = list(CommittedOffset(9, -1, "", 0))[:5]
        for topic in ("t", "gone"):
            served.broker.call(partial(served.broker.inside.store.put, "offset", f"g:{topic}:0", old))
        settle(served.broker)
        client.close()
    with Turned(data=tmp_path) as served:
        client = Client(served)
        assert client.fetched("g").committed_offset == 9
        assert client.fetched("g", "gone").committed_offset == -1
        client.close()


def test_a_promoted_follower_knows_no_offsets_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        client = transactional.Client(both.one.bootstrap)
        begun(client)
        answer = client.ask(DELETE_TOPICS, 5, topic_names=("t",), timeout=10_000)
        assert answer.responses[0].error_code.name == "none"
        client.create("t")
        client.close()
        both.synced()
        both.two.promote()
        client = transactional.Client(both.two.bootstrap)
        assert client.offset("g", "t") == NOTHING
        client.close()
