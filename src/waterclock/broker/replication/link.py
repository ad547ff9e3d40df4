"""A broker's connection to the other one: one request at a time. A follower passes on by it what only its leader can serve,
as Kafka's brokers do (KIP-590).

1. Connect, inside of TLS if there are certificates to check the other's against.
2. Say one's name, which is the client id of every request: ApiVersions.
3. Log in, if there is a user.

4. To pass a request on, it is wrapped, with its client's name and address, into an Envelope.
5. The leader gets that, as the link's user. What it does with it stands in api/elsewhere.py.
6. Its answer is handed on.

Rule 1: every failure is a LinkLost, whatever its kind: who follows waits a moment and connects again.
Rule 2: a broker that is silent for SILENT_S is lost too: its machine may be gone without a word.
Rule 3: requests are passed on one after the other, in the order in which they came: a client may send several that build
    upon each other.
Rule 4: if the leader cannot be reached the answer is NOT_CONTROLLER, for it got nothing; if it does not answer,
    REQUEST_TIMED_OUT, for it may have done it. Either is for clients to try again.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import itertools
import logging
import re
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.security.link import OPEN, PLAIN, LinkAccess
from waterclock.broker.security.scram import AccessDenied, ScramClient
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError, WaterclockError, unstopped
from waterclock.outside import open_connection

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity

API_VERSIONS: Final = 18
HANDSHAKE, AUTHENTICATE = 17, 36
METADATA, METADATA_VERSION = 3, 4
LEADER_EPOCH, LEADER_EPOCH_VERSION = 23, 3
SILENT_S: Final = 10.0
ENVELOPE: Final = 58
ENVELOPE_VERSION: Final = 0
PATIENCE_S: Final = 30.0  # some changes wait for the follower, and thousands of topics take seconds
log = logging.getLogger("waterclock.broker")


class LinkLost(WaterclockError):
    """The other broker cannot be reached, or said something that cannot be understood."""


class NobodyListens(LinkLost):
    """Its machine answers, and refuses: no process has the port."""


class CannotFollow(WaterclockError):
    """Who was to be followed cannot be, however often it is tried."""


class LastSentence:
    """A sentence for the log: it stands there once for as long as it stays the same. An empty one means all is well."""

    def __init__(self) -> None:
        self.last = ""

    def log(self, sentence: str) -> None:
        """Log it if it is another than the last."""
        if sentence != self.last:
            self.last = sentence
            if sentence:
                log.warning("%s", sentence)


class Link:
    """A connection to the broker at `address` (HOST:PORT), under the name `client_id`, secured as `access` says; an answer
    may take `silent_s` seconds."""

    def __init__(self, address: str, client_id: str, access: LinkAccess = OPEN, silent_s: float = SILENT_S) -> None:
        self.address = address
        self._client_id = client_id
        self._access = access
        self._silent_s = silent_s
        self._correlations = itertools.count()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Connect and log in; LinkLost if that cannot be, NobodyListens if the port is free."""
        host, _, port = self.address.rpartition(":")
        try:
            async with asyncio.timeout(SILENT_S):
                context = self._access.context()
                opened = open_connection(host.strip("[]"), int(port), limit=1 << 20, ssl=context)
                self._reader, self._writer = await opened  # 1
        except (OSError, ValueError, UsageError) as error:
            kind = NobodyListens if _refused(error) else LinkLost
            raise kind(f"{self.address} cannot be reached: {error or 'it does not answer'}") from error
        await self.ask(API_VERSIONS, 0)  # 2
        if self._access.user is not None:
            await self._log_in(self._access.user, self._access.password or "")  # 3

    async def _log_in(self, user: str, password: str) -> None:
        mechanism = self._access.mechanism
        shaken = await self.ask(HANDSHAKE, 1, mechanism=mechanism)
        if shaken.error_code.value:
            raise LinkLost(f"{self.address} does not take {mechanism}: {Error(shaken.error_code.value).name}")
        try:
            if mechanism == PLAIN:
                await self._say(f"\0{user}\0{password}".encode(errors="surrogateescape"))
            else:
                scram = ScramClient(mechanism, user, password)
                scram.check(await self._say(scram.final(await self._say(scram.first()))))
        except AccessDenied as denied:
            raise LinkLost(
                f"{self.address} and the link's user {user!r}: {unstopped(denied)}. Does --link-login fit?"
            ) from denied

    async def _say(self, token: bytes) -> bytes:
        answer = await self.ask(AUTHENTICATE, 1, auth_bytes=token)
        if answer.error_code.value:
            raise AccessDenied(answer.error_message or Error(answer.error_code.value).name)
        return bytes(answer.auth_bytes)

    async def fetch(self, body: bytes) -> tuple[Error, list[asking.PartitionCopy]]:
        """The answer to a follower's Fetch."""
        head = asking.header(asking.FETCH, asking.FETCH_VERSION, next(self._correlations), self._client_id)
        data = await self._exchange(head + body)
        try:
            return asking.fetched(memoryview(data)[4:])
        except (ValueError, IndexError, struct.error) as error:
            raise LinkLost(f"{self.address} answers what cannot be understood: {error}") from error

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The answer to a request of another API and version."""
        request = asking.request(key, version, next(self._correlations), self._client_id, fields)
        data = await self._exchange(request)
        try:
            return asking.answer(data, key, version)
        except (ValueError, IndexError, struct.error) as error:
            raise LinkLost(f"{self.address} answers what cannot be understood: {error}") from error

    async def leader(self) -> tuple[str, int]:
        """The other's cluster, and the id of who leads there, by its own account."""
        said = await self.ask(METADATA, METADATA_VERSION, topics=(), allow_auto_topic_creation=False)
        return str(said.cluster_id), int(said.controller_id)

    async def end_of_epoch(
        self, node: int, topic: str, number: int, epoch: int, current: int = -1
    ) -> tuple[Error, int, int]:
        """The other's last epoch up to `epoch` in a partition, and where it ends; `node` asks, and takes `current` for its
        own epoch there."""
        row = asking.part(
            LEADER_EPOCH, LEADER_EPOCH_VERSION, "OffsetForLeaderPartition",
            partition=number, current_leader_epoch=current, leader_epoch=epoch,
        )  # fmt: skip
        asked = asking.part(LEADER_EPOCH, LEADER_EPOCH_VERSION, "OffsetForLeaderTopic", topic=topic, partitions=(row,))
        answer = await self.ask(LEADER_EPOCH, LEADER_EPOCH_VERSION, replica_id=node, topics=(asked,))
        said = answer.topics[0].partitions[0]
        return Error(said.error_code.value), int(said.leader_epoch), int(said.end_offset)

    async def _exchange(self, request: bytes) -> bytes:
        if self._reader is None or self._writer is None:
            raise LinkLost(f"there is no connection to {self.address}")
        try:
            async with asyncio.timeout(self._silent_s):
                self._writer.write(len(request).to_bytes(4, "big") + request)
                await self._writer.drain()
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                return await self._reader.readexactly(size)
        except (OSError, EOFError) as error:
            raise LinkLost(f"{self.address} does not answer: {error or 'it is silent'}") from error

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._writer.close()
        self._writer = self._reader = None


