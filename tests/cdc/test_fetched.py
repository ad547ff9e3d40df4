"""Rows of a SELECT off the socket: the connection asks the next question behind the last byte of the answer."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import cast

import pytest
from pymysql.cursors import SSCursor

from waterclock.cdc.mysql.fetched import fetched

pytest.importorskip("waterclock.cdc.mysql._images")
ROW, END, NEXT = b"\2\0\0\1\1a", b"\5\0\0\2\xfe\0\0\x22\0", b"\7\0\0\1\0\0\0\2\0\0\0"


@pytest.mark.parametrize("cut", range(1, len(ROW + END) + 1))
def test_the_end_of_an_answer_is_read_whole_however_it_is_cut(cut: int) -> None:
    """A piece that ended within the packet that says the end left its rest to the answer of the next question."""
    pieces, rest = [(ROW + END)[:cut], (ROW + END)[cut:]], io.BytesIO()

    class Wire:
        def read1(self, most: int) -> bytes:
            return pieces.pop(0) or NEXT

        def read(self, size: int) -> bytes:
            rest.write(b"".join(pieces[:1]))
            del pieces[:1]
            rest.seek(0)
            return rest.read(size)

    wire = Wire()
    cursor = SimpleNamespace(connection=SimpleNamespace(_rfile=wire), _result=SimpleNamespace())
    found = fetched(cast(SSCursor, cursor), 10, 1 << 20, raw=True)
    assert (found.count, found.end, bytes(found.packets)) == (1, len(ROW), ROW + END)
    assert b"".join(pieces) + rest.read() == b""
