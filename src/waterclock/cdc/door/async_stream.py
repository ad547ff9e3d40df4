"""The same stream for asyncio: what waits for the source does so in a thread of the stream's own; the position is kept in
the loop's thread, where the caller's connection was opened, by the same `batch.commit()`.

Rule 1: a task that is cancelled while it waits loses nothing: what was read meanwhile is what the next wait brings.
Rule 2: the end of the block waits for the thread, which hears of it within a second, and closes the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from waterclock.cdc.door.batch import Batch
from waterclock.cdc.door.gather import BatchAhead
from waterclock.cdc.door.stream import ChangeStream
from waterclock.outside import futures

T = TypeVar("T")


class AsyncChangeStream:
    """`async with AsyncChangeStream(changes(...)) as stream: async for batch in stream: ...; batch.commit()`."""

    def __init__(self, stream: ChangeStream) -> None:
        self._stream = stream
        self._thread = futures.ThreadPoolExecutor(1, "waterclock-changes")
        self._ahead: asyncio.Future[BatchAhead | None] | None = None

    async def __aenter__(self) -> Self:
        self._stream.claim()
        try:
            self._stream.begin(await self._in_thread(self._stream.look))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        while True:
            if self._ahead is None:
                self._ahead = self._in_thread(self._stream.ahead)
            try:
                ahead = await asyncio.shield(self._ahead)  # rule 1: who is cancelled leaves it there
            except Exception:
                self._ahead = None
                raise
            self._ahead = None
            if ahead is None:
                raise StopAsyncIteration
            if (batch := self._stream.handed(ahead)) is not None:
                return batch

    async def _close(self) -> None:
        self._stream.stop()
        try:
            await asyncio.shield(self._in_thread(self._stream.shut))  # behind what the thread is in
        finally:
            self._stream.leave()
            self._thread.shutdown(wait=False)

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call)
