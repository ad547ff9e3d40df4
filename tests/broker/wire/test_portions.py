"""Answers that are written in slices are, to the byte, what they would be in one piece."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.broker.wire import portions

TOPICS = portions.MANY + 20
LIMIT = timedelta(seconds=20)


def both(broker: Broker, api: str, version: int, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> list[bytes]:
    """The answer in slices, and in one piece."""
    found = []
    for many in (0, 10**9):
        monkeypatch.setattr(portions, "MANY", many)
        with Wire(broker.bootstrap) as wire:
            wire.send(api, version, **fields)
            found.append(wire.receive_frame())
    return found


@pytest.mark.parametrize("version", range(14))
def test_metadata(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [{"name": f"t{n}"} for n in range(3)] + [{"name": "not there"}]
    with Broker() as broker:
        for n in range(3):
            broker.create_topic(f"t{n}", 2)
        for topics in (names, None if version else []):
            sliced, whole = both(broker, "metadata", version, monkeypatch, topics=topics)
            assert sliced == whole


@pytest.mark.parametrize("version", range(6))
def test_list_groups(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        assert (
            both(broker, "list_groups", version, monkeypatch)[0] == both(broker, "list_groups", version, monkeypatch)[1]
        )
        broker.create_topic("t")
        for n in range(200):
            rows = [
                {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
            ]
            client.ask("OffsetCommit", 5, group_id=f"g{n}", generation_id_or_member_epoch=-1, member_id="", topics=rows)
        sliced, whole = both(broker, "list_groups", version, monkeypatch)
        assert sliced == whole
        assert len(whole) > 200 * 4


@pytest.mark.parametrize("version", [2, 5, 7])
def test_create_grow_and_delete_topics(version: int) -> None:
    topics = [
        {"name": f"t{n}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for n in range(TOPICS)
    ]
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        answer = client.ask("CreateTopics", version, topics=topics, timeout=LIMIT, validate_only=False)
        assert [(row.name, row.error_code.value) for row in answer.topics] == [(f"t{n}", 0) for n in range(TOPICS)]
        rows = [{"name": f"t{n}", "count": 2, "assignments": None} for n in range(TOPICS)]
        answer = client.ask("CreatePartitions", 3, topics=rows, timeout=LIMIT, validate_only=False)
        assert [row.error_code.value for row in answer.results] == [0] * TOPICS
        answer = client.ask("DeleteTopics", 5, topic_names=[f"t{n}" for n in range(TOPICS)], timeout=LIMIT)
        assert [row.error_code.value for row in answer.responses] == [0] * TOPICS
        assert broker.call(lambda: list(broker.inside.topics.by_name)) == []


def test_a_client_that_goes_in_the_middle_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "MANY", 0)
    with Broker() as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap) as wire:
            for _ in range(50):
                wire.send("metadata", 12, topics=None)
        with Wire(broker.bootstrap) as wire:
            assert len(wire.ask("metadata", 12, topics=None).topics) == 1


def test_requests_behind_one_that_takes_long_are_answered_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "MANY", 0)
    with Broker() as broker:
        for n in range(100):
            broker.create_topic(f"t{n}")
        with Wire(broker.bootstrap) as wire:
            for _ in range(10):
                wire.send("metadata", 12, topics=None)
                wire.send("api_versions", 0)
            for _ in range(10):
                assert len(wire.receive("metadata", 12).topics) == 100
                assert wire.receive("api_versions", 0).error_code.value == 0
