"""Where the exception of an operation's callable goes.

Rule 1: an `on_error` that fails is told to Python's hook, never to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waterclock.timer.report import tell_python

OnError = Callable[[Exception, Any], Any]


def report(on_error: OnError | None, error: Exception, op: object) -> None:
    """To `on_error(error, op)`; without one to `sys.unraisablehook`.

    >>> report(lambda error, op: print(repr(error), op), KeyError("gone"), "an operation")
    KeyError('gone') an operation
    """
    if on_error is None:
        tell_python(error)
        return
    try:
        on_error(error, op)
    except Exception as failure:
        tell_python(failure)
