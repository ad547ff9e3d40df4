"""Answers with very many rows, made and written a few at a time: `Connection.work` does a slice of that at once.

Rule 1: what goes out is what `Request.answer` would have sent, to the byte.
Rule 2: the bytes around the rows are found by writing the answer twice, with no row and with one: what differs first is
    how many there are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.wire.fields import INT32

if TYPE_CHECKING:
    from waterclock.broker.wire.codec import Request

MANY: Final = 100  # rows: with fewer an answer is written at once


def answer(request: Request, field: str, rows: Iterable[Any], count: int, **values: Any) -> None:
    """Answer with `values` and, as `field`, the rows, of which `count` are expected: a few at once, many in slices.

    The rows are taken in the slices, and see what has changed meanwhile. None is no row: so much was looked through.
    """
    if count <= MANY:
        request.answer(**{field: tuple(row for row in rows if row is not None)}, **values)
    else:
        request.slot.connection.work(_portions(request, field, rows, values))


def _portions(request: Request, field: str, rows: Iterable[Any], values: dict[str, Any]) -> Iterator[None]:
    from kio.serial import entity_writer

    first, count, out = None, 0, io.BytesIO()
    for row in rows:
        if row is not None:
            first = row if first is None else first
            entity_writer(type(row))(out, row)
            count += 1
        yield
    if first is None:
        request.answer(**{field: ()}, **values)
        return
    before, after = _around(request, field, first, values)
    request.send([before, _count(request, count), out.getvalue(), after])


def _around(request: Request, field: str, row: Any, values: dict[str, Any]) -> tuple[bytes, bytes]:
    """The bytes before and behind the rows and their count."""
    none, one = (request.encoded(**{field: rows}, **values) for rows in ((), (row,)))
    size = len(_count(request, 0))
    at = next(place for place, (a, b) in enumerate(zip(none, one, strict=False)) if a != b) + 1 - size
    return none[:at], none[at + size :]


def _count(request: Request, rows: int) -> bytes:
    if not request.schema.answer.__flexible__:
        return INT32.pack(rows)
    out, left = bytearray(), rows + 1
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def do(request: Request, steps: Iterator[Any], count: int) -> None:
    """Do what a request asks for, of which `count` steps are expected: a few at once, many in slices."""
    if count > MANY:
        request.slot.connection.work(steps)
        return
    for _ in steps:
        pass
