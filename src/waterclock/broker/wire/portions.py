"""Answers with very many rows, made and written a few at a time: `Connection.work` does a slice of that at once.

Rule 1: what goes out is what `Request.answer` would have sent, to the byte.
Rule 2: a row that has many rows itself, such as a topic with its partitions, is a `Branch`: a slice may end within it.
Rule 3: the bytes around the rows are found by writing what has them twice, with no row and with one: what differs first
    is how many there are.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.wire.fields import as_count

if TYPE_CHECKING:
    from waterclock.broker.wire.codec import Request

MANY: Final = 100  # rows: with fewer an answer is written at once
FEW: Final = 16  # rows: with fewer a branch is written at once, since to find the bytes around them costs as much


class Branch(NamedTuple):
    """A row, and what is to stand in one of its fields: rows, `expected` so many, which may be branches too."""

    row: Any
    field: str
    rows: Iterable[Any]
    expected: int


def answer(request: Request, field: str, rows: Iterable[Any], count: int, **values: Any) -> None:
    """Answer with `values` and, as `field`, the rows, of which `count` are expected, those of branches included: a few at
    once, many in slices.

    The rows are taken in the slices, and see what has changed meanwhile. None is no row: so much was looked through.
    """
    if count <= MANY:
        request.answer(**{field: _whole(rows)}, **values)
    else:
        request.slot.connection.work(_portions(request, field, rows, values))


def _whole(rows: Iterable[Any]) -> tuple[Any, ...]:
    """The rows with those of their branches in their places."""
    return tuple(
        dataclasses.replace(row.row, **{row.field: _whole(row.rows)}) if isinstance(row, Branch) else row
        for row in rows
        if row is not None
    )


def _portions(request: Request, field: str, rows: Iterable[Any], values: dict[str, Any]) -> Iterator[None]:
    first, count, written = yield from _written(rows)
    if first is None:
        request.answer(**{field: ()}, **values)
        return
    flexible = request.schema.answer.__flexible__
    before, after = _around(lambda some: request.encoded(**{field: some}, **values), first, flexible)
    request.send([before, as_count(count, flexible), *written, after])


def _written(rows: Iterable[Any]) -> Generator[None, None, tuple[Any, int, list[bytes]]]:
    """The first of the rows, how many there are, and their bytes in parts; it yields after each."""
    first, count, out = None, 0, io.BytesIO()
    parts: list[bytes] = []
    for row in rows:
        if isinstance(row, Branch) and row.expected > FEW:
            branch = yield from _written_branch(row)
            parts += [out.getvalue(), *branch]
            out = io.BytesIO()
        elif row is not None:
            _write(out, *_whole((row,)))
        if row is not None:
            if first is None:
                first = row.row if isinstance(row, Branch) else row
            count += 1
        yield
    return first, count, [*parts, out.getvalue()]


def _written_branch(branch: Branch) -> Generator[None, None, list[bytes]]:
    first, count, written = yield from _written(branch.rows)
    if first is None:
        return [_bytes(branch.row, branch.field, ())]
    flexible = type(branch.row).__flexible__
    before, after = _around(functools.partial(_bytes, branch.row, branch.field), first, flexible)
    return [before, as_count(count, flexible), *written, after]


def _bytes(row: Any, field: str, rows: tuple[Any, ...]) -> bytes:
    out = io.BytesIO()
    _write(out, dataclasses.replace(row, **{field: rows}))
    return out.getvalue()


def _write(out: io.BytesIO, row: Any) -> None:
    from kio.serial import entity_writer

    entity_writer(type(row))(out, row)


def _around(write: Callable[[tuple[Any, ...]], bytes], row: Any, flexible: bool) -> tuple[bytes, bytes]:
    """The bytes before and behind the rows and their count."""
    none, one = write(()), write((row,))
    size = len(as_count(0, flexible))
    at = next(place for place, (a, b) in enumerate(zip(none, one, strict=False)) if a != b) + 1 - size
    return none[:at], none[at + size :]


def do(request: Request, steps: Iterator[Any], count: int) -> None:
    """Do what a request asks for, of which `count` steps are expected: a few at once, many in slices."""
    if count > MANY:
        request.slot.connection.work(steps)
        return
    for _ in steps:
        pass
