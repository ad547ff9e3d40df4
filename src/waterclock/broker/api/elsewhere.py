"""What a follower answers to everything that only its leader can do: how to find the leader, with every API.

Clients take the brokers of one cluster for alike: they ask any of them for a coordinator or for a producer's id, and
Java's ask whichever has least to do to change ACLs and settings, the same one again if that says NOT_CONTROLLER, until
their time is up. So the follower knows the same APIs in the same versions, says who the leader is, and wraps what only the
leader can do into an Envelope (replication/link.py), as Kafka's brokers do with their controller's business.

    a request about                     the answer
    the coordinator                     the leader's address
    Metadata, DescribeCluster           both brokers, and who leads
    ListGroups, ListTransactions        none: whoever lists asks every broker
    a group, a transaction              NOT_COORDINATOR
    a topic's, setting's, ACL's change  the leader's answer, by an Envelope
    a partition                         NOT_LEADER_OR_FOLLOWER
    a producer's id                     the leader's answer: some clients never ask anybody else for it

Rule 1: an envelope is taken from whoever may follow, and with an authorizer from whoever may do CLUSTER_ACTION.
Rule 2: what is inside is decided by the rights of the client whose name and address stand on it.
Source: KIP-590.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import HEAD, Api
from waterclock.broker.net.outgoing import Slot
from waterclock.broker.replication.link import ENVELOPE, ENVELOPE_VERSION, Forwarder, Link, LinkLost
from waterclock.broker.security.authorizer import Authorizer
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.net.outgoing import ClientConnection
    from waterclock.broker.security.link import LinkAccess

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


FIND_COORDINATOR: Final = 10
INIT_PRODUCER: Final = 22
A_MINUTE: Final = timedelta(minutes=1)
GROUP_OR_TRANSACTION: Final = (0, 1)

# error -> API key -> the versions that a leader knows
REFUSED: Final[dict[Error, dict[int, tuple[int, int]]]] = {
    Error.NOT_LEADER_OR_FOLLOWER: {2: (1, 11), 21: (0, 2), 23: (2, 4), 27: (1, 2), 61: (0, 0)},
    Error.NOT_COORDINATOR: {
        8: (2, 10), 9: (1, 10), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 24: (0, 5), 25: (0, 4),
        26: (0, 5), 28: (0, 5), 42: (0, 2), 47: (0, 0), 65: (0, 0), 68: (0, 1), 69: (0, 1),
    },
    Error.ILLEGAL_SASL_STATE: {17: (0, 1), 36: (0, 2)},
    Error.NONE: {16: (0, 5), 66: (0, 2)},
}  # fmt: skip


def elsewhere(
    identity: Identity, start: Callable[[Coroutine[Any, Any, None]], object], access: LinkAccess
) -> dict[int, Api]:
    """The APIs that are answered with the leader's address; `start` runs what asks the leader first, with `access`."""
    forwarder = Forwarder(identity, start, access)
    apis = {
        key: Api(partial(refuse, error=error), *versions)
        for error, refused in REFUSED.items()
        for key, versions in refused.items()
    }
    return {
        **apis,
        **{key: Api(forwarder.forward, *versions) for key, versions in PASSED_ON.items()},
        FIND_COORDINATOR: Api(partial(_find, identity), 0, 6),
        INIT_PRODUCER: Api(partial(_init, identity, start, access), 0, 5),
    }


def _find(identity: Identity, request: Request) -> None:
    """FindCoordinator: it is the leader."""
    leader = next(((n, host, port) for n, host, port in identity.brokers() if n == identity.leader), (-1, "", -1))
    kind = getattr(request.body, "key_type", 0)
    error = Error.NONE if kind in GROUP_OR_TRANSACTION else Error.INVALID_REQUEST
    where = dict(zip(("node_id", "host", "port"), leader if not error else (-1, "", -1), strict=True))
    if request.version < 4:
        request.answer(error_code=error, error_message=error.name, **where)
        return
    rows = (
        request.make("Coordinator", key=key, error_code=error, error_message="", **where)
        for key in request.body.coordinator_keys
    )
    request.answer(coordinators=tuple(rows))


def _init(
    identity: Identity, start: Callable[[Coroutine[Any, Any, None]], object], access: LinkAccess, request: Request
) -> None:
    """InitProducerId: of a transaction it is the coordinator's business, otherwise the leader's."""
    if request.body.transactional_id is not None:
        refuse(request, Error.NOT_COORDINATOR)
    else:
        start(_ask_for_id(Link(identity.peer_at, "waterclock", access), request))


async def _ask_for_id(link: Link, request: Request) -> None:
    error, given = Error.COORDINATOR_LOAD_IN_PROGRESS, (-1, -1)
    try:
        await link.connect()
        said = await link.ask(INIT_PRODUCER, 1, transactional_id=None, transaction_timeout=A_MINUTE)
        error, given = Error(said.error_code.value), (said.producer_id, said.producer_epoch)
    except LinkLost:
        pass  # it may ask again
    finally:
        link.close()
    if not request.slot.gone:
        request.answer(error_code=error, producer_id=given[0], producer_epoch=given[1])
