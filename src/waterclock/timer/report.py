"""Where the errors of callbacks go: to `on_error`, else to Python's own hook. Nothing raised ends a driver.

The purgatory's errors go the same way, with the operation beside the error.

Rule 1: an `on_error` that fails is reported to Python's hook, never back to itself.
"""

from __future__ import annotations

from collections.abc import Callable

OnError = Callable[[BaseException], object]


def hand_to_python(error: BaseException) -> None:
    """Hand `error` to `sys.unraisablehook`, with its traceback.

    The hook takes a type that only the interpreter can make, and it makes one for what a destructor raises.
    """
    _Unraisable(error)


class _Unraisable:
    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def report(on_error: Callable[..., object] | None, error: BaseException, *about: object) -> None:
    """To `on_error(error, *about)`; without one to `sys.unraisablehook`.

    >>> report(lambda error, op: print(repr(error), op), KeyError("gone"), "an operation")
    KeyError('gone') an operation
    """
    if on_error is None:
        hand_to_python(error)
        return
    try:
        on_error(error, *about)
    except Exception as failure:
        hand_to_python(failure)


class Report:
    """Counts the errors of callbacks and passes each on.

    >>> seen: list[BaseException] = []
    >>> report = Report(seen.append)
    >>> report(KeyError("gone")), seen, report.failed
    (None, [KeyError('gone')], 1)
    """

    __slots__ = ("_on_error", "failed")

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self.failed = 0

    def __call__(self, error: BaseException) -> None:
        self.failed += 1
        report(self._on_error, error)
