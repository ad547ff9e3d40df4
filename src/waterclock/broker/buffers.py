"""Bytes as the parts of the broker hand them on: in memory, and in a file of the log."""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class OpenFile(Protocol):
    """A file that is open as long as this is held."""

    @property
    def fd(self) -> int: ...


class Slice:
    """Bytes of a segment on their way to a reader: `size` bytes from byte `at`. Holds the file open."""

    __slots__ = ("at", "segment", "size")

    def __init__(self, segment: OpenFile, at: int, size: int) -> None:
        self.segment = segment
        self.at = at
        self.size = size

    def read(self) -> bytes:
        return os.pread(self.segment.fd, self.size, self.at)
