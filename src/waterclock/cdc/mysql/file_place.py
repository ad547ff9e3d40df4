"""Where a stream of events stands in the binlog's files, as a view of MariaDB says its own place: file and offset.

Rule 1: an event says where it ends, and one that the server made up for this connection does not. The file's name comes
        with ROTATE and with heartbeats, which say a place too while nothing is written: while something always is, none
        comes. So a name that came before its length was known is kept until then.
Rule 2: the place only rises, once the file is known.
"""

from __future__ import annotations

from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql.binlog import BinlogEvent

_HALF = 1 << 31
_MADE_UP = 0x20  # a flag of an event's header: it stands in no file


def file_number(name: str) -> int:
    """
    >>> file_number("binlog.000007")
    7
    """
    return int(name.rpartition(".")[2])


class FilePlace:
    """Moved along by every event. `at`: (the file's number, 0 while it is not known; the offset behind the last event)."""

    def __init__(self) -> None:
        self.at: tuple[int, ...] = (0, 0)
        self._name_bytes = 0  # how long a file's name is: behind it there may be a checksum that nobody announced
        self._name = b""  # of the file, before that was known

    def learn(self, name: str) -> None:
        """What a file of this server is called."""
        if not self._name_bytes:
            self._name_bytes = len(name)
            if self._name:
                self.at = (self._number(self._name), self.at[1])

    def passed(self, event: BinlogEvent) -> None:
        if event.kind == binlog.ROTATE:
            self._move(event.body[8:], int.from_bytes(event.body[:8], "little"))
        elif event.kind == binlog.HEARTBEAT:
            self._move(event.body, event.end)
        elif event.end and not event.flags & _MADE_UP:
            end, (file, before) = event.end, self.at
            # an event has 32 bits for it, and a large transaction makes a file of any size; one that is a little smaller
            # lies before a place that the server told
            while before - end > _HALF:
                end += 1 << 32
            self.at = (file, max(before, end))

    def _move(self, name: bytes, offset: int) -> None:
        if self._name_bytes:
            self.at = max(self.at, (self._number(name), offset))
        else:
            self._name, self.at = name, (0, offset)

    def _number(self, name: bytes) -> int:
        return file_number(name[: self._name_bytes].decode("ascii", "ignore"))
