"""What only a leader can do, asked of its follower: it is passed on, and answered as if the leader had been asked.

Clients take brokers for alike: Java's asks whichever has least to do to change ACLs and settings, and asks the same one
again where that says NOT_CONTROLLER, until its time is up. So the follower does what Kafka's brokers do with what is their
controller's business (KIP-590):

1. It wraps the request, with its client's name and address, into an Envelope.
2. It asks the leader, as the link's user.
3. The leader opens the envelope, and decides by the rights of that client.
4. The follower hands the answer on.

Rule 1: an envelope is taken from whoever may follow, and where there is an authorizer from who may do CLUSTER_ACTION.
Rule 2: one after the other, in the order in which they came: a client may send several that build upon each other.
Rule 3: where the leader cannot be reached the answer is NOT_CONTROLLER, for nothing was asked; where it does not answer
    REQUEST_TIMED_OUT, for it may have done it. Either is for clients to try again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import HEAD, Api
from waterclock.broker.net.outgoing import Slot
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.refusal import refuse

if TYPE_CHECKING:
    from waterclock.broker.identity import Identity
    from waterclock.broker.net.outgoing import Client
    from waterclock.broker.security.link import LinkAccess

ENVELOPE: Final = 58
VERSION: Final = 0
PATIENCE_S: Final = 30.0  # some changes wait for the follower, and thousands of topics take seconds
# API key -> the versions that a leader knows
PASSED_ON: Final = {
    19: (2, 7), 20: (1, 6), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 37: (0, 3), 44: (0, 1), 50: (0, 0),
    51: (0, 0), 74: (0, 1),
}  # fmt: skip
log = logging.getLogger("waterclock.broker")


class Forwarding:
    """A follower's side; `start` runs what asks the leader, with `access`."""

    def __init__(
        self, identity: Identity, start: Callable[[Coroutine[Any, Any, None]], object], access: LinkAccess
    ) -> None:
        self._identity, self._start, self._access = identity, start, access
        self._turn = asyncio.Lock()
        self._says = ""

    def apis(self) -> dict[int, Api]:
        return {key: Api(self.forward, *versions) for key, versions in PASSED_ON.items()}

    def forward(self, request: Request) -> None:
        self._start(self._forward(request))

    async def _forward(self, request: Request) -> None:
        async with self._turn:
            if not request.slot.gone:
                _hand_on(request, await self._asked(request))

    async def _asked(self, request: Request) -> bytes | Error:
        """The answer without its header, or why there is none."""
        link = Link(self._identity.peer_at, "waterclock", self._access, PATIENCE_S)
        error = Error.NOT_CONTROLLER
        try:
            await link.connect()
            error = Error.REQUEST_TIMED_OUT
            said = await link.ask(ENVELOPE, VERSION, **_wrapped(request))
        except LinkLost as lost:
            self._say(f"what clients ask of the leader did not get through: {lost}")
            return error
        finally:
            link.close()
        if said.error_code.value:
            self._say(
                f"the leader does not take what clients ask of this follower: {Error(said.error_code.value).name}. "
                f"Whoever the link's user is there must be a super user"
            )
            return Error.NOT_CONTROLLER
        self._says = ""
        return bytes(said.response_data)[request.schema.answer.__header_schema__.__flexible__ :]  # no tagged fields

    def _say(self, what: str) -> None:
        if what != self._says:
            self._says = what
            log.warning("%s", what)


def _hand_on(request: Request, said: bytes | Error) -> None:
    """Step 4."""
    if request.slot.gone:
        return
    if isinstance(said, Error):
        refuse(request, said)
    else:
        request.send([said])


def _wrapped(request: Request) -> dict[str, Any]:
    """Step 1."""
    client = request.slot.connection
    name, host = client.principal, client.peer().rpartition(":")[0]
    return {
        "request_data": asking.written(request.key, request.version, 0, client.client_id, request.body),
        "request_principal": None if name is None else name.encode(),
        "client_host_address": ipaddress.ip_address(host).packed,
    }


class EnvelopeApi:
    """The leader's side. `admits` says who may follow; `serve` is set to what serves a request that was in one."""

    def __init__(self, authorizer: Authorizer | None, admits: Callable[[Client], bool]) -> None:
        self._authorizer, self._admits = authorizer, admits
        self.serve: Callable[[Request], object] = lambda request: None

    def apis(self) -> dict[int, Api]:
        return {ENVELOPE: Api(self.open, VERSION, VERSION)}

    def open(self, envelope: Request) -> None:
        """Step 3."""
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
            inside.rights = self._authorizer.rights(Sender(envelope.body))
        self.serve(inside)


class Sender:
    """Who sent what is in an envelope, for the authorizer."""

    def __init__(self, body: Any) -> None:
        name = body.request_principal
        self.principal: str | None = None if name is None else name.decode()
        self.rights: Any = None
        self._host = str(ipaddress.ip_address(body.client_host_address))

    def peer(self) -> str:
        return f"{self._host}:0"


class InEnvelope(Slot):
    """Where the answer to what is in an envelope goes: into the envelope's."""

    __slots__ = ("_envelope",)

    def __init__(self, envelope: Request) -> None:
        super().__init__(envelope.slot.connection)
        self._envelope = envelope
        envelope.slot.on_gone = self._gone

    def _gone(self) -> None:
        if self.on_gone is not None:
            self.on_gone()

    def answer(self, parts: list[Any]) -> None:
        """Without size and number: the client's own request has another number."""
        whole = b"".join(parts)
        self.parts = []
        self._envelope.answer(error_code=Error.NONE, response_data=whole[8:])
