"""The disk: names and whole files that outlast a crash, and a folder for one process alone; each in one way; small files of
JSON that say whether they are whole.

Rule 1: a name that was made, changed or removed is durable once its folder was flushed; a folder's own name once the one
    above it was.
Rule 2: a file is replaced whole or not at all. Its new bytes are written beside it, to `.NAME.new`: whoever lists the
    folder for files, as Spark does, passes over a name that begins with a dot.
Rule 3: a lock is the operating system's (flock). It ends with the process that holds it, however that ends; a child that
    was forked off meanwhile does not hold it too.
Rule 4: what a lock means on a file system that has none is the caller's choice: `WithoutLocks`.
Rule 5: a write may take a part of what it is given, and is no error then. All is written, or it raises: `write_all` is the
    only caller of pwrite.
Rule 6: what nobody believes is not removed. It gets another name, durably, that nothing has: `set_aside`.
Rule 7: a sealed file is a value of JSON on one line, and its checksum (CRC-32) on the next. It is written whole, durably: a
    crash leaves the old one or the new one.
Rule 8: brokers wrote CRC-32C there at first: such a file is read all the same.
"""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from itertools import count
from typing import IO, Any
from weakref import WeakSet
from zlib import crc32

from waterclock.outside import BOOT, fcntl, open_file, os

AnyPath = str | os.PathLike[str]


def boot() -> str | None:
    """A name of this start of the machine, which no other start has; None where that is not known.

    What a process wrote and did not flush is there for as long as the machine goes on.
    """
    with suppress(OSError), open_file(BOOT, "rb") as file:
        return str(file.read().decode()).strip()
    return None


# Names and whole files


def allow_many_files() -> None:
    """Raise the limit of open files as far as it may be: a broker's partition holds one, a relay's dozens."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def flush_folder(folder: AnyPath) -> None:
    """Make names made, changed or removed in `folder` durable."""
    _flush(folder)


def flush_file(path: AnyPath) -> None:
    """Make a file's bytes durable, whoever wrote them."""
    _flush(path)


def _flush(path: AnyPath) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
    """Write all of `data` at byte `at`. OSError if the disk refuses any of it: then a part may stand there.

    A nearly full disk takes what has room and says how much that was; the rest is asked for again, and refused.
    """
    left = memoryview(data).cast("B")
    while left:
        written = os.pwrite(fd, left, at)
        if not written:
            raise OSError(errno.EIO, f"{len(left)} of {len(data)} bytes were not written")
        left, at = left[written:], at + written


def set_aside(path: AnyPath, aside: AnyPath) -> str:
    """Give a file or folder the name `aside` on the same disk, durably; where it lies now. OSError.

    Nothing is replaced: where that name is taken, a number is put behind it.
    """
    place = free_name(aside)
    os.rename(path, place)
    for folder in dict.fromkeys(os.path.dirname(os.path.abspath(each)) for each in (path, place)):
        flush_folder(folder)
    return place


def free_name(path: AnyPath) -> str:
    """This path, or where something has that name, the same with the first number behind it that is free."""
    name = os.fspath(path)
    names = (name if not number else f"{name}.{number}" for number in count())
    return next(each for each in names if not os.path.lexists(each))


def make_folder(folder: AnyPath) -> None:
    """Have a folder, and those above it; the name of each that is new is durable. OSError if it cannot be made.

    The name of one that is there is flushed too: who made it may have died before, or the disk refused. Where the folder
    above may not be read (/home, for many), its owner has seen to it.
    """
    above = os.path.dirname(os.path.abspath(folder))
    if os.path.isdir(folder):
        with suppress(PermissionError):
            flush_folder(above)
        return
    make_folder(above)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):  # another process may have made it just now
            raise
    flush_folder(above)


def write_whole(path: AnyPath, data: bytes, mode: int = 0o666) -> None:
    """Replace the file at `path` by one with `data`, durably. OSError if the disk refuses. `mode` is for a new file, less
    the umask.

    1. write the bytes to a file beside it    2. flush that    3. rename it    4. flush the folder

    A crash before 3 leaves the old file, one after 3 either of the two, and once 4 is done the new one is there.
    """
    with replacing(path, mode) as file:
        file.write(data)  # 1
        file.flush()
        os.fsync(file.fileno())  # 2
    # 3 is done
    flush_folder(os.path.dirname(path) or ".")  # 4


