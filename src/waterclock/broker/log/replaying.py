"""What a start learns of producers and aborted transactions: from the last snapshot, and from the log after it.

    the files of aborted transactions    the snapshot      then
    hold what it vouches for             a good one        they are right
    hold something else                  a good one        they are written anew, from the markers in the log
    any                                  without checksums (of an earlier version): held against the log, and written anew
    any                                  none              the whole log is read: what they hold counts for nothing

Rule 1: what is learned of a batch was under its checksum: a damaged one is an error with the file and the byte.
Rule 2: who found a file wrong says so. A compaction that a crash cut off before the next snapshot looks the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from waterclock.broker.log import snapshot
from waterclock.broker.log.batch import commits
from waterclock.broker.log.producers import ABORTED, AbortedTransaction, RowsChecksum, read_rows, write_rows
from waterclock.broker.log.segment import numbered
from waterclock.outside import os

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.log.snapshot import ProducerSnapshot

Rows: TypeAlias = "dict[int, list[AbortedTransaction]]"  # by the bases of the segments with their markers
NO_FILES: Final[dict[int, RowsChecksum] | None] = {}
log = logging.getLogger("waterclock.broker")


def learn(partition: Partition, names: Collection[str], known: ProducerSnapshot | None, end: int) -> None:
    """Learn of everything up to offset `end`; `names` are those of the folder's files."""
    first = partition.segments[0].base
    since, vouched = first, NO_FILES
    if known is not None and first <= known.offset <= end:
        since, partition.producers, vouched = known
        if vouched is not None and since == snapshot.offsets(names)[-1]:
            partition.snapped = since
    partition.aborted.load(_aborted(partition, names, vouched, since))
    for segment in partition.segments[partition.segment_of(since) :] if since < end else ():
        for _, batch, data in segment.batches(segment.lookup.before_offset(since)):
            if batch.base >= since:
                partition.note(batch, data)


def _aborted(partition: Partition, names: Collection[str], vouched: dict[int, RowsChecksum] | None, since: int) -> Rows:
    """The aborted transactions with markers before offset `since`, all of them in their files, and no later ones."""
    first, there = partition.segments[0].base, {segment.base for segment in partition.segments}
    had = {base: read_rows(_segment_path(partition, base)) for base in numbered(names, ABORTED) if base >= first}
    rows = {base: [row for row in some if row.last < since] for base, some in had.items()}
    if vouched is None:
        doubtful = {base for base, some in rows.items() if some}
    else:
        homes = rows.keys() | {base for base in vouched if base in there}
        doubtful = {base for base in homes if RowsChecksum.of(rows.get(base, [])) != vouched.get(base, RowsChecksum())}
    if doubtful:
        rows = _mended(partition, rows, _in_the_log(partition, since), doubtful)
    for base, some in rows.items():
        if some != had.get(base, []):
            write_rows(_segment_path(partition, base), some)
    return rows


def _mended(partition: Partition, rows: Rows, found: Rows, doubtful: set[int]) -> Rows:
    """The rows of every file, those found in the log in place of those that are doubtful."""
    there = {segment.base for segment in partition.segments}
    mended = {base: some for base, some in rows.items() if base not in doubtful}
    for base in sorted(doubtful):
        if base not in there:
            mended[base] = rows[base]
            log.warning(
                "%s%s is damaged, and the segment with its markers is gone: readers of committed records may get records "
                "of transactions that were aborted there, or miss some", _segment_path(partition, base), ABORTED
            )  # fmt: skip
            continue
        mended[base] = found.get(base, [])
        # those with markers before the start concern no reader: earlier versions leave out some
        seen = [[row for row in some if row.last >= partition.start] for some in (mended[base], rows.get(base, []))]
        if seen[0] != seen[1]:
            log.warning(
                "%s%s was damaged, or of before a compaction: written anew from the markers in the log, with %d "
                "transactions where it had %d",
                _segment_path(partition, base), ABORTED, len(mended[base]), len(rows.get(base, [])),
            )  # fmt: skip
    return mended


def _in_the_log(partition: Partition, since: int) -> Rows:
    """The aborted transactions with markers before offset `since`, as the log itself has them."""
    began: dict[int, int] = {}  # by producer
    found: Rows = {}
    for segment in partition.segments:
        for _, batch, data in segment.batches():
            if batch.base >= since:
                return found
            if not batch.transactional:
                continue
            if not batch.control:
                began.setdefault(batch.producer_id, batch.base)
                continue
            first = began.pop(batch.producer_id, None)
            if first is not None and batch.records and not commits(data):
                found.setdefault(segment.base, []).append(AbortedTransaction(batch.producer_id, first, batch.base))
    return found


def _segment_path(partition: Partition, base: int) -> str:
    return os.path.join(partition.folder, f"{base:020}")
