"""The follower's connection to its leader: one request at a time.

Rule 1: every failure is a LinkLost, whatever its kind: the follower waits a moment and connects again.
Rule 2: a leader that is silent for SILENT_S is lost too: its machine may be gone without a word.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from contextlib import suppress
from typing import Any, Final

from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error
from waterclock.errors import WaterclockError

API_VERSIONS: Final = 18
SILENT_S: Final = 10.0


class LinkLost(WaterclockError):
    """The leader cannot be reached, or said something that cannot be understood."""


class CannotFollow(WaterclockError):
    """Who was to be followed cannot be, however often it is tried."""


class Link:
    """A connection to the broker at `address` (HOST:PORT), under the name `client_id`."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address, self._client_id = address, client_id
        self._correlations = itertools.count()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Connect; LinkLost if nobody is there."""
        host, _, port = self.address.rpartition(":")
        try:
            async with asyncio.timeout(SILENT_S):
                opened = asyncio.open_connection(host.strip("[]"), int(port), limit=1 << 20)
                self._reader, self._writer = await opened
        except (OSError, ValueError) as error:
            raise LinkLost(f"{self.address} cannot be reached: {error or 'it does not answer'}") from error
        await self.ask(API_VERSIONS, 0)  # by which the other learns this one's name

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

    async def _exchange(self, request: bytes) -> bytes:
        if self._reader is None or self._writer is None:
            raise LinkLost(f"there is no connection to {self.address}")
        try:
            async with asyncio.timeout(SILENT_S):
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
