"""Messages on their way into the files: written first, and counted once all of it is written.

Rule 1: nothing counts before the last step of `StagedRows`. That one is done in memory and cannot fail.
Rule 2: what a step before it has written when the disk refuses lies behind the ends of files, and is written over.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from waterclock.relay.store.ids import Ids
from waterclock.relay.store.ledger import OriginLedger
from waterclock.relay.store.packing import ids_of
from waterclock.relay.store.rows import MOST_DUE, MOST_ORIGIN, ROW, Array
from waterclock.relay.store.runs import hashes
from waterclock.relay.store.spanfiles import StagedSpan
from waterclock.relay.store.spantable import SpanTable


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Messages to be filed: three columns of one length."""

    rows: Array  # ROW
    blobs: Sequence[bytes]
    targets: Sequence[str]

    @classmethod
    def of(cls, rows: Array, blobs: Sequence[bytes], targets: Sequence[str]) -> RowBatch:
        """With a copy of the rows. ValueError for columns that do not fit together, or a number out of bounds."""
        if rows.dtype != ROW or not len(rows) == len(blobs) == len(targets):
            lengths = f"{len(rows)} rows, {len(blobs)} blobs, {len(targets)} targets"
            raise ValueError(f"rows must be of dtype ROW, each with a blob and a target; got {rows.dtype}, {lengths}")
        for name, end in (("due", MOST_DUE), ("origin", MOST_ORIGIN)):
            wrong = (rows[name] < 0) | (rows[name] >= end)
            if wrong.any():
                raise ValueError(f"{name} must be in 0 .. {end - 1}, got {rows[name][wrong][0]}")
        return cls(rows.copy(), blobs, targets)

    def __len__(self) -> int:
        return len(self.rows)

    def first_of_each(self) -> Array:
        """Which rows are the first of their origin."""
        origins = self.rows["origin"]
        first = np.ones(len(self), bool)
        if (np.diff(origins) <= 0).any():
            first[:] = False
            first[np.unique(origins, return_index=True)[1]] = True
        return first

    def only(self, which: Array) -> RowBatch:
        """Those alone."""
        if which.all():
            return self
        kept = np.flatnonzero(which).tolist()
        return RowBatch(self.rows[which], [self.blobs[n] for n in kept], [self.targets[n] for n in kept])

    def measure(self) -> None:
        """Fill in lengths and checksums."""
        self.rows["length"] = list(map(len, self.blobs))
        self.rows["crc"] = list(map(zlib.crc32, self.blobs))


class StagedRows:
    """Some messages that are being filed. Each step but the last raises OSError if the disk refuses; then nothing of it
    counts, and the same messages may be filed again.

        1. note_ids   their ids go to the log of ids
        2. write      rows and bytes go behind the ends of the files of their spans,
        3.            and the journal says that they are pending
        4. count      all of it counts: the files are longer, the messages are pending, and are found by their ids
    """

    def __init__(self, table: SpanTable, ledger: OriginLedger, ids: Ids) -> None:
        self._table = table
        self._ledger = ledger
        self._ids = ids
        self._entries: Array | None = None  # ENTRY, one for each id; None if no message has one
        self._written: list[StagedSpan] = []  # one for each span
        self._pending: tuple[Array, Array] | None = None  # origins (i8) and their slots (u2)

    def note_ids(self, batch: RowBatch) -> None:
        """Step 1. The rows get the lower half of the hash of their id."""
        ids = ids_of(batch.blobs)
        which = [n for n, id in enumerate(ids) if id]
        if which:
            found = hashes([ids[n] for n in which])
            batch.rows["id"][which] = np.maximum(found["hash"] & 0xFFFFFFFF, 1)
            self._entries = self._ids.write(found, batch.rows[which])

    def write(self, rows: Array, blobs: Sequence[bytes], past_ms: int) -> None:
        """Steps 2 and 3, of rows (ROW) and the bytes of each. The rows get `pos`, where those lie. What is due before
        `past_ms` goes to the span of the past."""
        spans, self._written = self._table.write(rows, blobs, past_ms)  # 2
        self._pending = rows["origin"], self._ledger.note_pending(spans, rows["origin"], rows["target"])  # 3

    def count(self) -> None:
        """Step 4."""
        for written in self._written:
            written.span.grow(written)
        if self._pending is not None:
            self._ledger.origins.place(*self._pending)
        if self._entries is not None:
            self._ids.keep(self._entries)
