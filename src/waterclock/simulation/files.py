"""`os`, `open`, `shutil` and `fcntl` of the simulated world.

Rule 1: a system call is a place where a thread can be interrupted and a process can die, before it and after it.
"""

from __future__ import annotations

import errno
import io
import os as real
import posixpath
import stat as stats
from functools import partial
from types import SimpleNamespace

from waterclock.simulation.disk import BLOCK, File, Folder
from waterclock.simulation.world import Killed, world


class OpenFile:
    def __init__(self, node, readable, writable):
        self.node, self.readable, self.writable, self.at = node, readable, writable, 0


NUMBER = [1000]


def me():
    world_ = world()
    thread = world_.thread
    process = thread.process
    if not process.alive:
        raise Killed
    return process


def here(path):
    """The disk that a path lies on."""
    return me().machine


def of(fd):
    process = me()
    found = process.files.get(fd)
    if found is None:
        raise OSError(errno.EBADF, f"bad file descriptor {fd}")
    return found


class Path:
    """os.path, as far as it looks at the disk."""

    def __getattr__(self, name):
        return getattr(posixpath, name)

    @staticmethod
    def exists(path):
        try:
            here(path).walk(path)
        except OSError:
            return False
        return True

    lexists = exists

    @staticmethod
    def isdir(path):
        try:
            return isinstance(here(path).walk(path), Folder)
        except OSError:
            return False

    @staticmethod
    def isfile(path):
        try:
            return isinstance(here(path).walk(path), File)
        except OSError:
            return False

    @staticmethod
    def getsize(path):
        node = here(path).walk(path)
        return len(node.data)

    @staticmethod
    def samestat(one, other):
        return one.st_ino == other.st_ino

    @staticmethod
    def abspath(path):
        return posixpath.normpath(posixpath.join("/", real.fspath(path)))

    def samefile(self, one, other):
        return here(one).walk(one) is here(other).walk(other)


def no_room(path=None):
    return OSError(errno.ENOSPC, "No space left on device", path)


