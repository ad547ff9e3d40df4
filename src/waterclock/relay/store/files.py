"""The folder's files: written at their end, cut to what the manifest says, dropped behind its back never.

    a file: MAGIC (8 bytes), a random mark (8 bytes), then what its kind holds

Rule 1: a file that is not in the manifest counts for nothing; one that is in it has at least the length that stands there.
Rule 2: the mark is in the file and in the manifest: a file of the same name that was made at another time is found.
Rule 3: a write goes to where the file ends as far as is known, so that one that failed half way is written over.
Rule 4: before the manifest is replaced, all that was written is flushed, and the names of new files too. A file that the
    new one does not name is removed after.
Rule 5: a write that the disk refuses takes no room: what it left is cut off, and a file that was to begin with it is
    removed. Else each attempt would fill the disk a little more.
Rule 6: only names like our own are removed; whatever else lies in the folder stays.
Rule 7: what is behind the manifest's word, or has no place in it, goes with the first write, and not before: who opens the
    folder may find that it is not to be believed, or that it is the last copy of something.
Rule 8: that a process has no file left says nothing of a file. Those of this folder that are open make room for the next.
"""

from __future__ import annotations

import errno
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from waterclock.disk import flush_folder, write_all
from waterclock.errors import WaterclockError
from waterclock.outside import os, secrets

MAGIC: Final = b"wcrelay1"
HEADER: Final = 16  # bytes: the magic, the mark
MOST_OPEN: Final = 32  # files of one partition; a relay may own dozens
READ_BYTES: Final = 4 << 20  # at a time, if a whole file is read
OURS: Final = re.compile(r"[\w-]+\.\d+\.(data|index|journal|snapshot|log|run)")
NO_FILE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
T = TypeVar("T")


class StoreDamaged(WaterclockError):
    """A file does not hold what was written to it: the owner discards the store, and files everything anew from the log."""


class DiskRefused(OSError):
    """The disk does not take what is to be written: `wanted` is how many bytes that is, `filename` where they were to go.
    As `OSError` it says why."""

    def __init__(self, error: OSError, path: Path, wanted: int) -> None:
        super().__init__(error.errno, error.strerror, str(path))
        self.wanted = wanted


