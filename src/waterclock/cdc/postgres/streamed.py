"""Large transactions that PostgreSQL sends before they are committed (protocol 2 of pgoutput), put back into the order of
their commits: what comes out are messages of protocol 1.

    S   xid, ...    a piece of that transaction begins          E   it ends
    c   xid, ...    the transaction is committed                A   xid, subxid: it, or a part of it, is rolled back

Rule 1: between S and E each message has, behind its letter, the number of the transaction or subtransaction that wrote it.
Rule 2: pieces are kept in a temporary file, the first MiB in memory: nothing of a large transaction is here as a whole.
Rule 3: what describes a table is passed on though its subtransaction was rolled back: the server does not say it again.
        Rows of the table as it was before come behind another description.
Rule 4: a start reads all of it anew: the server keeps the log from the first piece on until the commit is confirmed.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from typing import IO

from waterclock.errors import UsageError

_IN_MEMORY = 1 << 20
_ENTRY = struct.Struct(">II")  # the writer's number, the message's length
_RELATION, _ORIGIN, _OF_PIECES = ord("R"), ord("O"), b"SEAc"


class StreamedTransactions:
    """Those that are not committed yet."""

    def __init__(self) -> None:
        self._pieces: dict[int, IO[bytes]] = {}
        self._rolled_back: dict[int, set[int]] = {}
        self._open: int | None = None  # the transaction of which a piece comes now

    def passes(self, message: bytes) -> bool:
        """Whether it is what follows from itself."""
        return self._open is None and message[0] not in _OF_PIECES

    def take(self, message: bytes) -> Iterator[bytes]:
        """What follows from a message of protocol 2: itself, all of a transaction, or nothing yet."""
        letter = message[0]
        if letter == ord("S"):
            (self._open,) = struct.unpack_from(">I", message, 1)
            return iter(())
        if letter == ord("E"):
            self._open = None
        elif letter == ord("A"):
            self._abort(*struct.unpack_from(">II", message, 1))
        elif letter == ord("c"):
            return self._committed(message)
        elif self._open is None:
            return iter((message,))
        elif letter != _ORIGIN:  # which has no number, and says nothing that is wanted
            self._keep(self._open, message)
        return iter(())

    def close(self) -> None:
        """Throw away what was not committed."""
        for xid in list(self._pieces):
            self._abort(xid, xid)

    def _keep(self, xid: int, message: bytes) -> None:
        if xid not in self._pieces:
            self._pieces[xid] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # closed at its end
            self._rolled_back[xid] = set()
        (writer,) = struct.unpack_from(">I", message, 1)
        try:
            self._pieces[xid].write(_ENTRY.pack(writer, len(message) - 4) + message[:1] + message[5:])
        except OSError as error:
            raise UsageError(
                f"A large transaction does not fit into {tempfile.gettempdir()} before its commit ({error.strerror}): name "
                "a folder with more room (TMPDIR), and start again."
            ) from None

    def _abort(self, xid: int, part: int) -> None:
        if part != xid:
            self._rolled_back.setdefault(xid, set()).add(part)
            return
        self._rolled_back.pop(xid, None)
        if (piece := self._pieces.pop(xid, None)) is not None:
            piece.close()

    def _committed(self, message: bytes) -> Iterator[bytes]:
        xid, commit_lsn, ts = struct.unpack_from(">IxQ8xq", message, 1)
        yield struct.pack(">cQqI", b"B", commit_lsn, ts, xid)
        piece, gone = self._pieces.get(xid), self._rolled_back.get(xid, set())
        if piece is not None:
            piece.seek(0)
            while entry := piece.read(_ENTRY.size):
                writer, length = _ENTRY.unpack(entry)
                kept = piece.read(length)
                if writer not in gone or kept[0] == _RELATION:
                    yield kept
        yield b"C" + message[5:]
        self._abort(xid, xid)
