"""SIGINT (Ctrl-C) and SIGTERM (a container's stop): one way for all that runs until it is stopped.

Rule 1: both mean the same. Where nothing is under way that has to be finished, KeyboardInterrupt is raised; where something
        is, the signal is noted, and heard between two steps.
Rule 2: a handler that a program has set itself is left alone, by what is called inside of a program.
Rule 3: outside of the main thread, where Python sets no handlers, nothing is changed.
Rule 4: a handler takes no lock: the thread that it interrupts may hold it, and would wait for itself for ever.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Heard = Callable[[int, FrameType | None], object]


@contextmanager
def heard(how: Heard = signal.default_int_handler, numbers: tuple[signal.Signals, ...] = SIGNALS) -> Iterator[None]:
    """These signals do this; without `how` they raise KeyboardInterrupt."""
    before = dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, how) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) == how:  # nobody has set another one meanwhile
                signal.signal(number, handler)


@contextmanager
def sigterm_heard(how: Heard) -> Iterator[None]:
    """SIGTERM does this, where it would end the process. Rule 2."""
    kills = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with heard(how, (signal.SIGTERM,) if kills else ()):
        yield


@contextmanager
def interrupt_heard(how: Heard) -> Iterator[None]:
    """Ctrl-C does this, where it would raise KeyboardInterrupt. Rule 2."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with heard(how, (signal.SIGINT,) if raises else ()):
        yield


class StopEvent(threading.Event):
    """An event that one thread waits for, and that a handler may set, once: the `set` of Python's own takes a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._came = False
        self._woken = queue.SimpleQueue[None]()  # whose `put` may interrupt all of it

    def is_set(self) -> bool:
        return self._came

    def set(self) -> None:
        self._came = True
        self._woken.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._came:
            with suppress(queue.Empty):
                self._woken.get(timeout=timeout)
        return self._came


class StopSignal:
    """True once a signal came, and a context in which signals are noted, and do nothing else. With `second_raises` another
    signal raises KeyboardInterrupt."""

    def __init__(self, *, second_raises: bool = False) -> None:
        self._came = False
        self._second_raises = second_raises
        self._hearing: AbstractContextManager[None] = nullcontext()

    def __bool__(self) -> bool:
        return self._came

    def __enter__(self) -> StopSignal:
        self._hearing = heard(self._note)
        self._hearing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hearing.__exit__(*error)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self._second_raises:
            self._came = True
            return
        if self._came:
            raise KeyboardInterrupt
        self._came = True
        if sys.stderr.isatty():
            print("\r\x1b[Kwaterclock: ending; once more ends it at once", file=sys.stderr, flush=True)
