# The types with which completions.py is compiled; nothing is defined here.
cimport cython
from waterclock.purgatory._lock cimport Lock as CompiledLock

@cython.final
cdef class Completions:
    cdef CompiledLock _lock
    cdef object _on_error, _queue
    cdef unsigned long _first
    cdef dict _others
    cpdef void run(self, unsigned long me, object op, object on_complete, object on_expire) except *
    @cython.locals(completion=tuple)
    cdef void _run_rest(self, unsigned long me) except *
    cdef void _run(self, object op, object on_complete, object on_expire) except *
    cdef void _call(self, object op, object deed) except *
    cdef tuple _next(self, unsigned long me)
    cdef void _ends(self, unsigned long me) except *