class Os:
    """`os`, for the product's modules. What is not here is not simulated, and says so."""

    path = Path()
    sep, curdir, devnull = "/", ".", "/dev/null"
    SEEK_SET, SEEK_CUR, SEEK_END = 0, 1, 2
    environ = {}
    PathLike, fspath, getpid = real.PathLike, real.fspath, real.getpid
    fsencode, fsdecode = staticmethod(real.fsencode), staticmethod(real.fsdecode)
    name, cpu_count = "posix", real.cpu_count
    for _flag in [flag for flag in dir(real) if flag.startswith("O_")]:
        locals()[_flag] = getattr(real, _flag)
    del _flag

    def __getattr__(self, name):
        raise AttributeError(f"os.{name} is not simulated")

    @staticmethod
    def open(path, flags, mode=0o777):
        world().breathe("open")
        process, path = me(), real.fspath(path)
        disk = process.machine
        if path == "/dev/null":
            return 7
        try:
            node = disk.walk(path)
            if flags & real.O_CREAT and flags & real.O_EXCL:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if isinstance(node, Folder) and flags & (real.O_WRONLY | real.O_RDWR):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        except FileNotFoundError:
            if not flags & real.O_CREAT:
                raise
            if disk.full:
                raise no_room(path) from None
            folder, name = disk.parent(path)
            node = disk._make(File)
            node.mtime_ms = world().wall_ms()
            disk.link(folder, name, node)
        if flags & real.O_TRUNC and len(node.data):
            disk.resize(node, 0)
        NUMBER[0] += 1
        writes = bool(flags & (real.O_WRONLY | real.O_RDWR))
        process.files[NUMBER[0]] = OpenFile(node, not flags & real.O_WRONLY, writes)
        return NUMBER[0]

    @staticmethod
    def close(fd):
        world_ = world()
        if fd == 7 or world_.thread is None:
            return
        process = world_.thread.process
        if fd not in process.files:
            if any(fd in dead.files for dead in world_.graveyard) or not process.alive:
                return  # a dead process's object was freed in somebody else's time
            raise OSError(errno.EBADF, f"bad file descriptor {fd}")
        file = process.files.pop(fd)
        if file.node.locked_by == (process.name, fd):
            file.node.locked_by = None

    @staticmethod
    def pread(fd, size, at):
        file = of(fd)
        return bytes(file.node.data[at : at + size])

    @staticmethod
    def pwrite(fd, data, at):
        world().breathe("pwrite before")
        file, disk, data = of(fd), me().machine, memoryview(data).cast("B")
        size = len(data)
        room = -(-len(file.node.data) // BLOCK) * BLOCK
        if disk.full and at + size > room:  # what fits the file's last block is written: a short write is no error
            size = max(0, room - at)
            if not size:
                raise no_room()
        disk.write(file.node, data[:size], at)
        world().breathe("pwrite after")
        return size

    @staticmethod
    def ftruncate(fd, size):
        world().breathe("ftruncate")
        me().machine.resize(of(fd).node, size)

    @staticmethod
    def truncate(path, size):
        world().breathe("truncate")
        disk = here(path)
        disk.resize(disk.walk(path), size)

    @staticmethod
    def posix_fallocate(fd, at, size):
        world().breathe("fallocate")
        file, disk = of(fd), me().machine
        if at + size > len(file.node.data):
            if disk.full:
                raise no_room()
            disk.resize(file.node, at + size)

    @staticmethod
    def fsync(fd):
        world_ = world()
        file, process = of(fd), me()
        disk = process.machine
        numbers = {op[0] for op in file.node.pending}
        least, most = world_.fsync_ns
        world_.breathe("fsync before", 0)
        world_.sleep(disk.rng.randrange(least, most))
        if disk.broken_flush:
            raise OSError(errno.EIO, "Input/output error")
        if isinstance(file.node, Folder):
            disk.flushed(file.node)
        else:  # what was written while it ran need not be on the disk
            file.node.pending = [op for op in file.node.pending if op[0] not in numbers]
        world_.log("fsync", process.name, file.node.number, len(numbers))
        world_.breathe("fsync after")

    fdatasync = fsync

    @staticmethod
    def fstat(fd):
        return Os._stat(of(fd).node)

    @staticmethod
    def stat(path, *, follow_symlinks=True):
        return Os._stat(here(path).walk(path))

    @staticmethod
    def _stat(node):
        if isinstance(node, Folder):
            return SimpleNamespace(st_ino=node.number, st_size=0, st_mode=stats.S_IFDIR | 0o700, st_mtime=0.0)
        return SimpleNamespace(
            st_ino=node.number, st_size=len(node.data), st_mode=stats.S_IFREG | 0o600, st_mtime=node.mtime_ms / 1000
        )

    @staticmethod
    def statvfs(path):
        return SimpleNamespace(f_bavail=1 << 20, f_frsize=4096, f_blocks=1 << 22, f_bfree=1 << 20)

    @staticmethod
    def mkdir(path, mode=0o777):
        world().breathe("mkdir")
        disk = here(path)
        folder, name = disk.parent(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if disk.full:
            raise no_room(path)
        disk.link(folder, name, disk._make(Folder))

    def makedirs(self, path, mode=0o777, exist_ok=False):
        above = posixpath.dirname(path.rstrip("/"))
        if above and not Path.isdir(above):
            self.makedirs(above, exist_ok=True)
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok or not Path.isdir(path):
                raise

    @staticmethod
    def rename(old, new):
        world().breathe("rename")
        disk = here(old)
        (one, a), (other, b) = disk.parent(old), disk.parent(new)
        node = one.names.get(a)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        disk.names([(one, a, node, None), (other, b, other.names.get(b), node)])
        world().breathe("rename after")

    replace = rename

    @staticmethod
    def link(old, new):
        world().breathe("link")
        disk = here(old)
        folder, name = disk.parent(new)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        disk.link(folder, name, disk.walk(old))

    @staticmethod
    def unlink(path):
        world().breathe("unlink")
        disk = here(path)
        folder, name = disk.parent(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        disk.link(folder, name, None)

    remove = unlink

    @staticmethod
    def rmdir(path):
        world().breathe("rmdir")
        disk = here(path)
        folder, name = disk.parent(path)
        if folder.names[name].names:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        disk.link(folder, name, None)

    @staticmethod
    def listdir(path="."):
        disk = here(path)
        node = disk.walk(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        names = sorted(node.names)
        disk.rng.shuffle(names)  # no file system promises an order
        return names

    @staticmethod
    def scandir(path="."):
        disk = here(path)
        rows = []
        for name in Os.listdir(path):
            node = disk.walk(posixpath.join(path, name))
            rows.append(
                SimpleNamespace(
                    name=name, path=posixpath.join(path, name), is_dir=partial(isinstance, node, Folder),
                    is_file=partial(isinstance, node, File), stat=partial(Os._stat, node),
                )
            )  # fmt: skip
        return Rows(rows)

    @staticmethod
    def sendfile(out, file, at, count):
        data = Os.pread(file, count, at)
        return me().sockets[out].send(data)

    @staticmethod
    def write(fd, data):
        if fd not in (1, 2):
            raise OSError(errno.EBADF, "only stderr")
        me().log_lines.append(bytes(data).decode(errors="replace"))
        return len(data)

    @staticmethod
    def _exit(code):
        process = me()
        process.world.log("exit", process.name, code)
        process.exited = code
        process.on_exit(code) if getattr(process, "on_exit", None) else process.kill()
        process.world.park()

    @staticmethod
    def kill(pid, signal):
        raise AttributeError("os.kill is not simulated")


class Rows(list):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def close(self):
        pass


class Raw(io.RawIOBase):
    """A file object's raw end."""

    def __init__(self, fd, readable, writable):
        self._fd, self._readable, self._writable, self._at = fd, readable, writable, 0

    def readable(self):
        return self._readable

    def writable(self):
        return self._writable

    def seekable(self):
        return True

    def fileno(self):
        return self._fd

    def readinto(self, buffer):
        data = Os.pread(self._fd, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data):
        count = Os.pwrite(self._fd, data, self._at)
        self._at += count
        return count

    def seek(self, at, whence=0):
        base = {0: 0, 1: self._at, 2: len(of(self._fd).node.data)}[whence]
        self._at = base + at
        return self._at

    def tell(self):
        return self._at

    def truncate(self, size=None):
        Os.ftruncate(self._fd, self._at if size is None else size)
        return size

    def close(self):
        if not self.closed:
            super().close()
            try:
                Os.close(self._fd)
            except Killed:
                pass


def sim_open(path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    kind = mode.replace("b", "").replace("t", "")
    flags = {
        "r": real.O_RDONLY, "r+": real.O_RDWR, "w": real.O_WRONLY | real.O_CREAT | real.O_TRUNC,
        "w+": real.O_RDWR | real.O_CREAT | real.O_TRUNC, "x": real.O_WRONLY | real.O_CREAT | real.O_EXCL,
    }[kind]  # fmt: skip
    fd = opener(path, flags) if opener is not None else OS.open(path, flags)
    raw = Raw(fd, kind in ("r", "r+", "w+"), kind != "r")
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else 8192
    if kind in ("r+", "w+"):
        made = io.BufferedRandom(raw, size)
    else:
        made = io.BufferedReader(raw, size) if kind == "r" else io.BufferedWriter(raw, size)
    return made if "b" in mode else io.TextIOWrapper(made, encoding or "utf-8", errors, newline)


class Shutil:
    @staticmethod
    def rmtree(path, ignore_errors=False):
        try:
            for name in Os.listdir(path):
                below = posixpath.join(path, name)
                Shutil.rmtree(below, ignore_errors) if Path.isdir(below) else Os.unlink(below)
            Os.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def __getattr__(self, name):
        raise AttributeError(f"shutil.{name} is not simulated")


class Fcntl:
    LOCK_EX, LOCK_NB, LOCK_UN, LOCK_SH = 2, 4, 8, 1

    @staticmethod
    def flock(fd, how):
        node = of(fd).node
        holder = node.locked_by
        process = me()
        if holder is not None and any(one.name == holder[0] and holder[1] in one.files for one in world().processes):
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        node.locked_by = (process.name, fd)


OS = Os()
