"""Requests that a follower passes on to its leader, which decides as if their clients had come to it themselves.

Clients take brokers for alike: Java's asks whichever has least to do to change ACLs and settings, and asks the same one
again if that says NOT_CONTROLLER, until its time is up. So a follower wraps what only the leader can do into an Envelope
(replication/link.py), as Kafka's brokers do with what is their controller's business (KIP-590).

Rule 1: an envelope is taken from whoever may follow, and if there is an authorizer from who may do CLUSTER_ACTION.
Rule 2: what is inside is decided by the rights of the client whose name and address stand on it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import HEAD, Api
from waterclock.broker.net.outgoing import Slot
from waterclock.broker.replication.link import ENVELOPE, ENVELOPE_VERSION
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.net.outgoing import ClientConnection

# API key -> the versions that a leader knows
PASSED_ON: Final = {
    19: (2, 7), 20: (1, 6), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 37: (0, 3), 44: (0, 1), 50: (0, 0),
    51: (0, 0), 74: (0, 1),
}  # fmt: skip


class EnvelopeApi:
    """`admits` says who may follow; `serve` is set to what serves a request that was in one."""

    def __init__(self, authorizer: Authorizer | None, admits: Callable[[ClientConnection], bool]) -> None:
        self._authorizer, self._admits = authorizer, admits
        self.serve: Callable[[Request], object] = lambda request: None

    def apis(self) -> dict[int, Api]:
        return {ENVELOPE: Api(self.open, ENVELOPE_VERSION, ENVELOPE_VERSION)}

    def open(self, envelope: Request) -> None:
        """Serve what is inside."""
        if not self._admits(envelope.slot.connection):
            envelope.answer(error_code=Error.CLUSTER_AUTHORIZATION_FAILED, response_data=None)
            return
        data = envelope.body.request_data
        key, version, correlation, size = HEAD.unpack_from(data)
        lowest, highest = PASSED_ON.get(key, (0, -1))
        if not lowest <= version <= highest:
            envelope.answer(error_code=Error.INVALID_REQUEST, response_data=None)
            return
        inside = Request(key, version, correlation, InEnvelope(envelope), data[HEAD.size + size :])
        if self._authorizer is not None:
            inside.rights = self._authorizer.rights(EnvelopeSender(envelope.body))
        self.serve(inside)


class EnvelopeSender:
    """Who sent what is in an envelope, for the authorizer."""

    def __init__(self, body: Any) -> None:
        name = body.request_principal
        self.principal: str | None = None if name is None else name.decode()
        self.rights: Any = None
        self._host = str(ipaddress.ip_address(body.client_host_address))

    def peer(self) -> str:
        return f"{self._host}:0"


class InEnvelope(Slot):
    """The slot of what is in an envelope: its answer goes into the envelope's."""

    __slots__ = ("_envelope",)

    def __init__(self, envelope: Request) -> None:
        super().__init__(envelope.slot.connection)
        self._envelope = envelope
        envelope.slot.on_gone = lambda: self.on_gone() if self.on_gone is not None else None

    def answer(self, parts: list[Any]) -> None:
        """Without size and number: the client's own request has another number."""
        whole = b"".join(parts)
        self.parts = []
        self._envelope.answer(error_code=Error.NONE, response_data=whole[8:])
