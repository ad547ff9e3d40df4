"""Every API but Produce and Fetch, read and written by the package kio, generated from Kafka's own schemas.

Rule 1: a schema is imported when its version is first needed: all of them at once cost 0.75 s.
Rule 2: if hypothesis is installed, kio would import it and prepare strategies for its types: 0.2 s that the first
    client would wait for. It is hidden for that one import.
Rule 3: a handler names every field that any version has; `make` leaves out what the version at hand lacks.
Rule 4: a handler asks `may` about each resource that it answers for; what a whole request takes, its table asks.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from waterclock.broker.net.outgoing import Slot
from waterclock.broker.wire.bounds import Check, checker
from waterclock.broker.wire.fields import INT16, INT32, skip_tags

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
