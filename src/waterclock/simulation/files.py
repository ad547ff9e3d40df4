"""`os` of the simulated world.

Rule 1: a system call is a place where a thread can be interrupted and a process can die, before it and after it.
Rule 2: what is not simulated says so, by its name.
Rule 3: /dev/null always has the same number: the product measures by it how many files are open.
"""

from __future__ import annotations

import errno
import os as real
import posixpath
import stat as stats
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from waterclock.simulation.calls import AnyPath, Path, file_of, machine, me, no_room, of
from waterclock.simulation.nodes import BLOCK, File, Folder, Node, OpenFile
from waterclock.simulation.world import world

if TYPE_CHECKING:
    from waterclock.simulation.disk import Disk

NULL: Final = 7


class Os:
    """`os`, for the product's modules."""

    path = Path
    sep, curdir, devnull = "/", ".", "/dev/null"
    SEEK_SET, SEEK_CUR, SEEK_END = 0, 1, 2
    environ: Final[dict[str, str]] = {}
    PathLike, fspath, getpid = real.PathLike, staticmethod(real.fspath), staticmethod(lambda: 1)
    fsencode, fsdecode = staticmethod(real.fsencode), staticmethod(real.fsdecode)
    name, cpu_count = "posix", staticmethod(real.cpu_count)
    for _flag in [flag for flag in dir(real) if flag.startswith("O_")]:
        locals()[_flag] = getattr(real, _flag)
    del _flag

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"os.{name} is not simulated")

    # Files

    @staticmethod
    def open(path: AnyPath, flags: int, mode: int = 0o777) -> int:
        here = world()
        here.breathe("open")
        process, disk, path = me(), machine(), real.fspath(path)
        if path == "/dev/null":
            return NULL
        try:
            node = disk.walk(path)
            if flags & real.O_CREAT and flags & real.O_EXCL:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if isinstance(node, Folder) and flags & (real.O_WRONLY | real.O_RDWR):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        except FileNotFoundError:
            if not flags & real.O_CREAT:
                raise
            node = _made(disk, path)
        if flags & real.O_TRUNC and isinstance(node, File) and node.data:
            disk.resize(node, 0)
        fd = next(here.fds)
        process.files[fd] = OpenFile(node, not flags & real.O_WRONLY, bool(flags & (real.O_WRONLY | real.O_RDWR)))
        return fd

    @staticmethod
    def close(fd: int) -> None:
        """As Python's. What a dead process's objects close, when they are freed, is nobody's."""
        here = world()
        if fd == NULL or here.thread is None:
            return
        process = here.thread.process
        file = process.files.pop(fd, None)
        if file is not None:
            if file.node.locked_by == (process.name, fd):
                file.node.locked_by = None
        elif process.alive and not any(fd in dead.files for dead in here.graveyard):
            raise OSError(errno.EBADF, f"bad file descriptor {fd}")

    @staticmethod
    def pread(fd: int, size: int, at: int) -> bytes:
        file = file_of(fd)
        bad = file.unreadable
        if bad is not None and at < bad.stop and at + size > bad.start and bad.start < len(file.data):
            raise OSError(errno.EIO, "Input/output error")
        return bytes(file.data[at : at + size])

    @staticmethod
    def pwrite(fd: int, data: bytes | bytearray | memoryview, at: int) -> int:
        """As Python's: a full disk takes what fits the file's last block, and that is no error."""
        here = world()
        here.breathe("pwrite before")
        file, disk = file_of(fd), machine()
        data = memoryview(data).cast("B")
        size = len(data)
        if disk.full:
            size = min(size, max(0, -(-len(file.data) // BLOCK) * BLOCK - at))
            if not size and len(data):
                raise no_room()
        disk.write(file, data[:size], at)
        here.breathe("pwrite after")
        return size

    @staticmethod
    def ftruncate(fd: int, size: int) -> None:
        world().breathe("ftruncate")
        machine().resize(file_of(fd), size)

    @staticmethod
    def truncate(path: AnyPath, size: int) -> None:
        world().breathe("truncate")
        disk = machine()
        disk.resize(disk.file(path), size)

    @staticmethod
    def posix_fallocate(fd: int, at: int, size: int) -> None:
        world().breathe("fallocate")
        file, disk = file_of(fd), machine()
        if at + size > len(file.data):
            if disk.full:
                raise no_room()
            disk.resize(file, at + size)

    @staticmethod
    def fsync(fd: int) -> None:
        """As Python's: it takes its time, and what was written to a file meanwhile need not be on the disk."""
        here = world()
        node, process, disk = of(fd).node, me(), machine()
        numbers = {op.number for op in node.pending}
        here.breathe("fsync before", 0)
        least, most = here.fsync_ns
        here.sleep(least + int(disk.rng.random() * (most - least)) + disk.slower_ns.get(node.number, 0))
        if disk.broken_flush:
            raise OSError(errno.EIO, "Input/output error")
        disk.flushed(node, numbers)
        here.log("fsync", process.name, node.number, len(numbers))
        here.breathe("fsync after")

    fdatasync = fsync

    @staticmethod
    def sendfile(out: int, file: int, at: int, count: int) -> int:
        data = Os.pread(file, count, at)
        sock: Any = me().sockets[out]
        sent: int = sock.send(data)
        return sent

    @staticmethod
    def write(fd: int, data: bytes) -> int:
        """To stderr, which nobody reads."""
        if fd not in (1, 2):
            raise OSError(errno.EBADF, "only stderr")
        return len(data)

    # What is known of files

    @staticmethod
    def fstat(fd: int) -> Any:
        return _stat(of(fd).node)

    @staticmethod
    def stat(path: AnyPath, *, follow_symlinks: bool = True) -> Any:
        return _stat(machine().walk(path))

    lstat = stat

    @staticmethod
    def statvfs(path: AnyPath) -> Any:
        """As Python's: there is always room, as far as is said."""
        return SimpleNamespace(f_bavail=1 << 20, f_frsize=4096, f_blocks=1 << 22, f_bfree=1 << 20)

    @staticmethod
    def listdir(path: AnyPath = ".") -> list[str]:
        """As Python's: no file system promises an order."""
        disk = machine()
        names = sorted(disk.folder(path).names)
        disk.rng.shuffle(names)
        return names

    @staticmethod
    def scandir(path: AnyPath = ".") -> Rows:
        folder = machine().folder(path)
        return Rows(_row(path, name, folder.names[name]) for name in Os.listdir(path))

    # Names

    @staticmethod
    def mkdir(path: AnyPath, mode: int = 0o777) -> None:
        world().breathe("mkdir")
        disk = machine()
        folder, name = disk.parent(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if disk.full:
            raise no_room(path)
        disk.link(folder, name, disk.make_folder())

    @staticmethod
    def makedirs(path: AnyPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        above = posixpath.dirname(real.fspath(path).rstrip("/"))
        if above and not Path.isdir(above):
            Os.makedirs(above, exist_ok=True)
        try:
            Os.mkdir(path)
        except FileExistsError:
            if not exist_ok or not Path.isdir(path):
                raise

    @staticmethod
    def rename(old: AnyPath, new: AnyPath) -> None:
        here = world()
        here.breathe("rename")
        disk = machine()
        (one, a), (other, b) = disk.parent(old), disk.parent(new)
        node = one.names.get(a)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        disk.names([(one, a, node, None), (other, b, other.names.get(b), node)])
        here.breathe("rename after")

    replace = rename

    @staticmethod
    def link(old: AnyPath, new: AnyPath) -> None:
        world().breathe("link")
        disk = machine()
        folder, name = disk.parent(new)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        disk.link(folder, name, disk.walk(old))

    @staticmethod
    def unlink(path: AnyPath) -> None:
        world().breathe("unlink")
        disk = machine()
        folder, name = disk.parent(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        disk.link(folder, name, None)

    remove = unlink

    @staticmethod
    def rmdir(path: AnyPath) -> None:
        world().breathe("rmdir")
        disk = machine()
        folder, name = disk.parent(path)
        if disk.folder(path).names:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        disk.link(folder, name, None)

    # Processes

    @staticmethod
    def _exit(code: int) -> None:
        me().exit(code)


class Rows(list[Any]):
    """What scandir returns."""

    def __enter__(self) -> Iterator[Any]:
        return iter(self)

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass


def _made(disk: Disk, path: str) -> File:
    if disk.full:
        raise no_room(path)
    folder, name = disk.parent(path)
    node = disk.make_file()
    node.mtime_ms = world().wall_ms()
    disk.link(folder, name, node)
    return node


def _stat(node: Node) -> Any:
    if isinstance(node, Folder):
        return SimpleNamespace(st_ino=node.number, st_size=0, st_mode=stats.S_IFDIR | 0o700, st_mtime=0.0)
    size, time_s = len(node.data), node.mtime_ms / 1000
    return SimpleNamespace(st_ino=node.number, st_size=size, st_mode=stats.S_IFREG | 0o600, st_mtime=time_s)


def _row(path: AnyPath, name: str, node: Node) -> Any:
    return SimpleNamespace(
        name=name, path=posixpath.join(path, name), is_dir=partial(isinstance, node, Folder),
        is_file=partial(isinstance, node, File), stat=partial(_stat, node),
    )  # fmt: skip


OS: Final = Os()
