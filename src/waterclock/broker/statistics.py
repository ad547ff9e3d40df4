"""The broker's statistics: frozen records, the only thing that a console may read. Who has the counts makes the records.

Rule 1: counts begin at the broker's start; what is open, waiting or there is of this moment.
Rule 2: a number that cannot be known is None. It is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waterclock.purgatory import PurgatoryStatistics


@dataclass(frozen=True, slots=True)
class FlushStatistics:
    """Flushes of the logs; times by the broker's clock, so that they are 0 under a `ManualClock`.

    >>> FlushStatistics(count=10, partitions=25, last_ms=0.1, worst_ms=4.0).partitions_per_flush
    2.5
    """

    count: int
    partitions: int  # flushed in all; one that is flushed twice counts twice
    last_ms: float | None  # None before the first flush
    worst_ms: float | None

    @property
    def partitions_per_flush(self) -> float:
        return self.partitions / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class ReplicationStatistics:
    """Who leads, and how far the follower is.

    >>> ReplicationStatistics(leads=True, peer="", in_sync=0, lag=0)
    ReplicationStatistics(leads=True, peer='', in_sync=0, lag=0)
    """

    leads: bool
    peer: str  # the other broker's address, "" where there is none
    in_sync: int | None  # partitions for which the follower is in sync, the store's journal included
    lag: int | None  # records that the follower lacks in all; both are None of a follower, for it cannot know


@dataclass(frozen=True, slots=True)
class ScrubStatistics:
    """The reading of segments for damage.

    >>> ScrubStatistics(bytes=1 << 20, segments_left=0, damaged=0)
    ScrubStatistics(bytes=1048576, segments_left=0, damaged=0)
    """

    bytes: int  # read since the start
    segments_left: int | None  # of the pass at work, 0 between two; None before the first
    damaged: int  # places in files that are known to be damaged now


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Counts of one moment; `Broker.statistics()` returns it. `dataclasses.asdict` makes what JSON takes.

    >>> from waterclock.broker import Broker
    >>> with Broker() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     (s := broker.statistics()).topics, s.partitions, s.purgatories["fetch"].delayed, s.requests
    (1, 3, 0, {})
    """

    connections: int  # open now
    requests: Mapping[str, int]  # by Kafka's name of the API; those that a fault met count too
    bytes_in: int  # over the network
    bytes_out: int
    records_in: int  # that producers appended, duplicates that idempotence dropped aside
    record_bytes_in: int  # their batches, as they came
    topics: int
    partitions: int
    purgatories: Mapping[str, PurgatoryStatistics]  # by the purgatory's name
    flushes: FlushStatistics
    groups: Mapping[str, int]  # how many there are in each state, by Kafka's name of it
    group_members: int
    transactions: Mapping[str, int]  # transactional ids, likewise
    replication: ReplicationStatistics
    scrub: ScrubStatistics
