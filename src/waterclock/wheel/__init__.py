"""The timing wheel: ticks in, expired timers out. Compiled where it was built, else in plain Python."""

import warnings
from typing import TYPE_CHECKING, Any

from waterclock.wheel.records import WheelStatistics

__all__ = ["COMPILED", "ReferenceWheelWarning", "TimerHandle", "TimingWheel", "WheelStatistics"]

if TYPE_CHECKING:
    from waterclock.wheel._objects import TimerHandle, TimingWheel


class ReferenceWheelWarning(RuntimeWarning):
    """The compiled wheel is not there; the plain Python one works the same, many times slower."""


try:
    from waterclock.wheel import _objects as _wheel

    COMPILED = True
except ImportError:
    from waterclock.wheel import reference as _wheel  # type: ignore[no-redef]

    COMPILED = False


def __getattr__(name: str) -> Any:
    """`TimingWheel` and `TimerHandle` on first use: who never uses a wheel is not told which one it would have been."""
    if name not in ("TimingWheel", "TimerHandle"):
        raise AttributeError(f"module 'waterclock.wheel' has no attribute {name!r}")
    if not COMPILED:
        warnings.warn(_MISSING, ReferenceWheelWarning, stacklevel=2)
    globals().update(TimingWheel=_wheel.TimingWheel, TimerHandle=_wheel.TimerHandle)
    return globals()[name]


_MISSING = (
    "the compiled timing wheel is missing; the reference wheel does the same, slower. To get it, install a C compiler "
    "and then waterclock again from source, or run `python setup.py build_ext --inplace` in a source tree."
)
