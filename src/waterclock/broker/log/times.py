"""Which offset a moment has: the first record at or after it, to the record."""

from __future__ import annotations

from typing import NamedTuple

from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import timestamps
from waterclock.broker.log.segment import Segment, Slice


class Moment(NamedTuple):
    """A record's timestamp in ms and its offset; (-1, -1) where there is none."""

    timestamp: int
    offset: int


NONE = Moment(-1, -1)


def first_at(partition: Partition, timestamp: int, upto: int) -> Moment:
    """The first record before offset `upto` whose timestamp is `timestamp` or later."""
    for segment in partition.segments:
        if segment.base >= upto:
            return NONE
        if _latest(partition, segment) >= timestamp:
            found = _in_segment(segment, timestamp, max(partition.start, segment.base), upto)
            if found is not NONE:
                return found
    return NONE


def latest(partition: Partition, upto: int) -> Moment:
    """The record with the latest timestamp before `upto`, the first of those: what timestamp -3 asks for. KIP-734."""
    segments = [s for s in partition.segments if s.base < upto]
    best = max(segments, key=lambda s: (_latest(partition, s), -s.base), default=None)
    if best is None or _latest(partition, best) < 0:
        return NONE
    return first_at(partition, _latest(partition, best), upto)


def _latest(partition: Partition, segment: Segment) -> int:
    return segment.latest if segment is partition.active else segment.latest_timestamp


def _in_segment(segment: Segment, timestamp: int, start: int, upto: int) -> Moment:
    for at, batch in segment.headers(segment.index.before_time(timestamp)):
        if batch.base >= upto:
            return NONE
        if batch.max_timestamp < timestamp or batch.last < start:
            continue
        data = Slice(segment, at, batch.length + 12).read()
        for offset, moment in timestamps(data):
            if moment >= timestamp and start <= offset < upto:
                return Moment(moment, offset)
    return NONE
