"""Which of the pending messages recur: found by a look at all rows of the files, when somebody asks.

Rule 1: nothing is kept for it: who has no series, or asks nobody, pays nothing.
Rule 2: the relay's lock is held for a slice at a time; between two of them it goes on. Of an owner that is let go meanwhile
        no more is read.
Rule 3: the first `MOST` by what occurs next are listed, the others counted.
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
from waterclock.relay.wire.request import CRON, ZONE, Flag, occurrence_of

MOST: Final = 1_000
SLICE: Final = 10_000  # rows: some milliseconds, for which nothing is delivered
Owners = Mapping[int, Owner]
Lock = AbstractContextManager[Any]


def recurring(owners: Owners, lock: Lock, topic: str) -> RecurringStatistics:
    """What recurs in the partitions of these owners; from any thread without the lock."""
    soonest = SoonestSeries()
    for place, found in _slices(owners, lock, topic):
        soonest.add(place, found)
    return soonest.statistics()


def with_series(
    messages: Sequence[MessageStatistics], owners: Owners, lock: Lock, topic: str
) -> tuple[MessageStatistics, ...]:
    """These messages, those that recur with their expression and zone."""
    dues = [one.due_ms for one in messages if one.state == "pending"]
    series: dict[str, tuple[str, str]] = {}
    for place, found in _slices(owners, lock, topic, dues) if dues else ():
        series.update({f"{place}-{one.origin}": cron_of(one.payload) for one in found})
    unknown = (None, None)
    named = ((one, *series.get(one.origin, unknown)) for one in messages)
    return tuple(replace(one, cron=cron, zone=zone) for one, cron, zone in named)


class PendingSeries(NamedTuple):
    """A pending message that recurs."""

    due_ms: int
    origin: int
    target: str
    payload: Payload


def cron_of(payload: Payload) -> tuple[str, str]:
    """Expression and zone of a message that recurs."""
    headers = dict(payload.headers)
    cron, zone = ((headers.get(name) or b"").decode("utf-8", "replace") for name in (CRON, ZONE))
    return cron, zone or "UTC"


def _slices(
    owners: Owners, lock: Lock, topic: str, dues: Sequence[int] = ()
) -> Iterator[tuple[str, list[PendingSeries]]]:
    """What recurs, a slice at a time (rule 2), with the name of its partition. With `dues`, what is due at one of these
    moments, and some others."""
    with lock:
        numbers = sorted(owners)
    for number in numbers:
        if (owner := owners.get(number)) is None:
            continue
        store, slices = owner.store, owner.store.pending_with(Flag.SERIES, SLICE, dues)
        while True:
            with lock:
                rows = next(slices, None) if owners.get(number) is owner else None
                if rows is None:
                    break
                columns = (rows[name].tolist() for name in ("due", "origin", "target"))
                found = [
                    PendingSeries(due, origin, store.targets[target], unpack(blob))
                    for due, origin, target, blob in zip(*columns, store.read(rows), strict=True)
                ]
            yield f"{topic}-{number}", found


class SoonestSeries:
    """Rule 3; what comes twice counts once. `add` gets what was found in a place, `TOPIC-PARTITION`."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str, SeriesStatistics]] = []
        self._known: set[str] = set()

    def add(self, place: str, found: Sequence[PendingSeries]) -> None:
        for one in found:
            name = f"{place}-{one.origin}"
            if name not in self._known:
                self._known.add(name)
                payload, (occurrence, _) = one.payload, occurrence_of(one.payload.headers, one.origin)
                series = SeriesStatistics(
                    payload.id.decode(), *cron_of(payload), one.due_ms, one.target, occurrence, name
                )
                insort(self._kept, (one.due_ms, name, series))
                del self._kept[MOST:]

    def statistics(self) -> RecurringStatistics:
        return RecurringStatistics(tuple(one for *_, one in self._kept), len(self._known) - len(self._kept))
