"""The files of one input partition: what is pending, where it lies, what was settled. A cache; the log is the truth.

Rule 1: nothing counts before a checkpoint names it. What lies behind is cut off when the folder is opened, and the owner
    reads the log again from the positions that stand here.
Rule 2: a file that is not what was written is never believed: the store is empty then, `rebuilt` says why, and everything
    is filed anew from the log. What is found only when it is read is told by `StoreDamaged`, and the owner calls `discard`.
Rule 3: a message is known by its origin, however often it was appended to the log since. One that is pending or settled is
    not filed again.
Rule 4: an edge, `loaded_until`, divides what is near from what is far. What is filed before it is the owner's at once; what
    lies behind it comes with a `load`, once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from waterclock.clock import SystemClock, WallClock
from waterclock.disk import FolderLock, WithoutLocks, flush_folder, make_folder
from waterclock.errors import UsageError
from waterclock.relay.store import manifest
from waterclock.relay.store.errors import StoreDamaged
from waterclock.relay.store.files import Files
from waterclock.relay.store.ledger import Ledger
from waterclock.relay.store.manifest import Identity
from waterclock.relay.store.origins import State
from waterclock.relay.store.rows import MOST_DUE, MOST_TARGETS, ROW, Array, checksum
from waterclock.relay.store.slots import FIRST_SLOT, OTHER
from waterclock.relay.store.spanfiles import SpanFiles
from waterclock.relay.store.spans import DAY_MS, HOUR_MS, Edges, Level, Span

log = logging.getLogger("waterclock.relay")
DROP_BYTES: Final = 64 << 20  # of a span in which nothing is pending: its files go before it ends
READ_ROWS: Final = 8_192  # messages read at once


class PartitionStore:
    """The store of one partition, in a folder of its own inside `folder`. For one thread.

    `data_position`: input offsets below it are filed. `settled_position`: TOPIC.settled was read up to here.
    `fingerprint`: of the last input record that was filed. All three are those of the last checkpoint. `rebuilt`: why what
    was in the folder was discarded, a sentence, or None. `targets`: topics, by their numbers in rows.

    UsageError if another process has the folder; OSError if the disk refuses.
    """

    def __init__(self, folder: Path, identity: Identity, clock: WallClock | None = None) -> None:
        self.identity, self.folder = identity, Path(folder) / identity.folder_name()
        self._clock = clock or SystemClock()
        make_folder(self.folder)
        self._lock = FolderLock(self.folder, "lock", WithoutLocks.REFUSE)
        self._take_lock()
        self.rebuilt: str | None = None
        self._files = Files(self.folder)
        self._clear()
        try:
            self._open()
        except StoreDamaged as error:
            self.discard(str(error))

    def _take_lock(self) -> None:
        try:
            self._lock.take()
        except BlockingIOError:
            raise UsageError(
                f"{self.folder} is in use by another process: stop that relay, or give this one a folder of its own"
            ) from None

    def _clear(self) -> None:
        self.data_position = self.settled_position = 0
        self.fingerprint: bytes | None = None
        self.targets: list[str] = []
        self.loaded_until = 0
        self._began: int | None = None
        self._numbers: dict[str, int] = {}
        self._next = 1  # number of a file; none is given twice
        self._edges = Edges()
        self._spans: dict[int, SpanFiles] = {}
        self._places: dict[tuple[int, int], SpanFiles] = {}  # level, start -> where rows are filed now
        self._ledger = Ledger(self._files)

    def _open(self) -> None:
        """1. read the manifest    2. restore each file that it names    3. remove the others"""
        stored = manifest.read(self.folder, self.identity)  # 1
        if stored is None:
            if self._files.keep_only(set()):
                raise StoreDamaged("there are files and no manifest")
            return
        self._restore(stored)  # 2
        names = {name for span in self._spans.values() for name in (span.data.name, span.index.name)}
        self._files.keep_only(names | self._ledger.names())  # 3

    def _restore(self, stored: dict[str, Any]) -> None:
        self.data_position, self.settled_position = stored["data_position"], stored["settled_position"]
        self.fingerprint = None if stored["fingerprint"] is None else bytes.fromhex(stored["fingerprint"])
        self._next, self._began, self._edges = stored["next"], stored["began"], Edges(*stored["edges"])
        self.targets = stored["targets"]
        self._numbers = {name: number for number, name in enumerate(self.targets)}
        for one in stored["spans"]:
            self._add_span(SpanFiles.restore(self._files, one))
        self._ledger.restore(stored["ledger"])

    def _add_span(self, span: SpanFiles) -> SpanFiles:
        self._spans[span.number] = self._places[span.level, span.start_ms] = span
        return span

    # What comes in

    def begin(self, position: int) -> None:
        """The store is empty, and everything from this offset of the input on will be appended.

        With it, what was settled long ago need not be remembered one by one. ValueError if the store is not empty.
        """
        if self._spans or self.data_position:
            raise ValueError(f"only an empty store can begin; this one holds the input up to {self.data_position}")
        self._began = position

    def append(self, rows: Array, blobs: Sequence[bytes], targets: Sequence[str]) -> Array:
        """File messages: rows with due and origin (the rest is filled in), their bytes (`pack`) and topics, one each.

        Returns the rows that were filed: without those whose origin is pending or settled already (rule 3). Of these, the
        ones due before `loaded_until` are the owner's to keep. ValueError for a due time or an origin out of bounds;
        OSError if the disk refuses: then nothing was filed, and the same call may be made again.
        """
        rows = self._new_rows(rows)
        news = self._news(rows["origin"])
        if not news.all():
            kept = np.flatnonzero(news).tolist()
            rows, blobs, targets = rows[news], [blobs[n] for n in kept], [targets[n] for n in kept]
        if not len(rows):
            return rows
        rows["target"] = self._target_numbers(targets)
        rows["length"] = list(map(len, blobs))
        rows["crc"] = [checksum(blob, origin) for blob, origin in zip(blobs, rows["origin"].tolist(), strict=True)]
        self._file(rows, blobs)
        return rows

    def _new_rows(self, rows: Array) -> Array:
        if rows.dtype != ROW:
            raise ValueError(f"rows must be of dtype ROW, got {rows.dtype}")
        for name, most in (("due", MOST_DUE), ("origin", 2**62)):
            wrong = (rows[name] < 0) | (rows[name] >= most)
            if wrong.any():
                raise ValueError(f"{name} must be in 0 .. {most - 1}, got {rows[name][wrong][0]}")
        return rows.copy()

    def _news(self, origins: Array) -> Array:
        """Which are not known yet; of one that is there twice, the first."""
        news: Array = self._ledger.origins.values(origins) == State.UNKNOWN
        if (np.diff(origins) <= 0).any():
            first = np.zeros(len(origins), bool)
            first[np.unique(origins, return_index=True)[1]] = True
            news &= first
        return news

    def _target_numbers(self, names: Sequence[str]) -> list[int]:
        for name in {*names} - self._numbers.keys():
            if len(self.targets) == MOST_TARGETS:
                raise UsageError(f"a partition can have messages for {MOST_TARGETS} topics: use more partitions")
            self._numbers[name] = len(self.targets)
            self.targets.append(name)
        numbers = self._numbers
        return [numbers[name] for name in names]

    def _file(self, rows: Array, blobs: Sequence[bytes]) -> None:
        """File rows in the spans of their due times, and fill in `pos`.

        1. write data and index behind the ends of their files    2. note in the ledger    3. all of it counts
        """
        self._raise_edges()
        self._ledger.begin(self._number)
        spans, written = np.zeros(len(rows), "i8"), []
        for span, which in self._by_span(rows):
            part = rows[which]
            data, index = span.write(part, [blobs[n] for n in which.tolist()])  # 1
            rows["pos"][which], spans[which] = part["pos"], span.number
            written.append((span, data, index, int(part["due"].min())))
        place = self._ledger.place(spans, rows["origin"], rows["target"])  # 2
        for span, data, index, first_due in written:  # 3
            span.grow(data, index, first_due)
        place()

    def _number(self) -> int:
        """Of a new file."""
        self._next += 1
        return self._next - 1

    def _by_span(self, rows: Array) -> Iterator[tuple[SpanFiles, Array]]:
        levels, starts = self._edges.places(rows["due"], self._past_ms)
        keys = starts * len(Level) + levels
        order = np.argsort(keys, kind="stable")
        for which in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            yield self._span(Level(levels[which[0]]), int(starts[which[0]])), which

    def _span(self, level: Level, start_ms: int) -> SpanFiles:
        found = self._places.get((level, start_ms))
        if found is None:
            found = self._add_span(SpanFiles.create(self._files, self._number(), level, start_ms))
        return found

    def _raise_edges(self) -> None:
        self._edges = self._edges.later(Edges.at(self._clock.wall_ms(), self.loaded_until))

    @property
    def _past_ms(self) -> int:
        """What is due before lies in the span of the past. Never behind `loaded_until`: rule 4 must hold for it too."""
        now_ms = self._clock.wall_ms()
        near = min(now_ms, self.loaded_until) if self.loaded_until else now_ms
        return near - near % HOUR_MS - DAY_MS

    # What goes out

    def settle(self, origins: Array, state: State = State.FIRED) -> None:
        """They were fired, cancelled or moved, wherever they lie; again is the same.

        OSError if the disk refuses: they are settled all the same, and the next checkpoint writes it down.
        """
        known = range(0) if self._began is None else range(self._began, self.data_position)
        self._ledger.begin(self._number)
        self._ledger.settle(np.unique(np.asarray(origins, "<i8")), state, known)

    def is_settled(self, origins: Array) -> Array:
        """For each, whether it was fired, cancelled or moved."""
        values = self._ledger.origins.values(np.asarray(origins, "<i8"))
        return np.asarray((values > State.UNKNOWN) & (values < FIRST_SLOT))

    def read(self, rows: Array) -> Iterator[bytes]:
        """The bytes of pending messages, in the order of their rows. `StoreDamaged` if they are not what was appended."""
        for start in range(0, len(rows), READ_ROWS):
            yield from self._blobs(rows[start : start + READ_ROWS])

    def _blobs(self, rows: Array) -> list[bytes]:
        values = self._ledger.origins.values(rows["origin"])
        if (values < FIRST_SLOT).any():
            raise ValueError(
                f"origin {rows['origin'][values < FIRST_SLOT][0]} is not pending: it has no bytes any more"
            )
        spans = self._ledger.slots.span[values]
        found: list[bytes] = [b""] * len(rows)
        for number in np.unique(spans).tolist():
            which = np.flatnonzero(spans == number)
            for n, blob in zip(which.tolist(), self._spans[number].blobs(rows[which]), strict=True):
                found[n] = blob
        return found

    # What is near

    def load(self, until_ms: int, most: int) -> Iterator[Array]:
        """Pending rows of spans that begin before `until_ms` and were not loaded yet, in slices of `most` rows or less.

        `loaded_until` rises with the call; who makes it takes all slices, or calls `unload`. What is appended or settled
        between two slices is left out of the next ones. `StoreDamaged` if an index is not what was written.
        """
        before, until = self.loaded_until, until_ms - until_ms % -HOUR_MS
        self.loaded_until = max(before, until)
        self._raise_edges()
        near = [span for span in self._spans.values() if before <= span.start_ms < until]
        return self._load([(span, span.count) for span in sorted(near, key=lambda span: span.start_ms)], most)

    def _load(self, spans: list[tuple[SpanFiles, int]], most: int) -> Iterator[Array]:
        for span, count in spans:
            span.index.verify()
            for rows in span.rows(span.moved, count, most):
                yield rows[self._ledger.origins.values(rows["origin"]) >= FIRST_SLOT]

    def unload(self) -> None:
        """Nothing is near any more: the next `load` begins anew."""
        self.loaded_until = 0

    # What is there

    def spans(self) -> list[Span]:
        """The spans in which something is pending, by their start, with counts by topic."""
        found = {n: Span(span.level, span.start_ms, span.end_ms) for n, span in self._spans.items()}
        for number, target, count in self._ledger.slots.pending():
            if count:
                name = "(other topics)" if target == OTHER else self.targets[target]
                found[number].pending[name] = count
        return sorted((span for span in found.values() if span.pending), key=lambda span: (span.start_ms, span.level))

    @property
    def pending(self) -> int:
        """How many messages are pending."""
        return int(self._ledger.slots.count.sum())

    @property
    def next_due(self) -> int | None:
        """Nothing pending is due before this, in ms since the epoch; None where nothing is pending."""
        waiting = {number for number, _, count in self._ledger.slots.pending() if count}
        return min((self._spans[n].first_due or 0 for n in waiting), default=None)

    @property
    def bytes_on_disk(self) -> int:
        """The lengths of all files."""
        spans = sum(span.data.length + span.index.length for span in self._spans.values())
        return spans + self._ledger.bytes_on_disk

    # Durable

    def checkpoint(self, data_position: int, fingerprint: bytes | None, settled_position: int) -> None:
        """What was appended and settled so far outlasts a crash, with these positions.

        1. drop finished spans    2. flush data, index, journal    3. replace the manifest    4. remove what was dropped

        `StoreDamaged` if the disk cannot flush; OSError if it refuses the manifest: the last checkpoint holds then.
        """
        self._ledger.origins.pack(data_position)
        self._drop_finished()  # 1
        if self._ledger.is_long:
            self._ledger.snapshot(self._number)
        self._files.flush()  # 2
        positions = {
            "data_position": data_position,
            "fingerprint": None if fingerprint is None else fingerprint.hex(),
            "settled_position": settled_position,
        }
        manifest.write(self.folder, self.identity, positions | self._stored())  # 3
        self.data_position, self.fingerprint, self.settled_position = data_position, fingerprint, settled_position
        self._files.sweep()  # 4

    def _stored(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "began": self._began,
            "edges": [self._edges.hours_until, self._edges.days_until, self._edges.months_until],
            "targets": self.targets,
            "spans": [span.stored() for span in self._spans.values()],
            "ledger": self._ledger.stored(),
        }

    def _drop_finished(self) -> None:
        """Forget the spans in which nothing is pending: those that are over, and those that are large."""
        waiting = {number for number, _, count in self._ledger.slots.pending() if count}
        now_ms = self._clock.wall_ms()
        for span in [span for number, span in self._spans.items() if number not in waiting]:
            if span.end_ms <= now_ms or span.data.length > DROP_BYTES:
                self._drop(span)

    def _drop(self, span: SpanFiles) -> None:
        self._ledger.free(span.number)
        del self._spans[span.number]
        if self._places.get((span.level, span.start_ms)) is span:
            del self._places[span.level, span.start_ms]
        span.drop()

    def discard(self, why: str) -> None:
        """Empty the store, the manifest first; `rebuilt` is `why` from now on. The owner reads the log from its start."""
        log.warning("%s: discarded, to be filed anew from the log: %s", self.folder, why)
        (self.folder / manifest.NAME).unlink(missing_ok=True)
        flush_folder(self.folder)
        self._files.keep_only(set())
        self._clear()
        self.rebuilt = why

    def close(self) -> None:
        """Give the folder back. What no checkpoint named is lost."""
        self._files.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
