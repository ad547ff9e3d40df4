"""Both array wheels, and what the suites over them share.

Rule 1: a test over both takes `make`, from `pytest.mark.parametrize("make", ARRAY_WHEELS)`.
Rule 2: arrays go in as array.array, so that the suites run with NumPy and without.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from waterclock.wheel import plain_arrays

ARRAY_WHEELS = [pytest.param(plain_arrays.ArrayWheel, id="plain")]
try:
    from waterclock.wheel import _arrays

    ARRAY_WHEELS.append(pytest.param(_arrays.ArrayWheel, id="compiled"))
    ARRAYS_COMPILED = True
except ImportError:
    ARRAYS_COMPILED = False

Make = Callable[..., Any]


def row(*numbers: int) -> array[int]:
    return array("q", numbers)


def schedule(wheel: Any, *deadlines: int) -> list[int]:
    """The ids of timers at these deadlines."""
    ids: list[int] = wheel.schedule(row(*deadlines)).tolist()
    return ids


def cancel(wheel: Any, *ids: int) -> list[bool]:
    return [bool(done) for done in wheel.cancel(row(*ids))]


def advance(wheel: Any, now: int, limit: int | None = None) -> list[int]:
    """The deadlines that come out."""
    deadlines: list[int] = wheel.advance(now, limit)[1].tolist()
    return deadlines
