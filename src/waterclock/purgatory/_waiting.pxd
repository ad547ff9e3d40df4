# The types with which waiting.py is compiled; nothing is defined here.
cimport cython

@cython.final
cdef class Waker:
    cdef object _loop, _predicate
    cdef unsigned long _thread
    cdef readonly object woken
