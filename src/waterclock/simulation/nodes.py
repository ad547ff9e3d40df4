"""What a disk is made of: files and folders, each with what was done to it since its last flush."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

SECTOR: Final = 512
BLOCK: Final = 4096


class Write(NamedTuple):
    """Bytes of a file were written; `old` stood there, in a file of `size`."""

    number: int
    at: int
    data: bytes
    old: bytes
    size: int


class Resize(NamedTuple):
    """A file got another size; `old` are the bytes that were cut off, of a file of `size`."""

    number: int
    at: int
    old: bytes
    size: int


class Names(NamedTuple):
    """Names of folders were set or removed, all at once: (folder, name, before, after)."""

    number: int
    changes: list[tuple[Folder, str, Node | None, Node | None]]


class File:
    """Bytes, and what was done to them since the last flush."""

    __slots__ = ("data", "links", "locked_by", "mtime_ms", "number", "pending", "unreadable")

    def __init__(self, number: int) -> None:
        self.number, self.data = number, bytearray()
        self.pending: list[Write | Resize] = []
        self.mtime_ms, self.links = 0, 1
        self.locked_by: tuple[str, int] | None = None
        self.unreadable: range | None = None  # bytes that cannot be read


class Folder:
    """Names, and what was done to them since the last flush."""

    __slots__ = ("locked_by", "names", "number", "pending")

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Node] = {}
        self.pending: list[Names] = []
        self.locked_by: tuple[str, int] | None = None


Node: TypeAlias = "File | Folder"
Op: TypeAlias = "Write | Resize | Names"


class OpenFile:
    """What a number of a file stands for."""

    __slots__ = ("node", "readable", "writable")

    def __init__(self, node: Node, readable: bool, writable: bool) -> None:
        self.node, self.readable, self.writable = node, readable, writable


def set_size(data: bytearray, size: int) -> None:
    """Cut, or make longer with zeros."""
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def set_name(folder: Folder, name: str, what: Node | None) -> None:
    """Set a name, or with None remove it."""
    if what is None:
        folder.names.pop(name, None)
    else:
        folder.names[name] = what


def copied(folder: Folder, copies: dict[int, Node]) -> Folder:
    """A folder with all that lies in it; nothing of it is pending."""
    made = copies[folder.number] = Folder(folder.number)
    for name, node in folder.names.items():
        if node.number not in copies:
            copies[node.number] = copied(node, copies) if isinstance(node, Folder) else _copied_file(node)
        made.names[name] = copies[node.number]
    return made


def _copied_file(file: File) -> File:
    made = File(file.number)
    made.data[:] = file.data
    made.mtime_ms, made.links = file.mtime_ms, file.links
    return made
