"""An answer that says one error about everything in the request, for any API: what a fault answers.

Rule 1: a row of the answer that can carry an error mirrors a row of the request: topic for topic, partition for partition.
Rule 2: everything else is as empty as the schema allows.
Rule 3: the answers of ROWS_ONLY keep their own error code at NONE: there it speaks of sessions, not of partitions.
Rule 4: AlterUserScramCredentials names users in two arrays, and calls them otherwise in its answer.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

ROWS_ONLY: Final = {1, 3}  # Fetch, Metadata
ALTER_CREDENTIALS: Final = 51
EMPTY: Final = (
    (bool, False), (int, -1), (str, ""), (bytes, b""),
    (timedelta, timedelta(0)), (datetime, datetime.fromtimestamp(0, UTC)),
)  # fmt: skip
PARTITION: Final = ("partition_index", "partition", "index")  # names for a partition's number


def refuse(request: Request, error: Error) -> None:
    """Answer `error` for everything that the request names."""
    if request.key == ALTER_CREDENTIALS:  # Rule 4
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
