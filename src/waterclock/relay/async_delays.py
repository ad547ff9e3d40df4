"""`AsyncDelays`: the same for asyncio. Each call waits in a thread, as the Kafka client does."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Self

from waterclock.relay.delays import Delays
from waterclock.relay.sending import Answer, Receipt, Text


class AsyncDelays:
    """`Delays`, with methods that are awaited; the same arguments, the same answers, the same errors.

    Requests may be sent side by side; cancels and replaces are answered one after the other.
    """

    def __init__(self, bootstrap: str, topic: str = "delays", **options: Any) -> None:
        self._make = partial(Delays, bootstrap, topic, **options)
        self._delays: Delays | None = None

    async def __aenter__(self) -> Self:
        self._delays = await asyncio.to_thread(self._make)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._delays is not None:
            await asyncio.to_thread(self._delays.close)

    async def send(self, target: str, value: Text | None, **options: Any) -> Receipt:
        """See `Delays.send`."""
        return await asyncio.to_thread(self._open().send, target, value, **options)

    async def cancel(self, which: str | Receipt, **options: Any) -> Answer:
        """See `Delays.cancel`."""
        return await asyncio.to_thread(self._open().cancel, which, **options)

    async def replace(self, which: str | Receipt, target: str, value: Text | None, **options: Any) -> Answer:
        """See `Delays.replace`."""
        return await asyncio.to_thread(self._open().replace, which, target, value, **options)

    def _open(self) -> Delays:
        if self._delays is None:
            raise RuntimeError("open it first: async with AsyncDelays(...) as delays")
        return self._delays
