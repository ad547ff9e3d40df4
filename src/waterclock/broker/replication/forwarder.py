"""A follower's side of requests that only its leader can serve: they are passed on, as Kafka's brokers do (KIP-590).

1. The request is wrapped, with its client's name and address, into an Envelope.
2. The leader is asked, as the link's user. What it does with it stands in api/elsewhere.py.
3. Its answer is handed on.

Rule 1: one after the other, in the order in which they came: a client may send several that build upon each other.
Rule 2: if the leader cannot be reached the answer is NOT_CONTROLLER, for nothing was asked; if it does not answer,
    REQUEST_TIMED_OUT, for it may have done it. Either is for clients to try again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.security.link import LinkAccess

ENVELOPE: Final = 58
VERSION: Final = 0
PATIENCE_S: Final = 30.0  # some changes wait for the follower, and thousands of topics take seconds
log = logging.getLogger("waterclock.broker")


class Forwarder:
    """`start` runs what asks the leader, with `access`."""

    def __init__(
        self, identity: Identity, start: Callable[[Coroutine[Any, Any, None]], object], access: LinkAccess
    ) -> None:
        self._identity = identity
        self._start = start
        self._access = access
        self._turn = asyncio.Lock()
        self._says = ""

    def forward(self, request: Request) -> None:
        """Ask the leader, and answer when it has."""

        async def forwarded() -> None:
            async with self._turn:
                said = None if request.slot.gone else await self._asked(request)
                if said is None or request.slot.gone:
                    return
                if isinstance(said, Error):  # step 3
                    refuse(request, said)
                else:
                    request.send([said])

        self._start(forwarded())

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


def _wrapped(request: Request) -> dict[str, Any]:
    """Step 1."""
    client = request.slot.connection
    name, host = client.principal, client.peer().rpartition(":")[0]
    return {
        "request_data": asking.written(request.key, request.version, 0, client.client_id, request.body),
        "request_principal": None if name is None else name.encode(),
        "client_host_address": ipaddress.ip_address(host).packed,
    }
