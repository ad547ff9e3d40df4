"""`Broker`: Kafka's protocol on this machine, from the inside of a Python process or of `waterclock broker`.

Rule 1: the broker lives in a thread of its own, with its own loop; every method here may be called from any thread.
Rule 2: without a folder its data lies in a temporary one, and goes with it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from waterclock.broker.core import Core
from waterclock.broker.settings import Settings
from waterclock.clock import ManualClock, SystemClock, WallClock

T = TypeVar("T")


class Broker:
    """A broker on `host:port` (0: any free port) with its data in the folder `data` (None: temporary).

    `settings` are Kafka's, by Kafka's names, as text. Under a `ManualClock` time stands still until `advance_s`.
    `UsageError` for a setting that cannot be; `DataInUse` where another broker has the folder; `LogDamaged`.

    >>> with Broker() as broker:
    ...     broker.bootstrap.split(":")[0]
    '127.0.0.1'
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        clock: WallClock | None = None,
    ) -> None:
        self._settings = Settings(settings)
        self._data, self._host, self._port = data, host, port
        self._clock: WallClock = clock if clock is not None else SystemClock()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap.servers."""
        return f"{self._host}:{self._port}"

    def start(self) -> Broker:
        """Open the data and let clients in."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="waterclock-broker-")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="broker", daemon=True)
        self._thread.start()
        started.result()
        return self

    def close(self) -> None:
        """Put everything onto the disk and stop; a second time does nothing."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # it has stopped by itself
                loop.call_soon_threadsafe(self._stop.set)
            thread.join()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def advance_s(self, duration_s: float) -> None:
        """Turn the broker's `ManualClock`, and have everything happen that is due by then."""
        if not isinstance(self._clock, ManualClock):
            raise TypeError("time can be turned for a broker with clock=ManualClock() only")
        self.call(lambda: self._core.timer.advance(duration_s))

    def call(self, deed: Callable[[], T]) -> T:
        """Run `deed` in the broker's thread; what it returns or raises."""
        loop, future = self._loop, Future[T]()
        if loop is None:
            raise RuntimeError("the broker is not running")
        loop.call_soon_threadsafe(_settle, future, deed)
        return future.result()

    def _run(self, started: Future[None]) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        folder = str(self._data) if self._temporary is None else self._temporary.name
        self._stop = asyncio.Event()
        try:
            loop = asyncio.get_running_loop()
            self._core = Core(loop, folder, self._host, self._port, Settings(self._settings.given), self._clock, _die)
            self._port = self._core.listener.port
            self._core.open()
            self._loop = loop
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stop.wait()
        self._core.close()


def _settle(future: Future[Any], deed: Callable[[], Any]) -> None:
    try:
        future.set_result(deed())
    except BaseException as error:
        future.set_exception(error)


def _die(error: OSError) -> None:
    """A flush failed: the cache may be clean and the disk not, so nothing that this process says counts any more."""
    os.write(2, f"waterclock broker: a flush failed, the process ends: {error}\n".encode())
    os._exit(1)
