"""Which offset a moment has: the first record at or after it, to the record.

Rule 1: a batch that its sender made unreadable hides nothing else: its first offset and its latest timestamp count.
"""

from __future__ import annotations

from typing import NamedTuple

from waterclock.broker.log.batch import PREFIX, Batch
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import timestamps
from waterclock.broker.log.segment import Segment
from waterclock.broker.net.outgoing import Slice


class RecordTime(NamedTuple):
    """A record's timestamp in ms and its offset; (-1, -1) if there is none."""

    timestamp: int
    offset: int


NONE = RecordTime(-1, -1)


def first_at(partition: Partition, timestamp: int, upto: int) -> RecordTime:
    """The first record before offset `upto` whose timestamp is `timestamp` or later."""
    for segment in partition.segments:
        if segment.base >= upto:
            return NONE
        if partition.latest_in(segment) >= timestamp:
            found = _in_segment(segment, timestamp, max(partition.start, segment.base), upto)
            if found is not NONE:
                return found
    return NONE


def latest(partition: Partition) -> RecordTime:
    """The record with the latest timestamp of all, the first of those: what timestamp -3 asks for. KIP-734."""
    best = NONE
    for segment in partition.segments:
        time, start = partition.latest_in(segment), max(partition.start, segment.base)
        if time > best.timestamp:
            found = _in_segment(segment, time, start, partition.end)
            if found is NONE:  # the latest of all lies before the start: the long way
                found = _latest_in(segment, start, best.timestamp)
            best = best if found is NONE else found
    return best


def _in_segment(segment: Segment, timestamp: int, start: int, upto: int) -> RecordTime:
    for at, batch in segment.headers(segment.lookup.before_time(timestamp)):
        if batch.base >= upto:
            return NONE
        if batch.max_timestamp >= timestamp and batch.last >= start:
            for moment in _moments(segment, at, batch):
                if moment.timestamp >= timestamp and start <= moment.offset < upto:
                    return moment
    return NONE


def _latest_in(segment: Segment, start: int, least: int) -> RecordTime:
    """The first of the latest records of a segment that are later than `least`."""
    best = RecordTime(least, -1)
    for at, batch in segment.headers():
        if batch.max_timestamp > best.timestamp and batch.last >= start:
            for moment in _moments(segment, at, batch):
                if moment.timestamp > best.timestamp and start <= moment.offset:
                    best = moment
    return best if best.offset >= 0 else NONE


def _moments(segment: Segment, at: int, batch: Batch) -> list[RecordTime]:
    try:
        return [RecordTime(t, offset) for offset, t in timestamps(Slice(segment, at, PREFIX + batch.length).read())]
    except ValueError:
        return [RecordTime(batch.max_timestamp, batch.base)]
