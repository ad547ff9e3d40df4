"""One file of a partition's log: batches one after the other, and its index.

Rule 1: `size` is where the next batch goes. What a failed or cut-off write left behind it is overwritten by the next; in
    one that is closed it is gone, durably, before anything behind it is durable.
Rule 2: `durable` bytes are on the disk; nobody but the writer of this file reads beyond them. `settled` of them are so in
    this file, the others in the write-ahead log (write_ahead.py).
Rule 3: the file is open as long as somebody holds the segment: a flusher or an answer on its way may outlive its deletion.
Rule 4: its index file is made before it, empty. An index that is there and empty says: nothing here was ever durable.
Rule 5: of known damage, what was lost is an error for who asks for it; every other offset is read as ever. Nothing is
    mended, cut or skipped: a reader goes past lost offsets if its program says so.
Rule 6: while it grows its index is in memory. Afterwards it is looked up in the file: what is held does not grow with the
    log, and no reader of old records makes the loop read a whole index.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged, renaming
from waterclock.broker.log.batch import CHECKED, EPOCH, FRAME, HEADER, MAGIC, PREFIX, Batch, header_of
from waterclock.broker.log.index import INDEX_EVERY, NEVER, Index, StoredIndex, last_row
from waterclock.broker.net.outgoing import Buffer
from waterclock.disk import flush_file, flush_folder, write_all
from waterclock.outside import os

CHUNK: Final = 1 << 20
FIRST_CHUNK: Final = 8 << 10  # most walks are over after a few batches
LABEL: Final = "topic.json"  # beside a topic's segments: what its folder is (folder/making.py)
log = logging.getLogger("waterclock.broker")
FILES: Final = (".index", ".aborted", ".log")  # in the order of their removal


class Damage(NamedTuple):
    """From byte `at` to before byte `upto` there is no whole batch; offsets from `first` to before `end` are lost there."""

    at: int
    upto: int
    first: int
    end: int


class Tail(NamedTuple):
    """The end of a segment that nothing is appended to any more: the offset after it, its latest timestamp (ms)."""

    end: int
    latest: int


class Segment:
    """The batches from offset `base` on, in `folder`. Opening one that exists reads nothing but its size."""

    def __init__(self, folder: str, base: int) -> None:
        self.base = base
        self.path = os.path.join(folder, f"{base:020}")
        self.named = True
        """Whether its files' names are durable."""
        self.closing = self._removed = False
        """`closing`: it is closed, and its end may not be durable."""
        try:
            self.fd = os.open(self.path + ".log", os.O_RDWR)
        except FileNotFoundError:  # a new one: its index is made first (rule 4)
            os.close(os.open(self.path + ".index", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
            self.fd = os.open(self.path + ".log", os.O_RDWR | os.O_CREAT, 0o644)
            self.named = False
        self.size = self.durable = self.settled = os.fstat(self.fd).st_size
        self.latest = NEVER  # the latest timestamp, in ms, of what was noted since it was opened
        self.began_ms = NEVER  # the latest timestamp of its first batch: from there on segment.ms counts
        self._pinned: int | None = None  # its index, opened
        self.unread = self.size  # bytes that nobody has read since it was opened: scrubbing.py looks at their batches
        self.damages: tuple[Damage, ...] = ()  # what is known to be damaged, in its order

    @cached_property
    def index(self) -> Index:
        """All of it, read from its file when first asked for: for who adds to it, mends it or cuts it."""
        index = Index(self.path + ".index", self.base)
        index.load(self.size)
        if index.beyond >= 0:
            raise self.shortened(index.beyond)
        return index

    @property
    def _held(self) -> Index | None:
        """Its index if that is in memory."""
        return self.__dict__.get("index")

    @property
    def lookup(self) -> Index | StoredIndex:
        """Where its batches are looked up."""
        if self._held is not None or not self.size:  # an empty one may grow yet
            return self.index
        _ = self.tail  # what the file lacks is found first
        return StoredIndex(self.path + ".index", self.base, self._pinned, self._mended)

    def _mended(self) -> Index | StoredIndex:
        """Its index without the rows that are damaged, and with what was in them."""
        if self._pinned is not None:
            return self.index_anew()  # the file's name may be another segment's by now
        self._find_tail()
        return self.lookup

    def close(self) -> None:
        """Nothing is appended to it any more, so nothing overwrites what a refused write left behind its end: that goes,
        durably with the next flush. OSError."""
        os.ftruncate(self.fd, self.size)
        self.closing = True

    def rest(self) -> None:
        """Nothing is appended to it any more: no index is kept in memory, once all of it is in the file."""
        if self._held is not None and self._held.complete:
            del self.__dict__["index"]

    def pin(self) -> None:
        """Until `unpin`, it can be read whatever becomes of its files' names."""
        if self._held is None and self._pinned is None:
            with suppress(OSError):
                self._pinned = os.open(self.path + ".index", os.O_RDONLY)
                return
            self.index_anew()

    def unpin(self) -> None:
        """Its files' names are its own still."""
        if self._pinned is not None:
            os.close(self._pinned)
            self._pinned = None
        self.rest()

    def index_anew(self) -> Index:
        """An empty index in place of one that may be wrong, whose file stays as it is."""
        index = self.__dict__["index"] = Index(self.path + ".index", self.base)
        return index

    def append(self, data: Buffer, base: int, timestamp: int) -> None:
        """Write a batch at the end; OSError if not all of it could be written, and nothing has changed."""
        try:
            write_all(self.fd, data, self.size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fd, self.size)
            raise
        self.note(base, self.size, len(data), timestamp)

    def note(self, base: int, at: int, size: int, timestamp: int) -> None:
        """There is a batch of `size` bytes at byte `at`, the last so far."""
        self.index.note(base, at, self.latest)
        if timestamp > self.latest:
            self.latest = timestamp
        if not at:
            self.began_ms = timestamp
        self.size = at + size

    def flushed(self, size: int) -> None:
        """All before byte `size` is durable, and so may its index be."""
        if size > self.durable:
            self.durable = size
            if self._held is not None:
                self._save(self._held)

    def _save(self, index: Index) -> None:
        """Write what is durable of its index, unless its files were removed: an index alone says that records are gone."""
        if not self._removed:
            index.save(self.durable)

    def settle(self, size: int) -> None:
        """All before byte `size` is durable in this file itself. Any thread: what it overwrites costs a flush too many."""
        self.settled = max(self.settled, size)

    def locate(self, offset: int) -> tuple[int, int]:
        """Byte and size of the batch that holds `offset`, or of the first one after it. It must be there."""
        at = self.lookup.before_offset(offset)
        for damage in self.damages:
            if damage.first <= offset < damage.end:
                raise self.lost(damage)
            if damage.end <= offset:
                at = max(at, damage.upto)
        while True:
            chunk = os.pread(self.fd, INDEX_EVERY + HEADER, at)
            here = 0
            while here + HEADER <= len(chunk):
                base, length, _, magic, _, _, delta = FRAME.unpack_from(chunk, here)
                if length < HEADER - PREFIX or magic != MAGIC:
                    raise self.broken(at + here)
                if base + delta >= offset:
                    if at + here + PREFIX + length > self.size:
                        raise self.broken(at + here)
                    return at + here, PREFIX + length
                here += PREFIX + length
            if not here or at + here > self.size:
                raise self.broken(at)
            at += here

    def broken(self, at: int) -> LogDamaged:
        """The error that says where the file is damaged."""
        return LogDamaged(
            f"{self.path}.log is broken at byte {at} of {self.size}: no batch starts there, or none that is whole. "
            f"Restore the file; or {renaming(self.path + '.log')}, to go on without its records"
        )

    def know(self, damages: Sequence[Damage], latest: int, *, grows: bool) -> None:
        """All of it was read, and this is damaged; its latest timestamp is `latest`. `grows`: it is written to."""
        self.unread, self.damages = 0, tuple(damages)
        if damages and not grows and damages[-1].upto == self.size:
            self.tail = Tail(damages[-1].end, latest)

    def lost(self, damage: Damage) -> LogDamaged:
        """The error that says what cannot be read, and that all else can."""
        offsets = (
            f"offsets {damage.first} to {damage.end - 1} are lost" if damage.end > damage.first else "no offset is lost"
        )
        return LogDamaged(
            f"{self.path}.log is damaged from byte {damage.at} to before byte {damage.upto} of {self.size}: {offsets}, all "
            f"others can be read. Restore the file while the broker is stopped, or let readers go on at offset {damage.end}"
        )

    def shortened(self, at: int) -> LogDamaged:
        """The error that says that it was longer once: its index has a batch behind its end, which was durable."""
        return LogDamaged(
            f"{self.path}.log has {self.size} bytes, and {self.path}.index has a batch at byte {at}. Restore the file; or "
            f"{renaming(self.path + '.index')}, to go on with what is left"
        )

    def headers(self, at: int = 0) -> Iterator[tuple[int, Batch]]:
        """Byte and header of each batch from byte `at` on, which must be the start of one; LogDamaged if it is not."""
        most = FIRST_CHUNK
        while at < self.size:
            chunk = os.pread(self.fd, min(most, self.size - at), at)
            here = 0
            while here + HEADER <= len(chunk):
                batch = header_of(chunk, here)
                if batch.length < HEADER - PREFIX or at + here + PREFIX + batch.length > self.size:
                    raise self.broken(at + here)
                yield at + here, batch
                here += PREFIX + batch.length
            if not here:
                raise self.broken(at)
            at += here
            most = min(2 * most, CHUNK)

    def batches(self, at: int = 0) -> Iterator[tuple[int, Batch, memoryview]]:
        """As `headers`, with each batch's bytes, which are what its checksum says; LogDamaged if they are not."""
        while at < self.size:
            head, here = os.pread(self.fd, PREFIX, at), 0
            size = PREFIX + int(EPOCH.unpack_from(head, 8)[0]) if len(head) == PREFIX else 0  # as long as it says it is
            chunk = memoryview(os.pread(self.fd, min(max(CHUNK, size), self.size - at), at))
            while here + HEADER <= len(chunk):
                batch = header_of(chunk, here)
                after = here + PREFIX + batch.length
                if batch.length < HEADER - PREFIX or after > len(chunk):
                    break
                if crc32c(chunk[here + CHECKED : after]) != batch.crc:
                    raise self.broken(at + here)
                yield at + here, batch, chunk[here:after]
                here = after
            if not here:
                raise self.broken(at)
            at += here

    @cached_property
    def tail(self) -> Tail:
        """The end of a segment that nothing is appended to any more. What its index lacks is found and kept."""
        row = last_row(self.path + ".index", self.base) if self._held is None else None
        if row is not None and row[1] < self.size:
            end, at, latest = row
            with suppress(LogDamaged):
                for here, batch in self.headers(at):
                    if here >= at + INDEX_EVERY:  # it should have a row of its own
                        break
                    end, latest = batch.last + 1, max(latest, batch.max_timestamp)
                else:
                    return Tail(end, latest)
        return self._find_tail()

    def _find_tail(self) -> Tail:
        """The tail, by the whole index, which is mended on the way; LogDamaged if it is the log that is damaged."""
        index = self.index
        try:
            tail = self._walked(index)
        except LogDamaged:  # it may be the index that is wrong: only then it goes
            tail = self._walked(fresh := Index(self.path + ".index", self.base))
            index.forget(0)
            index = self.__dict__["index"] = fresh
        self._save(index)
        self.rest()
        return tail

    def _walked(self, index: Index) -> Tail:
        end, latest = self.base, index.times[-1] if index.times else NEVER
        for at, batch in self.headers(index.at[-1] if index.at else 0):
            index.note(batch.base, at, latest)
            end, latest = batch.last + 1, max(latest, batch.max_timestamp)
        return Tail(end, latest)

    def check_end(self) -> int:
        """The offset after the last record of such a segment; LogDamaged if it does not end with a whole batch, or is
        shorter than its index says.

        Reads the last row of its index and what follows, not the whole index.
        """
        row = last_row(self.path + ".index", self.base)
        if row is not None and row[1] >= self.size:
            raise self.shortened(row[1])
        if row is not None:
            with suppress(LogDamaged):
                return self._end_from(*row[:2])
            self.tell_of_index()
        return self._end_from(self.base, 0)

    def tell_of_index(self) -> None:
        """Its index has a good row where the log has no batch: one of the two was damaged, or put back from before."""
        log.warning("%s.index does not fit %s.log: the index is found again", self.path, self.path)

    def _end_from(self, offset: int, at: int) -> int:
        for here, batch in self.headers(at):
            if batch.base < offset or batch.magic != 2 or batch.last_delta < 0:
                raise self.broken(here)
            offset = batch.last + 1
        return offset

    def cut(self, size: int) -> None:
        """Drop everything from byte `size` on, in the index first: it must not say that the file was longer."""
        self.index.forget(size)
        os.ftruncate(self.fd, size)
        self.size = size
        self.durable = min(self.durable, size)
        self.settled = min(self.settled, size)

    def flush(self) -> None:
        """Put what was written onto the disk; the first time, and after `name_anew`, the folder's label and names too."""
        self.closing = False  # before: what is changed from here on is for the next flush
        os.fdatasync(self.fd)
        if not self.named:
            self.named = True  # before, as above
            folder = os.path.dirname(self.path)
            with suppress(FileNotFoundError):  # the journal has none
                flush_file(os.path.join(folder, LABEL))
            with suppress(FileNotFoundError):  # its topic was deleted meanwhile
                flush_folder(folder)

    def name_anew(self) -> None:
        """A file beside it is new, or has another name: the next flush makes that durable along with the records."""
        self.named = False

    def delete(self) -> None:
        """Remove its files; who reads it now may finish, and who flushes it."""
        self._removed = True
        for ending in FILES:
            with suppress(FileNotFoundError):
                os.unlink(self.path + ending)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.fd)
            if self._pinned is not None:
                os.close(self._pinned)


def numbered(names: Iterable[str], ending: str) -> list[int]:
    """The offsets that files of that ending are named after, rising; `names` are those of a folder's files."""
    offsets = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return sorted(int(offset) for offset in offsets if offset.isdigit())
