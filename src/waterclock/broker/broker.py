"""`Broker`: Kafka's protocol on this machine, from the inside of a Python process or of `waterclock broker`.

Rule 1: the broker lives in a thread of its own, with its own loop; every method here may be called from any thread.
Rule 2: without a folder its data lies in a temporary one, and goes with it.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from waterclock.broker.api.faults import Faults
from waterclock.broker.core import Core
from waterclock.broker.follower import Follower
from waterclock.broker.roles import Roles
from waterclock.broker.security.access import Access
from waterclock.broker.settings import Settings
from waterclock.broker.statistics import BrokerStatistics
from waterclock.broker.wire.codec import import_kio
from waterclock.clock import ManualClock, SystemClock, WallClock
from waterclock.errors import UsageError
from waterclock.outside import os, threading
from waterclock.web.dial import Dial, dial_of

T = TypeVar("T")
log = logging.getLogger("waterclock.broker")


class Broker:
    """A broker on `host:port` (0: any free port) with its data in the folder `data` (None: temporary).

    `settings` are Kafka's, by Kafka's names, as text. `access` says who may connect, and how; without it: everybody on this
    machine. Under a `ManualClock` time stands still until `advance_s`.
    `UsageError` for a setting that cannot be; `DataInUse` if another broker has the folder; `LogDamaged`.

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
        follow: str | None = None,
        access: Access | None = None,
    ) -> None:
        self._changed_over = threading.Event()
        self._when_failed: Callable[[], object] = _nothing
        access = access if access is not None else Access()
        access.check(host, follow)
        self._data = data
        self._clock: WallClock = clock if clock is not None else SystemClock()
        self._roles = Roles("", host, port, Settings(settings), access, self._clock, self._taken, follow)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._faults: Faults | None = None

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap.servers."""
        return f"{self._roles.host}:{self._roles.port}"

    def start(self) -> Broker:
        """Open the data and let clients in."""
        import_kio()
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="waterclock-broker-")
        started: Future[None] = Future()
        folder = str(self._data) if self._temporary is None else self._temporary.name
        self._roles = roles = replace(self._roles, folder=folder, stopping=False, power_is_cut=False)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started, roles)), name="broker", daemon=True
        )
        self._thread.start()
        try:
            started.result()
        except Exception:
            self._clean_up()
            raise
        return self

    def _clean_up(self) -> None:
        """Wait for the thread, and take the temporary folder away."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()

    def close(self) -> None:
        """Put everything onto the disk and stop; a second time does nothing."""
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(RuntimeError):  # it has stopped by itself
                loop.call_soon_threadsafe(self._roles.stop)
        self._clean_up()

    def cut_power(self) -> None:
        """End as a power cut would: clients are dropped, and what was not on the disk yet is gone. Then `start()` again.

        UsageError if the broker has no folder of its own to start from.
        """
        if self._temporary is not None:
            raise UsageError("cut_power would leave nothing to start from: give the broker a folder, Broker(data=...)")
        if self._loop is None:
            raise self._not_running()
        self._roles.power_is_cut = True
        self.close()

    @property
    def faults(self) -> Faults:
        """Faults on purpose; RuntimeError while the broker is not running."""
        if self._loop is None or self._faults is None:
            raise self._not_running()
        return self._faults

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """A new topic, there and durable when this returns.

        UsageError if the name is not legal or not free, or a setting cannot be; OSError if the topic was refused, or the
        broker ended before it could be known to be kept.
        """
        if not self._answered(
            lambda end: self.inside.topics.checked_create(name, partitions, settings or {}, end), False
        ):
            raise OSError(
                f"topic {name!r} could not be kept: the disk refused it, too few replicas are in sync, or the broker ended"
            )

    def _answered(self, ask: Callable[[Callable[[T], None]], object], ended: T, wait_s: float | None = None) -> T:
        """What `end` is called with, which `ask(end)` hands to the role; `ended` if that, or the wait, is over before."""
        answer: Future[T] = Future()

        def begin() -> None:
            role = self._present()

            def end(value: T) -> None:
                role.over.remove_done_callback(over)
                if not answer.done():
                    answer.set_result(value)

            def over(_: object) -> None:
                end(ended)

            ask(end)
            role.over.add_done_callback(over)

        self.call(begin)
        with suppress(TimeoutError):
            return answer.result(wait_s)
        return ended

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def advance_s(self, duration_s: float) -> None:
        """Turn the broker's `ManualClock`, and have everything happen that is due by then.

        A disk that takes longer than a second for it is not waited for.
        """
        if not isinstance(self._clock, ManualClock):
            raise TypeError("time can be turned for a broker with clock=ManualClock() only")
        self.call(lambda: self._present().timer.advance(duration_s))
        worker = self._present().worker  # what takes long is with it already
        self._answered(lambda end: worker.do(lambda: None, lambda _: end(None)), None, wait_s=1)

    def statistics(self) -> BrokerStatistics:
        """What the broker did so far, and what waits now: cheap enough for every second."""
        return self.call(lambda: self._present().statistics())

    def dials(self) -> dict[str, Dial]:
        """The wheel behind every wait of the broker, as the console draws it."""
        return {"timers": self.call(lambda: dial_of(self._present().timer))}

    def call(self, deed: Callable[[], T]) -> T:
        """Run `deed` in the broker's thread; what it returns or raises."""
        loop, future = self._loop, Future[T]()
        if loop is None:
            raise self._not_running()

        def run() -> None:
            try:
                future.set_result(deed())
            except BaseException as error:
                future.set_exception(error)

        loop.call_soon_threadsafe(run)
        return future.result()

    # The parts, for tests

    @property
    def inside(self) -> Core:
        """A leader's parts by name: topics, store, listener, flusher, groups, transactions, replicas, upkeep and more.

        For tests of the broker itself: what is in here may change with every version. It is read in the broker's thread,
        by `call`: `broker.call(lambda: broker.inside.topics.by_name)`. UsageError if the broker follows another.
        """
        role = self._present()
        if isinstance(role, Core):
            return role
        raise UsageError(f"the broker at {self.bootstrap} follows another: ask its leader, or promote it")

    @property
    def inside_follower(self) -> Follower:
        """A follower's parts by name, as `inside` has a leader's: replica, fetcher, store, listener.

        UsageError if the broker leads.
        """
        role = self._present()
        if isinstance(role, Follower):
            return role
        raise UsageError(f"the broker at {self.bootstrap} follows nobody: it is the leader already")

    def _present(self) -> Core | Follower:
        """The role that it has just now, or had when it ended."""
        if self._roles.present is None:
            raise self._not_running()
        return self._roles.present

    def _not_running(self) -> RuntimeError:
        if self._failure is not None:
            return RuntimeError(f"the broker has ended: {self._failure}")
        return RuntimeError("the broker is not running: start() it, or use it in a with statement")

    # Who leads

    @property
    def leads(self) -> bool:
        """Whether it is a leader now, or follows another broker."""
        return isinstance(self._roles.present, Core)

    @property
    def failure(self) -> BaseException | None:
        """What ended it by itself; None while it runs, and if it was closed."""
        return self._failure

    def when_failed(self, deed: Callable[[], object]) -> None:
        """Call `deed` in the broker's thread if the broker ends by itself; `failure` then says why."""
        self._when_failed = deed

    def promote(self, *, unclean: bool = False) -> None:
        """Make a follower the leader, which it is when this returns.

        UsageError if it is one already, or has copied nothing yet: `unclean` makes even that one a leader, and
        everything that it lacks is lost.
        """
        role = self.inside_follower
        self._changed_over.clear()
        if self.call(lambda: role.promote(unclean)):
            raise UsageError(f"the broker at {self.bootstrap} has copied nothing yet: there is nothing to lead with")
        self._changed_over.wait()
        if self._failure is not None:
            raise self._not_running() from self._failure

    def _taken(self, role: Core | Follower) -> None:
        """It leads or follows from now on."""
        self._faults = Faults(self.call, role.table, role.topics, role.freezer, role.timer)
        self._changed_over.set()

    async def _serve(self, started: Future[None], roles: Roles) -> None:
        """Take roles until the end; a failure after the start is remembered and told."""
        try:
            await roles.begin()
            self._loop = asyncio.get_running_loop()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            await roles.run()
        except Exception as error:
            log.error("the broker ends: %s", error)
            self._failure, self._loop = error, None
            self._changed_over.set()
            try:
                await self._present().close()
            except Exception as second:  # what ended it may be in the way of closing it too
                log.error("the broker that ends cannot be closed: %s", second)
            self._when_failed()


def _nothing() -> None:
    """Nobody wants to hear of a failure."""
