"""What a capture says about itself: one frozen record, the same for every reader. Each field says how it is shown to
Prometheus; the site's reference has a table of the names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from waterclock.letters import LetterStatistics
from waterclock.web.record import counter, gauge, page


@dataclass(frozen=True, slots=True)
class CaptureStatistics:
    """Counts since the start, of what is committed in Kafka, and the `place` in the source that Kafka holds."""

    changes: int = field(default=0, metadata=counter("changes", "Row changes that are committed in Kafka."))
    transactions: int = field(
        default=0,
        metadata=counter(
            "transactions",
            "Transactions of the source that are committed in Kafka, those without a row of interest too.",
        ),
    )
    commits: int = field(default=0, metadata=counter("commits", "Commits in Kafka."))
    breaks: int = field(default=0, metadata=counter("breaks", "Breaks of a connection that were survived."))
    place: str = ""
    dead_letters: int = field(
        default=0,
        metadata=counter(
            "dead_letters",
            "Records of the source that could not be read and are committed in the topic of dead letters.",
        ),
    )
    older_rows: int = field(
        default=0,
        metadata=counter("older_rows", "Of the changes, rows that are older than the log (a snapshot's)."),
    )
    older_tables_left: int = field(
        default=0, metadata=gauge("older_tables_left", "Tables of which older rows are still to come.")
    )
    older_rows_left: int = field(
        default=0,
        metadata=gauge("older_rows_left", "Older rows that are still to come, by the estimates of the source."),
    )
    letters: tuple[LetterStatistics, ...] = ()  # the last ones

    def hidden(self) -> CaptureStatistics:
        """Without what somebody sent."""
        return replace(self, letters=tuple(each.hidden() for each in self.letters))


def prometheus(capture: str, statistics: CaptureStatistics) -> str:
    """The page for the capture of that name; each sample carries it.

    >>> page = prometheus("shop", CaptureStatistics(changes=12))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_capture_changes")]
    ['waterclock_capture_changes_total{capture="shop"} 12']
    """
    return page(statistics, "capture_", {"capture": capture})
