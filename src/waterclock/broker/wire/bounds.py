"""A look over a request before kio reads it: nothing in it may claim more than there is.

kio's reader makes room for as many elements as a request says that an array has, before it reads the first. If it says
two thousand million, the memory cannot be had and the process is aborted: a few bytes from anybody would end the broker.

Rule 1: every array's count, and every length, is held against the bytes that are left; all elements together against
    MOST_ELEMENTS. ValueError, IndexError or struct.error if one does not fit.
Rule 2: a schema without arrays is not looked over: each of its fields is read within the request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin

from waterclock.broker.wire.fields import INT32, bounded, bytes_span, text_span, uvarint

SIZES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
    "error_code": 2, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip
SPANS: Final = {"string": text_span, "bytes": bytes_span, "records": bytes_span}


class ElementCount:
    """How many elements were met in a request so far."""

    __slots__ = ("elements",)

    def __init__(self) -> None:
        self.elements = 0


Skip: TypeAlias = "Callable[[bytes, int, ElementCount], int]"  # from the place of a field to the place after it
Check: TypeAlias = "Callable[[bytes, int], None]"


class WireField(NamedTuple):
    """What a dataclass's field is on the wire."""

    array: bool
    nullable: bool
    entity: Any  # the class of its part or parts, or None
    kind: str


def checker(entity: Any) -> Check | None:
    """What looks over the requests of a schema, given by its class; None if nothing need be looked at."""
    if not _has_arrays(entity):
        return None
    step = _entity(entity)

    def check(data: bytes, at: int) -> None:
        if step(data, at, ElementCount()) > len(data):
            raise ValueError("a request ends before its fields do")

    return check


def _field(field: dataclasses.Field[Any]) -> WireField:
    kind: Any = field.type
    nullable = type(None) in get_args(kind) and get_origin(kind) is not tuple
    if nullable:
        kind = next(one for one in get_args(kind) if one is not type(None))
    array = get_origin(kind) is tuple
    if array:
        kind = get_args(kind)[0]
    entity = kind if dataclasses.is_dataclass(kind) else None
    return WireField(array, nullable, entity, field.metadata.get("kafka_type", ""))


def _has_arrays(entity: Any) -> bool:
    fields = [_field(field) for field in dataclasses.fields(entity)]
    return any(field.array or (field.entity is not None and _has_arrays(field.entity)) for field in fields)


def _entity(entity: Any) -> Skip:
    flexible: bool = entity.__flexible__
    steps = [_step(_field(f), flexible) for f in dataclasses.fields(entity) if "tag" not in f.metadata]
    tags = {f.metadata["tag"]: _step(_field(f), flexible) for f in dataclasses.fields(entity) if "tag" in f.metadata}

    def step(data: bytes, at: int, walk: ElementCount) -> int:
        for one in steps:
            at = one(data, at, walk)
        return _over_tags(data, at, walk, tags) if flexible else at

    return step


def _over_tags(data: bytes, at: int, walk: ElementCount, known: dict[int, Skip]) -> int:
    count, at = uvarint(data, at)
    for _ in range(count):
        tag, at = uvarint(data, at)
        size, at = uvarint(data, at)
        if at + size > len(data):
            raise ValueError("a tagged field goes beyond its request")
        if tag in known:
            known[tag](data, at, walk)
        at += size
    return at


def _step(field: WireField, flexible: bool) -> Skip:
    one = _entity(field.entity) if field.entity is not None else _primitive(field.kind, flexible)
    if field.array:
        return _array(one, flexible)
    if field.entity is not None and field.nullable:
        return lambda data, at, walk: at + 1 if data[at] > 127 else one(data, at + 1, walk)
    return one


def _primitive(kind: str, flexible: bool) -> Skip:
    if kind in SIZES:
        size = SIZES[kind]
        return lambda data, at, walk: at + size
    span = SPANS[kind]
    return lambda data, at, walk: span(data, at, flexible)[1]


def _array(one: Skip, flexible: bool) -> Skip:
    def step(data: bytes, at: int, walk: ElementCount) -> int:
        if flexible:
            count, at = uvarint(data, at)
            count -= 1
        else:
            count, at = INT32.unpack_from(data, at)[0], at + 4
        if count > len(data) - at:
            raise ValueError(f"an array of {count} elements in a request of {len(data)} bytes")
        walk.elements = bounded(walk.elements + max(count, 0))
        for _ in range(count):
            at = one(data, at, walk)
        return at

    return step
