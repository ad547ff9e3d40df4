"""What a running relay reports: its statistics, made of its counts and its owners once a second, in the relay's own thread;
the messages of an id; and, when somebody asks, which of the pending messages recur, by a look at all rows of the files.

Rule 1: nothing is kept for series: who has none, or asks nobody, pays nothing.
Rule 2: while series are looked for, the relay's lock is held for a slice at a time; between two of them it goes on. Of an
        owner that is let go meanwhile no more is read.
Rule 3: the first `MOST` series by what occurs next are listed, the others counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from waterclock.relay.owner.owner import Owner
from waterclock.relay.standby.standby import Standby
from waterclock.relay.statistics import (
    Counts,
    MessageStatistics,
    PartitionStatistics,
    RecurringStatistics,
    RelayStatistics,
    SeriesStatistics,
    SpanStatistics,
)
from waterclock.relay.store import Payload, unpack
from waterclock.relay.wire.request import CRON, ZONE, Flag, occurrence_of
from waterclock.web.dial import Dial

PATIENCE_S: Final = 0.1  # with a step of the relay: a loop that is asked for dials is asked again soon
Owners = Mapping[int, Owner]
Lock = AbstractContextManager[Any]


def gathered(last: RelayStatistics, counts: Counts, owners: Mapping[int, Owner], standby: Standby) -> RelayStatistics:
    """The record as of now."""
    spans: dict[tuple[int, int, str], int] = {}
    for owner in owners.values():
        for span in owner.store.spans():
            for target, pending in span.pending.items():
                key = span.start_ms, span.end_ms, target
                spans[key] = spans.get(key, 0) + pending
    return replace(
        last,
        requests=counts.requests,
        delivered=counts.delivered,
        replies=dict(counts.replies),
        dead_letters=counts.dead_letters,
        missed=counts.missed,
        turns=counts.turns,
        breaks=counts.breaks,
        moved=counts.moved,
        laps=counts.laps,
        snapshots=counts.snapshots,
        lateness_ms=counts.lateness_ms(),
        lateness_sum_ms=counts.lateness_sum_ms,
        lateness_worst_ms=counts.lateness_worst_ms,
        partitions={number: _partition(owner) for number, owner in sorted(owners.items())},
        partitions_of_topic=max([last.partitions_of_topic, *(number + 1 for number in owners)]),
        standby=standby.statistics(),
        spans=tuple(SpanStatistics(*key, pending) for key, pending in sorted(spans.items())),
        letters=tuple(counts.letters),
    )


def shown(id: str, owners: Mapping[int, Owner], topic: str) -> tuple[MessageStatistics, ...]:
    """The messages of an id, by due time."""
    found = [
        MessageStatistics(f"{topic}-{number}-{one.origin}", one.due, one.target, one.state.name.lower())
        for number, owner in sorted(owners.items())
        for one in owner.store.find(id.encode())
    ]
    return tuple(sorted(found, key=lambda one: one.due_ms))


def _partition(owner: Owner) -> PartitionStatistics:
    store, due_ms = owner.store, owner.next_due_ms()
    return PartitionStatistics(
        pending=store.pending,
        near=len(owner.due_soon) + len(owner.ready),
        next_due_ms=store.next_due if due_ms is None else due_ms,
        position=owner.position,
        bytes_on_disk=store.bytes_on_disk,
        caught_up=owner.has_caught_up,
        held=sum(map(len, owner.held)),
        bytes_wanted=owner.disk.wanted,
        refusals=owner.disk.refusals,
        log_bytes=owner.log_span.volume.since(owner.log_span.low),
        swept=owner.log_span.moves.swept,
        begins=owner.log_span.low,
        settled_begins=owner.log_span.settled_low,
        reads_to=owner.reads_to,
    )


class Dials:
    """The wheels of what is due soon, by partition, for any thread. While the relay is busy, those of the last time."""

    def __init__(self, owners: Owners, lock: Any, topic: str) -> None:
        self._owners, self._lock, self._topic = owners, lock, topic
        self._last: dict[str, Dial] = {}

    def seen(self) -> dict[str, Dial]:
        if self._lock.acquire(timeout=PATIENCE_S):
            try:
                owners = sorted(self._owners.items())
                self._last = {
                    f"{self._topic}-{number}": Dial(1.0, owner.due_soon.occupancy()) for number, owner in owners
                }
            finally:
                self._lock.release()
        return self._last


MOST: Final = 1_000
SLICE: Final = 10_000  # rows: some milliseconds, for which nothing is delivered


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
