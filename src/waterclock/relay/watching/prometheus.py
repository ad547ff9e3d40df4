"""A relay's statistics as Prometheus's text; docs/operations.md has the names in a table."""

from __future__ import annotations

from collections.abc import Iterator

from waterclock.relay.statistics import RelayStatistics
from waterclock.web.metrics import Metric, Sample, text

COUNTED = {
    "requests": "Records read of the input.",
    "delivered": "Messages that are committed in their topics.",
    "dead_letters": "Requests that could not be done and are committed in TOPIC.dead.",
    "missed": "Occurrences of series that were left out, being too late (delay-missed=skip).",
    "turns": "Transactions that are committed.",
    "moved": "Messages copied to the end of the input.",
    "laps": "Times that all of the input was gone through for that.",
    "snapshots": "Snapshots of what is settled.",
    "breaks": "Times that a partition had to be taken over anew.",
}


def prometheus(statistics: RelayStatistics) -> str:
    """The page; each sample carries the group and the input topic.

    >>> page = prometheus(RelayStatistics("g", "delays", delivered=12))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_relay_delivered")]
    ['waterclock_relay_delivered_total{group="g",topic="delays"} 12']
    """
    return text(_metrics(statistics))


def _metrics(now: RelayStatistics) -> Iterator[Metric]:
    labels = {"group": now.group, "topic": now.topic}
    for name, what in COUNTED.items():
        sample = Sample(getattr(now, name), labels)
        yield Metric(f"waterclock_relay_{name}_total", "counter", f"{what} Since the start.", (sample,))
    replies = tuple(Sample(count, {**labels, "outcome": outcome}) for outcome, count in sorted(now.replies.items()))
    yield Metric(
        "waterclock_relay_replies_total", "counter", "Cancels and replaces answered. Since the start.", replies
    )
    late = Sample(now.lateness_sum_ms / 1000, labels, "_sum"), Sample(now.delivered, labels, "_count")
    yield Metric("waterclock_relay_lateness_seconds", "summary", "From the due time to the commit.", late)
    yield from _of_partitions(now, labels)
    yield from _of_standby(now, labels)


def _of_partitions(now: RelayStatistics, labels: dict[str, str]) -> Iterator[Metric]:
    each = [({**labels, "partition": str(number)}, one) for number, one in now.partitions.items()]
    for name, what, samples in (
        ("pending_messages", "Messages that are pending.", [Sample(one.pending, its) for its, one in each]),
        ("near_messages", "Messages that are due soon, and wait in memory.", [Sample(one.near, its) for its, one in each]),
        ("files_bytes", "What the partition's files hold.", [Sample(one.bytes_on_disk, its) for its, one in each]),
        ("log_bytes", "What the input holds, before compression.", [Sample(one.log_bytes, its) for its, one in each]),
        ("swept_offset", "What is pending was moved on from before this offset of the input.",
         [Sample(one.swept, its) for its, one in each]),
        ("trimmed_offset", "The input was cut off at this offset.", [Sample(one.begins, its) for its, one in each]),
        ("held_requests", "Records of the input that wait for room on the disk.",
         [Sample(one.held, its) for its, one in each]),
        ("refused_bytes", "What the disk refused to take last; 0 where it takes all.",
         [Sample(one.bytes_wanted, its) for its, one in each]),
        ("caught_up", "1 where the owner has read the input since it took over.",
         [Sample(one.caught_up, its) for its, one in each]),
        ("next_due_timestamp_seconds", "When the next message is due.",
         [Sample(one.next_due_ms / 1000, its) for its, one in each if one.next_due_ms is not None]),
    ):  # fmt: skip
        yield Metric(f"waterclock_relay_{name}", "gauge", what, tuple(samples))


def _of_standby(now: RelayStatistics, labels: dict[str, str]) -> Iterator[Metric]:
    each = [({**labels, "partition": str(number)}, one) for number, one in now.standby.items()]
    for name, what, samples in (
        ("behind", "Offsets of the input that are not in the files of a partition that this relay stands by for.",
         [Sample(one.behind, its) for its, one in each if one.behind is not None]),
        ("pending_messages", "Messages that are pending there.", [Sample(one.pending, its) for its, one in each]),
        ("files_bytes", "What the files hold there.", [Sample(one.bytes_on_disk, its) for its, one in each]),
        ("stopped", "1 where this relay does not stand by for a partition though it should.",
         [Sample(bool(one.why), its) for its, one in each]),
    ):  # fmt: skip
        yield Metric(f"waterclock_relay_standby_{name}", "gauge", what, tuple(samples))
