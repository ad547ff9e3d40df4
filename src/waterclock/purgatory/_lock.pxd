from cpython.pythread cimport PyThread_type_lock

cdef class Lock:
    cdef PyThread_type_lock gate
    cdef unsigned long owner
    cdef Py_ssize_t depth, waiting
    cdef bint open
    cpdef bint acquire(self)
    cpdef void release(self) except *
    cpdef unsigned long me(self)
    cdef void wait(self) noexcept
