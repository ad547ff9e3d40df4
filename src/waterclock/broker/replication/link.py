"""A broker's connection to the other one: one request at a time.

1. Connect, inside of TLS if there are certificates to check the other's against.
2. Say one's name, which is the client id of every request: ApiVersions.
3. Log in, if there is a user.

Rule 1: every failure is a LinkLost, whatever its kind: who follows waits a moment and connects again.
Rule 2: a broker that is silent for SILENT_S is lost too: its machine may be gone without a word.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import re
import struct
from contextlib import suppress
from typing import Any, Final

from waterclock.broker.security.link import OPEN, PLAIN, LinkAccess
from waterclock.broker.security.scram import AccessDenied, ScramClient
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError, WaterclockError

API_VERSIONS: Final = 18
HANDSHAKE, AUTHENTICATE = 17, 36
METADATA, METADATA_VERSION = 3, 4
LEADER_EPOCH, LEADER_EPOCH_VERSION = 23, 3
SILENT_S: Final = 10.0


class LinkLost(WaterclockError):
    """The other broker cannot be reached, or said something that cannot be understood."""


class NobodyListens(LinkLost):
    """Its machine answers, and refuses: no process has the port."""


class CannotFollow(WaterclockError):
    """Who was to be followed cannot be, however often it is tried."""


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
                opened = asyncio.open_connection(host.strip("[]"), int(port), limit=1 << 20, ssl=context)
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
            raise LinkLost(f"{self.address} and the link's user {user!r}: {denied}. Does --link-login fit?") from denied

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
