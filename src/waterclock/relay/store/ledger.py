"""Origins and slots on disk: a snapshot, and a journal of what changed since.

    a record of the journal: kind (1 byte), state (1 byte), count (u4), then count of
        P pending     slots (u2 each), then origins (i8 each)
        S settled     origins (i8 each), as `state` says
        N new slots   SLOT rows
        F freed       spans (i8 each): their slots are free

Rule 1: the journal is read with the verbs that wrote it, in the same order: what comes out is what was there.
Rule 2: when the journal has grown larger than a quarter of the snapshot and `JOURNAL_BYTES`, or when the disk refused a
    record, the next checkpoint begins both anew.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from waterclock.relay.store.files import HEADER, CheckedFile, StoreDamaged, StoreFiles
from waterclock.relay.store.origins import CHUNK, SLOT, Origins, SpanSlots, State
from waterclock.relay.store.rows import Array

JOURNAL_BYTES: Final = 4 << 20
_RECORD: Final = struct.Struct("<cBI")
_COUNTS: Final = struct.Struct("<III")  # of a snapshot: slots, open chunks, packed chunks


class OriginLedger:
    """`Origins` that are kept: what changes them is written to the journal. `number` gives one to a new file."""

    def __init__(self, files: StoreFiles, number: Callable[[], int]) -> None:
        self.slots = SpanSlots()
        self.origins = Origins(self.slots)
        self._files = files
        self._number = number
        self._snapshot: CheckedFile | None = None
        self._journal: CheckedFile | None = None
        self._has_gap = False  # the journal lacks what is in memory

    def note_pending(self, spans: Array, origins: Array, targets: Array) -> Array:
        """Write that these origins (i8) are pending, each in the span of that number (i8) and for the target of that number
        (u2). Returns their slots (u2): they are pending with `origins.place`."""
        slots, new = self.slots.numbers(spans, targets)
        if len(new):
            self._note(b"N", 0, len(new), new.tobytes())
        self._note(b"P", 0, len(origins), slots.tobytes() + origins.astype("<i8").tobytes())
        return slots

    def settle(self, origins: Array, state: State, known: range) -> int:
        """These origins (i8) are settled, each named once; returns of how many that is news."""
        news = self.origins.settle(origins, state, known)
        if len(news):
            self._note(b"S", state, len(news), news.astype("<i8").tobytes())
        return len(news)

    def begin_with(self, chunks: Mapping[int, Array], end: int) -> None:
        """Below `end`, all is settled that these do not name: by number of a chunk, the states of its origins, a byte each,
        0 if it is not settled. The next checkpoint writes it down."""
        self._has_gap = True
        below = end - end % CHUNK
        for number in {*chunks, *(known for known in self.origins.numbers(below))}:
            self.origins.begin_with(number, chunks.get(number))
        self.origins.settled_below = max(self.origins.settled_below, below)

    def free(self, span: int) -> None:
        """Nothing is pending in a span, and it was dropped."""
        self._note(b"F", 0, 1, struct.pack("<q", span))
        self.slots.free(span)

    def _note(self, kind: bytes, state: int, count: int, data: bytes) -> None:
        try:
            if self._journal is None:
                self._journal = CheckedFile.create(self._files, f"origins.{self._number()}.journal")
            self._journal.append(_RECORD.pack(kind, state, count) + data)
        except OSError:
            self._has_gap = True
            raise

    @property
    def is_long(self) -> bool:
        """Whether a snapshot is due. Rule 2."""
        written = self._journal.length if self._journal else 0
        return self._has_gap or written > max(JOURNAL_BYTES, self._snapshot.length // 4 if self._snapshot else 0)

    def snapshot(self) -> None:
        """Write all down anew, and begin another journal."""
        old = [file for file in (self._snapshot, self._journal) if file]
        fresh = CheckedFile.create(self._files, f"origins.{self._number()}.snapshot")
        table, chunks, packed = self.slots.table(), self.origins.open, self.origins.packed
        with fresh.scrapping():
            fresh.append(_COUNTS.pack(len(table), len(chunks), len(packed)) + table.tobytes())
            for which, chunk in chunks.items():
                fresh.append(struct.pack("<q", which) + chunk.tobytes())
            for which, data in packed.items():
                fresh.append(struct.pack("<qI", which, len(data)) + data)
        self._snapshot = fresh
        self._journal = None
        self._has_gap = False
        for file in old:
            file.drop()

    def stored(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {
            "snapshot": self._snapshot.stored() if self._snapshot else None,
            "journal": self._journal.stored() if self._journal else None,
            "settled_below": self.origins.settled_below,
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Read it as a manifest has it. `StoreDamaged` if a file is not what was written."""
        if stored["snapshot"]:
            self._snapshot = CheckedFile.restore(self._files, stored["snapshot"])
            self._read_snapshot(self._snapshot)
        if stored["journal"]:
            self._journal = CheckedFile.restore(self._files, stored["journal"])
            self._replay(self._journal.content())
        self.origins.settled_below = stored["settled_below"]

    def names(self) -> set[str]:
        """Of its files."""
        return {file.name for file in (self._snapshot, self._journal) if file}

    @property
    def bytes_on_disk(self) -> int:
        return sum(file.length for file in (self._snapshot, self._journal) if file)

    def _read_snapshot(self, file: CheckedFile) -> None:
        """A chunk at a time: at ten million pending it has 20 MB."""
        for _ in file.verify():
            pass
        slots, chunks, packed = _COUNTS.unpack(file.read(_COUNTS.size, HEADER))
        at = HEADER + _COUNTS.size
        for row in np.frombuffer(file.read(slots * SLOT.itemsize, at), SLOT).tolist():
            self.slots.take(*row)
        at += slots * SLOT.itemsize
        for _ in range(chunks):
            (number,) = struct.unpack("<q", file.read(8, at))
            self.origins.restore(number, np.frombuffer(file.read(2 * CHUNK, at + 8), "<u2").copy())
            at += 8 + 2 * CHUNK
        for _ in range(packed):
            number, size = struct.unpack("<qI", file.read(12, at))
            self.origins.packed[number] = file.read(size, at + 12)
            at += 12 + size

    def _replay(self, data: bytes) -> None:
        """Do what the records of a journal say again. Rule 1."""
        at = 0
        while at < len(data):
            kind, state, count = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            if kind == b"N":
                for row in np.frombuffer(data, SLOT, count, at).tolist():
                    self.slots.take(*row)
                at += count * SLOT.itemsize
            elif kind == b"P":
                slots = np.frombuffer(data, "<u2", count, at)
                self.origins.place(np.frombuffer(data, "<i8", count, at + 2 * count), slots)
                at += 10 * count
            elif kind == b"S":
                self.origins.settle(np.frombuffer(data, "<i8", count, at), State(state), range(0))
                at += 8 * count
            elif kind == b"F":
                self.slots.free(struct.unpack_from("<q", data, at)[0])
                at += 8
            else:
                raise StoreDamaged(f"the journal has a record of kind {kind!r}")
