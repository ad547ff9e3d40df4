"""What nearly every test over all drivers begins with: a driver of its own, and a diary of what ran."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timer.timers import Diary, Make, by_hand


@pytest.fixture
def timer(make: Make) -> Any:
    """A driver at zero of a ManualClock; `make` is one of DRIVERS."""
    return by_hand(make)


@pytest.fixture
def diary(timer: Any) -> Diary:
    return Diary(timer)
