"""The broker's statistics as Prometheus's text; docs/operations.md has the names in a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from waterclock.broker.statistics import BrokerStatistics
from waterclock.web.metrics import Metric, Sample, text


def prometheus(statistics: BrokerStatistics) -> str:
    """The page for one broker.

    >>> from waterclock.broker import Broker
    >>> with Broker() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     page = prometheus(broker.statistics())
    >>> [line for line in page.splitlines() if line.startswith("waterclock_broker_partitions")]
    ['waterclock_broker_partitions 3']
    """
    return text([*_traffic(statistics), *_there(statistics), *_waiting(statistics), *_disk(statistics)])


def _traffic(s: BrokerStatistics) -> Iterator[Metric]:
    yield _counter("requests", "Requests served, by Kafka's name of the API.", _each("api", s.requests))
    yield _counter("received_bytes", "Bytes that came over the network.", [Sample(s.bytes_in)])
    yield _counter("sent_bytes", "Bytes that went over the network.", [Sample(s.bytes_out)])
    yield _counter("appended_records", "Records that producers appended.", [Sample(s.records_in)])
    yield _counter("appended_bytes", "The batches of these records, as they came.", [Sample(s.record_bytes_in)])


def _there(s: BrokerStatistics) -> Iterator[Metric]:
    yield _gauge("connections", "Connections that are open.", [Sample(s.connections)])
    yield _gauge("topics", "Topics.", [Sample(s.topics)])
    yield _gauge("partitions", "Partitions of all topics.", [Sample(s.partitions)])
    yield _gauge("groups", "Consumer groups, by state.", _each("state", s.groups))
    yield _gauge("group_members", "Members of all groups.", [Sample(s.group_members)])
    yield _gauge("transactional_ids", "Transactional ids, by state.", _each("state", s.transactions))
    yield _gauge("leads", "1 where the broker leads, 0 where it follows.", [Sample(s.replication.leads)])
    yield _gauge("in_sync_partitions", "Partitions the follower is in sync for.", _known(s.replication.in_sync))
    yield _gauge("follower_lag_records", "Records that the follower lacks.", _known(s.replication.lag))


def _waiting(s: BrokerStatistics) -> Iterator[Metric]:
    delayed = {name: each.delayed for name, each in s.purgatories.items()}
    yield _gauge("delayed_operations", "Operations that wait, by purgatory.", _each("purgatory", delayed))
    ends = [
        Sample(count, {"purgatory": name, "end": end})
        for name, each in s.purgatories.items()
        for end, count in (("completed", each.completed), ("expired", each.expired), ("cancelled", each.cancelled))
    ]
    yield _counter("ended_operations", "Operations that are over, by purgatory and by how they ended.", ends)


def _disk(s: BrokerStatistics) -> Iterator[Metric]:
    yield _counter("flushes", "Flushes of the logs.", [Sample(s.flushes.count)])
    yield _counter(
        "flushed_partitions", "Partitions flushed; one flushed twice counts twice.", [Sample(s.flushes.partitions)]
    )
    yield _gauge("last_flush_seconds", "What the last flush took.", _known(s.flushes.last_ms, 1000))
    yield _gauge("worst_flush_seconds", "What the longest flush took.", _known(s.flushes.worst_ms, 1000))
    yield _counter("scrubbed_bytes", "Bytes of segments that were read for damage.", [Sample(s.scrub.bytes)])
    yield _gauge("segments_to_scrub", "Segments that this pass has not read yet.", _known(s.scrub.segments_left))
    yield _gauge("damaged_places", "Places in segments that are known to be damaged.", [Sample(s.scrub.damaged)])


def _counter(name: str, what: str, samples: Iterable[Sample]) -> Metric:
    return Metric(f"waterclock_broker_{name}_total", "counter", f"{what} Since the start.", tuple(samples))


def _gauge(name: str, what: str, samples: Iterable[Sample]) -> Metric:
    return Metric(f"waterclock_broker_{name}", "gauge", what, tuple(samples))


def _each(label: str, counts: Mapping[str, float]) -> list[Sample]:
    return [Sample(count, {label: name}) for name, count in sorted(counts.items())]


def _known(value: float | None, unit: int = 1) -> list[Sample]:
    """The value in a unit of so many; no sample where it is not known."""
    return [] if value is None else [Sample(value / unit)]
