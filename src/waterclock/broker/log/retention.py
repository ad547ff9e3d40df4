"""Retention: which segments are too old, too many, or before the start, and how they go.

    rule                  segments go from the oldest on while
    a start that moved    the next one begins at or before it
    retention.bytes       the partition without them still has that much
    retention.ms          their latest record is older, by its own timestamp

Rule 1: whole segments, all before the high watermark. If all are too old, a new one is begun first.
Rule 2: topics that are compacted only lose nothing but what lies before their start.
Source: log retention of Apache Kafka, which counts the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from waterclock.broker.log.partition import Partition
from waterclock.broker.log.segment import Segment


def retire(partition: Partition, now_ms: int) -> list[Segment]:
    """Take out what is to go, and return it for its files to be removed; OSError if no new segment can begin."""
    if partition.upkept:
        return []
    gone: list[Segment] = []
    for rule in (_before_start, _too_many, _too_old):
        if rule is not _before_start and "delete" not in partition.settings["cleanup.policy"]:
            continue
        count, segments = 0, partition.segments
        for number, segment in enumerate(rule(partition, now_ms)):
            last = number + 1 == len(segments)
            upto = partition.end if last else segments[number + 1].base
            if partition.high < upto or (last and not segment.size):
                break
            count = number + 1
        gone += partition.drop(count)
    return gone


def due_in_ms(partition: Partition, now_ms: int) -> int | None:
    """In how many ms there may be something to retire, if nothing is written meanwhile; None if time changes nothing.

    0 if it is due, and something else was in the way.
    """
    first = partition.segments[0]
    if len(partition.segments) == 1 and not first.size:
        return None
    deletes = "delete" in partition.settings["cleanup.policy"]
    if any(
        next(rule(partition, now_ms), None) for rule in ((_before_start, _too_many) if deletes else (_before_start,))
    ):
        return 0
    if not deletes or partition.settings["retention.ms"] < 0:
        return None
    return max(0, _latest_ms(partition, first) + int(partition.settings["retention.ms"]) + 1 - now_ms)


def _before_start(partition: Partition, now_ms: int) -> Iterator[Segment]:
    for segment, after in zip(partition.segments, partition.segments[1:], strict=False):
        if after.base > partition.start:
            return
        yield segment


def _too_many(partition: Partition, now_ms: int) -> Iterator[Segment]:
    most = partition.settings["retention.bytes"]
    over = sum(segment.size for segment in partition.segments) - most
    for segment in partition.segments if most >= 0 else ():
        over -= segment.size
        if over < 0:
            return
        yield segment


def _too_old(partition: Partition, now_ms: int) -> Iterator[Segment]:
    keep_ms = partition.settings["retention.ms"]
    for segment in partition.segments if keep_ms >= 0 else ():
        if now_ms - _latest_ms(partition, segment) <= keep_ms:
            return
        yield segment


def _latest_ms(partition: Partition, segment: Segment) -> int:
    """The latest timestamp in a segment; if its records have none, when it was last written to."""
    latest = partition.latest_in(segment)
    return latest if latest >= 0 else int(os.fstat(segment.fd).st_mtime * 1000)
