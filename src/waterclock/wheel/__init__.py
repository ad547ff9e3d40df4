"""The timing wheel: ticks in, expired timers out. Compiled where it was built, else in plain Python."""

import warnings

from waterclock.wheel.records import WheelStatistics

__all__ = ["COMPILED", "ReferenceWheelWarning", "Timer", "TimingWheel", "WheelStatistics"]


class ReferenceWheelWarning(RuntimeWarning):
    """The compiled wheel is not there; the plain Python one works the same, many times slower."""


try:
    from waterclock.wheel._objects import Timer, TimingWheel

    COMPILED: bool = True
except ImportError as error:
    from waterclock.wheel.reference import Timer, TimingWheel  # type: ignore[assignment]

    COMPILED = False
    warnings.warn(
        f"the compiled timing wheel is missing ({error}); the reference wheel does the same, slower. "
        "To get it, install a C compiler and then waterclock again from source, "
        "or run `python setup.py build_ext --inplace` in a source tree.",
        ReferenceWheelWarning,
        stacklevel=2,
    )
