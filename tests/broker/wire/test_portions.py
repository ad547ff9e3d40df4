"""Answers that are written in slices are, to the byte, what they would be in one piece."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.net import turns
from waterclock.broker.net.turns import MANY as MANY_STEPS
from waterclock.broker.net.turns import LongAnswer
from waterclock.broker.wire import answers

TOPICS = answers.MANY + 20
LIMIT = timedelta(seconds=20)


def both(broker: Broker, api: str, version: int, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> list[bytes]:
    """The answer in slices, and in one piece."""
    found = []
    for many in (0, 10**9):
        monkeypatch.setattr(answers, "MANY", many)
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


def committed(wire: Wire, group: str, *topics: dict[str, Any]) -> None:
    given = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    wire.ask("offset_commit", 8, **given, topics=topics)


def offsets_of(name: str, count: int, offset: int = 5) -> dict[str, Any]:
    rows = [{"partition_index": n, "committed_offset": offset + n, "committed_metadata": ""} for n in range(count)]
    return {"name": name, "partitions": rows}


@pytest.fixture(params=[0, answers.FEW])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(answers, "FEW", request.param)
    return int(request.param)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A topic `a` of 20 partitions, one `b` of 2, and offsets of the groups `g` and `h` for some of both."""
    with Broker() as started:
        started.create_topic("a", 20)
        started.create_topic("b", 2)
        with Wire(started.bootstrap) as wire:
            committed(wire, "g", offsets_of("a", 18), offsets_of("b", 2))
            committed(wire, "h", offsets_of("b", 1))
        yield started


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(version: int, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"a": [*range(20), 99], "b": [1, 1], "gone": [0], "none": []}
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in some],
        }
        for name, some in asked.items()
    ]
    for some in (topics, []):
        sliced, whole = both(broker, "list_offsets", version, monkeypatch, replica_id=-1, topics=some)
        assert sliced == whole


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch(version: int, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"a": range(20), "b": [1, 7], "gone": [0], "none": []}
    ids = broker.call(lambda: {topic.name: topic.id for topic in broker.inside.topics})
    named = [
        {"partition_indexes": tuple(some)}
        | ({"name": name} if version < 10 else {"topic_id": ids.get(name, UUID(int=7))})
        for name, some in names.items()
    ]
    for topics in (named, [], None) if version > 1 else (named, []):
        asked: dict[str, Any] = {"group_id": "g", "topics": topics}
        if version >= 8:
            asked = {"groups": [{"group_id": group, "topics": topics} for group in ("g", "h", "nobody")]}
        sliced, whole = both(broker, "offset_fetch", version, monkeypatch, **asked)
        assert sliced == whole


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs(version: int, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(2, "a", None), (2, "gone", None), (2, "b", ("retention.ms",)), (4, "", None), (4, "1", None)]
    fields = ("resource_type", "resource_name", "configuration_keys")
    resources = [dict(zip(fields, one, strict=True)) for one in asked]
    for some in (resources, []):
        sliced, whole = both(broker, "describe_configs", version, monkeypatch, resources=some)
        assert sliced == whole


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch(version: int, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"a": [*range(20), 99], "b": [1], "gone": [0], "none": []}
    topics = [
        {"topic": name, "partitions": [{"partition": n, "current_leader_epoch": -1, "leader_epoch": 0} for n in some]}
        for name, some in asked.items()
    ]
    sliced, whole = both(broker, "offset_for_leader_epoch", version, monkeypatch, replica_id=-1, topics=topics)
    assert sliced == whole


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", [0, 1, 5, 8, 9, 12, 13])
def test_metadata_of_a_topic_with_several_partitions(
    version: int, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topics in ([{"name": "a"}, {"name": "gone"}], None if version else []):
        sliced, whole = both(broker, "metadata", version, monkeypatch, topics=topics)
        assert sliced == whole


VERSIONS = {"list_offsets": 7, "offset_fetch": 8, "describe_configs": 4, "offset_for_leader_epoch": 4, "metadata": 9}
LARGE: dict[str, dict[str, Any]] = {
    "offset_for_leader_epoch": {"topics": [{"topic": "a", "partitions": [{"partition": n} for n in range(2000)]}]},
    "metadata": {"topics": [{"name": "large"}]},
    "list_offsets": {"topics": [{"name": "a", "partitions": [{"partition_index": n} for n in range(2000)]}]},
    "offset_fetch": {"groups": [{"group_id": "g", "topics": [{"name": "a", "partition_indexes": range(2000)}]}]},
    "describe_configs": {"resources": [{"resource_type": 2, "resource_name": f"t{n}"} for n in range(2000)]},
}


@pytest.mark.parametrize("api", LARGE)
def test_an_answer_with_thousands_of_rows_leaves_others_their_turn(
    api: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stood still for 0.2 s over 10,000 partitions, for 4 s over the settings of 10,000 topics."""
    slices: list[None] = []
    slice_of = LongAnswer.slice
    monkeypatch.setattr(LongAnswer, "slice", lambda self: (slices.append(None), slice_of(self))[1])
    with Wire(broker.bootstrap) as wire:
        if api == "metadata":
            broker.create_topic("large", 600)
        wire.ask(api, VERSIONS[api], **LARGE[api])
    assert len(slices) >= (600 if api == "metadata" else 2000) // MANY_STEPS


def test_offsets_that_were_committed_together_are_fetched_together_in_however_many_slices(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit in the middle of the answer would show half of it."""
    monkeypatch.setattr(answers, "MANY", 0)
    offsets = broker.inside.groups.offsets
    changed = {("a", n): CommittedOffset(1000, -1, "", 0) for n in range(18)}
    slice_of, slices = LongAnswer.slice, itertools.count()

    def slice_then_commit(self: LongAnswer) -> bool:
        more = slice_of(self)
        if next(slices) == 0:
            offsets.apply("g", changed)
        return more

    monkeypatch.setattr(turns, "MANY", 3)
    monkeypatch.setattr(LongAnswer, "slice", slice_then_commit)
    with Wire(broker.bootstrap) as wire:
        fetched = wire.ask("offset_fetch", 8, groups=[{"group_id": "g", "topics": None}]).groups[0]
    found = {row.partition_index: row.committed_offset for row in fetched.topics[0].partitions}
    assert found == {n: 5 + n for n in range(18)}
    assert next(slices) > 2


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
    monkeypatch.setattr(answers, "MANY", 0)
    with Broker() as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap) as wire:
            for _ in range(50):
                wire.send("metadata", 12, topics=None)
        with Wire(broker.bootstrap) as wire:
            assert len(wire.ask("metadata", 12, topics=None).topics) == 1


def test_requests_behind_one_that_takes_long_are_answered_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MANY", 0)
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
