"""What the store keeps, once more as a log: so that the follower can copy it like any partition.

It exists from the first follower on. Its first record after a start is everything (`reset`), each later one the changes
of one commit.

Rule 1: a commit is told done when it is durable here and below the journal's high watermark: an in-sync follower has it.
Rule 2: rooms in OWN belong to one broker and are not copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from waterclock.broker.log.batch import header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import packed, records
from waterclock.broker.store import Change, Forget, Then
from waterclock.purgatory import DelayedOperation, Purgatory

TOPIC: Final = "__waterclock_store"
OWN: Final = frozenset({"self"})
MANY: Final = 2000  # changes in one record of a reset
RENEW: Final = 64 << 20  # bytes after which the journal starts over


class Journal:
    """The leader's journal in `partition`. `mark(partition)` has it flushed."""

    def __init__(
        self,
        partition: Partition,
        waits: Purgatory,
        mark: Callable[[Partition], None],
        wall_ms: Callable[[], int],
    ) -> None:
        self.partition, self._waits, self._mark, self._wall_ms = partition, waits, mark, wall_ms
        self._held: list[list[Change]] | None = []  # commits that came before the reset was written

    def reset(self, everything: Iterable[Change]) -> None:
        """Write down everything; what stood before is not needed any more."""
        changes = [change for change in everything if change.room not in OWN]
        self.partition.roll()
        first = self.partition.end
        for at in range(0, max(1, len(changes)), MANY):
            self._append({"reset": at == 0, "changes": changes[at : at + MANY]})
        self.partition.memo.start = first
        self.partition.memo.save()
        held, self._held = self._held or [], None
        for some in held:
            self._append({"reset": False, "changes": some})

    def commit(self, changes: list[Change | Forget], then: Then | None) -> Then:
        """Write down the changes of a commit; what its end is to be told to instead of `then`."""
        shared = [change for change in changes if isinstance(change, Change) and change.room not in OWN]
        if self._held is not None:
            self._held.append(shared)
            return Both(self, None, then).stored  # the reset is told before this commit is
        if shared:
            self._append({"reset": False, "changes": shared})
        return Both(self, self.partition.end, then).stored

    def when_copied(self, end: int, deed: Callable[[], Any]) -> None:
        """Run `deed` once the high watermark is at `end`."""
        op = DelayedOperation(lambda op: self.partition.high >= end, lambda op: deed(), None)
        self._waits.try_complete_else_watch(op, (self.partition,))

    def _append(self, record: dict[str, Any]) -> None:
        data = packed([json.dumps(record, separators=(",", ":")).encode()], self._wall_ms())
        error, _ = self.partition.mark(data)
        if error:
            raise OSError(f"the journal of the store cannot be written: {error.name}")
        self._mark(self.partition)


class Both:
    """A commit that is done when it is in the store and has been copied."""

    __slots__ = ("_end", "_journal", "_then")

    def __init__(self, journal: Journal, end: int | None, then: Then | None) -> None:
        self._journal, self._end, self._then = journal, end, then

    def stored(self, done: bool) -> None:
        """The store tells that it has it, or has not."""
        if self._then is None:
            return
        if done:
            end = self._journal.partition.end if self._end is None else self._end
            self._journal.when_copied(end, self._copied)
        else:
            self._then(False)

    def _copied(self) -> None:
        assert self._then is not None
        self._then(True)


def read(batch: bytes) -> list[tuple[bool, list[Change]]]:
    """What the records of a batch of the journal say: (whether everything else is to be forgotten, changes)."""
    assert header_of(batch).magic == 2
    said = [json.loads(record.value or b"{}") for record in records(batch)]
    return [(one["reset"], [Change(*change) for change in one["changes"]]) for one in said]