class StoreFiles:
    """The files of one folder, of which a few are open at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: OrderedDict[str, int] = OrderedDict()
        self._unflushed: set[str] = set()
        self._dropped: set[str] = set()
        self._new_names = False
        self._longer: dict[str, int] = {}  # rule 7: the lengths that files are to have
        self._strays: list[str] = []
        self._flush = Flush(self, set(), set(), False)

    def create(self, name: str) -> bytes:
        """Begin a file; returns its mark. OSError if the disk refuses: then there is none."""
        mark = secrets.token_bytes(8)
        with self._refusing(name, HEADER):
            self._cut_found()
            self._remember(name, self._opened(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        self._new_names = True
        with self.scrapping(name):
            self.write(name, MAGIC + mark, 0)
        return mark

    @contextmanager
    def scrapping(self, name: str) -> Iterator[None]:
        """Remove a file that no manifest has named yet, if the disk refuses what is done with it. Rule 5."""
        try:
            yield
        except OSError:
            self._close(name)
            self._unflushed.discard(name)
            self._flush.written.discard(name)
            self.remove(name)
            raise

    @contextmanager
    def _refusing(self, name: str, wanted: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskRefused(error, self.folder / name, wanted) from None

    def write(self, name: str, data: bytes, at: int) -> None:
        """Write all of it. OSError if the disk refuses; then nothing of it counts (rule 3)."""
        fd = self._fd(name)
        self._unflushed.add(name)
        with self._refusing(name, len(data)):
            self._cut_found()
            try:
                write_all(fd, data, at)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(fd, at)  # rule 5
                raise

    def read(self, name: str, size: int, at: int) -> bytes:
        """So many bytes; `StoreDamaged` if the file ends before, is gone, or the disk cannot read it."""
        try:
            data = os.pread(self._fd(name), size, at)
            while len(data) < size and (more := os.pread(self._fd(name), size - len(data), at + len(data))):
                data += more
        except OSError as error:
            if error.errno in NO_FILE_LEFT:
                raise
            raise StoreDamaged(f"{name} cannot be read: {error.strerror}") from None
        if len(data) < size:
            raise StoreDamaged(f"{name} ends after {at + len(data)} bytes")
        return data

    def restore(self, name: str, mark: bytes, length: int) -> None:
        """Take a file as the manifest has it: what lies behind `length` is nothing. `StoreDamaged` if it is another."""
        if self.read(name, HEADER, 0) != MAGIC + mark:
            raise StoreDamaged(f"{name} is not the file that was written here")
        size = os.fstat(self._fd(name)).st_size
        if size < length:
            raise StoreDamaged(f"{name} has {size} bytes of {length}")
        if size > length:
            self._longer[name] = length

    def drop(self, name: str) -> None:
        """Remove a file once a manifest without it was written: `Flush.sweep`."""
        self._close(name)
        self._unflushed.discard(name)
        self._dropped.add(name)

    def begin_flush(self) -> Flush:
        """What was written so far is to be flushed, and what was dropped so far to be removed. That of a flush that did
        not come to its end is taken over. OSError if the disk refuses what goes before (rule 7)."""
        self._cut_found()
        last = self._flush
        self._flush = Flush(
            self, self._unflushed | last.written, self._dropped | last.dropped, self._new_names or last.new_names
        )
        self._unflushed = set()
        self._dropped = set()
        self._new_names = False
        return self._flush

    def flush(self, name: str) -> None:
        """Make a file's bytes durable."""
        os.fsync(self._fd(name))

    def keep_only(self, names: set[str]) -> bool:
        """Every file of ours that is not among `names` goes (rule 7); True if there is one."""
        self._strays = [one for one in os.listdir(self.folder) if OURS.fullmatch(one) and one not in names]
        return bool(self._strays)

    def has_rows_behind(self) -> bool:
        """Whether a file that goes, or what goes of one, is rows of messages."""
        empty = [name for name in self._strays if os.stat(self.folder / name).st_size <= HEADER]
        return any(name.endswith(".index") for name in {*self._strays, *self._longer}.difference(empty))

    def _cut_found(self) -> None:
        """Rule 7."""
        while self._longer:
            name, length = next(iter(self._longer.items()))
            os.ftruncate(self._fd(name), length)
            self._unflushed.add(name)
            del self._longer[name]
        while self._strays:
            self.remove(self._strays[-1])
            self._strays.pop()

    def remove(self, name: str) -> None:
        """Remove a file at once; one that is gone already is as good."""
        with suppress(FileNotFoundError):
            os.unlink(self.folder / name)

    def close(self) -> None:
        """Close what is open; nothing is flushed."""
        for name in tuple(self._open):
            self._close(name)

    def _fd(self, name: str) -> int:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        return self._remember(name, self._opened(name, os.O_RDWR))

    def making_room(self, deed: Callable[[], T]) -> T:
        """Do something that opens a file. Rule 8."""
        try:
            return deed()
        except OSError as error:
            if error.errno not in NO_FILE_LEFT or not self._open:
                raise
        self.close()
        return deed()

    def _opened(self, name: str, flags: int) -> int:
        return self.making_room(partial(os.open, self.folder / name, flags, 0o600))

    def _remember(self, name: str, fd: int) -> int:
        self._close(name)
        self._open[name] = fd
        if len(self._open) > MOST_OPEN:
            self._close(next(iter(self._open)))  # flushing opens it again: what was written belongs to the file
        return fd

    def _close(self, name: str) -> None:
        if (fd := self._open.pop(name, None)) is not None:
            os.close(fd)


