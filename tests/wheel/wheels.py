"""Every implementation of the wheel, and what the suites over all of them share.

Rule 1: a test over all wheels takes `make`, from `pytest.mark.parametrize("make", WHEELS)`, or from SIZED.
Rule 2: the contract is one suite, `test_contract_*.py`; a new wheel joins it, whole, with one more entry in WHEELS.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from waterclock.wheel import COMPILED, reference

WHEELS = [pytest.param(reference.TimingWheel, id="reference")]
if COMPILED:
    from waterclock.wheel import _objects

    WHEELS.append(pytest.param(_objects.TimingWheel, id="compiled"))

# the same, made with levels of several sizes where a test does not say which
SIZED = [
    *WHEELS,
    *(pytest.param(partial(wheel.values[0], slots=(60, 60, 12)), id=f"{wheel.id}-mixed") for wheel in WHEELS),
]

Make = Callable[..., Any]


def nothing() -> None:
    pass


def fill(wheel: Any, *deadlines: int) -> list[int]:
    """Timers at these deadlines; the list returned fills with the deadlines as they run."""
    ran: list[int] = []
    for deadline in deadlines:
        wheel.add_at(deadline, lambda deadline=deadline: ran.append(deadline))
    return ran
