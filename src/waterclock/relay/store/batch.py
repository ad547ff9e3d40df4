"""Messages on their way into the store: rows, and for each its bytes and its topic."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from waterclock.relay.store.rows import MOST_DUE, MOST_ORIGIN, ROW, Array


@dataclass(frozen=True, slots=True)
class Batch:
    """Three columns of one length."""

    rows: Array
    blobs: Sequence[bytes]
    targets: Sequence[str]

    @classmethod
    def of(cls, rows: Array, blobs: Sequence[bytes], targets: Sequence[str]) -> Batch:
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

    def only(self, which: Array) -> Batch:
        """Those alone."""
        if which.all():
            return self
        kept = np.flatnonzero(which).tolist()
        return Batch(self.rows[which], [self.blobs[n] for n in kept], [self.targets[n] for n in kept])

    def measure(self) -> None:
        """Fill in lengths and checksums."""
        self.rows["length"] = list(map(len, self.blobs))
        self.rows["crc"] = list(map(zlib.crc32, self.blobs))
