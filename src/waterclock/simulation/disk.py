"""A machine's disk in memory, which knows what was flushed.

A file is its bytes, and what was done to it since its last flush. A folder is its names, and the same. A power cut undoes
all of that and does a part of it again: power_cut.py.

Faults are switched on and off: `full` (a write takes what fits the file's last block, then nothing), `refused` (is called
by who finds no room, before it is told), `broken_flush` (each flush fails), `break_reads` (a range of a file cannot be
read). Damage is durable, and done whether somebody has the file open or not: `flip_bit`, `cut_file`, `zero_sector`,
`remove`.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable
from typing import Any

from waterclock.simulation.nodes import SECTOR, File, Folder, Names, Node, Resize, Write, copied, set_name, set_size
from waterclock.simulation.power_cut import power_cut
from waterclock.simulation.world import world


class Disk:
    """An empty disk with a folder /data; its choices are those of the stream "disk NAME" of the present world."""

    def __init__(self, name: str = "disk") -> None:
        self.name, self._numbers, self._ops = name, 0, 0
        self.root = self.make_folder()
        self.root.names["data"] = self.make_folder()
        self.full = self.broken_flush = False
        self.refused: Callable[[], None] | None = None
        self.slower_ns: dict[int, int] = {}  # by a file's number: how much longer its flushes take than others'
        self.rng = world().stream(f"disk {name}")
        self.torn = self.cuts = 0
        """Operations that power cuts took or tore, and how many cuts there were."""

    def make_file(self) -> File:
        """A file without a name."""
        self._numbers += 1
        return File(self._numbers)

    def make_folder(self) -> Folder:
        """A folder without a name."""
        self._numbers += 1
        return Folder(self._numbers)

    def copy(self, name: str | None = None) -> Disk:
        """A disk of the present world, with the same files, all of them flushed: a beginning for many universes."""
        made = Disk(name or self.name)
        made._numbers, made._ops = self._numbers, self._ops
        made.root = copied(self.root, {})
        return made

    # Paths

    def walk(self, path: str | os.PathLike[str]) -> Node:
        """What a path names."""
        here: Any = self.root
        try:
            for part in os.fspath(path).split("/"):
                if part:
                    here = here.names[part]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None
        except AttributeError:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path) from None
        found: Node = here
        return found

    def file(self, path: str | os.PathLike[str]) -> File:
        """The file that a path names."""
        found = self.walk(path)
        if not isinstance(found, File):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return found

    def folder(self, path: str | os.PathLike[str]) -> Folder:
        """The folder that a path names."""
        found = self.walk(path)
        if not isinstance(found, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return found

    def parent(self, path: str | os.PathLike[str]) -> tuple[Folder, str]:
        """The folder that a path's last name stands in, or would stand in, and that name."""
        folder, name = posixpath.split(os.fspath(path).rstrip("/"))
        return self.folder(folder), name

    def files(self, under: str = "/") -> list[str]:
        """The paths of all files, in order."""
        found: list[str] = []
        for name, node in sorted(self.folder(under).names.items()):
            path = posixpath.join(under, name)
            found += self.files(path) if isinstance(node, Folder) else [path]
        return found

    # Changes, each with what undoes it

    def _next_op(self) -> int:
        self._ops += 1
        return self._ops

    def write(self, file: File, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write bytes at byte `at`."""
        data, held = bytes(data), file.data
        size, end = len(held), at + len(data)
        file.pending.append(Write(self._next_op(), at, data, bytes(held[at:end]), size))
        if at > size:
            held.extend(bytes(at - size))
        held[at:end] = data
        file.mtime_ms = world().wall_ms()

    def resize(self, file: File, size: int) -> None:
        """Cut a file, or make it longer with zeros."""
        file.pending.append(Resize(self._next_op(), size, bytes(file.data[size:]), len(file.data)))
        set_size(file.data, size)

    def link(self, folder: Folder, name: str, what: Node | None) -> None:
        """Set a name, or with None remove it."""
        self.names([(folder, name, folder.names.get(name), what)])

    def names(self, changes: list[tuple[Folder, str, Node | None, Node | None]]) -> None:
        """Set and remove names, in one operation."""
        op = Names(self._next_op(), changes)
        for folder in {f.number: f for f, *_ in changes}.values():
            folder.pending.append(op)
        for folder, name, _, after in changes:
            set_name(folder, name, after)

    def flushed(self, what: Node, numbers: set[int] | None = None) -> None:
        """What was done to it is durable: all, or of a file the operations of these numbers."""
        if isinstance(what, File):
            what.pending = [] if numbers is None else [op for op in what.pending if op.number not in numbers]
            return
        for op in what.pending:
            for folder in {f.number: f for f, *_ in op.changes}.values():
                if folder is not what:
                    folder.pending = [one for one in folder.pending if one.number != op.number]
        what.pending = []

    # Power, and damage

    def nodes(self) -> list[Node]:
        """All files and folders, those too that only an operation that was not flushed knows."""
        found: dict[int, Node] = {}
        left: list[Node] = [self.root]
        while left:
            one = left.pop()
            if one.number in found:
                continue
            found[one.number] = one
            if isinstance(one, Folder):
                left.extend(one.names.values())
                left.extend(x for op in one.pending for _, _, *both in op.changes for x in both if x is not None)
        return list(found.values())

    def cut_power(self, mode: str | None = None) -> str:
        """Lose what was not flushed, as the seed chooses or `mode` says (power_cut.py); what became of it, in words."""
        self.cuts += 1
        nodes = self.nodes()
        cut = power_cut(nodes, self.rng, mode)
        self.torn += cut.lost
        for node in nodes:
            node.pending = []
            node.locked_by = None
        return f"{cut.mode}: {cut.kept} of {cut.kept + cut.lost} operations kept"

    def break_reads(self, path: str, first: int = 0, size: int = 1 << 62) -> None:
        """From now on these bytes cannot be read: EIO. `mend_reads` ends it, everywhere."""
        self.file(path).unreadable = range(first, first + size)

    def mend_reads(self) -> None:
        """All bytes can be read again."""
        for node in self.nodes():
            if isinstance(node, File):
                node.unreadable = None

    def _durable(self, path: str) -> File:
        """A file about to be damaged: what is pending would undo the damage."""
        file = self.file(path)
        file.pending = []
        return file

    def flip_bit(self, path: str, at: int, bit: int = 0) -> None:
        """One bit of byte `at` is another."""
        self._durable(path).data[at] ^= 1 << bit

    def cut_file(self, path: str, size: int) -> None:
        """What lies behind the first `size` bytes is gone."""
        del self._durable(path).data[size:]

    def set_back(self, path: str, data: bytes) -> None:
        """The file is what it was once."""
        self._durable(path).data[:] = data

    def zero_sector(self, path: str, at: int) -> None:
        """The sector of byte `at` is all zeros, as far as the file goes."""
        data, first = self._durable(path).data, at // SECTOR * SECTOR
        size = min(SECTOR, len(data) - first)
        data[first : first + size] = bytes(size)

    def remove(self, path: str) -> None:
        """The file is gone, durably."""
        folder, name = self.parent(path)
        self.flushed(folder)
        del folder.names[name]
