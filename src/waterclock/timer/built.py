"""The drivers' short path, compiled if it was built, else plain: adding.py says what both do."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Adder", "Touch", "WayBack"]

if TYPE_CHECKING:
    from waterclock.timer.adding import Adder, Touch, WayBack
else:
    try:
        from waterclock.timer._adding import Adder, Touch, WayBack
    except ImportError:
        from waterclock.timer.adding import Adder, Touch, WayBack
