# The types with which delayed.py is compiled; nothing is defined here.
cimport cython
from waterclock.purgatory._lock cimport Lock as CompiledLock
from waterclock.purgatory._completions cimport Completions as CompiledCompletions

@cython.final
cdef class DelayedOperation:
    cdef object __weakref__
    cdef object _try_complete, _on_complete, _on_expire, _timeout_s, _timeout, _outcome
    cdef Purgatory _purgatory
    cdef WatchList _place
    cdef unsigned long _holder
    cdef bint _again, _credit, _heard
    cpdef bint force_complete(self) except -1

@cython.final
cdef class WatchList:
    cdef object key
    cdef dict operations
    cdef Py_ssize_t longest
    @cython.locals(before=Py_ssize_t)
    cdef bint add(self, DelayedOperation op) except -1
    cdef void remove(self, DelayedOperation op) except *

@cython.final
cdef class Purgatory:
    cdef object __weakref__
    cdef object _name, _timer, _on_error
    cdef CompiledLock _lock
    cdef dict _lists, _over
    cdef bint _closed, _catching_up
    cdef Py_ssize_t _watched, _delayed, _asking
    cdef CompiledCompletions _completions
    cdef list _later
    @cython.locals(several=tuple, withdrawn=bint)
    cpdef bint try_complete_else_watch(self, DelayedOperation op, keys) except -1
    @cython.locals(op=DelayedOperation, completed=Py_ssize_t)
    cpdef Py_ssize_t check_and_complete(self, key) except -1
    @cython.locals(op=DelayedOperation)
    cpdef list cancel_for_key(self, key)
    cpdef Py_ssize_t watched_for(self, key) except -1
    @cython.locals(watch_list=WatchList)
    cpdef list fullest_keys(self, n=*)
    @cython.locals(op=DelayedOperation)
    cpdef list close(self)
    @cython.locals(watch_list=WatchList)
    cdef list _waiting(self)
    @cython.locals(op=DelayedOperation)
    cpdef void _after_fork(self) except *
    cdef void _take(self, DelayedOperation op) except *
    @cython.locals(watch_list=WatchList)
    cdef void _watch(self, DelayedOperation op, tuple keys) except *
    @cython.locals(watch_list=WatchList)
    cdef void _unwatch(self, DelayedOperation op) except *
    cdef bint _end(self, DelayedOperation op, object outcome) except -1
    @cython.locals(watch_list=WatchList)
    cdef list _watchers(self, object key)
    @cython.locals(me="unsigned long", again=bint, completed=bint)
    cdef bint _attempt(self, DelayedOperation op, bint heard) except -1
    cdef bint _takes(self, DelayedOperation op, unsigned long me, bint heard) except -1
    @cython.locals(again=bint)
    cdef bint _let_go(self, DelayedOperation op, Py_ssize_t asked) except -1
    @cython.locals(completed=bint)
    cdef bint _try(self, DelayedOperation op) except -1
    cdef void _start_timeout(self, DelayedOperation op, timeout_s) except *

cdef Purgatory _NOWHERE
cpdef _expire(DelayedOperation op)
