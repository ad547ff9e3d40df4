"""The statistics of a relay, made of its counts and its owners: once a second, in the relay's own thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waterclock.relay.owner.owner import Owner
from waterclock.relay.standby.standby import Standby
from waterclock.relay.statistics import Counts, MessageStatistics, PartitionStatistics, RelayStatistics, SpanStatistics


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
