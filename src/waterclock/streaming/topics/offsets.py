"""Where each partition is read to, as numbers. No Kafka client and no Spark in this file.

A batch reads, of each partition, the offsets from where the batch before it ended up to a new end. The ends are what Spark
keeps in its checkpoint, as JSON: {"orders": {"0": 5, "1": 7}}, the same shape that Spark's own connector keeps.

Rule 1: the same offsets are always the same text, or Spark would see new data where there is none.
Rule 2: of a limited batch, each partition gets the share that its backlog has of all; one that has a backlog gets a record
        at least, so that none is left behind.
Rule 3: what a task reads follows from the offsets and the number of tasks alone: a re-run of a batch reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from waterclock.kafka import Offsets, Partition

LEAST_SHARE = 10_000  # records; below, a task's start costs more than its work


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The offsets from `start` up to `end`, without it, of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them, topics and partitions in order.

    >>> to_json({("b", 10): 1, ("b", 9): 2, ("a", 0): 3})
    {'a': {'0': 3}, 'b': {'9': 2, '10': 1}}
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(plain: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Undo `to_json`."""
    return {(topic, int(partition)): offset for topic, ends in plain.items() for partition, offset in ends.items()}


def up_to(start: Mapping[Partition, int], latest: Mapping[Partition, int], limit: int | None) -> Offsets:
    """The ends of a batch that begins at `start`, where there is something up to `latest`: about `limit` records in all.

    A partition that `start` does not know yet is read from its first offset, 0.

    >>> up_to({("t", 0): 0, ("t", 1): 90}, {("t", 0): 900, ("t", 1): 190}, 100)
    {('t', 0): 90, ('t', 1): 100}
    """
    behind = {place: max(0, end - start.get(place, 0)) for place, end in latest.items()}
    total = sum(behind.values())
    if limit is None or total <= limit:
        return {place: start.get(place, 0) + count for place, count in behind.items()}
    return {place: start.get(place, 0) + max(count * limit // total, min(count, 1)) for place, count in behind.items()}


def ranges(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> list[Range]:
    """What lies between two offsets, by topic and partition; an empty range is left out."""
    found = ((place, start.get(place, 0), stop) for place, stop in sorted(end.items()))
    return [Range(*place, first, stop) for place, first, stop in found if first < stop]


def shares(found: Iterable[Range], tasks: int) -> list[list[Range]]:
    """Ranges for up to `tasks` tasks, of about the same number of records; a long range is split, short ones go together.

    >>> [[(r.partition, r.start, r.end) for r in share] for share in shares([Range("t", 0, 0, 30_000)], 2)]
    [[(0, 0, 15000)], [(0, 15000, 30000)]]
    """
    left = list(found)
    total = sum(map(len, left))
    size = max(LEAST_SHARE, -(-total // tasks))
    made: list[list[Range]] = [[]]
    room = size
    while left:
        first = left.pop(0)
        taken = Range(*first.place, first.start, min(first.end, first.start + room))
        made[-1].append(taken)
        room -= len(taken)
        if taken.end < first.end:
            left.insert(0, Range(*first.place, taken.end, first.end))
        if room == 0:
            made.append([])
            room = size
    return [share for share in made if share]
