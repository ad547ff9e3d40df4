"""The functions of a program that are called with what is delivered: `Delays.handler`, `Delays.run`.

Rule 1: each topic has a thread, and a consumer, of its own: a function that is slow holds up its own topic alone. To have
        one topic's messages handled side by side, start the program several times.
Rule 2: whatever is lost while it runs is connected to again, after a pause that grows. What cannot be at the start, or is
        refused, is an error.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from waterclock.clock import SystemClock
from waterclock.durations import Duration
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.patience import RECONNECTING_S, Backoff
from waterclock.outside import threading
from waterclock.relay.handlers.retries import Retries
from waterclock.signals import sigterm_heard

if TYPE_CHECKING:
    from waterclock.relay.handlers.handler import Handler, HandlerOptions

log = logging.getLogger("waterclock.relay")
Function = TypeVar("Function", bound=Callable[..., Any])
LOST: Final = (ConnectionLost, EnvironmentMissing)
POLL_S: Final = 0.2


class HandlerWorker:
    """One function's handler, made again when it is lost."""

    def __init__(self, settings: Mapping[str, Any], relay: str, options: HandlerOptions) -> None:
        self._settings = settings
        self._relay = relay
        self._options = options
        self._handler: Handler | None = None
        self._has_begun = False
        self.backoff = Backoff(RECONNECTING_S, SystemClock())

    def handler(self) -> Handler:
        """The handler, connected."""
        if self._handler is None:
            from waterclock.relay.handlers.handler import Handler

            try:
                self._handler = Handler(self._settings, self._relay, self._options, SystemClock())
            except UsageError as error:
                if not self._has_begun:
                    raise
                raise ConnectionLost(str(error)) from None  # it could be reached before
            self._has_begun = True
        return self._handler

    def step(self) -> None:
        """Wait a moment for a message, and handle it."""
        if self.handler().step(POLL_S):
            self.backoff.succeeded()

    def lost(self, error: WaterclockError) -> float:
        """Rule 2: let go; for how many seconds to wait. The error is raised if there was nothing to be lost yet."""
        if not self._has_begun:
            raise error
        log.warning("%s begins anew: %s", self._options.group, error)
        self.close()
        return self.backoff.failed()

    def close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.close()


class Handlers:
    """The functions by topic; `relay` is the input topic of the relay that delivers again."""

    def __init__(self, settings: Mapping[str, Any], relay: str) -> None:
        self._settings, self._relay = settings, relay
        self._all: list[HandlerOptions] = []
        self._ended = threading.Event()
        self._errors: list[BaseException] = []

    def decorator(
        self,
        topic: str,
        group: str | None,
        database: str | None,
        waits: Sequence[Duration],
        *,
        is_async: bool = False,
    ) -> Callable[[Function], Function]:
        """Takes a function and gives it back. ValueError for waits that are none, or a group that there is already."""
        from waterclock.relay.handlers.handler import HandlerOptions

        group = group or f"{topic}.handler"
        self._refuse_second(group)
        Retries(topic, topic, waits=waits)

        def add(function: Function) -> Function:
            if inspect.iscoroutinefunction(function) is not is_async:
                wanted = "an async def" if is_async else "a plain def (async def is for AsyncDelays)"
                raise TypeError(f"the handler of {topic} must be {wanted}, got {function}")
            self._refuse_second(group)  # the decorator may be used twice
            self._all.append(HandlerOptions(topic, function, group, database, tuple(waits)))
            return function

        return add

    def _refuse_second(self, group: str) -> None:
        if any(one.group == group for one in self._all):
            raise ValueError(f"there is a handler of the group {group} already: give this one another group=")

    def workers(self) -> list[HandlerWorker]:
        """One for each function; UsageError if there is none."""
        if not self._all:
            raise UsageError("There is no handler to run: write @delays.handler(TOPIC) above a function.")
        return [HandlerWorker(self._settings, self._relay, options) for options in self._all]

    def run(self) -> None:
        """Until `stop`, Ctrl-C or SIGTERM; what ended one of them ends all, and is raised."""
        self._ended.clear()
        self._errors.clear()
        threads = [threading.Thread(target=self._work, args=(worker,)) for worker in self.workers()]
        stopped = list[int]()  # an Event must not be set by a handler of its own thread
        with sigterm_heard(lambda number, frame: stopped.append(number)):
            for thread in threads:
                thread.start()
            try:
                while not stopped and not self._ended.wait(POLL_S):
                    pass
            except KeyboardInterrupt:
                pass
            finally:
                self.stop()
                for thread in threads:
                    thread.join()
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        self._ended.set()

    def _work(self, worker: HandlerWorker) -> None:
        try:
            while not self._ended.is_set():
                try:
                    worker.step()
                except LOST as error:
                    self._ended.wait(worker.lost(error))
        except BaseException as error:
            self._errors.append(error)
            self.stop()
        finally:
            worker.close()
