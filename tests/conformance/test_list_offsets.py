"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, and what stands at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch
from tests.conformance.dialogue import EARLIEST, LATEST, MAX_TIMESTAMP, Dialogue

EARLIEST_LOCAL, LATEST_TIERED = -4, -5


@pytest.fixture
def dated(dialogue: Dialogue, topic: str) -> str:
    """Offsets 0-1 at 10 and 20 ms, 2-3 at 30 and 25, 4 at 40 (behind LONG_AGO_MS)."""
    for times in ((10, 20), (30, 25), (40,)):
        dialogue.produce(topic, batch(*(Record(b"v", timestamp_ms=LONG_AGO_MS + t) for t in times)))
    return topic


@pytest.mark.parametrize("version", range(1, 11))
def test_first_and_last_offsets_in_every_version(dialogue: Dialogue, dated: str, version: int) -> None:
    assert [dialogue.offset(dated, at, version=version).offset for at in (EARLIEST, LATEST)] == [0, 5]


def test_the_offsets_of_an_empty_log_are_zero(dialogue: Dialogue, topic: str) -> None:
    assert [dialogue.offset(topic, at).offset for at in (EARLIEST, LATEST)] == [0, 0]


def test_first_and_last_offsets_carry_no_timestamp(dialogue: Dialogue, dated: str) -> None:
    assert [dialogue.offset(dated, at).timestamp for at in (EARLIEST, LATEST)] == [-1, -1]


@pytest.mark.parametrize(
    ("at", "offset", "timestamp"),
    [(0, 0, 10), (10, 0, 10), (11, 1, 20), (21, 2, 30), (26, 2, 30), (31, 4, 40), (40, 4, 40)],
)
def test_a_time_is_the_first_record_at_or_behind_it(
    dialogue: Dialogue, dated: str, at: int, offset: int, timestamp: int
) -> None:
    # To the record, not to the batch; where times go back, the first in order of offsets.
    reply = dialogue.offset(dated, LONG_AGO_MS + at)
    assert (reply.offset, reply.timestamp) == (offset, LONG_AGO_MS + timestamp)


def test_a_time_behind_the_last_record_is_no_offset(dialogue: Dialogue, dated: str) -> None:
    reply = dialogue.offset(dated, LONG_AGO_MS + 41)
    assert (reply.error_code.name, reply.offset, reply.timestamp) == ("none", -1, -1)


@pytest.mark.parametrize("at", [LONG_AGO_MS, MAX_TIMESTAMP])
def test_a_time_in_an_empty_log_is_no_offset(dialogue: Dialogue, topic: str, at: int) -> None:
    reply = dialogue.offset(topic, at)
    assert (reply.error_code.name, reply.offset, reply.timestamp) == ("none", -1, -1)


def test_the_leader_epoch_stands_beside_the_offset(dialogue: Dialogue, dated: str) -> None:
    assert [dialogue.offset(dated, at).leader_epoch for at in (EARLIEST, LATEST, LONG_AGO_MS)] == [0, 0, 0]


def test_the_record_of_the_highest_timestamp(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(*(Record(b"v", timestamp_ms=LONG_AGO_MS + t) for t in (5, 90, 7))))
    dialogue.produce(topic, batch(Record(b"v", timestamp_ms=LONG_AGO_MS + 50)))
    reply = dialogue.offset(topic, MAX_TIMESTAMP)
    assert (reply.offset, reply.timestamp) == (1, LONG_AGO_MS + 90)


def test_the_first_of_two_records_with_the_highest_timestamp(dialogue: Dialogue, topic: str) -> None:
    for _ in range(2):
        dialogue.produce(topic, batch(Record(b"v", timestamp_ms=LONG_AGO_MS)))
    assert dialogue.offset(topic, MAX_TIMESTAMP).offset == 0


def test_the_first_local_offset_is_the_first_where_nothing_is_elsewhere(dialogue: Dialogue, dated: str) -> None:
    assert dialogue.offset(dated, EARLIEST_LOCAL).offset == 0


def test_the_last_offset_elsewhere_is_none_where_nothing_is_elsewhere(dialogue: Dialogue, dated: str) -> None:
    reply = dialogue.offset(dated, LATEST_TIERED)
    assert (reply.error_code.name, reply.offset) == ("none", -1)


@pytest.mark.parametrize(
    ("at", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-6, 10), (-7, 11)]
)
def test_a_special_time_before_its_version_is_refused(dialogue: Dialogue, dated: str, at: int, version: int) -> None:
    assert dialogue.offset(dated, at, version=version).error_code.name == "unsupported_version"


def test_an_unknown_topic_has_no_offsets(dialogue: Dialogue, name: str) -> None:
    reply = dialogue.offset(name, LATEST)
    assert (reply.error_code.name, reply.offset) == ("unknown_topic_or_partition", -1)


def test_an_unknown_partition_has_no_offsets(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.offset(topic, LATEST, partition=8).error_code.name == "unknown_topic_or_partition"


def test_one_partition_asked_twice_in_a_request_is_invalid(dialogue: Dialogue, topic: str) -> None:
    twice = [{"partition_index": 0, "timestamp": at, "current_leader_epoch": -1} for at in (EARLIEST, LATEST)]
    answer = dialogue.wire.ask("list_offsets", 6, replica_id=-1, topics=[{"name": topic, "partitions": twice}])
    assert {p.error_code.name for p in answer.topics[0].partitions} == {"invalid_request"}


def test_a_later_leader_epoch_is_unknown(dialogue: Dialogue, topic: str) -> None:
    wanted = [{"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": 9}]
    answer = dialogue.wire.ask("list_offsets", 6, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
    assert answer.topics[0].partitions[0].error_code.name == "unknown_leader_epoch"


def end_of_epoch(dialogue: Dialogue, topic: str, epoch: int, current: int = -1, version: int = 4) -> Any:
    wanted = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]
    topics = [{"topic": topic, "partitions": wanted}]
    answer = dialogue.wire.ask("offset_for_leader_epoch", version, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_current_epoch_ends_where_the_log_ends(dialogue: Dialogue, dated: str, version: int) -> None:
    reply = end_of_epoch(dialogue, dated, 0, version=version)
    assert (reply.error_code.name, reply.leader_epoch, reply.end_offset) == ("none", 0, 5)


@pytest.mark.parametrize("epoch", [7, -1])
def test_an_epoch_that_was_not_yet_or_is_undefined_has_no_end(dialogue: Dialogue, dated: str, epoch: int) -> None:
    reply = end_of_epoch(dialogue, dated, epoch)
    assert (reply.error_code.name, reply.leader_epoch, reply.end_offset) == ("none", -1, -1)


def test_a_request_with_a_later_epoch_is_answered_that_it_is_unknown(dialogue: Dialogue, dated: str) -> None:
    assert end_of_epoch(dialogue, dated, 0, current=3).error_code.name == "unknown_leader_epoch"


def test_the_epoch_of_an_unknown_topic_is_an_error(dialogue: Dialogue, name: str) -> None:
    assert end_of_epoch(dialogue, name, 0).error_code.name == "unknown_topic_or_partition"
