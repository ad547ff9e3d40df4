"""What the broker tells about itself: frozen records, the only thing that a console may read.

Rule 1: counts begin at the broker's start; what is open, waiting or there is of this moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from waterclock.broker.wire.names import NAMES
from waterclock.purgatory import Purgatory, PurgatoryStatistics

if TYPE_CHECKING:
    from waterclock.broker.api.produce import ProduceApi
    from waterclock.broker.api.table import Table
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.groups.coordinator import GroupCoordinator
    from waterclock.broker.net.listener import Listener
    from waterclock.broker.replication.leader import Leader
    from waterclock.broker.topics import Topics
    from waterclock.broker.transactions.coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True)
class FlushStatistics:
    """Flushes of the logs; times by the broker's clock, so that they are 0 under a `ManualClock`.

    >>> FlushStatistics(count=10, partitions=25, last_ms=0.1, worst_ms=4.0).partitions_per_flush
    2.5
    """

    count: int
    partitions: int  # flushed in all; one that is flushed twice counts twice
    last_ms: float
    worst_ms: float

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
    in_sync: int  # partitions for which the follower is in sync, the store's journal included; of a follower: 0
    lag: int  # records that the follower lacks in all; of a follower: -1, for it cannot know


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


class Sources(NamedTuple):
    """Who knows the counts."""

    listener: Listener
    table: Table
    topics: Topics
    produce: ProduceApi
    flusher: Flusher
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    purgatories: Mapping[str, Purgatory]
    leading: Leader


def taken(sources: Sources) -> BrokerStatistics:
    """The statistics of these sources, now; in the broker's thread."""
    listener, table, topics, produce, flusher, groups, transactions, purgatories, leading = sources
    known = list(groups)
    return BrokerStatistics(
        connections=len(listener.connections),
        requests={NAMES.get(key, str(key)): count for key, count in sorted(table.served.items()) if count},
        bytes_in=listener.received,
        bytes_out=listener.sent,
        records_in=produce.records,
        record_bytes_in=produce.bytes,
        topics=len(topics.by_name),
        partitions=sum(len(topic.partitions) for topic in topics),
        purgatories={name: purgatory.statistics() for name, purgatory in purgatories.items()},
        flushes=flusher.statistics(),
        groups=Counter(group.state_name for group in known),
        group_members=sum(len(group.members) for group in known),
        transactions=Counter(one.record.state.value for one in transactions.ledger.by_name.values()),
        replication=leading.statistics(),
    )


def of_follower(listener: Listener, table: Table, topics: Topics, leader: str) -> BrokerStatistics:
    """The statistics of a broker that follows the one at `leader`: what nobody asks of a follower is empty."""
    return BrokerStatistics(
        connections=len(listener.connections),
        requests={NAMES.get(key, str(key)): count for key, count in sorted(table.served.items()) if count},
        bytes_in=listener.received, bytes_out=listener.sent, records_in=0, record_bytes_in=0,
        topics=len(topics.by_name), partitions=sum(len(topic.partitions) for topic in topics),
        purgatories={}, flushes=FlushStatistics(0, 0, 0.0, 0.0), groups={}, group_members=0, transactions={},
        replication=ReplicationStatistics(False, leader, 0, -1),
    )  # fmt: skip
