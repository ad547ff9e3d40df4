"""`open`, `shutil` and `fcntl` of the simulated world."""

from __future__ import annotations

import errno
import io
import os as real
import posixpath
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import IO, Any, Final

from waterclock.outside import BOOT
from waterclock.simulation.calls import AnyPath, Path, file_of, machine, me, of
from waterclock.simulation.files import OS, Os
from waterclock.simulation.world import DeadProcess, world

FLAGS: Final = {
    "r": real.O_RDONLY, "r+": real.O_RDWR, "w": real.O_WRONLY | real.O_CREAT | real.O_TRUNC,
    "w+": real.O_RDWR | real.O_CREAT | real.O_TRUNC, "x": real.O_WRONLY | real.O_CREAT | real.O_EXCL,
    "a": real.O_WRONLY | real.O_CREAT,
}  # fmt: skip


class RawFile(io.RawIOBase):
    """The raw end of a file object."""

    def __init__(self, fd: int, readable: bool, writable: bool) -> None:
        self._fd, self._readable, self._writable, self._at = fd, readable, writable, 0

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return self._writable

    def seekable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any) -> int:
        data = Os.pread(self._fd, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        count = Os.pwrite(self._fd, data, self._at)
        self._at += count
        return count

    def seek(self, at: int, whence: int = 0) -> int:
        self._at = at + (0, self._at, len(file_of(self._fd).data))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        Os.ftruncate(self._fd, size)
        return size

    def close(self) -> None:
        """As Python's; what a dead process leaves is nobody's."""
        if not self.closed:
            super().close()
            with suppress(DeadProcess):
                Os.close(self._fd)


def open_file(
    path: AnyPath, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
    newline: str | None = None, closefd: bool = True, opener: Callable[[Any, int], int] | None = None,
) -> IO[Any]:  # fmt: skip
    """`open`."""
    if path == BOOT:
        return io.BytesIO(f"{machine().name} {machine().cuts}".encode())
    kind = mode.replace("b", "").replace("t", "")
    raw: Any = RawFile((opener or OS.open)(path, FLAGS[kind]), kind in ("r", "r+", "w+"), kind != "r")
    if kind == "a":
        raw.seek(0, 2)
    if buffering == 0:
        return raw  # type: ignore[no-any-return]
    made: Any = _BUFFERED.get(kind, io.BufferedWriter)(raw, buffering if buffering > 1 else 8192)
    return made if "b" in mode else io.TextIOWrapper(made, encoding or "utf-8", errors, newline)


_BUFFERED: Final[dict[str, Callable[[Any, int], Any]]] = {
    "r": io.BufferedReader, "r+": io.BufferedRandom, "w+": io.BufferedRandom,
}  # fmt: skip


class Shutil:
    """`shutil`."""

    @staticmethod
    def rmtree(path: AnyPath, ignore_errors: bool = False) -> None:
        try:
            for name in Os.listdir(path):
                below = posixpath.join(path, name)
                Shutil.rmtree(below, ignore_errors) if Path.isdir(below) else Os.unlink(below)
            Os.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    @staticmethod
    def disk_usage(path: AnyPath) -> Any:
        """As Python's: half of it is free, or nothing."""
        Os.stat(path)
        return SimpleNamespace(total=1 << 34, free=0 if machine().full else 1 << 33)

    @staticmethod
    def copytree(path: AnyPath, to: AnyPath) -> None:
        Os.makedirs(to)
        for name in Os.listdir(path):
            below, beside = posixpath.join(path, name), posixpath.join(to, name)
            if Path.isdir(below):
                Shutil.copytree(below, beside)
            else:
                with open_file(below, "rb") as source, open_file(beside, "wb") as made:
                    made.write(source.read())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"shutil.{name} is not simulated")


class Fcntl:
    """`fcntl`: a lock is its process's, and ends with it."""

    LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN = 1, 2, 4, 8

    @staticmethod
    def flock(fd: int, how: int) -> None:
        """As Python's, where nobody waits for a lock."""
        node, process = of(fd).node, me()
        holder = node.locked_by
        if how & Fcntl.LOCK_UN:
            node.locked_by = None
            return
        if holder is not None and any(one.name == holder[0] and holder[1] in one.files for one in world().processes):
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        node.locked_by = (process.name, fd)
