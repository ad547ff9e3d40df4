"""The broker's statistics: frozen records, the only thing that a console may read. Who has the counts makes the records.
Each field says how it is shown to Prometheus; the site's reference has a table of the names.

Rule 1: counts begin at the broker's start; what is open, waiting or there is of this moment.
Rule 2: a number that cannot be known is None. It is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from waterclock.purgatory import PurgatoryStatistics
from waterclock.web.record import Each, counter, gauge, page


@dataclass(frozen=True, slots=True)
class FlushStatistics:
    """Flushes of the logs; times by the broker's clock, so that they are 0 under a `ManualClock`.

    >>> FlushStatistics(count=10, partitions=25, last_ms=0.1, worst_ms=4.0).partitions_per_flush
    2.5
    """

    count: int = field(metadata=counter("flushes", "Flushes of the logs."))
    partitions: int = field(
        metadata=counter("flushed_partitions", "Partitions flushed; one flushed twice counts twice.")
    )
    last_ms: float | None = field(metadata=gauge("last_flush_seconds", "What the last flush took."))  # None before it
    worst_ms: float | None = field(metadata=gauge("worst_flush_seconds", "What the longest flush took."))

    @property
    def partitions_per_flush(self) -> float:
        return self.partitions / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class ReplicationStatistics:
    """Who leads, and how far the follower is.

    >>> ReplicationStatistics(leads=True, peer="", in_sync=0, lag=0)
    ReplicationStatistics(leads=True, peer='', in_sync=0, lag=0)
    """

    leads: bool = field(metadata=gauge("leads", "1 if the broker leads, 0 if it follows."))
    peer: str  # the other broker's address, "" if there is none
    # the store's journal included; this and the lag are None of a follower, for it cannot know
    in_sync: int | None = field(metadata=gauge("in_sync_partitions", "Partitions the follower is in sync for."))
    lag: int | None = field(metadata=gauge("follower_lag_records", "Records that the follower lacks."))


@dataclass(frozen=True, slots=True)
class ScrubStatistics:
    """The reading of segments for damage.

    >>> ScrubStatistics(bytes=1 << 20, segments_left=0, damaged=0)
    ScrubStatistics(bytes=1048576, segments_left=0, damaged=0)
    """

    bytes: int = field(metadata=counter("scrubbed_bytes", "Bytes of segments that were read for damage."))
    # 0 between two passes, None before the first
    segments_left: int | None = field(metadata=gauge("segments_to_scrub", "Segments that this pass has not read yet."))
    damaged: int = field(metadata=gauge("damaged_places", "Places in segments that are known to be damaged."))


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is: records behind the offsets that it has committed, in so many partitions, as readers may see them.

    >>> GroupLag("Stable", members=1, partitions=3, lag=12)
    GroupLag(state='Stable', members=1, partitions=3, lag=12)
    """

    state: str  # by Kafka's name; empty of a group that has offsets alone
    members: int
    partitions: int
    lag: int = field(
        metadata=gauge("lag_records", "Records behind what the group has committed, of the groups most behind.")
    )


def _delayed(s: BrokerStatistics) -> dict[str, int]:
    return {name: each.delayed for name, each in s.purgatories.items()}


def _ended(s: BrokerStatistics) -> dict[tuple[str, str], int]:
    ends = ("completed", "expired", "cancelled")
    return {(name, end): getattr(each, end) for name, each in s.purgatories.items() for end in ends}


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Counts of one moment; `Broker.statistics()` returns it. `dataclasses.asdict` makes what JSON takes.

    >>> from waterclock.broker import Broker
    >>> with Broker() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     (s := broker.statistics()).topics, s.partitions, s.purgatories["fetch"].delayed, s.requests
    (1, 3, 0, {})
    """

    connections: int = field(metadata=gauge("connections", "Connections that are open."))
    # those that a fault met count too
    requests: Mapping[str, int] = field(
        metadata=counter("requests", "Requests served, by Kafka's name of the API.", by="api")
    )
    bytes_in: int = field(metadata=counter("received_bytes", "Bytes that came over the network."))
    bytes_out: int = field(metadata=counter("sent_bytes", "Bytes that went over the network."))
    # without the duplicates that idempotence dropped
    records_in: int = field(metadata=counter("appended_records", "Records that producers appended."))
    record_bytes_in: int = field(metadata=counter("appended_bytes", "The batches of these records, as they came."))
    topics: int = field(metadata=gauge("topics", "Topics."))
    partitions: int = field(metadata=gauge("partitions", "Partitions of all topics."))
    # by the purgatory's name
    purgatories: Mapping[str, PurgatoryStatistics] = field(
        metadata={
            **gauge("delayed_operations", "Operations that wait, by purgatory.", of=_delayed, by="purgatory"),
            **counter(
                "ended_operations", "Operations that are over, by purgatory and by how they ended.",
                of=_ended, by="purgatory end",
            ),
        }
    )  # fmt: skip
    flushes: FlushStatistics
    # by Kafka's name of the state, here and of the transactional ids
    groups: Mapping[str, int] = field(metadata=gauge("groups", "Consumer groups, by state.", by="state"))
    group_members: int = field(metadata=gauge("group_members", "Members of all groups."))
    transactions: Mapping[str, int] = field(
        metadata=gauge("transactional_ids", "Transactional ids, by state.", by="state")
    )
    replication: ReplicationStatistics
    scrub: ScrubStatistics
    # of the groups that are most behind, the first one most; `groups/lags.py` says of how many
    lags: Mapping[str, GroupLag] = field(default_factory=dict, metadata={"": Each("group", "group_")})


def prometheus(statistics: BrokerStatistics) -> str:
    """The page for one broker.

    >>> from waterclock.broker import Broker
    >>> with Broker() as broker:
    ...     broker.create_topic("orders", partitions=3)
    ...     page = prometheus(broker.statistics())
    >>> [line for line in page.splitlines() if line.startswith("waterclock_broker_partitions")]
    ['waterclock_broker_partitions 3']
    """
    return page(statistics, "broker_")
