"""Waiting for a condition instead of for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.01


def until(condition: Callable[[], T], within_s: float = 20.0) -> T:
    """The first true value of `condition`; AssertionError where there is none in time."""
    deadline_s = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"did not come true within {within_s:.0f} s; the last value was {value!r}"
        time.sleep(PAUSE_S)
    return value
