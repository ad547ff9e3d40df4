cimport cython

@cython.final
cdef class DelayedOperation:
    cdef object __weakref__
    cdef object _try_complete, _on_complete, _on_expire, _timeout_s, _timeout, _outcome, _holder
    cdef Purgatory _purgatory
    cdef tuple _keys
    cpdef bint force_complete(self) except -1
    cdef bint _again, _credit

@cython.final
cdef class WatchList:
    cdef dict operations
    cdef Py_ssize_t longest
    cdef void add(self, DelayedOperation op) except *
    cdef Py_ssize_t remove(self, DelayedOperation op) except -1

cdef class Purgatory:
    cdef object __weakref__
    cdef str _name
    cdef object _timer, _on_error, _lock
    cdef dict _lists
    cdef bint _closed
    cdef Py_ssize_t _watched, _delayed, _completed, _expired, _cancelled
    cpdef bint try_complete_else_watch(self, DelayedOperation op, keys) except -1
    @cython.locals(op=DelayedOperation)
    cpdef Py_ssize_t check_and_complete(self, key) except -1
    @cython.locals(op=DelayedOperation)
    cpdef list cancel_for_key(self, key)
    @cython.locals(watch_list=WatchList)
    cpdef Py_ssize_t watched_for(self, key) except -1
    @cython.locals(watch_list=WatchList,op=DelayedOperation)
    cpdef list close(self)
    cdef bint _take(self, DelayedOperation op) except -1
    @cython.locals(watch_list=WatchList)
    cdef void _watch(self, DelayedOperation op, tuple keys) except *
    @cython.locals(watch_list=WatchList)
    cdef void _unwatch(self, DelayedOperation op) except *
    cdef bint _end(self, DelayedOperation op, object outcome) except -1
    cdef void _count(self, object outcome) except *
    @cython.locals(watch_list=WatchList)
    cdef list _watchers(self, object key)
    cdef bint _withdraw(self, DelayedOperation op) except -1
    cdef bint _attempt(self, DelayedOperation op) except -1
    cdef bint _let_go(self, DelayedOperation op, object holder) except -1
    cdef bint _try(self, DelayedOperation op) except -1
    cdef void _start_timeout(self, DelayedOperation op) except *
    cdef object _run(self, object fn, DelayedOperation op)
    cdef void _report(self, object error, DelayedOperation op) except *
cdef Purgatory _NOWHERE
cpdef _expire(DelayedOperation op)
