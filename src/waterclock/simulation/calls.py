"""Who makes a system call, and `os.path`."""

from __future__ import annotations

import errno
import os as real
import posixpath
from typing import TYPE_CHECKING, Any, TypeAlias

from waterclock.simulation.nodes import File, Folder, OpenFile
from waterclock.simulation.world import World

if TYPE_CHECKING:
    from waterclock.simulation.disk import Disk
    from waterclock.simulation.processes import Process

AnyPath: TypeAlias = "str | real.PathLike[str]"


def me() -> Process:
    """The process that makes a system call."""
    process: Process = World.now_world.running().process
    return process


def machine() -> Disk:
    """The disk of the process that makes a system call."""
    disk: Disk = World.now_world.running().process.machine
    assert disk is not None, "a process without a disk"
    return disk


def of(fd: int) -> OpenFile:
    """The open file of this number."""
    found: OpenFile | None = World.now_world.running().process.files.get(fd)
    if found is None:
        raise OSError(errno.EBADF, f"bad file descriptor {fd}")
    return found


def file_of(fd: int) -> File:
    """The same, where it is no folder."""
    node = of(fd).node
    if not isinstance(node, File):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    return node


def no_room(path: AnyPath | None = None) -> OSError:
    """What a full disk says."""
    if (refused := machine().refused) is not None:
        refused()
    return OSError(errno.ENOSPC, "No space left on device", path)


class Path:
    """os.path: posixpath's, but for what looks at the disk."""

    for _name in posixpath.__all__:
        _found = getattr(posixpath, _name)
        locals()[_name] = staticmethod(_found) if callable(_found) else _found
    del _name, _found

    @staticmethod
    def exists(path: AnyPath) -> bool:
        try:
            machine().walk(path)
        except OSError:
            return False
        return True

    lexists = exists

    @staticmethod
    def isdir(path: AnyPath) -> bool:
        try:
            return isinstance(machine().walk(path), Folder)
        except OSError:
            return False

    @staticmethod
    def isfile(path: AnyPath) -> bool:
        try:
            return isinstance(machine().walk(path), File)
        except OSError:
            return False

    @staticmethod
    def getsize(path: AnyPath) -> int:
        return len(machine().file(path).data)

    @staticmethod
    def samestat(one: Any, other: Any) -> bool:
        return bool(one.st_ino == other.st_ino)

    @staticmethod
    def abspath(path: AnyPath) -> str:
        """As Python's; every process is in the root."""
        return posixpath.normpath(posixpath.join("/", real.fspath(path)))

    @staticmethod
    def samefile(one: AnyPath, other: AnyPath) -> bool:
        return machine().walk(one) is machine().walk(other)
