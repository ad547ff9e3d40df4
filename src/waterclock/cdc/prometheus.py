"""A capture's statistics as Prometheus's text; docs/operations.md has the names in a table."""

from __future__ import annotations

from collections.abc import Iterator

from waterclock.cdc.statistics import CaptureStatistics
from waterclock.web.metrics import Metric, Sample, text

COUNTED = {
    "changes": "Row changes that are committed in Kafka.",
    "transactions": "Transactions of the source that are committed in Kafka, those without a row of interest too.",
    "commits": "Commits in Kafka.",
    "breaks": "Breaks of a connection that were survived.",
    "dead_letters": "Records of the source that could not be read and are committed in the topic of dead letters.",
}


def prometheus(capture: str, statistics: CaptureStatistics) -> str:
    """The page for the capture of that name; each sample carries it.

    >>> page = prometheus("shop", CaptureStatistics(changes=12))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_capture_changes")]
    ['waterclock_capture_changes_total{capture="shop"} 12']
    """
    return text(_metrics(capture, statistics))


def _metrics(capture: str, statistics: CaptureStatistics) -> Iterator[Metric]:
    for name, what in COUNTED.items():
        sample = Sample(getattr(statistics, name), {"capture": capture})
        yield Metric(f"waterclock_capture_{name}_total", "counter", f"{what} Since the start.", (sample,))
