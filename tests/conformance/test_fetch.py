"""Fetch: what a reader gets, when it waits, and what it is refused."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.batches import batch, values
from tests.conformance.dialogue import Dialogue, fetch_fields
from tests.conformance.wire import Wire


@pytest.fixture
def written(dialogue: Dialogue, topic: str) -> str:
    """A topic with three batches: offsets 0-1, 2-3 and 4-5."""
    for pair in ((b"a", b"b"), (b"c", b"d"), (b"e", b"f")):
        dialogue.produce(topic, batch(*pair))
    return topic


@pytest.mark.parametrize("version", range(4, 13))
def test_records_come_in_every_version_that_names_topics(dialogue: Dialogue, written: str, version: int) -> None:
    found = dialogue.fetch(written, version=version)
    assert found.partition.high_watermark == 6
    assert values(found.batches) == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("version", range(13, 19))
def test_records_come_in_every_version_that_names_topics_by_id(dialogue: Dialogue, written: str, version: int) -> None:
    fields = fetch_fields(written, 2)
    fields["topics"][0]["topic_id"] = dialogue.topic_id(written)
    answer = dialogue.wire.ask("fetch", version, **fields)
    assert answer.responses[0].topic_id == fields["topics"][0]["topic_id"]
    assert answer.responses[0].partitions[0].high_watermark == 6


def test_an_offset_within_a_batch_brings_the_whole_batch(dialogue: Dialogue, written: str) -> None:
    # Batches are never taken apart: the reader drops what lies before its offset.
    assert [b.base_offset for b in dialogue.fetch(written, 3).batches] == [2, 4]


def test_the_end_of_the_log_is_nothing_and_no_error(dialogue: Dialogue, written: str) -> None:
    found = dialogue.fetch(written, 6)
    assert (found.partition.error_code.name, found.batches) == ("none", [])
    assert (found.partition.high_watermark, found.partition.last_stable_offset) == (6, 6)
    assert found.partition.log_start_offset == 0


@pytest.mark.parametrize("offset", [7, 1000, -1, -5])
def test_an_offset_outside_of_the_log_is_refused(dialogue: Dialogue, written: str, offset: int) -> None:
    reply = dialogue.fetch(written, offset).partition
    assert (reply.error_code.name, reply.high_watermark) == ("offset_out_of_range", -1)
    assert reply.records in (None, b"")


def test_an_unknown_topic_is_refused(dialogue: Dialogue, name: str) -> None:
    assert dialogue.fetch(name).partition.error_code.name == "unknown_topic_or_partition"


def test_an_unknown_partition_is_refused(dialogue: Dialogue, written: str) -> None:
    reply = dialogue.fetch(written, partition=3).partition
    assert (reply.error_code.name, reply.high_watermark) == ("unknown_topic_or_partition", -1)


def test_an_id_nobody_has_is_an_unknown_topic_id(dialogue: Dialogue, written: str) -> None:
    fields = fetch_fields(written, 0)
    real = dialogue.topic_id(written)
    fields["topics"][0]["topic_id"] = type(real)(int=real.int ^ 1)
    answer = dialogue.wire.ask("fetch", 13, **fields)
    assert answer.responses[0].partitions[0].error_code.name == "unknown_topic_id"


def test_an_error_does_not_wait(dialogue: Dialogue, name: str) -> None:
    before_s = time.monotonic()
    assert dialogue.fetch(name, max_wait=9_000).partition.error_code != 0
    assert time.monotonic() - before_s < 9


def test_a_first_batch_above_every_limit_comes_whole(dialogue: Dialogue, written: str) -> None:
    # Since version 3 (KIP-74): a reader with a small buffer still gets on.
    assert values(dialogue.fetch(written, max_bytes=1, partition_max_bytes=1).batches) == [b"a", b"b"]


def test_a_partitions_limit_leaves_out_whole_batches(dialogue: Dialogue, written: str) -> None:
    size = len(batch(b"a", b"b").encode())
    assert len(dialogue.fetch(written, partition_max_bytes=2 * size).batches) == 2
    assert len(dialogue.fetch(written, partition_max_bytes=3 * size - 1).batches) == 2


def test_the_requests_limit_leaves_later_partitions_empty(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        dialogue.produce(topic, batch(b"a" * 1000), partition=partition)
    answer = fetch_both(dialogue.wire, topic, max_bytes=10)
    assert [len(p.records or b"") > 0 for p in answer.responses[0].partitions] == [True, False]


def fetch_both(wire: Wire, topic: str, **fields: int) -> object:
    """Fetch partitions 0 and 1 from their start."""
    reply = fetch_fields(topic, 0, **fields)
    reply["topics"][0]["partitions"] = [{**reply["topics"][0]["partitions"][0], "partition": p} for p in (0, 1)]
    return wire.ask("fetch", 12, **reply)


def test_the_requests_limit_holds_for_all_partitions_together(
    dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        dialogue.produce(topic, batch(b"a" * 1000), partition=partition)
    size = len(batch(b"a" * 1000).encode())
    both = fetch_both(dialogue.wire, topic, max_bytes=2 * size).responses[0].partitions  # type: ignore[attr-defined]
    assert [len(p.records) for p in both] == [size, size]


@pytest.mark.parametrize("max_wait", [1, 50, 200])
def test_with_nothing_to_read_the_answer_comes_no_sooner_than_the_longest_wait(
    dialogue: Dialogue, topic: str, max_wait: int
) -> None:
    before_ns = time.monotonic_ns()
    assert dialogue.fetch(topic, max_wait=max_wait).batches == []
    assert time.monotonic_ns() - before_ns >= max_wait * 1_000_000


def test_without_least_bytes_nothing_is_waited_for(dialogue: Dialogue, topic: str) -> None:
    before_s = time.monotonic()
    assert dialogue.fetch(topic, min_bytes=0, max_wait=9_000).batches == []
    assert time.monotonic() - before_s < 9


def test_an_append_ends_the_wait_of_a_reader(wire: Wire, dialogue: Dialogue, bootstrap: str, topic: str) -> None:
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait=9_000))
        assert reader.is_quiet()
        dialogue.produce(topic, batch(b"a"))
        assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 1


def test_a_reader_waits_until_there_are_bytes_enough(dialogue: Dialogue, bootstrap: str, topic: str) -> None:
    size = len(batch(b"a").encode())
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait=9_000, min_bytes=2 * size))
        dialogue.produce(topic, batch(b"a"))
        assert reader.is_quiet()
        dialogue.produce(topic, batch(b"b"))
        assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 2


def test_bytes_of_all_partitions_count_together(
    dialogue: Dialogue, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic, size = new_topic(2), len(batch(b"a").encode())
    reply = fetch_fields(topic, 0, max_wait=9_000, min_bytes=2 * size)
    reply["topics"][0]["partitions"] = [{**reply["topics"][0]["partitions"][0], "partition": p} for p in (0, 1)]
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **reply)
        dialogue.produce(topic, batch(b"a"), partition=0)
        assert reader.is_quiet()
        dialogue.produce(topic, batch(b"b"), partition=1)
        answer = reader.receive("fetch", 12)
    assert [len(p.records) for p in answer.responses[0].partitions] == [size, size]


def test_too_few_bytes_are_given_when_the_wait_is_over(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(b"a"))
    assert values(dialogue.fetch(topic, min_bytes=10_000, max_wait=50).batches) == [b"a"]


def test_twenty_readers_of_one_partition_are_all_woken(dialogue: Dialogue, bootstrap: str, topic: str) -> None:
    readers = [Wire(bootstrap) for _ in range(20)]
    for reader in readers:
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait=9_000))
    dialogue.produce(topic, batch(b"a"))
    for reader in readers:
        with reader:
            assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 1


def test_deleting_the_topic_ends_the_wait_of_a_reader(dialogue: Dialogue, bootstrap: str, topic: str) -> None:
    with Wire(bootstrap) as reader:
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait=9_000))
        assert reader.is_quiet()
        before_s = time.monotonic()
        dialogue.wire.ask("delete_topics", 6, topics=[{"name": topic}], timeout=5_000)
        reply = reader.receive("fetch", 12).responses[0].partitions[0]
    assert time.monotonic() - before_s < 9
    assert reply.error_code.name in {"unknown_topic_or_partition", "not_leader_or_follower"}


def test_a_reader_that_knows_a_later_epoch_is_told_so(dialogue: Dialogue, written: str) -> None:
    assert dialogue.fetch(written, leader_epoch=5).partition.error_code.name == "unknown_leader_epoch"
    assert dialogue.fetch(written, leader_epoch=0).partition.error_code.name == "none"


def test_a_session_nobody_opened_is_not_found(dialogue: Dialogue, written: str) -> None:
    answer = dialogue.wire.ask("fetch", 12, **fetch_fields(written, 0, session_id=1234, session_epoch=7))
    assert answer.error_code.name == "fetch_session_id_not_found"
    assert answer.responses == ()


def test_a_session_is_given_or_declined(dialogue: Dialogue, written: str) -> None:
    # Epoch 0 asks for a session (KIP-227). A broker may answer with session 0: ask in full every time.
    opened = dialogue.wire.ask("fetch", 12, **fetch_fields(written, 0, session_epoch=0))
    assert values_of(opened) == 6
    if opened.session_id:
        later = fetch_fields(written, 0, session_id=opened.session_id, session_epoch=1, max_wait=0)
        dialogue.produce(written, batch(b"g"))
        answer = dialogue.wire.ask("fetch", 12, **{**later, "topics": []})
        assert answer.responses[0].partitions[0].high_watermark == 7


def values_of(answer: object) -> int:
    return answer.responses[0].partitions[0].high_watermark  # type: ignore[attr-defined, no-any-return]


def test_a_session_that_skips_an_epoch_is_refused(dialogue: Dialogue, written: str) -> None:
    opened = dialogue.wire.ask("fetch", 12, **fetch_fields(written, 0, session_epoch=0))
    skipped = fetch_fields(written, 0, session_id=opened.session_id or 1234, session_epoch=5)
    wanted = "invalid_fetch_session_epoch" if opened.session_id else "fetch_session_id_not_found"
    assert dialogue.wire.ask("fetch", 12, **{**skipped, "topics": []}).error_code.name == wanted


def test_a_session_tells_only_what_changed(dialogue: Dialogue, written: str) -> None:
    opened = dialogue.wire.ask("fetch", 12, **fetch_fields(written, 6, session_epoch=0, max_wait=0))
    if not opened.session_id:
        return  # declined: nothing to tell
    later = fetch_fields(written, 6, session_id=opened.session_id, session_epoch=1, max_wait=0)
    assert dialogue.wire.ask("fetch", 12, **{**later, "topics": []}).responses == ()


def test_a_reader_may_ask_for_one_partition_twice_in_a_row(dialogue: Dialogue, written: str) -> None:
    assert dialogue.fetch(written, 2) == dialogue.fetch(written, 2)


def test_without_any_topic_the_answer_waits_no_time(wire: Wire, topic: str) -> None:
    before_s = time.monotonic()
    assert wire.ask("fetch", 12, **{**fetch_fields(topic, 0, max_wait=9_000), "topics": []}).responses == ()
    assert time.monotonic() - before_s < 9
