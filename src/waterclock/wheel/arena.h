/* What the compiled wheel needs of Python's object machinery: handles from a slab, the collector, whole numbers.
 *
 * A handle is 64 bytes, one cache line, and lives for one timer. Handles of all wheels share one slab, under the
 * interpreter's lock; free-threaded builds use Python's own allocator.
 */
#ifndef WATERCLOCK_ARENA_H
#define WATERCLOCK_ARENA_H

#include <limits.h>
#include <Python.h>

#include "slab.h"

enum { HANDLE_SHIFT = 6, HANDLE = 1 << HANDLE_SHIFT };

static Slab arena = {.shift = HANDLE_SHIFT};

static PyObject *arena_alloc(PyTypeObject *type, Py_ssize_t n) {
    PyObject *handle = (PyObject *)slab_take(&arena);
    (void)n;
    if (unlikely(handle == NULL))
        return PyErr_NoMemory();
    memset(handle, 0, HANDLE);
    Py_SET_TYPE(handle, type);
    Py_SET_REFCNT(handle, 1);
    return handle;
}

static void arena_free(void *handle) { slab_give(&arena, handle); }

/* The lock of free-threaded builds, held while a structure is looked at or changed, never while Python code may run.
 * There is one for all wheels: a handle may outlive its wheel, so the lock of the wheel would not be there to take. */
#ifdef Py_GIL_DISABLED
static PyMutex structures;
static inline void lock(void) { PyMutex_Lock(&structures); }
static inline void unlock(void) { PyMutex_Unlock(&structures); }
#else
static inline void lock(void) {}
static inline void unlock(void) {}
#endif

/* The handle around an entry, which stands right behind the object's head. */
#define HANDLE_OF(entry) ((PyObject *)((char *)(entry) - sizeof(PyObject)))

/* Give the handle type the arena; false when a handle does not fit a slot. */
static int use_arena(PyObject *type) {
#ifdef Py_GIL_DISABLED
    (void)arena_alloc;
    (void)arena_free;
    return 1;
#else
    PyTypeObject *t = (PyTypeObject *)type;
    if (t->tp_basicsize > HANDLE || t->tp_itemsize != 0)
        return 0;
    t->tp_alloc = arena_alloc;
    t->tp_free = arena_free;
    return 1;
#endif
}

/* The collector's two slots of the wheel type. Cython writes them for members that are Python objects;
 * timers are raw pointers in buckets, so the wheel has functions of its own, which call Cython's too. */
static traverseproc traverse_members;
static inquiry clear_members;

static void use_collector(PyObject *type, traverseproc traverse, inquiry clear) {
    PyTypeObject *t = (PyTypeObject *)type;
    traverse_members = t->tp_traverse;
    clear_members = t->tp_clear;
    t->tp_traverse = traverse;
    t->tp_clear = clear;
}

/* Where a whole number does not fit 64 bits, it lies beyond any time we know: the ends of the range stand
 * for it. */
static long long saturated(PyObject *value, int *failed) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (unlikely(overflow))
        return overflow > 0 ? LLONG_MAX : LLONG_MIN;
    if (unlikely(number == -1 && PyErr_Occurred()))
        *failed = 1;
    return number;
}

static long long saturated_sum(long long a, long long b) {
    long long sum;
    if (unlikely(__builtin_add_overflow(a, b, &sum)))
        return a > 0 ? LLONG_MAX : LLONG_MIN;
    return sum;
}

/* For Cython: raises the exception that is already set. */
static int raise_set(void) { return -1; }

#endif
