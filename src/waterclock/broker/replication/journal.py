"""What the store keeps, once more as a log: so that the follower can copy it like any partition.

It exists from the first follower on. It begins with everything (`reset`, in as many records as it takes, all but the last
with `more`); each later record is the changes of one commit. It begins anew after a start, when it has grown by
`journal_renew` (knobs.py), and when a commit failed that stands in it already. If it cannot begin anew, that is tried every
RETRY_S.

Rule 1: a commit is done when it is durable here and below the journal's high watermark: an in-sync follower has it. One
    from before the journal's beginning is done when the follower has all of that: it may have dropped the rest first.
Rule 2: namespaces in OWN belong to one broker and are not copied.
Rule 3: whether a commit may be made at all is said before it stands anywhere: leader.py. What stands in the store cannot be
    refused any more: it waits for the follower, and hears nothing if this broker ends before.
Rule 4: between the asking for everything and its coming, commits are held back, and follow it in their order.
Rule 5: after a start the store may hold what its follower never got, and who asked for it was not answered: until the
    follower has the first reset, nobody is told what stands in it (`Leader.loading`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from waterclock.broker.knobs import knobs
from waterclock.broker.log.batch import header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import packed, records
from waterclock.broker.store import Entry, Forget, Then
from waterclock.purgatory import DelayedOperation, Purgatory

TOPIC: Final = "__waterclock_store"
OWN: Final = frozenset({"self"})
MANY: Final = 2000  # changes in one record of a reset
RETRY_S: Final = 1.0
NEVER: Final = 1 << 62  # an offset that no journal comes to
log = logging.getLogger("waterclock.broker")


class Journal:
    """The leader's journal in `partition`. `mark(partition)` has it flushed, `tell_all(then)` asks the store for all it
    has, `later(delay_s, deed)` runs a deed after a while."""

    def __init__(
        self,
        partition: Partition,
        waits: Purgatory,
        mark: Callable[[Partition], None],
        wall_ms: Callable[[], int],
        tell_all: Callable[[Callable[[list[Entry] | None], Any]], Any],
        later: Callable[[float, Callable[[], Any]], Any],
    ) -> None:
        self.partition = partition
        self._waits = waits
        self._mark = mark
        self._wall_ms = wall_ms
        self._tell_all = tell_all
        self._later = later
        self._held: list[list[Entry]] | None = []  # commits that came before the reset was written
        self._awaiting: list[ReplicatedCommit] = []  # the store has them, and the reset that was to come first failed
        self._tainted = False  # of the commits held back one has failed
        self._grown, self._renew_after = 0, knobs().journal_renew
        self._first = self._whole = NEVER  # where the journal begins, and where the last record of that reset ends

    def reset(self, everything: Iterable[Entry] | None) -> None:
        """Write down everything; what stood before is not needed any more.

        If the store could not say what it has (None), or the disk refuses, it is tried again from the asking on.
        """
        try:
            self._begin_with(everything)
        except OSError as error:
            log.warning("the journal of the store cannot begin anew: %s. It is tried again in %.0f s", error, RETRY_S)
            self._later(RETRY_S, self._renew)
            return
        self._held = None
        awaiting, self._awaiting = self._awaiting, []
        for commit in awaiting:
            commit.stored(True)
        if self._tainted:
            self.begin_anew()

    def _begin_with(self, everything: Iterable[Entry] | None) -> None:
        if everything is None:
            raise OSError("the store does not say what it has")
        changes = [change for change in everything if change.namespace not in OWN]
        if self.partition.active.size:
            self.partition.roll()
        first = self.partition.end
        for at in range(0, max(1, len(changes)), MANY):
            more = at + MANY < len(changes)
            self._append({"reset": at == 0, "more": more, "changes": changes[at : at + MANY]})
        self._first, self._whole = first, self.partition.end
        self.partition.memo.begin_at(first)
        for segment in [segment for segment in self.partition.segments if segment.base < first]:
            self.partition.segments.remove(segment)
            segment.delete()
        self._grown = 0
        for some in self._held or []:
            self._append({"reset": False, "more": False, "changes": some})

    def commit(self, changes: list[Entry | Forget], then: Then | None) -> Then:
        """Write down the changes of a commit; what is to be called at its end instead of `then`."""
        shared = copied(changes)
        if not shared:
            return then or nobody_waits
        if self._grown > self._renew_after:
            self.begin_anew()
        if self._held is not None:
            self._held.append(shared)
            return ReplicatedCommit(self, None, then).stored  # the reset ends before this commit does
        self._append({"reset": False, "more": False, "changes": shared})
        return ReplicatedCommit(self, self.partition.end, then).stored

    def begin_anew(self) -> None:
        """Ask for everything once more, unless that is on its way."""
        if self._held is None:
            self._renew()

    def _renew(self) -> None:
        """Ask for everything: it holds what the store was given before, and what was held back with it."""
        self._held, self._tainted = [], False
        self._tell_all(self.reset)

    def failed(self) -> None:
        """A commit failed: the follower must not keep what is not here."""
        self._tainted = self._held is not None
        self.begin_anew()

    def resets_with(self, commit: ReplicatedCommit) -> bool:
        """Whether a commit that was held back stands in it; if not, its `stored` is called once more when it does."""
        if self._held is not None:
            self._awaiting.append(commit)
        return self._held is None

    def when_copied(self, end: int, deed: Callable[[], Any]) -> None:
        """Run `deed` once the high watermark is at `end`, or at the first reset's end if that comes later; never, if this
        broker ends before."""
        op = DelayedOperation(
            lambda op: self.partition.high >= (end if end > self._first else self._whole),
            lambda op: deed() if op.outcome == "completed" else None,
            None,
        )
        self._waits.try_complete_else_watch(op, (self.partition,))

    def _append(self, record: dict[str, Any]) -> None:
        data = packed([json.dumps(record, separators=(",", ":")).encode()], self._wall_ms())
        error, _ = self.partition.mark(data)
        if error:
            raise OSError(f"the journal of the store cannot be written: {error.name}")
        self._grown += len(data)
        self._mark(self.partition)


class ReplicatedCommit:
    """A commit that is done when it is in the store and has been copied."""

    __slots__ = ("_end", "_journal", "_then")

    def __init__(self, journal: Journal, end: int | None, then: Then | None) -> None:
        self._journal = journal
        self._end = end
        self._then = then

    def stored(self, done: bool) -> None:
        """The store has it, or refused it."""
        if not done:
            self._journal.failed()
        if (then := self._then) is None:
            return
        if not done:
            then(False)
        elif self._end is not None or self._journal.resets_with(self):
            end = self._journal.partition.end if self._end is None else self._end
            self._journal.when_copied(end, lambda: then(True))


def copied(changes: Iterable[Entry | Forget]) -> list[Entry]:
    """What of a commit the follower gets."""
    return [change for change in changes if isinstance(change, Entry) and change.namespace not in OWN]


def nobody_waits(done: bool) -> None:
    """The end of a commit that nobody asked after."""


class JournalRecord(NamedTuple):
    """A record of the journal. `reset`: everything else is to be forgotten; `more` of this reset follows."""

    reset: bool
    more: bool
    changes: list[Entry]


def read(batch: bytes) -> list[JournalRecord]:
    """What the records of a batch of the journal say."""
    assert header_of(batch).magic == 2
    said = [json.loads(record.value or b"{}") for record in records(batch)]
    return [JournalRecord(one["reset"], one["more"], [Entry(*change) for change in one["changes"]]) for one in said]
