"""What the compiled wheel's C files offer to Cython; their comments say what each does."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from waterclock.wheel.occupancy cimport Used

cdef extern from "check.h":
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef int (*inquiry)(PyObject *) noexcept
    traverseproc traverse_members
    inquiry clear_members
    bint unlikely(bint) noexcept nogil
    bint use_arena(object) noexcept
    void use_collector(object, traverseproc, inquiry) noexcept
    object handle_new(object)
    bint is_callable(object) noexcept
    bint is_awaitable(PyObject *) noexcept
    void reserve_listen(object) noexcept
    int64_t saturated(object, int *) noexcept
    int64_t saturated_sum(int64_t, int64_t) noexcept
    int raise_set() except -1
    void lock() noexcept
    void unlock() noexcept
    int clz "__builtin_clzll"(unsigned long long) noexcept

    ctypedef struct Entry:
        void *callback
        void *argument
        int64_t deadline
        uint64_t tick
        Entry **place
    ctypedef struct Bucket:
        pass
    ctypedef struct Wheel:
        uint64_t cursor, now, used
        int64_t live, cancelled, cascaded, opened
        Bucket *firing
        int failed
        void *owner
    Wheel *wheel_around(const Entry *) noexcept
    ctypedef int (*EntryVisit)(Entry *, void *) noexcept

    PyObject *HANDLE_OF(Entry *) noexcept
    enum:
        MAX_LEVELS
    bint slab_tidy() noexcept
    int wheel_init(Wheel *, const uint32_t *, uint32_t) noexcept
    void wheel_free(Wheel *) noexcept
    int wheel_add(Wheel *, Entry *) noexcept
    void wheel_remove(Wheel *, Entry *) noexcept
    int wheel_move(Wheel *, Entry *, uint64_t, int64_t) noexcept
    Entry *wheel_take(Wheel *) noexcept
    void wheel_close(Wheel *) noexcept
    int wheel_each(Wheel *, EntryVisit, void *) noexcept
    int wheel_traverse(Wheel *, visitproc, void *) noexcept
    uint64_t wheel_soonest(Wheel *) noexcept
    uint32_t wheel_in_use(const Wheel *) noexcept
    Used *wheel_occupied(const Wheel *, uint32_t *) noexcept
    const char *wheel_check(Wheel *, bint, uint32_t *) noexcept
    Entry *wheel_empty(Wheel *) noexcept

cdef extern from "Python.h":
    PyObject *PyObject_CallNoArgs(object) noexcept
    PyObject *PyObject_CallOneArg(object, object) noexcept
    int PyList_Append(object, object) noexcept
    void Py_XDECREF(PyObject *) noexcept
    void Py_XINCREF(PyObject *) noexcept
