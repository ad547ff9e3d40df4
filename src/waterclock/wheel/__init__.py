"""The timing wheel: ticks in, expired timers out. Compiled where it was built, else in plain Python."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from waterclock.wheel.statistics import WheelStatistics

__all__ = ["COMPILED", "ArrayWheel", "ReferenceWheelWarning", "TimerHandle", "TimingWheel", "WheelStatistics"]

if TYPE_CHECKING:
    from waterclock.wheel._arrays import ArrayWheel
    from waterclock.wheel._objects import TimerHandle, TimingWheel


QUIET_S = 1.0
"""How long the compiled wheel keeps memory for the next burst: slab.h."""


class ReferenceWheelWarning(RuntimeWarning):
    """The compiled wheel is not there; the plain Python one works the same, many times slower."""


try:
    from waterclock.wheel import _objects as _wheel

    COMPILED = True
    _refused = None
except ImportError as error:
    from waterclock.wheel import reference as _wheel  # type: ignore[no-redef]

    COMPILED = False
    _refused = error


def tidy() -> bool:
    """Give memory of bursts back that no burst took again for `QUIET_S` seconds; whether there is more that will be."""
    return COMPILED and _wheel._tidy()


def tell_when_spare(listener: Callable[[], object]) -> None:
    """Have `listener()` called, by a destructor, when there begins to be something that `tidy` will give back."""
    if COMPILED:
        _wheel._when_spare(listener)


def __getattr__(name: str) -> Any:
    """The wheels on first use: a program that never uses one gets no warning about it."""
    if name == "ArrayWheel":
        globals()[name] = _array_wheel()
    elif name in ("TimingWheel", "TimerHandle"):
        if not COMPILED:
            warnings.warn(_why_plain("_objects", _refused), ReferenceWheelWarning, stacklevel=2)
        globals().update(TimingWheel=_wheel.TimingWheel, TimerHandle=_wheel.TimerHandle)
    else:
        raise AttributeError(f"module 'waterclock.wheel' has no attribute {name!r}")
    return globals()[name]


def _array_wheel() -> Any:
    try:
        from waterclock.wheel import _arrays

        return _arrays.ArrayWheel
    except ImportError as error:
        from waterclock.wheel import plain_arrays

        warnings.warn(_why_plain("_arrays", error), ReferenceWheelWarning, stacklevel=3)
        return plain_arrays.ArrayWheel


def _why_plain(module: str, refused: ImportError | None) -> str:
    """Not built, or there and refused, as by an interpreter with a lock of its own."""
    try:
        built = find_spec(f"waterclock.wheel.{module}") is not None
    except ImportError:
        built = False
    return _UNLOADABLE.format(refused) if built else _MISSING


_UNLOADABLE = (
    "the compiled timing wheel cannot be loaded here ({}); the reference wheel does the same, slower. Compiled modules are "
    "for the main interpreter of a process, and for the Python that they were built for."
)
_MISSING = (
    "the compiled timing wheel is missing; the reference wheel does the same, slower. To get it, install a C compiler "
    "and then waterclock again from source, or run `python setup.py build_ext --inplace` in a source tree."
)
