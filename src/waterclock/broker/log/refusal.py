"""Why a batch was refused, in words, and which of its records are to blame: found out only once it was refused. KIP-467."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from waterclock.broker.log.batch import CODEC, header_of
from waterclock.broker.log.records import Record, records
from waterclock.broker.net.outgoing import Buffer
from waterclock.broker.settings import TopicSettings
from waterclock.broker.wire.errors import Error

MOST: Final = 10_000  # records that are looked at: a small batch may unpack to millions, and everybody would wait
MOST_COMPRESSED: Final = 16 << 10  # bytes that are unpacked for it
SENTENCES: Final = {
    Error.INVALID_TIMESTAMP: "The timestamp of a record is out of the range that the topic allows.",
    Error.INVALID_RECORD: "A batch was refused that is none, or a record that the topic cannot keep.",
    Error.MESSAGE_TOO_LARGE: "The batch is larger than max.message.bytes allows.",
    Error.RECORD_LIST_TOO_LARGE: "The batch is larger than a segment of the log (segment.bytes).",
    Error.UNSUPPORTED_COMPRESSION_TYPE: "The compression is not known, or not in this version of Produce.",
}


def explain(error: Error, data: Buffer, settings: TopicSettings, now_ms: int) -> tuple[str | None, tuple[int, ...]]:
    """A sentence, or None, and the numbers of the records within their batch."""
    sentence = SENTENCES.get(error)
    if error == Error.INVALID_TIMESTAMP:
        after, before = now_ms + settings.timestamp_after_ms, now_ms - settings.timestamp_before_ms
        return sentence, _those(data, lambda record: not before <= record.timestamp <= after)
    if error == Error.INVALID_RECORD and settings.compact:
        return sentence, _those(data, lambda record: record.key is None)
    return sentence, ()


def _those(data: Buffer, blamed: Callable[[Record], bool]) -> tuple[int, ...]:
    head = header_of(data)
    if head.records > MOST or (head.attributes & CODEC and len(data) > MOST_COMPRESSED):
        return ()
    try:
        return tuple(number for number, record in enumerate(records(data)) if blamed(record))
    except ValueError:
        return ()
