"""What is handed to a purgatory, and what is wrong with it: the sentences, out of the way of the code that is hot."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from waterclock.errors import PurgatoryClosed
from waterclock.timer.awaited import unawaited
from waterclock.timer.units import MOST_S


def as_several(keys: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """The keys, at least one.

    >>> as_several(["a", "b"])
    ('a', 'b')
    """
    if type(keys) is not list and isinstance(keys, str | bytes):
        raise TypeError(f"keys must be a list or tuple of keys, got the one key {keys!r}: write [{keys!r}]")
    several = tuple(keys)
    if not several:
        raise ValueError("keys must hold at least one key: without one an operation could only expire")
    return several


def as_timeout(timeout_s: Any) -> float | None:
    """The timeout in seconds, a finite number or None.

    >>> as_timeout(2), as_timeout(None)
    (2, None)
    """
    if timeout_s is None:
        return None
    try:
        within = -MOST_S < timeout_s < MOST_S
    except TypeError:
        raise TypeError(f"timeout_s must be a number of seconds or None, got {timeout_s!r}") from None
    if not within:
        raise ValueError(
            f"timeout_s must be a finite number of seconds, or None to wait for ever, within 146 years, got {timeout_s}"
        )
    return timeout_s  # type: ignore[no-any-return]


def answered(answer: Any) -> bool:
    """What a `try_complete` that did not say True has said; `TypeError` for a coroutine, which would be a yes."""
    if (error := unawaited(answer)) is not None:
        raise error
    return bool(answer)


def not_callable(**callables: Any) -> TypeError:
    """For the first of these arguments that cannot be called."""
    name, value = next((name, value) for name, value in callables.items() if not callable(value))
    return TypeError(f"{name} must be callable with the operation as its argument, got {value!r}")


def no_operation(op: Any) -> TypeError:
    return TypeError(f"op must be a DelayedOperation, got {op!r}")


def used(op: Any) -> ValueError:
    return ValueError(f"op was handed to a purgatory before, and an operation is used once: make a new one; got {op!r}")


def closed(name: str) -> PurgatoryClosed:
    return PurgatoryClosed(f"the purgatory {name!r} was closed and takes no operation any more: make a new one")
