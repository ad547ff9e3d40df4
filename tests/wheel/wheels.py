"""Every implementation of the wheel, and what the suites over all of them share.

Rule 1: a test over all wheels takes `make`, from `pytest.mark.parametrize("make", WHEELS)`.
Rule 2: the contract is one suite, `test_wheel_contract_*.py`; a new wheel joins it, whole, with one more entry in WHEELS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from waterclock.wheel import COMPILED, reference

WHEELS = [pytest.param(reference.TimingWheel, id="reference")]
if COMPILED:
    from waterclock.wheel import _objects

    WHEELS.append(pytest.param(_objects.TimingWheel, id="compiled"))

Make = Callable[..., Any]


def nothing() -> None:
    pass


def fill(wheel: Any, *deadlines: int) -> list[int]:
    """Timers at these deadlines; the list returned fills with the deadlines as they run."""
    ran: list[int] = []
    for deadline in deadlines:
        wheel.add_at(deadline, lambda deadline=deadline: ran.append(deadline))
    return ran
