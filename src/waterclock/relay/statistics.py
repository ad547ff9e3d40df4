"""What a relay says about itself: one frozen record, the same for every reader; and the counts that it is made of. Each
field says how it is shown to Prometheus; the site's reference has a table of the names."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from waterclock.letters import LETTERS, LetterStatistics, shortened
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.letters import Letter, Reply
from waterclock.web.record import LABEL, Each, counter, gauge, page, summary

# upper edges of the histogram
LATENESS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000, 60_000, 3_600_000)


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """One input partition that this relay owns. `near` are the messages in the wheel; a time is ms since 1970, or None.

    `reads_to`: where the input ended when the owner took over, or was in doubt; until `position` is there, nothing is
    delivered. `held` are records of the input that wait for room on the disk, `bytes_wanted` what the disk refused last,
    `refusals` how often it did since the owner's start. `log_bytes` are those of the input, before compression, from offset
    `begins` on, if it was cut off; `swept`: what is pending was moved on from before this offset. `settled_begins` is
    TOPIC.settled's.
    """

    pending: int = field(metadata=gauge("pending_messages", "Messages that are pending."))
    near: int = field(metadata=gauge("near_messages", "Messages that are due soon, and wait in memory."))
    next_due_ms: int | None = field(metadata=gauge("next_due_timestamp_seconds", "When the next message is due."))
    position: int
    bytes_on_disk: int = field(metadata=gauge("files_bytes", "What the partition's files hold."))
    caught_up: bool = field(metadata=gauge("caught_up", "1 if the owner has read the input since it took over."))
    held: int = field(
        default=0, metadata=gauge("held_requests", "Records of the input that wait for room on the disk.")
    )
    bytes_wanted: int = field(
        default=0, metadata=gauge("refused_bytes", "What the disk refused to take last; 0 if it takes all.")
    )
    refusals: int = 0
    log_bytes: int = field(default=0, metadata=gauge("log_bytes", "What the input holds, before compression."))
    swept: int = field(
        default=0,
        metadata=gauge("swept_offset", "What is pending was moved on from before this offset of the input."),
    )
    begins: int = field(default=0, metadata=gauge("trimmed_offset", "The input was cut off at this offset."))
    settled_begins: int = 0
    reads_to: int = 0


@dataclass(frozen=True, slots=True)
class StandbyStatistics:
    """One input partition that another relay owns, and whose files this one keeps.

    The input is filed up to `position`, and `behind` offsets of it are to be filed, None if that is not known yet; `why`
    says why nothing of it is, if that is so.
    """

    pending: int = field(default=0, metadata=gauge("pending_messages", "Messages that are pending there."))
    position: int = 0
    behind: int | None = field(
        default=None,
        metadata=gauge(
            "behind", "Offsets of the input that are not in the files of a partition that this relay stands by for."
        ),
    )
    bytes_on_disk: int = field(default=0, metadata=gauge("files_bytes", "What the files hold there."))
    why: str = field(
        default="",
        metadata=gauge(
            "stopped", "1 if this relay does not stand by for a partition though it should.",
            of=lambda record: bool(record.why),
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpanStatistics:
    """Messages pending for a topic whose due times lie between two moments, in ms since 1970."""

    start_ms: int
    end_ms: int
    target: str
    pending: int


@dataclass(frozen=True, slots=True)
class MessageStatistics:
    """A message that bears an id: where its request stands, when it is due; `state` is pending, delivered or cancelled. Of
    one that is pending and recurs, `cron` and `zone` say when; else they are None."""

    origin: str
    due_ms: int
    target: str
    state: str
    cron: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class SeriesStatistics:
    """A message that recurs: its next occurrence is the one that is pending. `occurrence`: the how-manieth that is."""

    id: str
    cron: str
    zone: str
    next_due_ms: int
    target: str
    occurrence: int
    origin: str


@dataclass(frozen=True, slots=True)
class RecurringStatistics:
    """What recurs of a relay's messages, by what occurs next; `more`: how many there are besides."""

    series: tuple[SeriesStatistics, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A pending message: where its request stands, when it is due and for which topic; its id and key as text, empty if it
    has none. `why` says what it waits for besides its time; `recurs`: it is an occurrence of a series."""

    origin: str
    due_ms: int
    target: str
    id: str = ""
    key: str = ""
    why: str = ""
    recurs: bool = False


@dataclass(frozen=True, slots=True)
class DueStatistics:
    """What is due next, by due time, in the partitions that a relay owns. `known_to_ms`: what is due later is not all in
    it, as it was too much to look through; None if nothing was left out but what the list has no place for."""

    messages: tuple[DueMessage, ...]
    known_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WaitStatistics:
    """Messages that are due for a topic, and are not delivered; `keys`: those of the first ones, the fullest first."""

    target: str
    pending: int
    why: str
    keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelayStatistics:
    """Counts since the start, of what is committed in Kafka, and what is pending now.

    `requests` were read of the input, copies too; `moved` messages were copied to its end, `laps` times all of it was gone
    through for that, and `snapshots` of what is settled were taken; `missed`: occurrences of series that were left out, as
    these ask for; `turns` are transactions; `breaks` were survived. `lateness_ms` has for each edge how many messages were
    delivered that late or less, beyond the edge before; the last one has no edge.
    """

    group: str = field(default="", metadata=LABEL)
    topic: str = field(default="", metadata=LABEL)
    requests: int = field(default=0, metadata=counter("requests", "Records read of the input."))
    delivered: int = field(default=0, metadata=counter("delivered", "Messages that are committed in their topics."))
    replies: Mapping[str, int] = field(
        default_factory=dict,
        metadata=counter(
            "replies", "Answers to cancels and replaces, one of each partition that was asked.", by="outcome"
        ),
    )
    dead_letters: int = field(
        default=0,
        metadata=counter("dead_letters", "Requests that could not be done and are committed in TOPIC.dead."),
    )
    missed: int = field(
        default=0,
        metadata=counter("missed", "Occurrences of series that were left out, being too late (delay-missed=skip)."),
    )
    turns: int = field(default=0, metadata=counter("turns", "Transactions that are committed."))
    breaks: int = field(default=0, metadata=counter("breaks", "Times that a partition had to be taken over anew."))
    moved: int = field(default=0, metadata=counter("moved", "Messages copied to the end of the input."))
    laps: int = field(default=0, metadata=counter("laps", "Times that all of the input was gone through for that."))
    snapshots: int = field(default=0, metadata=counter("snapshots", "Snapshots of what is settled."))
    lateness_ms: Mapping[str, int] = field(default_factory=dict)
    lateness_sum_ms: int = field(
        default=0, metadata=summary("lateness_seconds", "From the due time to the commit.", count="delivered")
    )
    lateness_worst_ms: int = 0
    partitions: Mapping[int, PartitionStatistics] = field(default_factory=dict, metadata={"": Each("partition")})
    standby: Mapping[int, StandbyStatistics] = field(default_factory=dict, metadata={"": Each("partition", "standby_")})
    partitions_of_topic: int = 0
    spans: tuple[SpanStatistics, ...] = ()
    # the last ones, the newest first
    letters: tuple[LetterStatistics, ...] = ()
    waits: tuple[WaitStatistics, ...] = ()
    # of what is near, by key, the keys with most of it
    fullest: Mapping[str, int] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        return sum(each.pending for each in self.partitions.values())


def prometheus(statistics: RelayStatistics) -> str:
    """The page; each sample carries the group and the input topic.

    >>> page = prometheus(RelayStatistics("g", "delays", delivered=12))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_relay_delivered")]
    ['waterclock_relay_delivered_total{group="g",topic="delays"} 12']
    """
    return page(statistics, "relay_")


class Counts:
    """What the turns of all partitions add up to; with `hides_values` no letter shows what somebody sent."""

    def __init__(self, hides_values: bool = False) -> None:
        self._hides_values, self.letters = hides_values, deque[LetterStatistics](maxlen=LETTERS)
        self.requests = self.delivered = 0
        self.dead_letters = self.missed = 0
        self.turns = self.breaks = 0
        self.moved = self.laps = 0
        self.snapshots = 0
        self.replies: dict[str, int] = {}
        self.lateness_sum_ms = self.lateness_worst_ms = 0
        self._lateness = np.zeros(len(LATENESS_MS) + 1, "i8")

    def turn(
        self, now_ms: int, dues: Array, replies: Sequence[Reply], letters: Sequence[Letter], missed: int, place: str
    ) -> None:
        """A turn was committed at `now_ms`, of the input's partition `place`, TOPIC-PARTITION."""
        for letter in letters[-LETTERS:]:
            shown = LetterStatistics(f"{place}-{letter.offset}", now_ms, letter.reason, shortened(letter.value or b""))
            self.letters.appendleft(shown.hidden() if self._hides_values else shown)
        self.turns += 1
        self.delivered += len(dues)
        self.dead_letters += len(letters)
        self.missed += missed
        for reply in replies:
            self.replies[reply.outcome] = self.replies.get(reply.outcome, 0) + 1
        if len(dues):
            late_ms = np.maximum(0, now_ms - dues)
            self._lateness += np.bincount(np.searchsorted(LATENESS_MS, late_ms), minlength=len(LATENESS_MS) + 1)
            self.lateness_sum_ms += int(late_ms.sum())
            self.lateness_worst_ms = max(self.lateness_worst_ms, int(late_ms.max()))

    def lateness_ms(self) -> dict[str, int]:
        """The histogram, by upper edge."""
        edges = [*map(str, LATENESS_MS), "more"]
        return dict(zip(edges, self._lateness.tolist(), strict=True))
