"""What goes into an array wheel and comes out of it: columns of 64-bit integers.

Rule 1: a column comes out as a NumPy array where NumPy is installed, else as array.array("q") and bytes.
Rule 2: NumPy is imported here, on first use, and nowhere else.
Rule 3: nothing is converted silently. 32-bit integers, floats and lists are a `TypeError`; only the layout is
    mended: what is not contiguous is copied.
"""

from __future__ import annotations

import sys
from array import array
from functools import cache
from typing import Any

from waterclock.wheel.bounds import MAX_TIME

_SIGNED, _UNSIGNED = ("q", "l", "n"), ("Q", "L", "N")
_NATIVE = "@=<" if sys.byteorder == "little" else "@=>!"


def integers(name: str, values: Any) -> memoryview:
    """The flat bytes of a column of 64-bit integers, as format "q"; a view where it can be, else a copy."""
    view = _column(name, values)
    flat = view if view.c_contiguous and view.format in (*_SIGNED, *_UNSIGNED) else memoryview(view.tobytes())
    return flat.cast("B").cast("q")


def ids(values: Any) -> memoryview:
    """As `integers`; what is beyond the signed ones turns negative, and no id is."""
    return integers("ids", values)


def deadlines(values: Any) -> memoryview:
    """As `integers`; an unsigned one that has no place among the signed ones lies beyond any deadline."""
    flat = integers("deadlines", values)
    if memoryview(values).format[-1] in _UNSIGNED and len(flat) and min(flat) < 0:
        raise beyond(min(flat) % 2**64)
    return flat


def beyond(deadline: int) -> ValueError:
    """The error for a deadline that no wheel takes."""
    return ValueError(f"deadlines must lie within {-MAX_TIME} and {MAX_TIME}, got {deadline}")


def column(numbers: list[int]) -> Any:
    """A column of integers, to be given out."""
    np = numpy()
    return array("q", numbers) if np is None else np.array(numbers, np.int64)


def truths(answers: list[bool]) -> Any:
    """A column of yes and no, to be given out."""
    np = numpy()
    return bytes(answers) if np is None else np.array(answers, np.bool_)


@cache
def numpy() -> Any:
    """NumPy, or None if it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _column(name: str, values: Any) -> memoryview:
    try:
        view = memoryview(values)
        if view.ndim == 1 and view.itemsize == 8 and view.format.lstrip(_NATIVE) in (*_SIGNED, *_UNSIGNED):
            return view
        found = f"{view.ndim} dimensions of format {view.format!r}"
    except (TypeError, ValueError, BufferError):  # NumPy exports no dates
        found = type(values).__name__
    raise TypeError(
        f"{name} must be one row of 64-bit integers, as a NumPy array of int64 or another buffer, got {found}"
    )
