"""Which of the pending messages recur: found by a look at all rows of the files, when somebody asks.

Rule 1: nothing is kept for it: who has no series, or asks nobody, pays nothing.
Rule 2: the relay's lock is held for a slice at a time; between two of them it goes on. An owner that is let go meanwhile
        tells no more.
Rule 3: the first `MOST` by what occurs next are told, the others counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from waterclock.relay.owner.owner import Owner
from waterclock.relay.statistics import MessageStatistics, RecurringStatistics, SeriesStatistics
from waterclock.relay.store import Payload, unpack
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.request import CRON, ZONE, Flag, occurrence_of

MOST: Final = 1_000
SLICE: Final = 10_000  # rows: some milliseconds, for which nothing is delivered
Owners = Mapping[int, Owner]
Lock = AbstractContextManager[Any]


def recurring(owners: Owners, lock: Lock, topic: str) -> RecurringStatistics:
    """What recurs in the partitions of these owners; from any thread without the lock."""
    soonest = Soonest()
    for place, found in _slices(owners, lock, topic):
        soonest.add(place, found)
    return soonest.told()


def with_series(
    messages: Sequence[MessageStatistics], owners: Owners, lock: Lock, topic: str
) -> tuple[MessageStatistics, ...]:
    """These messages, those that recur with their expression and zone."""
    dues = [one.due_ms for one in messages if one.state == "pending"]
    series: dict[str, Found] = {}
    for place, found in _slices(owners, lock, topic, dues) if dues else ():
        series.update({f"{place}-{one.origin}": one for one in found})
    return tuple(_with(one, series.get(one.origin)) for one in messages)


class Found(NamedTuple):
    """A pending message that recurs."""

    due_ms: int
    origin: int
    target: str
    payload: Payload


def when(payload: Payload) -> tuple[str, str]:
    """Expression and zone of a message that recurs."""
    headers = dict(payload.headers)
    cron, zone = ((headers.get(name) or b"").decode("utf-8", "replace") for name in (CRON, ZONE))
    return cron, zone or "UTC"


def _with(one: MessageStatistics, found: Found | None) -> MessageStatistics:
    if found is None:
        return one
    cron, zone = when(found.payload)
    return replace(one, cron=cron, zone=zone)


def _slices(owners: Owners, lock: Lock, topic: str, dues: Sequence[int] = ()) -> Iterator[tuple[str, list[Found]]]:
    """Of each partition, by its name. With `dues`, what is due at one of these moments, and some others."""
    with lock:
        numbers = sorted(owners)
    for number in numbers:
        for found in _of_partition(owners, lock, number, dues):
            yield f"{topic}-{number}", found


def _of_partition(owners: Owners, lock: Lock, number: int, dues: Sequence[int]) -> Iterator[list[Found]]:
    """Rule 2."""
    if (owner := owners.get(number)) is None:
        return
    slices = owner.store.pending_with(Flag.SERIES, SLICE, dues)
    while True:
        with lock:
            rows = next(slices, None) if owners.get(number) is owner else None
            if rows is None:
                return
            found = _read(owner, rows)
        yield found


def _read(owner: Owner, rows: Array) -> list[Found]:
    targets, columns = owner.store.targets, (rows[name].tolist() for name in ("due", "origin", "target"))
    return [
        Found(due, origin, targets[target], unpack(blob))
        for due, origin, target, blob in zip(*columns, owner.store.read(rows), strict=True)
    ]


class Soonest:
    """Rule 3; what comes twice counts once. `add` is given what was found in a place, `TOPIC-PARTITION`."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str, SeriesStatistics]] = []
        self._known: set[str] = set()

    def add(self, place: str, found: Sequence[Found]) -> None:
        for one in found:
            name = f"{place}-{one.origin}"
            if name not in self._known:
                self._known.add(name)
                insort(self._kept, (one.due_ms, name, _series(name, one)))
                del self._kept[MOST:]

    def told(self) -> RecurringStatistics:
        return RecurringStatistics(tuple(one for *_, one in self._kept), len(self._known) - len(self._kept))


def _series(name: str, one: Found) -> SeriesStatistics:
    occurrence, _ = occurrence_of(one.payload.headers, one.origin)
    return SeriesStatistics(one.payload.id.decode(), *when(one.payload), one.due_ms, one.target, occurrence, name)
