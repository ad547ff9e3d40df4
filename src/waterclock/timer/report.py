"""Where the errors of callbacks go: to `on_error`, else to Python's own hook. Nothing raised ends a driver.

The purgatory's errors go the same way, with the operation beside the error.

Rule 1: an `on_error` that fails is reported to Python's hook, never back to itself.
"""

from __future__ import annotations

from collections.abc import Callable

OnError = Callable[[BaseException], object]


def hand_to_python(error: BaseException, of: str) -> None:
    """Hand `error` to `sys.unraisablehook`, with its traceback, as what a callback of `of` raised.

    The hook takes a type that only the interpreter can make, and it makes one for what a destructor raises. What it says
    in front of the traceback is how that destructor looks.
    """
    _Unraisable(_Destructor(error, described(error, of)))


def described(error: BaseException, of: str) -> str:
    """The callback by its name, if the traceback goes through a function of somebody else's; and whose callback it is."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "waterclock":
        trace = trace.tb_next
    return f"a callback of {of}" if trace is None else f"the callback {trace.tb_frame.f_code.co_qualname} of {of}"


class _Destructor:
    __slots__ = ("_error", "_looks")

    def __init__(self, error: BaseException, looks: str) -> None:
        self._error, self._looks = error, looks

    def __call__(self) -> None:
        raise self._error

    def __repr__(self) -> str:
        return self._looks


class _Unraisable:
    __slots__ = ("_destructor",)

    def __init__(self, destructor: _Destructor) -> None:
        self._destructor = destructor

    @property
    def __del__(self) -> _Destructor:
        return self._destructor


def report(on_error: Callable[..., object] | None, of: str, error: BaseException, *about: object) -> None:
    """To `on_error(error, *about)`; without one to `sys.unraisablehook`, as of `of`.

    >>> report(lambda error, op: print(repr(error), op), "a Purgatory", KeyError("gone"), "an operation")
    KeyError('gone') an operation
    """
    if on_error is None:
        hand_to_python(error, of)
        return
    try:
        on_error(error, *about)
    except Exception as failure:
        hand_to_python(failure, f"{of}, its on_error")


class Report:
    """Counts the errors of callbacks and passes each on.

    >>> seen: list[BaseException] = []
    >>> report = Report(seen.append, "a Timer")
    >>> report(KeyError("gone")), seen, report.failed
    (None, [KeyError('gone')], 1)
    """

    __slots__ = ("_of", "_on_error", "failed")

    def __init__(self, on_error: OnError | None, of: str) -> None:
        self._on_error, self._of = on_error, of
        self.failed = 0

    def __call__(self, error: BaseException) -> None:
        self.failed += 1
        report(self._on_error, self._of, error)