def _refused(error: Exception) -> bool:
    """Whether each address of a name refused; if it has several, asyncio only says so in words."""
    codes = re.findall(r"\[Errno (\d+)\]", str(error))
    refused = [code for code in codes if int(code) == errno.ECONNREFUSED]
    return isinstance(error, ConnectionRefusedError) or (bool(codes) and refused == codes)


class Forwarder:
    """`start` runs what asks the leader, with `access`."""

    def __init__(
        self, identity: Identity, start: Callable[[Coroutine[Any, Any, None]], object], access: LinkAccess
    ) -> None:
        self._identity = identity
        self._start = start
        self._access = access
        self._turn = asyncio.Lock()
        self._says = LastSentence()

    def forward(self, request: Request) -> None:
        """Ask the leader, and answer when it has."""

        async def forwarded() -> None:
            async with self._turn:
                said = None if request.slot.gone else await self._asked(request)
                if said is None or request.slot.gone:
                    return
                if isinstance(said, Error):  # 6
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
            said = await link.ask(ENVELOPE, ENVELOPE_VERSION, **_wrapped(request))
        except LinkLost as lost:
            self._says.log(f"what clients ask of the leader did not get through: {lost}")
            return error
        finally:
            link.close()
        if said.error_code.value:
            self._says.log(
                f"the leader does not take what clients ask of this follower: {Error(said.error_code.value).name}. "
                f"Whoever the link's user is there must be a super user"
            )
            return Error.NOT_CONTROLLER
        self._says.log("")
        return bytes(said.response_data)[request.schema.answer.__header_schema__.__flexible__ :]  # no tagged fields


def _wrapped(request: Request) -> dict[str, Any]:
    """Step 4."""
    client = request.slot.connection
    name, host = client.principal, client.peer().rpartition(":")[0]
    return {
        "request_data": asking.written(request.key, request.version, 0, client.client_id, request.body),
        "request_principal": None if name is None else name.encode(),
        "client_host_address": ipaddress.ip_address(host).packed,
    }
