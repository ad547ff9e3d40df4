# cython: language_level=3, binding=False, auto_pickle=False
"""The lock of lock.py in a few instructions, for steps that are themselves hardly longer than a system lock takes.

Rule 1: the fields are read and written under the interpreter's lock, which no line here gives up but one.
Rule 2: who finds the lock held waits at the gate, and tries again when it was opened. Whoever lets go opens the gate
    if any thread waits. So a waiter that is overtaken is woken again: the one that overtook it opens the gate too.
"""

cimport cython
from cpython.pythread cimport (
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
)

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define INTERPRETER_HAS_A_LOCK 0
    #else
    #define INTERPRETER_HAS_A_LOCK 1
    #endif
    """
    bint INTERPRETER_HAS_A_LOCK


@cython.final
cdef class Lock:
    """Re-entrant; `me()` is the ident of the calling thread."""

    def __cinit__(self):
        self.gate = PyThread_allocate_lock()
        if self.gate == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.gate, WAIT_LOCK)

    def __dealloc__(self):
        if self.gate != NULL:
            if not self.open:
                PyThread_release_lock(self.gate)
            PyThread_free_lock(self.gate)

    cpdef bint acquire(self):
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.depth and self.owner != me:
            self.wait()
        self.owner = me
        self.depth += 1
        return True

    cdef void wait(self) noexcept:
        self.waiting += 1
        while self.depth:
            with nogil:
                PyThread_acquire_lock(self.gate, WAIT_LOCK)
            self.open = False
        self.waiting -= 1

    cpdef void release(self) except *:
        if not self.depth or self.owner != <unsigned long>PyThread_get_thread_ident():
            raise RuntimeError("cannot release a lock that this thread does not hold")
        self.depth -= 1
        if self.waiting and not self.depth and not self.open:
            self.open = True
            PyThread_release_lock(self.gate)

    cpdef unsigned long me(self):
        return PyThread_get_thread_ident()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


if not INTERPRETER_HAS_A_LOCK:
    raise ImportError("this interpreter has no lock of its own for Lock to build on; Python's RLock serves")
