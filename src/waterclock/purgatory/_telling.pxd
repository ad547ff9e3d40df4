# The types with which telling.py is compiled; nothing is defined here.
cimport cython
from waterclock.purgatory._lock cimport Lock as CompiledLock

@cython.final
cdef class Teller:
    cdef CompiledLock _lock
    cdef object _on_error, _told
    cdef unsigned long _first
    cdef dict _others
    cpdef void tell(self, unsigned long me, object op, object on_complete, object on_expire) except *
    @cython.locals(told=tuple)
    cdef void _tell_rest(self, unsigned long me) except *
    cdef void _tell(self, object op, object on_complete, object on_expire) except *
    cdef tuple _next(self, unsigned long me)
    cdef void _ends(self, unsigned long me) except *