class Flush:
    """A flush that is on its way; what is written, made or dropped from now on waits for the next. Rule 4."""

    def __init__(self, files: StoreFiles, written: set[str], dropped: set[str], new_names: bool) -> None:
        self._files = files
        self.written = written  # names of files whose bytes are to be flushed
        self.dropped = dropped  # names of files that go once the new manifest is there
        self.new_names = new_names

    def steps(self) -> Iterator[None]:
        """A file at a time, then the folder. `StoreDamaged` if the disk refuses: what it has of it is not known, and to
        ask once more would not tell."""
        try:
            for name in sorted(self.written):
                if name in self.written:  # it was not scrapped meanwhile
                    self._files.flush(name)
                    self.written.discard(name)
                    yield
            if self.new_names:
                self._files.making_room(partial(flush_folder, self._files.folder))
                self.new_names = False
        except OSError as error:
            if error.errno in NO_FILE_LEFT:
                raise  # nothing was flushed yet
            raise StoreDamaged(f"what was written cannot be flushed: {error.strerror}") from None

    def sweep(self) -> None:
        """Remove what was dropped."""
        for name in sorted(self.dropped):
            self._files.remove(name)
            self.dropped.discard(name)


class AppendedFile:
    """A file that grows at its end. What is read of it is checked by who reads: each message has its checksum."""

    def __init__(self, files: StoreFiles, name: str, mark: bytes, length: int) -> None:
        self.files = files
        self.name = name
        self.mark = mark
        self.length = length  # bytes that count, the header among them

    @classmethod
    def create(cls, files: StoreFiles, name: str) -> Self:
        """An empty one."""
        return cls(files, name, files.create(name), HEADER)

    @classmethod
    def restore(cls, files: StoreFiles, stored: list[Any]) -> Self:
        """As a manifest has it: `stored()`. `StoreDamaged` if the file is not like that."""
        name, mark, length, *rest = stored
        files.restore(name, bytes.fromhex(mark), length)
        return cls(files, name, bytes.fromhex(mark), length, *rest)

    def stored(self) -> list[Any]:
        """What a manifest says of it."""
        return [self.name, self.mark.hex(), self.length]

    def write(self, data: bytes) -> None:
        """Write behind the end. It counts with `grow`."""
        self.files.write(self.name, data, self.length)

    def grow(self, data: bytes) -> None:
        """What was written counts from now on."""
        self.length += len(data)

    def append(self, data: bytes) -> None:
        """Write, and it counts."""
        self.write(data)
        self.grow(data)

    def read(self, size: int, at: int) -> bytes:
        """So many bytes, from the start of the file; see `StoreFiles.read`."""
        return self.files.read(self.name, size, at)

    def drop(self) -> None:
        """Remove it after the next checkpoint."""
        self.files.drop(self.name)

    def scrapping(self) -> AbstractContextManager[None]:
        """Remove it at once, if the disk refuses what is done with it and no manifest has named it yet."""
        return self.files.scrapping(self.name)


class CheckedFile(AppendedFile):
    """One with the checksum of all that is in it."""

    def __init__(self, files: StoreFiles, name: str, mark: bytes, length: int, crc: int = 0) -> None:
        super().__init__(files, name, mark, length)
        self.crc = crc

    def stored(self) -> list[Any]:
        return [*super().stored(), self.crc]

    def grow(self, data: bytes) -> None:
        super().grow(data)
        self.crc = zlib.crc32(data, self.crc)

    def content(self) -> bytes:
        """All behind the header. `StoreDamaged` if it is not what was written."""
        data = self.read(self.length - HEADER, HEADER)
        self._compare(zlib.crc32(data), self.crc)
        return data

    def verify(self) -> Iterator[None]:
        """The same without keeping it, in steps of a few milliseconds. What is appended meanwhile is left out."""
        length, expected, crc = self.length, self.crc, 0
        for at in range(HEADER, length, READ_BYTES):
            crc = zlib.crc32(self.read(min(READ_BYTES, length - at), at), crc)
            yield
        self._compare(crc, expected)

    def _compare(self, crc: int, expected: int) -> None:
        if crc != expected:
            raise StoreDamaged(f"{self.name} does not hold what was written to it: its checksum is wrong")
