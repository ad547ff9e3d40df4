"""What nearly every test over all wheels begins with: a wheel of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def wheel(make: Callable[[], Any]) -> Any:
    """Ticks of 1 from 0; `make` is one of WHEELS, or of ARRAY_WHEELS."""
    return make()
