"""The files of one input partition: what is pending, where it lies, what was settled. A cache; the log is the truth.

Rule 1: nothing counts before a checkpoint names it. What lies behind is cut off when the folder is opened, and the owner
    reads the log again from the positions that stand here.
Rule 2: a file that is not what was written is never believed: the folder is set aside whole (folder.py), the store is empty
    then, `rebuilt` says why, and everything is filed anew from the log. What is found only when it is read raises
    `StoreDamaged`, and the owner calls `set_aside`.
Rule 3: a message is known by its origin, however often it was appended to the log since. One that is pending or settled is
    not filed again.
Rule 4: an edge, `loaded_until`, divides what is near from what is far. What is filed before it is the owner's at once; what
    lies behind it comes with a `load`, once.
Rule 5: if the input was cut off, these files may be the last copy of what is pending: `last_copies`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from waterclock.clock import SystemClock, WallClock
from waterclock.relay.store.files import StoreDamaged, StoreFiles
from waterclock.relay.store.filing import RowBatch, SpanTable, StagedRows, past_ms
from waterclock.relay.store.folder import Folder, Identity, manifest_bytes
from waterclock.relay.store.ids import Found, Ids, hashes
from waterclock.relay.store.ledger import OriginLedger
from waterclock.relay.store.origins import FIRST_SLOT, State
from waterclock.relay.store.rows import Array, TopicNumbers
from waterclock.relay.store.spans import HOUR_MS, Span, SpanFiles, SpanLevel

READ_ROWS: Final = 8_192  # messages read at once
TIDY_ROWS: Final = 2_048  # rows moved in one step of `tidy`
KEPT_MS: Final = 7 * 24 * HOUR_MS


class PartitionStore:
    """The store of one partition, in a folder of its own inside `folder`. For one thread.

    `data_position`: input offsets below it are filed. `settled_position`: TOPIC.settled was read up to here. `fingerprint`:
    of the last record filed. All three are those of the last checkpoint, as are `notes`, the owner's. `rebuilt`: why what
    was in the folder was set aside, or None. `kept_ms`: for how long what is settled is found by its id.

    UsageError if another process has the folder; OSError if the disk refuses.
    """

    def __init__(
        self, folder: Path, identity: Identity, clock: WallClock | None = None, *, kept_ms: int = KEPT_MS
    ) -> None:
        self.identity = identity
        self.folder = Path(folder) / identity.folder_name()
        self._clock = clock or SystemClock()
        self._kept_ms = kept_ms
        self._place = Folder(self.folder)
        self.rebuilt: str | None = None
        self._clear()
        with ExitStack() as held:
            held.callback(self.close)  # a disk that refuses leaves no lock behind
            try:
                self._open()
            except StoreDamaged as error:
                self._begin_anew(str(error), None, False)
            held.pop_all()

    def _clear(self) -> None:
        self.data_position = self.settled_position = 0
        self.fingerprint: bytes | None = None
        self._targets = TopicNumbers()
        self.loaded_until = 0
        self._began: int | None = None
        self.notes: dict[str, Any] = {}
        self._next = 1  # number of a file; none is given twice
        self._files = StoreFiles(self.folder)
        self._job: Iterator[None] | None = None
        self._table = SpanTable(self._files, self._number)
        self.ledger = OriginLedger(self._files, self._number)
        self._ids = Ids(self._files, self._kept_ms, self._number, self.is_pending)

    def _open(self) -> None:
        """1. read the manifest    2. restore each file that it names    3. the others go with the first write"""
        stored = self._place.read_manifest(self.identity)  # 1
        if stored is not None:  # 2
            self.data_position = stored["data_position"]
            self.settled_position = stored["settled_position"]
            self.fingerprint = None if stored["fingerprint"] is None else bytes.fromhex(stored["fingerprint"])
            self._next = stored["next"]
            self._began = stored["began"]
            self.notes = stored["notes"]
            self._targets = TopicNumbers(stored["targets"], stored.get("anew", ()))
            self._table.restore(stored["table"])
            self.ledger.restore(stored["ledger"])
            self._ids.restore(stored["ids"])
        if self._files.keep_only(self._table.names() | self.ledger.names() | self._ids.names()) and stored is None:  # 3
            raise StoreDamaged("there are files and no manifest")

    # What comes in

    def begin(self, position: int) -> None:
        """The store is empty, and everything from this offset of the input on will be appended.

        With it, what was settled long ago need not be remembered one by one (origins.py, rule 2). Again from the same
        offset is the same; ValueError if the store is not empty, and did not begin there.
        """
        if (self._table.by_number or self.data_position) and self._began != position:
            raise ValueError(f"only an empty store can begin; this one holds the input up to {self.data_position}")
        self._began = position

    def append(self, rows: Array, blobs: Sequence[bytes], targets: Sequence[str]) -> Array:
        """File messages: rows (ROW) with due and origin (the rest is filled in), their bytes (`pack`) and topics, one each.
        See the steps of `StagedRows`.

        Returns the rows that were filed: without those whose origin is pending or settled already (rule 3). Of these, the
        ones due before `loaded_until` are the owner's to keep. Messages that are settled belong among the rows too: their
        ids are noted.
        ValueError for a due time or an origin out of bounds; OSError if the disk refuses: then nothing was filed, and the
        same call may be made again.
        """
        batch = RowBatch.of(rows, blobs, targets)
        batch = batch.only(batch.first_of_each() & ~self.is_pending(batch.rows["origin"]))
        batch.rows["target"] = self._targets.numbers(batch.targets, self._pending_targets)
        staged = StagedRows(self._table, self.ledger, self._ids)
        staged.note_ids(batch)  # 1
        batch = batch.only(~self.is_settled(batch.rows["origin"]))
        if len(batch):
            batch.measure()
            self._write(staged, batch.rows, batch.blobs)  # 2, 3
        staged.count()  # 4
        return batch.rows

    def _pending_targets(self) -> set[int]:
        """The numbers of the topics that something pending is for."""
        return {number for rows in self.pending_with(None, READ_ROWS) for number in np.unique(rows["target"]).tolist()}

    def _write(self, staged: StagedRows, rows: Array, blobs: Sequence[bytes]) -> None:
        """Steps 2 and 3 of `staged`: to the spans of the due times, as the edges stand now (spans.py, rules 1 and 3)."""
        now_ms = self._clock.wall_ms()
        self._table.raise_edges(now_ms, self.loaded_until)
        staged.write(rows, blobs, past_ms(now_ms, self.loaded_until))

    def _number(self) -> int:
        """Of a new file."""
        self._next += 1
        return self._next - 1

    # What goes out

    def settle(self, origins: Array, state: State = State.DELIVERED) -> None:
        """These origins (i8) were delivered, cancelled or moved, wherever they lie; again is the same.

        OSError if the disk refuses: they are settled all the same, and the next checkpoint writes it down.
        """
        known = range(0) if self._began is None else range(self._began, self.data_position)
        self.ledger.settle(np.unique(np.asarray(origins, "<i8")), state, known)

    def is_settled(self, origins: Array) -> Array:
        """For each origin (i8), whether it was delivered, cancelled or moved."""
        values = self.ledger.origins.values(np.asarray(origins, "<i8"))
        return np.asarray((values > State.UNKNOWN) & (values < FIRST_SLOT))

    def read(self, rows: Array) -> Iterator[bytes]:
        """The bytes of pending messages, in the order of their rows. `StoreDamaged` if they are not what was appended,
        ValueError for one that is not pending."""
        for start in range(0, len(rows), READ_ROWS):
            some = rows[start : start + READ_ROWS]
            values = self.ledger.origins.values(some["origin"])  # a `State`, or from FIRST_SLOT on a slot
            if (values < FIRST_SLOT).any():
                origin = some["origin"][values < FIRST_SLOT][0]
                raise ValueError(f"origin {origin} is not pending: it has no bytes any more")
            yield from self._table.blobs(some, self.ledger.slots.span[values])

    def find(self, id: bytes) -> list[Found]:
        """The messages that bear an id, by origin: what is pending, and what was due within `kept_ms`."""
        return self.find_many([id])[0]

    def find_many(self, ids: Sequence[bytes]) -> list[list[Found]]:
        """The same for many: much quicker than one by one. `StoreDamaged` if a run is not what was written."""
        return self._ids.messages(hashes(ids), self.ledger.origins, self._targets, self._clock.wall_ms())

    def is_pending(self, origins: Array) -> Array:
        """For each origin (i8), whether it is pending."""
        return np.asarray(self.ledger.origins.values(origins) >= FIRST_SLOT)

    # What is near

    def load(self, until_ms: int, most: int) -> Iterator[Array]:
        """Pending rows of spans that begin before `until_ms` and were not loaded yet, in slices of `most` rows or less.

        `loaded_until` rises with the call; who makes it takes all slices, or calls `unload`: a slice is a few milliseconds'
        work, and may be empty. What is appended or settled between two slices is left out of the next ones.
        `StoreDamaged` if an index is not what was written.
        """
        before, until = self.loaded_until, until_ms - until_ms % -HOUR_MS  # rounded up to a whole hour
        self.loaded_until = max(before, until)
        self._table.raise_edges(self._clock.wall_ms(), self.loaded_until)
        coarse = [span for span in self._table.coarse() if span.start_ms < until]
        if coarse:
            self._job = None  # it may be the split of one of these: the rest of it is done here
        near = sorted(self._table.by_number.values(), key=lambda span: span.start_ms)
        hours = [(s, s.count) for s in near if s.level == SpanLevel.HOUR and before <= s.start_ms < until]
        return self._load(coarse, hours, most)

    def _load(self, coarse: list[SpanFiles], hours: list[tuple[SpanFiles, int]], most: int) -> Iterator[Array]:
        for span in coarse:
            for rows in self._split(span, min(most, READ_ROWS)):
                yield rows[rows["due"] < self.loaded_until]
        for span, count in hours:
            yield from self._table.verified(span)
            yield from self._pending_rows(span, count, most)

    def _pending_rows(self, span: SpanFiles, count: int, most: int) -> Iterator[Array]:
        """Rows of a span up to the given number of them, as far as they are pending, in slices."""
        slices = span.rows(span.moved, count, most)
        while span in self._table and (rows := next(slices, None)) is not None:
            yield rows[self.is_pending(rows["origin"])]

    def _split(self, span: SpanFiles, most: int) -> Iterator[Array]:
        """Move what is pending of a coarse span to finer ones, as the edges stand; gives the rows that were moved."""
        yield from self._table.verified(span)
        for rows in self._pending_rows(span, span.count, most):
            if len(rows):
                staged = StagedRows(self._table, self.ledger, self._ids)
                self._write(staged, rows, span.blobs(rows))
                staged.count()
            span.moved = min(span.count, span.moved + most)
            yield rows
        if span in self._table:
            self._drop(span)

    def unload(self) -> None:
        """Nothing is near any more: the next `load` begins anew."""
        self.loaded_until = 0

    def tidy(self) -> bool:
        """Do a few milliseconds of work that is better done early: split a span that comes near, merge ids.

        Returns whether there is more. Without it, spans are split when they are loaded, and look-ups of ids grow slower.
        OSError if the disk refuses; `StoreDamaged` if a file is not what was written.
        """
        job, self._job = self._job, None  # of one that fails, nothing more
        if job is None:
            now_ms = self._clock.wall_ms()
            self._table.raise_edges(now_ms, self.loaded_until)
            far = [span for span in self._table.coarse() if span.start_ms >= self.loaded_until]
            job = (None for _ in self._split(far[0], TIDY_ROWS)) if far else self._ids.merge(now_ms)
        if job is None:
            return False
        self._job = job if next(job, self) is None else None
        return True

    # What is there

    def spans(self) -> list[Span]:
        """The spans in which something is pending, by their start, with counts by topic."""
        return self._table.spans(self.ledger.slots.pending(), self.targets)

    def pending_with(self, flags: int | None, most: int, dues: Collection[int] = ()) -> Iterator[Array]:
        """Pending rows with one of these flags (None: all), in slices, which may be empty; between two everything else may
        go on. With `dues`, of the spans that hold one of these due times."""
        for rows in self._table.all_rows(most, dues):
            has_one = True if flags is None else (rows["flags"] & flags) != 0
            yield rows[has_one & self.is_pending(rows["origin"])]

    @property
    def targets(self) -> list[str]:
        """The topics of messages, by their numbers in rows."""
        return self._targets.names

    @property
    def pending(self) -> int:
        """How many messages are pending."""
        return int(self.ledger.slots.count.sum())

    @property
    def pending_bytes(self) -> int:
        """About how many bytes they have."""
        return self._table.bytes_of(self.ledger.slots.pending())

    @property
    def next_due(self) -> int | None:
        """Nothing pending is due before this, in ms since the epoch; None if nothing is pending."""
        waiting = {number for number, _, count in self.ledger.slots.pending() if count}
        return min((self._table.by_number[n].first_due or 0 for n in waiting), default=None)

    @property
    def bytes_on_disk(self) -> int:
        """The lengths of all files."""
        return self._table.bytes_on_disk + self.ledger.bytes_on_disk + self._ids.bytes_on_disk

    # Durable

    def checkpoint(self, data_position: int, fingerprint: bytes | None, settled_position: int) -> None:
        """What was appended and settled so far outlasts a crash, with these positions. See `checkpoint_steps`."""
        for _ in self.checkpoint_steps(data_position, fingerprint, settled_position):
            pass

    def checkpoint_steps(self, data_position: int, fingerprint: bytes | None, settled_position: int) -> Iterator[None]:
        """The same, a flush of one file at a time. What is appended and settled between two steps is left out of it.

        1. pack chunks of origins and drop spans in which nothing is pending    2. note what counts    3. flush each file
        4. replace the manifest    5. remove what was dropped before 2

        One at a time: one that is begun ends before the next. `StoreDamaged` if the disk cannot flush; OSError if it
        refuses the manifest: the last checkpoint holds then.
        """
        self.ledger.origins.pack(data_position)  # 1
        self._drop_finished()
        if self.ledger.is_long:
            self.ledger.snapshot()
        kept = {
            "data_position": data_position,
            "settled_position": settled_position,
            "fingerprint": None if fingerprint is None else fingerprint.hex(),
            "next": self._next,
            "began": self._began,
            "notes": self.notes,
            "targets": self._targets.names,
            "anew": sorted(self._targets.anew),
            "table": self._table.stored(),
            "ledger": self.ledger.stored(),
            "ids": self._ids.stored(),
        }
        content, files = manifest_bytes(self.identity, kept), self._files  # 2
        flushed = files.begin_flush()
        for _ in flushed.steps():  # 3
            yield
            if files is not self._files:
                return  # the store was set aside
        files.making_room(partial(self._place.write_manifest, content))  # 4
        self.data_position = data_position
        self.fingerprint = fingerprint
        self.settled_position = settled_position
        flushed.sweep()  # 5

    def _drop_finished(self) -> None:
        """Forget the spans in which nothing is pending: those that are over, and those that are full."""
        waiting = {number for number, _, count in self.ledger.slots.pending() if count}
        now_ms = self._clock.wall_ms()
        for span in [span for number, span in self._table.by_number.items() if number not in waiting]:
            if span.end_ms <= now_ms or span.is_full:
                self._drop(span)

    def _drop(self, span: SpanFiles) -> None:
        self.ledger.free(span.number)
        self._table.drop(span)

    # The last copy

    def last_copies(self, low: int) -> int:
        """How many pending messages stand here alone, if the input begins at `low` now. Below `swept`, which the owner
        notes here, no pending message has its place (wire/moves.py, rule 3)."""
        return 0 if self.notes.get("swept", 0) >= low else self.ledger.origins.pending_below(low)

    def skip_to(self, low: int) -> None:
        """The input begins at `low`, behind what is filed. What no checkpoint named may be of what is gone: a copy of the
        folder is kept. OSError."""
        if self._files.has_rows_behind():
            self._place.copy_aside("the log was cut off behind the last checkpoint", self._clock.wall_ms())
        self.data_position = self._began = low

    def set_aside(self, why: str, low: int | None) -> None:
        """Empty the store: its folder gets another name. The log, read anew, begins at `low` (None: not known)."""
        has_log_all = low is not None and not self.last_copies(low)
        self._begin_anew(why, self.pending, has_log_all)

    def clear(self) -> None:
        """Empty it for room: the files are believed, and the log has all of it. OSError."""
        self._files.close()
        self._place.clear()
        self._clear()

    def _begin_anew(self, why: str, pending: int | None, is_spare: bool) -> None:
        self._files.close()
        self._place.set_aside(why, self._clock.wall_ms(), pending, is_spare)
        self._clear()
        self.rebuilt = why

    def close(self) -> None:
        """Give the folder back. What no checkpoint named is lost."""
        self._files.close()
        self._place.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
