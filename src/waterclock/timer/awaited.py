"""Callbacks that are to be awaited: a driver's loop runs them, and a thread's driver refuses them.

    a coroutine function        of an AsyncTimer each call is a task; of a Timer it is a TypeError if it is handed over
    another callable that       of an AsyncTimer a task; of a Timer an error, which is reported, and what was returned is
    returns an awaitable        closed: without a loop it would never run

Rule 1: what is seen before a call is refused before it; the rest is seen by what the call returns. Nothing is lost without
    a word.
Rule 2: an asynchronous generator is no callback: nobody would ask it for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from typing import Any, Protocol, TypeGuard

from waterclock.timer.report import Report

Then = Callable[[], object]


class Taker(Protocol):
    """What a driver does with what its callbacks return."""

    def take(self, returned: object, then: Then | None = None) -> None: ...


def is_asynchronous(fn: Any) -> bool:
    """Whether a call of it only makes a coroutine or an asynchronous generator.

    >>> async def work() -> None: ...
    >>> is_asynchronous(work), is_asynchronous(partial(work)), is_asynchronous(print)
    (True, True, False)
    """
    while isinstance(fn, partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    of_its_type = getattr(type(fn), "__call__", None)  # noqa: B004  what an object that can be called runs
    code = getattr(fn, "__code__", None) or getattr(of_its_type, "__code__", None)
    return code is not None and bool(code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))


def is_awaitable(returned: object) -> TypeGuard[Awaitable[Any]]:
    """Whether what a callback returned is still to be awaited."""
    return hasattr(type(returned), "__await__")


def refused(fn: Any) -> TypeError:
    return TypeError(
        f"a Timer runs its callbacks in a thread, where nobody awaits {fn!r}: use an AsyncTimer, or hand it to a loop, "
        "asyncio.run_coroutine_threadsafe"
    )


def unawaited(returned: object) -> TypeError | None:
    """The error of a callback that returned what nobody will await, which is closed.

    None for anything else; for a future, too, which goes on by itself.
    """
    if not is_awaitable(returned) or hasattr(returned, "add_done_callback"):
        return None
    error = TypeError(f"a callback returned {returned!r}, and there is no loop here that awaits it")
    close = getattr(returned, "close", None)
    if close is not None:
        close()
    return error


class NoLoop:
    """What a Timer does with what its callbacks return."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def take(self, returned: object, then: Then | None = None) -> None:
        """Report what would have to be awaited as an error; then go on."""
        if (error := unawaited(returned)) is not None:
            self._report(error)
        if then is not None:
            then()
