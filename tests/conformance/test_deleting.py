"""How records go: deleted by hand, by age, by size, by compaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.batches import Record, batch, now_ms, values
from tests.conformance.dialogue import EARLIEST, LATEST, Dialogue, fetch_fields
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

HOUR_MS = 3_600_000


def deleted(dialogue: Dialogue, topic: str, offset: int, *, partition: int = 0, version: int = 2) -> Any:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    return dialogue.wire.ask("delete_records", version, topics=topics, timeout=5_000).topics[0].partitions[0]


@pytest.fixture
def ten(dialogue: Dialogue, topic: str) -> str:
    """A topic with ten batches of one record."""
    for number in range(10):
        dialogue.produce(topic, batch(b"%d" % number))
    return topic


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_deleted(dialogue: Dialogue, ten: str, version: int) -> None:
    answer = deleted(dialogue, ten, 4, version=version)
    assert (answer.error_code.name, answer.low_watermark) == ("none", 4)
    assert dialogue.offset(ten, EARLIEST).offset == 4
    assert values(dialogue.read(ten, 4)) == [b"%d" % n for n in range(4, 10)]


def test_a_reader_before_the_first_offset_is_out_of_range(dialogue: Dialogue, ten: str) -> None:
    deleted(dialogue, ten, 4)
    answer = dialogue.fetch(ten, 3).partition
    assert (answer.error_code.name, answer.log_start_offset) == ("offset_out_of_range", -1)
    assert dialogue.fetch(ten, 4).partition.log_start_offset == 4


def test_minus_one_deletes_up_to_the_end(dialogue: Dialogue, ten: str) -> None:
    assert deleted(dialogue, ten, -1).low_watermark == 10
    assert [dialogue.offset(ten, at).offset for at in (EARLIEST, LATEST)] == [10, 10]
    assert dialogue.produce(ten, batch(b"new")).base_offset == 10


def test_deleting_what_is_deleted_already_changes_nothing(dialogue: Dialogue, ten: str) -> None:
    deleted(dialogue, ten, 6)
    answer = deleted(dialogue, ten, 2)
    assert (answer.error_code.name, answer.low_watermark) == ("none", 6)


@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_outside_of_the_log_is_refused(dialogue: Dialogue, ten: str, offset: int) -> None:
    answer = deleted(dialogue, ten, offset)
    assert (answer.error_code.name, answer.low_watermark) == ("offset_out_of_range", -1)


def test_records_of_an_unknown_partition_are_not_deleted(dialogue: Dialogue, ten: str, name: str) -> None:
    assert deleted(dialogue, ten, 1, partition=5).error_code.name == "unknown_topic_or_partition"
    assert deleted(dialogue, name, 1).error_code.name == "unknown_topic_or_partition"


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted_by_hand(
    dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    dialogue.produce(topic, batch(Record(b"v", b"k")))
    assert deleted(dialogue, topic, 1).error_code.name == "policy_violation"


def test_an_offset_within_a_batch_may_be_the_first(dialogue: Dialogue, topic: str) -> None:
    # The batch stays whole; the reader drops what lies before.
    dialogue.produce(topic, batch(b"a", b"b", b"c"))
    assert deleted(dialogue, topic, 2).low_watermark == 2
    assert dialogue.offset(topic, EARLIEST).offset == 2
    assert [b.base_offset for b in dialogue.fetch(topic, 2).batches] == [0]


def test_a_time_before_the_first_offset_finds_the_first_that_is_left(dialogue: Dialogue, ten: str) -> None:
    deleted(dialogue, ten, 4)
    assert dialogue.offset(ten, 0).offset == 4


def test_records_above_their_age_go(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    # By the timestamps of the records, not by when they came: a replay of old data vanishes.
    topic = new_topic(**{"retention.ms": HOUR_MS})
    dialogue.produce(topic, batch(Record(b"old", timestamp_ms=now_ms() - 2 * HOUR_MS)))
    until(lambda: dialogue.offset(topic, EARLIEST).offset == 1)
    assert dialogue.produce(topic, batch(b"new")).base_offset == 1
    assert values(dialogue.read(topic, 1)) == [b"new"]


def test_a_young_record_keeps_the_segment_that_it_shares(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic, other = (new_topic(**{"retention.ms": HOUR_MS}) for _ in range(2))
    old = Record(b"old", timestamp_ms=now_ms() - 2 * HOUR_MS)
    dialogue.produce(topic, batch(old, Record(b"young", timestamp_ms=now_ms())))
    dialogue.produce(other, batch(old))
    until(lambda: dialogue.offset(other, EARLIEST).offset == 1)  # retention has passed by
    assert dialogue.offset(topic, EARLIEST).offset == 0


def test_segments_above_the_topics_size_go(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"retention.bytes": 2_000_000, "segment.bytes": 1_048_576})
    for _ in range(8):
        assert dialogue.produce(topic, batch(b"x" * 600_000)).error_code == 0
    until(lambda: dialogue.offset(topic, EARLIEST).offset > 0)
    assert dialogue.offset(topic, LATEST).offset == 8
    assert 8 - dialogue.offset(topic, EARLIEST).offset >= 3  # never below the size itself


def test_a_waiting_reader_of_deleted_records_is_told_at_its_next_request(
    dialogue: Dialogue, bootstrap: str, ten: str
) -> None:
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **fetch_fields(ten, 10, max_wait=200))
        deleted(dialogue, ten, 10)
        assert reader.receive("fetch", 12).responses[0].partitions[0].error_code.name == "none"


@pytest.fixture
def compacted(new_topic: Callable[..., str]) -> str:
    """A topic that is compacted as soon as may be."""
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": 100}
    return new_topic(**policy, **{"delete.retention.ms": 100})


def pushed(dialogue: Dialogue, topic: str) -> None:
    """A record whose time begins a new segment: the one that is written to is never compacted."""
    dialogue.produce(topic, batch(Record(b"push", b"push", timestamp_ms=now_ms() + 1000)))


def read_keys(dialogue: Dialogue, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    records = [r for b in dialogue.read(topic) if not b.is_control for r in b.decoded()]
    return [(r.key, r.value) for r in records if r.key != b"push"]


def test_compaction_keeps_the_last_value_of_each_key(dialogue: Dialogue, compacted: str) -> None:
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3")):
        dialogue.produce(compacted, batch(Record(value, key)))
    pushed(dialogue, compacted)
    until(lambda: pushed(dialogue, compacted) or read_keys(dialogue, compacted) == [(b"b", b"1"), (b"a", b"3")])


def test_compaction_keeps_offsets(dialogue: Dialogue, compacted: str) -> None:
    for value in (b"1", b"2", b"3"):
        dialogue.produce(compacted, batch(Record(value, b"a")))
    until(lambda: pushed(dialogue, compacted) or len(read_keys(dialogue, compacted)) == 1)
    (last,) = [r for b in dialogue.read(compacted) for r in b.decoded() if r.key == b"a"]
    assert last.offset == 2
    assert dialogue.offset(compacted, EARLIEST).offset == 0
    # a reader at a gap gets the next record there is
    assert dialogue.fetch(compacted, 1).batches[0].decoded()[0].offset == 2


def test_compaction_takes_a_key_out_whose_last_value_is_null(dialogue: Dialogue, compacted: str) -> None:
    dialogue.produce(compacted, batch(Record(b"1", b"a"), Record(b"1", b"b")))
    dialogue.produce(compacted, batch(Record(None, b"a")))
    until(lambda: pushed(dialogue, compacted) or read_keys(dialogue, compacted) == [(b"b", b"1")])


def test_compaction_within_a_batch_keeps_its_offsets(dialogue: Dialogue, compacted: str) -> None:
    dialogue.produce(compacted, batch(*(Record(b"%d" % n, key) for n, key in enumerate((b"a", b"b", b"a")))))
    until(lambda: pushed(dialogue, compacted) or read_keys(dialogue, compacted) == [(b"b", b"1"), (b"a", b"2")])
    kept = next(b for b in dialogue.read(compacted) if b.decoded()[0].key == b"b")
    assert [r.offset for r in kept.decoded()] == [1, 2]
    assert (kept.base_offset, kept.count) == (0, 2)  # the base stays, the count does not


def test_compaction_leaves_aborted_records_out(dialogue: Dialogue, compacted: str, name: str) -> None:
    dialogue.produce(compacted, batch(Record(b"1", b"a")))
    producer = Transactional(dialogue, name)
    producer.add(compacted)
    sent = producer.batch(compacted, b"x")
    gone = batch(Record(b"2", b"a"))
    sent = sent.but(records=gone.records)
    fields = {"acks": -1, "timeout": 5_000, "transactional_id": name}
    part = [{"name": compacted, "partition_data": [{"index": 0, "records": sent.encode()}]}]
    dialogue.wire.ask("produce", 11, topic_data=part, **fields)
    producer.abort()
    until(lambda: pushed(dialogue, compacted) or read_keys(dialogue, compacted) == [(b"a", b"1")])
