"""Buckets in use, from C to Python."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

cdef extern from "occupancy.h":
    ctypedef struct Used:
        uint32_t level, slot, live


cdef inline list listed(Used *used, uint32_t count):
    """As (level, bucket, timers); gives the memory back, and is a MemoryError where there was none."""
    if used == NULL:
        raise MemoryError
    try:
        return [(used[i].level, used[i].slot, used[i].live) for i in range(count)]
    finally:
        free(used)
