"""The number of the store's last commit once more, in a file of its own: a store that is older, or shorter, is known by it.

    number (8 bytes) | its checksum (4)

Rule 1: it is written when the commit is durable, and is not flushed itself. A kill leaves it as it was; after a power cut
    it may be lower than the store's own number, which says nothing. It is never higher unless commits were lost.
Rule 2: what is no number with its checksum is said, and counts as none.
Rule 3: a disk that refuses it costs nothing but this.
"""

from __future__ import annotations

import logging
import os
import struct
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from waterclock.disk import write_all

NAME: Final = "store.number"
NUMBER: Final = struct.Struct(">Q")
SUM: Final = struct.Struct(">I")
PRIVATE: Final = 0o600
log = logging.getLogger("waterclock.broker")


class LastCommit:
    """The file in `folder`, made if there is none; OSError if it cannot be opened."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NAME)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE)
        self.found = 0
        """The number that an earlier process left; 0 if none is known."""
        data = os.pread(self._fd, 1 << 10, 0)
        number, checksum = data[: NUMBER.size], data[NUMBER.size :]
        if checksum == SUM.pack(crc32c(number)) and len(number) == NUMBER.size:
            self.found = int(NUMBER.unpack(number)[0])
        elif data:
            log.warning(
                "%s is damaged: whether the store beside it is whole to its last commit is not known", self._path
            )

    def note(self, number: int) -> None:
        """This is the last one now."""
        packed = NUMBER.pack(number)
        with suppress(OSError):
            write_all(self._fd, packed + SUM.pack(crc32c(packed)), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
