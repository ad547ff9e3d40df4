"""The numbers that a compiled wheel takes, checked; bounds.py has the same bounds for Python."""

from libc.stdint cimport int64_t

from waterclock.wheel.structure cimport raise_set, saturated

cdef extern from *:
    """
    #define MAX_TIME (INT64_C(1) << 62)
    #define MAX_TICK (INT64_C(1) << 61)
    #define MAX_NOW (MAX_TIME + MAX_TICK)
    """
    const int64_t MAX_TIME, MAX_TICK, MAX_NOW


cdef inline int64_t whole(str name, value, int64_t low, int64_t high) except? -1:
    cdef int failed = 0
    cdef int64_t number = saturated(value, &failed)
    if failed:
        raise_set()
    if not low <= number <= high:
        raise ValueError(f"{name} must lie within {low} and {high}, got {value}")
    return number