@contextmanager
def replacing(path: AnyPath, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of the one at `path` when the block ends; if it fails, nothing stays.

    Nothing is flushed here. A crash of the machine may leave any part of the new bytes under the name: this alone is for
    files that can tell whether they are whole.
    """
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.new")
    try:
        with open_file(fresh, "wb", opener=partial(os.open, mode=mode)) as file:
            yield file
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


# A folder for one process alone


class WithoutLocks(Enum):
    """What to do on a file system that has no locks."""

    REFUSE = "refuse"  # nobody takes the folder: two at once would destroy what is in it
    ALLOW = "allow"  # everybody takes it: better unguarded than not at all


class FolderLock:
    """The right to work in `folder`, of one process at a time.

    The lock lies on the folder itself and on the file `name` in it, which stays. The file is what other versions look at,
    and what file systems can lock that lock no folders (NFS); the folder is there when somebody has removed the file.
    """

    def __init__(self, folder: AnyPath, name: str, without_locks: WithoutLocks) -> None:
        self._targets: list[tuple[AnyPath, int, WithoutLocks]] = [
            (folder, os.O_RDONLY | os.O_DIRECTORY, WithoutLocks.ALLOW),
            (os.path.join(folder, name), os.O_RDWR | os.O_CREAT, without_locks),
        ]
        self._fds: list[int] = []

    def take(self) -> None:
        """Take it; again is the same. A lock whose file or folder was removed or replaced meanwhile is taken anew.

        BlockingIOError if another process, or another lock of this one, has it. OSError, which names the file, if that
        cannot be made, or if it cannot be locked and the policy is REFUSE.
        """
        if self._holds():
            return
        self.release()
        try:
            for target in self._targets:
                self._lock(*target)
        except OSError:
            self.release()
            raise
        _taken.add(self)

    def _lock(self, path: AnyPath, flags: int, without_locks: WithoutLocks) -> None:
        fd = os.open(path, flags, 0o666)
        self._fds.append(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError) or without_locks is WithoutLocks.REFUSE:
                raise OSError(error.errno, error.strerror, path) from error

    def release(self) -> None:
        """Give it back; without it, this does nothing."""
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def _holds(self) -> bool:
        paths = [path for path, _, _ in self._targets]
        with suppress(FileNotFoundError):
            there = [os.path.samestat(os.fstat(fd), os.stat(path)) for fd, path in zip(self._fds, paths, strict=False)]
            return len(there) == len(paths) and all(there)
        return False


class FileLock(FolderLock):
    """The same of one file, made if it is missing: others beside it have locks of their own."""

    def __init__(self, path: AnyPath, without_locks: WithoutLocks) -> None:
        self._targets = [(path, os.O_RDWR | os.O_CREAT, without_locks)]
        self._fds = []


_taken: WeakSet[FolderLock] = WeakSet()


def _release_in_the_child() -> None:
    """A forked child has the same open file, and would keep the lock when its parent is gone. Closing it here unlocks
    nothing: the parent's is open still."""
    for lock in tuple(_taken):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_the_child)


def sealed(value: Any) -> bytes:
    """A value's bytes.

    >>> unsealed(sealed({"start": 5}))
    {'start': 5}
    """
    line = json.dumps(value, separators=(",", ":")).encode()
    return b"%s\n%08x\n" % (line, crc32(line))


def unsealed(data: bytes) -> Any:
    """The value; ValueError if the bytes are not whole.

    >>> unsealed(sealed({"start": 5}).replace(b"5", b"6"))
    Traceback (most recent call last):
        ...
    ValueError: the checksum is not that of its line
    """
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32(line) and not _has_crc32c(line, rest):
        raise ValueError("the checksum is not that of its line")
    return json.loads(line)


def _has_crc32c(line: bytes, rest: bytes) -> bool:
    """Rule 8. Who has no broker has no such file, and need not have the package."""
    try:
        from crc32c import crc32c
    except ImportError:
        return False
    return rest == b"%08x\n" % crc32c(line)


def write_sealed(path: str, value: Any) -> None:
    """Replace the file at `path`, durably; OSError if the disk refuses."""
    write_whole(path, sealed(value))


def read_sealed(path: str) -> Any:
    """What a file says; OSError if there is none, ValueError if it is not whole."""
    with open_file(path, "rb") as file:
        return unsealed(file.read())
