"""What the drivers' compiled half needs of the compiled wheel: its steps, without a call of Python and its numbers.

Rule 1: `wheel` is what `is_wheel` says yes to. The handle may be anything.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

cdef bint is_wheel(object thing) noexcept
cdef object add_to(object wheel, int64_t deadline, object callback, PyObject *argument)
cdef int move_within(object wheel, object handle, int64_t deadline, int64_t *before) except -1
