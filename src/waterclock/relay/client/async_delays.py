"""`AsyncDelays`: the same for asyncio. Each call waits in a thread, as the Kafka client does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from waterclock.durations import Duration
from waterclock.kafka.settings import base_settings
from waterclock.relay.client.delays import Delays
from waterclock.relay.client.outbox import CaughtRow, write_awaited
from waterclock.relay.client.sending import Answer, Receipt, Text
from waterclock.relay.handlers.handlers import LOST, POLL_S, Function, Handlers, HandlerWorker
from waterclock.relay.handlers.retries import WAITS
from waterclock.signals import sigterm_heard

if TYPE_CHECKING:
    from waterclock.relay.handlers.handler import Handler


Told = TypeVar("Told", Receipt, Answer)


class WasCancelled(Exception):
    """A coroutine function awaited what was cancelled."""


class AsyncDelays:
    """`Delays`, with methods that are awaited; the same arguments, the same answers, the same errors.

    Requests may be sent side by side; cancels and replaces are answered one after the other. `db` is an asynchronous
    connection of psycopg or asyncpg, and need not be opened for.
    """

    def __init__(self, bootstrap: str | None = None, topic: str = "delays", **options: Any) -> None:
        self._make = partial(Delays, bootstrap, topic, **options)
        self._delays: Delays | None = None
        self._rows = Delays(None, topic, clock=options.get("clock"))  # what it would write, without a Kafka
        self._handlers = Handlers(base_settings(bootstrap or "", options.get("settings") or {}), topic)
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._delays = await asyncio.to_thread(self._make)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._delays is not None:
            await asyncio.to_thread(self._delays.close)

    async def send(self, target: str, value: Text | None, **options: Any) -> Receipt:
        """See `Delays.send`."""
        if (db := options.pop("db", None)) is not None:
            return await self._in_transaction(self._rows.send, db, target, value, **options)
        return await asyncio.to_thread(self._open().send, target, value, **options)

    async def every(self, target: str, value: Text | None, **options: Any) -> Receipt:
        """See `Delays.every`."""
        return await asyncio.to_thread(self._open().every, target, value, **options)

    async def cancel(self, which: str | Receipt, **options: Any) -> Answer:
        """See `Delays.cancel`."""
        if (db := options.pop("db", None)) is not None:
            return await self._in_transaction(self._rows.cancel, db, which, **options)
        return await asyncio.to_thread(self._open().cancel, which, **options)

    async def replace(self, which: str | Receipt, target: str, value: Text | None, **options: Any) -> Answer:
        """See `Delays.replace`."""
        if (db := options.pop("db", None)) is not None:
            return await self._in_transaction(self._rows.replace, db, which, target, value, **options)
        return await asyncio.to_thread(self._open().replace, which, target, value, **options)

    def handler(
        self, topic: str, *, group: str | None = None, waits: Sequence[Duration] = WAITS
    ) -> Callable[[Function], Function]:
        """See `Delays.handler`; the function is a coroutine function, and there is no `database`."""
        return self._handlers.decorator(topic, group, None, waits, is_async=True)

    async def run(self) -> None:
        """Call the handlers until `stop` is called, SIGTERM comes (see `Delays.run`) or the task is cancelled: those of one
        topic one after the other, those of several topics side by side. It need not be opened."""
        self._ended = asyncio.Event()
        works = [self._work(worker) for worker in self._handlers.workers()]
        loop = asyncio.get_running_loop()
        with sigterm_heard(lambda number, frame: loop.call_soon_threadsafe(self.stop)):
            for error in await asyncio.gather(*works, return_exceptions=True):
                if error is not None:
                    raise error

    def stop(self) -> None:
        """Have `run` return when the functions that are running have; in the loop's thread."""
        self._ended.set()

    async def _work(self, worker: HandlerWorker) -> None:
        with ThreadPoolExecutor(1) as alone:  # whatever is cancelled, a consumer is in one call at a time
            call = partial(asyncio.get_running_loop().run_in_executor, alone)
            try:
                while not self._ended.is_set():
                    try:
                        handler = await call(worker.handler)
                        if (message := await call(handler.take, POLL_S)) is not None:
                            await call(handler.end, message, await _called(handler, message))
                            worker.backoff.succeeded()
                    except LOST as error:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._ended.wait(), await call(worker.lost, error))
            finally:
                self._ended.set()  # what ends one ends all
                await call(worker.close)

    async def _in_transaction(self, call: Callable[..., Told], db: Any, *arguments: Any, **options: Any) -> Told:
        caught = CaughtRow()
        told = call(*arguments, **options, db=caught)
        number = await write_awaited(db, caught.row)
        return told._replace(offset=number) if isinstance(told, Receipt) else told

    def _open(self) -> Delays:
        if self._delays is None:
            raise RuntimeError("open it first: async with AsyncDelays(...) as delays")
        return self._delays


async def _called(handler: Handler, message: Any) -> Exception | None:
    """What the function raised, if it did; to be cancelled is its failure if nobody cancels the task that it runs in."""
    try:
        return await handler.awaited(message)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        return WasCancelled("what it awaited was cancelled")
