"""A machine's disk in memory, which knows what was flushed; and `os`, `open`, `shutil`, `fcntl` as the product sees them.

A file is its bytes, and what was done to it since its last flush. A folder is its names, and the same. A power cut undoes
all of that and does a part of it again, as the seed chooses:

    nothing     what was not flushed is gone
    all         everything had reached the disk
    prefix      as a journal does: the first so many of all operations of the disk, the last of them torn
    any         any of the operations, in their order, each write torn at a sector: what POSIX allows

Rule 1: a system call is a place where a thread can be interrupted and a process can die, before it and after it.
"""

from __future__ import annotations

import errno
import os as real
import posixpath

from waterclock.simulation.world import world

SECTOR, BLOCK = 512, 4096


class File:
    def __init__(self, number):
        self.number, self.data, self.pending = number, bytearray(), []
        self.mtime_ms, self.links = 0, 1
        self.locked_by = None


class Folder:
    def __init__(self, number):
        self.number, self.names, self.pending = number, {}, []
        self.locked_by = None


class Disk:
    def __init__(self, name="disk"):
        self.name, self._numbers, self._ops = name, 0, 0
        self.root = self._make(Folder)
        self.root.names["data"] = self._make(Folder)
        self.full = self.broken_flush = False
        self.rng = world().stream(f"disk {name}")
        self.torn = 0  # operations that a power cut took or tore
        self.cuts = 0

    def _make(self, kind):
        self._numbers += 1
        return kind(self._numbers)

    def next_op(self):
        self._ops += 1
        return self._ops

    # paths

    def walk(self, path):
        here = self.root
        for part in real.fspath(path).strip("/").split("/"):
            if not part:
                continue
            if not isinstance(here, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            here = here.names.get(part)
            if here is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return here

    def parent(self, path):
        folder, name = posixpath.split(real.fspath(path).rstrip("/"))
        found = self.walk(folder)
        if not isinstance(found, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return found, name

    # changes, each with what undoes it

    def write(self, file, data, at):
        data = bytes(data)
        old = bytes(file.data[at : at + len(data)])
        file.pending.append((self.next_op(), "write", at, data, old, len(file.data)))
        if at > len(file.data):
            file.data.extend(bytes(at - len(file.data)))
        file.data[at : at + len(data)] = data
        file.mtime_ms = world().wall_ms()

    def resize(self, file, size):
        old = bytes(file.data[size:])
        file.pending.append((self.next_op(), "size", size, None, old, len(file.data)))
        if size < len(file.data):
            del file.data[size:]
        else:
            file.data.extend(bytes(size - len(file.data)))

    def link(self, folder, name, what):
        """Set a name, or with None remove it: [(folder, name, before, after)] is one operation."""
        self.names([(folder, name, folder.names.get(name), what)])

    def names(self, changes):
        number = self.next_op()
        for folder in {id(f): f for f, *_ in changes}.values():
            folder.pending.append((number, changes))
        for folder, name, _, after in changes:
            if after is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = after

    def flushed(self, what):
        if isinstance(what, Folder):
            for number, changes in what.pending:
                for folder in {id(f): f for f, *_ in changes}.values():
                    if folder is not what:
                        folder.pending = [one for one in folder.pending if one[0] != number]
        what.pending = []

    # the power is cut

    def everything(self):
        found, left = [], [self.root]
        seen = set()
        while left:
            one = left.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            found.append(one)
            if isinstance(one, Folder):
                left.extend(one.names.values())
                for _, changes in one.pending:
                    left.extend(x for _, _, before, after in changes for x in (before, after) if x is not None)
        return found

    def cut_power(self):
        self.cuts += 1
        rng = self.rng
        mode = rng.choice(("nothing", "all", "prefix", "prefix", "any", "any"))
        nodes = self.everything()
        ops = {}
        for node in nodes:
            for op in node.pending:
                ops.setdefault(op[0], (node, op))
        order = sorted(ops)
        for number in reversed(order):
            self._undo(*ops[number])
        if mode == "all":
            kept = order
        elif mode == "nothing":
            kept = []
        elif mode == "prefix":
            kept = order[: rng.randrange(len(order) + 1)]
        else:
            share = rng.choice((0.2, 0.5, 0.8, 0.95))
            kept = [number for number in order if rng.random() < share]
        for number in kept:
            torn = (mode == "any" and rng.random() < 0.3) or (mode == "prefix" and number == kept[-1])
            self._redo(*ops[number], torn)
        self.torn += len(order) - len(kept)
        for node in nodes:
            node.pending = []
            node.locked_by = None
        return f"{mode}: {len(kept)} of {len(order)} operations kept"

    def _undo(self, node, op):
        if isinstance(node, Folder):
            for folder, name, before, _ in reversed(op[1]):
                if before is None:
                    folder.names.pop(name, None)
                else:
                    folder.names[name] = before
            return
        _, kind, at, _, old, size = op
        if kind == "write":
            node.data[at : at + len(old)] = old
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        else:
            del node.data[min(size, at) :]
            node.data.extend(old)
            node.data.extend(bytes(size - len(node.data)))

    def _redo(self, node, op, torn):
        if isinstance(node, Folder):
            for folder, name, _, after in op[1]:
                if after is None:
                    folder.names.pop(name, None)
                else:
                    folder.names[name] = after
            return
        _, kind, at, data, _, _ = op
        if kind == "size":
            if at < len(node.data):
                del node.data[at:]
            else:
                node.data.extend(bytes(at - len(node.data)))
            return
        pieces = [(at, data)]
        if torn:
            pieces = self._torn(at, data)
        end = max((a + len(d) for a, d in pieces), default=0)
        if self.rng.random() < 0.5 and torn:
            end = max(end, at + len(data))  # the length is there, the bytes are not
        if end > len(node.data):
            node.data.extend(bytes(end - len(node.data)))
        for a, d in pieces:
            node.data[a : a + len(d)] = d

    def _torn(self, at, data):
        """Some of its sectors."""
        pieces, here, end = [], at, at + len(data)
        way = self.rng.choice(("front", "any"))
        cut = self.rng.randrange(len(data) + 1)
        while here < end:
            following = min(end, (here // SECTOR + 1) * SECTOR)
            if way == "front":
                if here - at >= cut:
                    break
                following = min(following, at + cut)
                pieces.append((here, data[here - at : following - at]))
            elif self.rng.random() < 0.5:
                pieces.append((here, data[here - at : following - at]))
            here = following
        return pieces
