"""Produce: what an append answers, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.batches import CONTROL, LOG_APPEND_TIME, TODAY_MS, TRANSACTIONAL, Record, batch, now_ms, values
from tests.conformance.dialogue import Dialogue, produce_fields
from tests.conformance.wire import Closed, Wire

HOUR_MS = 3_600_000


def test_offsets_start_at_zero_and_count_records(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a", b"b", b"c")).base_offset == 0
    assert dialogue.produce(topic, batch(b"d")).base_offset == 3


@pytest.mark.parametrize("version", range(3, 13))
def test_an_append_is_answered_in_every_version_that_names_topics(dialogue: Dialogue, topic: str, version: int) -> None:
    answer = dialogue.produce(topic, batch(b"a"), version=version)
    assert (answer.index, answer.error_code.name, answer.base_offset) == (0, "none", 0)
    assert values(dialogue.read(topic)) == [b"a"]


def test_the_newest_version_names_topics_by_id(dialogue: Dialogue, topic: str) -> None:
    part = [{"index": 0, "records": batch(b"a").encode()}]
    topics = [{"topic_id": dialogue.topic_id(topic), "partition_data": part}]
    answer = dialogue.wire.ask("produce", 13, acks=-1, timeout=1000, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert values(dialogue.read(topic)) == [b"a"]


def test_an_id_nobody_has_is_an_unknown_topic_id(dialogue: Dialogue, topic: str) -> None:
    wrong = dialogue.topic_id(topic).int ^ 1
    part = [{"index": 0, "records": batch(b"a").encode()}]
    topics = [{"topic_id": type(dialogue.topic_id(topic))(int=wrong), "partition_data": part}]
    answer = dialogue.wire.ask("produce", 13, acks=-1, timeout=1000, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code.name == "unknown_topic_id"


@pytest.mark.parametrize("acks", [1, -1])
def test_one_and_all_acknowledgements_answer_after_the_append(dialogue: Dialogue, topic: str, acks: int) -> None:
    assert dialogue.produce(topic, batch(b"a"), acks=acks).base_offset == 0


def test_no_acknowledgement_is_no_answer(dialogue: Dialogue, wire: Wire, topic: str) -> None:
    wire.send_frame(wire.encoded("produce", 11, **produce_fields(topic, batch(b"a"), acks=0)))
    # the next answer on this connection is the next request's
    assert dialogue.produce(topic, batch(b"b")).base_offset == 1


def test_an_error_without_acknowledgement_closes_the_connection(wire: Wire, topic: str) -> None:
    # The producer is waiting for nothing; this is how it learns that its metadata are old.
    wire.send_frame(wire.encoded("produce", 11, **produce_fields(topic, batch(b"a"), 9, acks=0)))
    with pytest.raises(Closed):
        wire.receive_frame()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_numbers_of_acknowledgements_are_refused(dialogue: Dialogue, topic: str, acks: int) -> None:
    answer = dialogue.produce(topic, batch(b"a"), acks=acks)
    assert (answer.error_code.name, answer.base_offset) == ("invalid_required_acks", -1)


def test_an_unknown_topic_is_refused_and_not_made(dialogue: Dialogue, name: str) -> None:
    answer = dialogue.produce(name, batch(b"a"))
    assert (answer.error_code.name, answer.base_offset) == ("unknown_topic_or_partition", -1)
    assert dialogue.metadata(name).error_code.name == "unknown_topic_or_partition"


@pytest.mark.parametrize("partition", [1, -1])
def test_an_unknown_partition_is_refused(dialogue: Dialogue, topic: str, partition: int) -> None:
    assert dialogue.produce(topic, batch(b"a"), partition=partition).error_code.name == "unknown_topic_or_partition"


def test_each_partition_has_its_own_result(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    parts = [{"index": i, "records": batch(b"a").encode()} for i in (2, 7, 0)]
    topics = [{"name": topic, "partition_data": parts}]
    answer = dialogue.wire.ask("produce", 11, acks=-1, timeout=1000, topic_data=topics)
    reply = {p.index: p.error_code.name for t in answer.responses for p in t.partition_responses}
    assert reply == {2: "none", 7: "unknown_topic_or_partition", 0: "none"}


def test_two_topics_of_one_request_are_both_answered(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    names = [new_topic(), new_topic()]
    part = [{"index": 0, "records": batch(b"a").encode()}]
    topics = [{"name": name, "partition_data": part} for name in names]
    answer = dialogue.wire.ask("produce", 11, acks=-1, timeout=1000, topic_data=topics)
    assert {t.name: t.partition_responses[0].error_code.name for t in answer.responses} == dict.fromkeys(names, "none")


def test_a_wrong_checksum_is_refused(dialogue: Dialogue, topic: str) -> None:
    data = bytearray(batch(b"abc").encode())
    data[-2] ^= 1
    assert dialogue.produce(topic, bytes(data)).error_code.name == "corrupt_message"
    assert dialogue.read(topic) == []


def test_a_batch_cut_off_is_refused(dialogue: Dialogue, topic: str) -> None:
    # What is left is no whole batch, and a request must hold exactly one.
    data = batch(b"a" * 100).encode()
    assert dialogue.produce(topic, data[:-10]).error_code.name == "invalid_record"


def test_two_batches_for_one_partition_are_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a").encode() + batch(b"b").encode()).error_code.name == "invalid_record"


def test_no_records_at_all_are_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, b"").error_code.name == "invalid_record"


def test_a_batch_without_records_is_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch()).error_code.name == "invalid_record"


@pytest.mark.parametrize(("magic", "error"), [(0, "invalid_record"), (1, "invalid_record"), (3, "corrupt_message")])
def test_other_formats_than_the_second_are_refused(dialogue: Dialogue, topic: str, magic: int, error: str) -> None:
    # 0 and 1 are formats of old that no version of Produce carries any more; 3 is none at all.
    assert dialogue.produce(topic, batch(b"a").but(magic=magic)).error_code.name == error


def test_a_batch_of_markers_is_refused(dialogue: Dialogue, topic: str) -> None:
    # Only the coordinator writes markers.
    sent = batch(Record(b"\0\0\0\0\0\0", b"\0\0\0\1")).but(attributes=CONTROL, producer_id=5, producer_epoch=0)
    assert dialogue.produce(topic, sent).error_code.name == "invalid_record"


def test_a_count_that_is_not_the_records_is_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a", b"b").but(count=3, last_delta=2)).error_code.name == "invalid_record"


def test_a_last_offset_that_does_not_fit_the_count_is_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a", b"b").but(last_delta=7)).error_code.name == "invalid_record"


def test_a_batch_above_the_topics_limit_is_refused(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": 1000})
    assert dialogue.produce(topic, batch(b"a" * 1000)).error_code.name == "message_too_large"
    assert dialogue.produce(topic, batch(b"a" * 900)).error_code.name == "none"


def test_a_batch_of_exactly_the_limit_is_taken(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    size = len(batch(b"a" * 500).encode())
    assert dialogue.produce(new_topic(**{"max.message.bytes": size}), batch(b"a" * 500)).error_code == 0
    assert dialogue.produce(new_topic(**{"max.message.bytes": size - 1}), batch(b"a" * 500)).error_code != 0


def test_the_limit_is_a_mebibyte_and_twelve_bytes_unless_told(dialogue: Dialogue, topic: str) -> None:
    # 1048588: a value of a mebibyte less the batch's own bytes fits; one of a mebibyte does not.
    overhead = len(batch(b"a" * 1_048_000).encode()) - 1_048_000
    assert dialogue.produce(topic, batch(b"a" * (1_048_588 - overhead))).error_code == 0
    assert dialogue.produce(topic, batch(b"a" * (1_048_589 - overhead))).error_code.name == "message_too_large"


def test_a_timestamp_more_than_an_hour_ahead_is_refused(dialogue: Dialogue, topic: str) -> None:
    sent = batch(b"ok", Record(b"early", timestamp_ms=now_ms() + HOUR_MS + 60_000))
    answer = dialogue.produce(topic, sent.but(first_ms=TODAY_MS))
    assert answer.error_code.name == "invalid_timestamp"
    assert [e.batch_index for e in answer.record_errors] == [1]
    assert "timestamp" in answer.error_message


def test_a_timestamp_less_than_an_hour_ahead_is_taken(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(Record(b"a", timestamp_ms=now_ms() + HOUR_MS - 60_000))).error_code == 0


def test_a_topic_may_refuse_old_timestamps(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"message.timestamp.before.max.ms": 1000})
    assert (
        dialogue.produce(topic, batch(Record(b"a", timestamp_ms=now_ms() - 60_000))).error_code.name
        == "invalid_timestamp"
    )
    assert dialogue.produce(topic, batch(Record(b"a", timestamp_ms=now_ms()))).error_code == 0


def test_without_a_timestamp_of_its_own_a_record_keeps_minus_one(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(Record(b"a", timestamp_ms=-1))).error_code == 0
    assert dialogue.read(topic)[0].max_ms == -1


def test_the_time_of_the_append_is_told_and_kept_where_the_topic_wants_it(
    dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before_ms = now_ms()
    answer = dialogue.produce(topic, batch(b"a", b"b"))
    told_ms = round(answer.log_append_time.timestamp() * 1000)
    assert before_ms <= told_ms <= now_ms()
    (kept,) = dialogue.read(topic)
    assert kept.attributes & LOG_APPEND_TIME
    assert (kept.max_ms, [r.timestamp_ms for r in kept.decoded()]) == (told_ms, [told_ms, told_ms])


def test_a_timestamp_ahead_does_not_matter_where_the_append_gives_it(
    dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    assert dialogue.produce(topic, batch(Record(b"a", timestamp_ms=now_ms() + 10 * HOUR_MS))).error_code == 0


def test_no_time_of_append_is_told_where_the_producer_gives_it(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a")).log_append_time is None


def test_an_append_tells_the_first_offset_of_the_log(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a", b"b")).log_start_offset == 0


def test_a_compacted_topic_refuses_a_record_without_a_key(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    answer = dialogue.produce(topic, batch(Record(b"a", b"k"), Record(b"b")))
    assert answer.error_code.name == "invalid_record"
    assert [e.batch_index for e in answer.record_errors] == [1]
    assert dialogue.read(topic) == []


def test_more_in_sync_replicas_are_never_wanted_than_the_topic_has(
    dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    # min.insync.replicas is bounded by the number of replicas: a topic with one goes on.
    assert dialogue.produce(new_topic(**{"min.insync.replicas": 2}), batch(b"a")).error_code.name == "none"


def test_a_transactional_batch_needs_a_transactional_id(dialogue: Dialogue, topic: str) -> None:
    # No id counts as an id that this client may not use.
    sent = batch(b"a").but(attributes=TRANSACTIONAL, producer_id=77, producer_epoch=0, sequence=0)
    assert dialogue.produce(topic, sent).error_code.name == "transactional_id_authorization_failed"


def test_base_offset_and_leader_epoch_are_written_by_the_broker(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(b"a"))
    dialogue.produce(topic, batch(b"b").but(leader_epoch=77))
    second = dialogue.read(topic, 1)[0]
    assert (second.base_offset, second.leader_epoch) == (1, 0)


def test_a_base_offset_other_than_zero_is_refused(dialogue: Dialogue, topic: str) -> None:
    # The records' own offsets would not be 0, 1, 2 ...: the check of each record fails.
    assert dialogue.produce(topic, batch(b"b").but(base_offset=50)).error_code.name == "invalid_record"
