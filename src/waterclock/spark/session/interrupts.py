"""Ctrl-C and SIGTERM while Spark works: seen at once, reported once, and no traceback of the gateway between.

A signal handler that raises would do so in the middle of a call to the JVM, whose client logs a traceback and loses its
connection. So the handler only notes the signal; the call runs in a thread of its own, and the main thread looks.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_LOOK_EVERY_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted:
    """True once a signal came; a context in which signals are noted and do nothing else.

    Outside of the main thread, where Python sets no handlers, it is a context that never notes anything.
    """

    def __init__(self) -> None:
        self._came = False
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self._came

    def __enter__(self) -> Interrupted:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True


def call(work: Callable[[], Any], stop: Callable[[], Any]) -> None:
    """Run `work` to its end; on a signal, `stop` what it waits for and raise KeyboardInterrupt. Raises what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="waterclock-spark", daemon=True)
    with Interrupted() as interrupted:
        thread.start()
        while thread.is_alive() and not interrupted:
            thread.join(_LOOK_EVERY_S)
        if interrupted:
            stop()
            thread.join()
            raise KeyboardInterrupt
    if failures:
        raise failures[0]
