"""Every API but Produce and Fetch, read and written by the package kio, generated from Kafka's own schemas.

Rule 1: a schema is imported when its version is first needed: all of them at once cost 0.75 s.
Rule 2: if hypothesis is installed, kio would import it and prepare strategies for its types: 0.2 s that the first
    client would wait for. It is hidden for that one import.
Rule 3: a handler names every field that any version has; `make` leaves out what the version at hand lacks.
Rule 4: a handler asks `may` about each resource that it answers for; what a whole request takes, its table asks.
Rule 5: nothing in a request may claim more than there is; that is checked before kio reads it. kio makes room for as many
    elements as the request says that an array has: two thousand million would abort the process. Every array's count and
    every length is held against the bytes that are left, all elements together against MOST_ELEMENTS. ValueError,
    IndexError or struct.error if one does not fit.
Rule 6: a schema without arrays is not checked: each of its fields is read within the request.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, get_args, get_origin

from waterclock.broker.net.outgoing import Slot
from waterclock.broker.wire.fields import INT16, INT32, bounded, bytes_span, skip_tags, text_span, uvarint

NAMES: Final = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 15: "DescribeGroups",
    16: "ListGroups", 17: "SaslHandshake", 18: "ApiVersions", 19: "CreateTopics", 20: "DeleteTopics",
    21: "DeleteRecords", 22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn", 26: "EndTxn", 27: "WriteTxnMarkers", 28: "TxnOffsetCommit", 29: "DescribeAcls",
    30: "CreateAcls", 31: "DeleteAcls", 32: "DescribeConfigs", 33: "AlterConfigs", 34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs", 36: "SaslAuthenticate", 37: "CreatePartitions", 42: "DeleteGroups", 43: "ElectLeaders",
    44: "IncrementalAlterConfigs", 45: "AlterPartitionReassignments", 46: "ListPartitionReassignments",
    47: "OffsetDelete", 48: "DescribeClientQuotas", 49: "AlterClientQuotas", 50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials", 55: "DescribeQuorum", 57: "UpdateFeatures", 58: "Envelope", 60: "DescribeCluster",
    61: "DescribeProducers", 65: "DescribeTransactions", 66: "ListTransactions", 68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe", 71: "GetTelemetrySubscriptions", 72: "PushTelemetry", 74: "ListConfigResources",
    75: "DescribeTopicPartitions",
}  # fmt: skip
KEYS: Final = {name: key for key, name in NAMES.items()}


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


NO_THROTTLE = timedelta(0)
API_VERSIONS = 18  # its answer has the old header in every version: a client may not know the new one yet. KIP-511


class Schema(NamedTuple):
    """How one version of one API is read and written. `names`: the classes of the answer and of its parts."""

    check: Check | None
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any, Any], None]
    flexible: bool
    names: dict[str, Any]
    answer: Any


@functools.cache
def import_kio() -> None:
    """Import the base of kio; to be called in the starter's thread, while no other import is under way."""
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # what importlib takes for "is not there"
    try:
        import kio.static._phantom  # noqa: F401
    finally:
        del sys.modules["hypothesis"]


@functools.cache
def schema(key: int, version: int) -> Schema:
    """The schema of an API; ValueError if Kafka has none."""
    import_kio()
    from kio.index import load_payload_module
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType

    of_request = vars(load_payload_module(key, version, EntityType.request))
    of_answer = vars(load_payload_module(key, version, EntityType.response))
    name = [n for n in of_request if n.endswith("Request")][-1]  # after its parts, some of which are named so too
    answer = of_answer[name.removesuffix("Request") + "Response"]
    flexible = of_request[name].__header_schema__.__flexible__
    return Schema(
        checker(of_request[name]), entity_reader(of_request[name]), entity_writer(answer), flexible, of_answer, answer
    )


@functools.cache
def _fields(entity: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(entity))


def make(entity: Any, /, **values: Any) -> Any:
    """An entity of whichever version: the fields that it lacks are left out."""
    names = _fields(entity)
    return entity(**{name: value for name, value in values.items() if name in names})


class ClientRights(Protocol):
    """What a client may do, by Kafka's numbers of operations and of resource types."""

    def may(self, operation: Any, resource_type: Any, name: str | None) -> bool: ...

    def operations(self, resource_type: Any, name: str) -> int: ...


class Request:
    """One request on its way: `body` is what the client wants, and `answer` may be called now or later, once.

    `correlation` and `slot` say where the answer goes. kio's names of fields and classes are used throughout.
    """

    __slots__ = ("body", "correlation", "key", "rights", "schema", "slot", "version")

    def __init__(self, key: int, version: int, correlation: int, slot: Slot, data: bytes) -> None:
        self.rights: ClientRights | None = None  # there is no authorizer: everybody may do everything
        self.key = key
        self.version = version
        self.correlation = correlation
        self.slot = slot
        self.schema = schema(key, version)
        at = skip_tags(data, 0) if self.schema.flexible else 0
        if self.schema.check is not None:
            self.schema.check(data, at)
        self.body: Any = self.schema.read(data, at)[0]

    def may(self, operation: int, resource_type: int, name: str | None) -> bool:
        """Whether its client may do that to the resource `name`; None: to any of that type."""
        return self.rights is None or self.rights.may(operation, resource_type, name)

    def make(self, name: str, /, **values: Any) -> Any:
        """A part of the answer, by its class's name."""
        return make(self.schema.names[name], **values)

    def has(self, name: str) -> bool:
        """Whether this version of the answer knows the class."""
        return name in self.schema.names

    def answer(self, **values: Any) -> None:
        """Send the answer."""
        self.send([self.encoded(**values)])

    def encoded(self, **values: Any) -> bytes:
        """The answer without its header."""
        out = io.BytesIO()
        self.schema.write(out, make(self.schema.answer, throttle_time=NO_THROTTLE, **values))
        return out.getvalue()

    def send(self, body: list[bytes]) -> None:
        """Send an answer that is written already, in parts; nothing if it was given up and answered before."""
        if self.slot.parts is not None:
            return
        head = INT32.pack(self.correlation) + (b"\0" if self.schema.answer.__header_schema__.__flexible__ else b"")
        size = len(head) + sum(map(len, body))
        self.slot.answer([b"".join([INT32.pack(size), head, *body])])


def unsupported(correlation: int, ranges: list[tuple[int, int, int]]) -> bytes:
    """The answer to an ApiVersions request newer than known: error 35 and the table, in the oldest form."""
    rows = b"".join(INT16.pack(key) + INT16.pack(lowest) + INT16.pack(highest) for key, lowest, highest in ranges)
    body = INT32.pack(correlation) + INT16.pack(35) + INT32.pack(len(ranges)) + rows
    return INT32.pack(len(body)) + body
