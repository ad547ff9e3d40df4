"""Answers of a kind: one error about everything in a request, for any API; and very many rows, a few at a time.

Rule 1: if one error is answered, a row that can carry it mirrors a row of the request: topic for topic, partition for
    partition. Everything else is as empty as the schema allows.
Rule 2: the answers of ROWS_ONLY keep their own error code at NONE: there it speaks of sessions, not of partitions.
Rule 3: AlterUserScramCredentials names users in two arrays, and calls them otherwise in its answer.
Rule 4: many rows are made and written a slice at once, in `Connection.work`; what goes out is what `Request.answer` would
    have sent, to the byte.
Rule 5: a row that has many rows itself, such as a topic with its partitions, is a `Branch`: a slice may end within it.
Rule 6: the bytes around the rows are found by writing what has them twice, with no row and with one: what differs first
    is how many there are.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import as_count

ROWS_ONLY: Final = {1, 3}  # Fetch, Metadata
ALTER_CREDENTIALS: Final = 51
EMPTY: Final = (
    (bool, False), (int, -1), (str, ""), (bytes, b""),
    (timedelta, timedelta(0)), (datetime, datetime.fromtimestamp(0, UTC)),
)  # fmt: skip
PARTITION: Final = ("partition_index", "partition", "index")  # names for a partition's number


def refuse(request: Request, error: Error) -> None:
    """Answer `error` for everything that the request names."""
    if request.key == ALTER_CREDENTIALS:  # Rule 3
        names = dict.fromkeys(one.name for one in (*request.body.deletions, *request.body.upsertions))
        rows = (
            request.make("AlterUserScramCredentialsResult", user=name, error_code=error, error_message=None)
            for name in names
        )
        request.answer(results=tuple(rows))
        return
    values = _values(request.schema.answer, request.body, error)
    if request.key in ROWS_ONLY and "error_code" in values:
        values["error_code"] = Error.NONE
    values.pop("throttle_time", None)
    request.answer(**values)


def topics_of(body: Any) -> Iterator[Any]:
    """The topics that a request names: by name, or by id (a UUID)."""
    for one in _rows(body):
        if isinstance(one, str):
            yield one
            continue
        named = getattr(one, "topic_id", None) or getattr(one, "name", None) or getattr(one, "topic", None)
        if named:
            yield named
        else:
            yield from topics_of(one)


def _rows(entity: Any) -> tuple[Any, ...]:
    """A request's first array: the rows that its answer repeats."""
    if not dataclasses.is_dataclass(entity):
        return ()
    for field in dataclasses.fields(entity):
        if _row_type(field.type) is not None:
            return getattr(entity, field.name) or ()
    return ()


def _values(answer: Any, requested: Any, error: Error) -> dict[str, Any]:
    """Every field of an answer, or of a row of it, about what was `requested`."""
    fields = dataclasses.fields(answer)
    values = {field.name: _value(field, requested, error) for field in fields}
    if not dataclasses.is_dataclass(requested):  # a bare name or number: it is what the row's first field repeats
        values[next(name for name in values if not name.endswith("error_code"))] = requested
    return values


def _value(field: Any, requested: Any, error: Error) -> Any:
    if field.name.endswith("error_code"):
        return error
    row = _row_type(field.type)
    if row is not None:
        return tuple(row(**_values(row, one, error)) for one in _rows(requested)) if _carries_error(row) else ()
    for name in PARTITION if field.name in PARTITION else (field.name,):
        if hasattr(requested, name):
            return getattr(requested, name)
    return _empty(field)


def _row_type(kind: Any) -> Any:
    """What an array holds; None if `kind` is no array."""
    for one in (kind, *typing.get_args(kind)):
        if typing.get_origin(one) is tuple:
            return typing.get_args(one)[0]
    return None


@functools.cache
def _carries_error(row: Any) -> bool:
    if not dataclasses.is_dataclass(row):
        return False
    return any(
        field.name.endswith("error_code") or _carries_error(_row_type(field.type)) for field in dataclasses.fields(row)
    )


def _empty(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.name == "records":
        return b""
    if type(None) in typing.get_args(field.type):
        return None
    for kind, value in EMPTY:
        if isinstance(field.type, type) and issubclass(field.type, kind):
            return value
    return None


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
