"""What was appended comes back: compression, headers, keys, timestamps, sizes."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from tests.conformance.batches import GZIP, LZ4, SNAPPY, TODAY_MS, ZSTD, Record, batch, values
from tests.conformance.dialogue import Dialogue

COMPRESSIONS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "snappy": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (LZ4, lz4.frame.compress),
    "zstd": (ZSTD, zstandard.compress),
}
SENT = [Record(b"v%d" % i, b"k", TODAY_MS + i, (("h", b"x"),)) for i in range(100)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compressed_batch_comes_back_byte_for_byte(dialogue: Dialogue, topic: str, compression: str) -> None:
    code, compress = COMPRESSIONS[compression]
    sent = batch(*SENT)
    sent = sent.but(records=compress(sent.records), attributes=code)
    assert dialogue.produce(topic, sent).base_offset == 0
    assert dialogue.read(topic) == [sent.but(leader_epoch=0)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_bytes_that_are_none_are_refused(dialogue: Dialogue, topic: str, compression: str) -> None:
    sent = batch(*SENT).but(records=b"\xff" * 50, attributes=COMPRESSIONS[compression][0])
    # Apache Kafka stumbles over them (UNKNOWN_SERVER_ERROR); CORRUPT_MESSAGE would be as right.
    assert dialogue.produce(topic, sent).error_code.name in {"unknown_server_error", "corrupt_message"}


def test_a_compression_nobody_knows_is_refused(dialogue: Dialogue, topic: str) -> None:
    assert dialogue.produce(topic, batch(b"a").but(attributes=5)).error_code.name in {
        "unknown_server_error",
        "unsupported_compression_type",
    }


def test_zstd_needs_version_7_of_produce(dialogue: Dialogue, topic: str) -> None:
    sent = batch(*SENT)
    sent = sent.but(records=zstandard.compress(sent.records), attributes=ZSTD)
    assert dialogue.produce(topic, sent, version=6).error_code.name == "unsupported_compression_type"
    assert dialogue.produce(topic, sent, version=7).error_code.name == "none"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_topic_with_a_compression_of_its_own_keeps_its_batches_in_it(
    dialogue: Dialogue, new_topic: Callable[..., str], compression: str
) -> None:
    topic = new_topic(**{"compression.type": compression})
    dialogue.produce(topic, batch(b"a" * 1000))
    assert dialogue.read(topic)[0].attributes & 7 == COMPRESSIONS[compression][0]


def test_a_topic_without_compression_takes_it_off(dialogue: Dialogue, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"compression.type": "uncompressed"})
    sent = batch(*SENT)
    dialogue.produce(topic, sent.but(records=gzip.compress(sent.records), attributes=GZIP))
    assert dialogue.read(topic) == [sent.but(leader_epoch=0)]


def test_a_plain_batch_comes_back_byte_for_byte(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(*SENT))
    assert dialogue.read(topic) == [batch(*SENT).but(leader_epoch=0)]


def test_headers_come_back_in_order_with_names_that_repeat_and_values_that_are_null(
    dialogue: Dialogue, topic: str
) -> None:
    headers = (("a", b"1"), ("b", None), ("a", b""), ("ä", b"\xff"))
    dialogue.produce(topic, batch(Record(b"v", headers=headers)))
    assert dialogue.read(topic)[0].decoded()[0].headers == headers


@pytest.mark.parametrize(
    ("key", "value"), [(None, None), (b"", b""), (b"k", None), (None, b""), (b"\0\xff", b"\0" * 9)]
)
def test_null_and_empty_are_told_apart(dialogue: Dialogue, topic: str, key: bytes | None, value: bytes | None) -> None:
    dialogue.produce(topic, batch(Record(value, key)))
    assert dialogue.read(topic)[0].decoded()[0][:2] == (value, key)


def test_timestamps_in_a_batch_may_go_back(dialogue: Dialogue, topic: str) -> None:
    times = [TODAY_MS + t for t in (5, 0, 9, 3)]
    dialogue.produce(topic, batch(*(Record(b"v", timestamp_ms=t) for t in times)))
    assert [r.timestamp_ms for r in dialogue.read(topic)[0].decoded()] == times


def test_the_highest_timestamp_of_a_batch_is_counted_by_the_broker(dialogue: Dialogue, topic: str) -> None:
    # A producer that lies: the header's largest timestamp is looked up in the records.
    dialogue.produce(topic, batch(b"a").but(max_ms=TODAY_MS + 99))
    assert dialogue.read(topic)[0].max_ms == TODAY_MS


def test_ten_thousand_records_in_one_batch_keep_their_order(dialogue: Dialogue, topic: str) -> None:
    dialogue.produce(topic, batch(*(b"%d" % i for i in range(10_000))))
    assert values(dialogue.read(topic)) == [b"%d" % i for i in range(10_000)]
