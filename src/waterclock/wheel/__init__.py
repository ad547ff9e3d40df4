"""The timing wheel: ticks in, expired timers out. Compiled where it was built, else in plain Python."""

import warnings
from typing import TYPE_CHECKING, Any

from waterclock.wheel.statistics import WheelStatistics

__all__ = ["COMPILED", "ArrayWheel", "ReferenceWheelWarning", "TimerHandle", "TimingWheel", "WheelStatistics"]

if TYPE_CHECKING:
    from waterclock.wheel._arrays import ArrayWheel
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
    """The wheels on first use: a program that never uses one gets no warning about it."""
    if name == "ArrayWheel":
        globals()[name] = _array_wheel()
    elif name in ("TimingWheel", "TimerHandle"):
        if not COMPILED:
            warnings.warn(_MISSING, ReferenceWheelWarning, stacklevel=2)
        globals().update(TimingWheel=_wheel.TimingWheel, TimerHandle=_wheel.TimerHandle)
    else:
        raise AttributeError(f"module 'waterclock.wheel' has no attribute {name!r}")
    return globals()[name]


def _array_wheel() -> Any:
    try:
        from waterclock.wheel import _arrays

        return _arrays.ArrayWheel
    except ImportError:
        from waterclock.wheel import plain_arrays

        warnings.warn(_MISSING, ReferenceWheelWarning, stacklevel=3)
        return plain_arrays.ArrayWheel


_MISSING = (
    "the compiled timing wheel is missing; the reference wheel does the same, slower. To get it, install a C compiler "
    "and then waterclock again from source, or run `python setup.py build_ext --inplace` in a source tree."
)
