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

/* What the interpreter pushes one by one, GCC would load in one piece, and so wait for both to arrive: 3 to 5 ns a call. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

enum { HANDLE_SHIFT = 6, HANDLE = 1 << HANDLE_SHIFT };

static Slab arena = {.shift = HANDLE_SHIFT};

/* Its last word is where Python keeps its weak references. */
enum { WEAK_REFERENCES = HANDLE - (int)sizeof(PyObject *) };

/* A handle that is not written to beyond its head, and its last word: the wheel fills it at once. */
static inline PyObject *arena_take(PyTypeObject *type) {
    PyObject *handle = (PyObject *)slab_take(&arena);
    if (unlikely(handle == NULL))
        return PyErr_NoMemory();
    Py_SET_TYPE(handle, type);
    Py_SET_REFCNT(handle, 1);
    *(PyObject **)((char *)handle + WEAK_REFERENCES) = NULL;
    return handle;
}

/* For those that Python asks for. */
static PyObject *arena_alloc(PyTypeObject *type, Py_ssize_t n) {
    PyObject *handle = arena_take(type);
    (void)n;
    if (handle != NULL)
        memset((char *)handle + sizeof(PyObject), 0, HANDLE - sizeof(PyObject));
    return handle;
}

/* Python's, called where the reserve has begun to hold what is to go back; see slab.h. It runs in a destructor. */
static PyObject *reserve_listener;

static void reserve_listen(PyObject *listener) {
    Py_INCREF(listener);
    Py_XSETREF(reserve_listener, listener);
}

static void reserve_tell(void) {
    PyObject *type, *value, *trace, *done;
    reserve_began = 0;
    if (reserve_listener == NULL)
        return;
    PyErr_Fetch(&type, &value, &trace);
    done = PyObject_CallNoArgs(reserve_listener);
    if (done == NULL)
        PyErr_WriteUnraisable(reserve_listener);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

static void arena_free(void *handle) {
    slab_give(&arena, handle);
    if (unlikely(reserve_began))
        reserve_tell();
}

/* For the wheel: without the way through tp_new. */
static inline PyObject *handle_new(PyObject *type) {
#ifdef Py_GIL_DISABLED
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
#else
    return arena_take((PyTypeObject *)type);
#endif
}

/* The lock of free-threaded builds, held while a structure is looked at or changed, never while Python code may run.
 * There is one for all wheels: a handle may outlive its wheel, so the lock of the wheel would not be there to take. */
#ifdef Py_GIL_DISABLED
static PyMutex structures;
static inline void lock(void) { PyMutex_Lock(&structures); }
static inline void unlock(void) {
    PyMutex_Unlock(&structures);
    if (unlikely(reserve_began))
        reserve_tell();
}
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
    (void)arena_take;
    return 1;
#else
    PyTypeObject *t = (PyTypeObject *)type;
    if (t->tp_basicsize != HANDLE || t->tp_itemsize != 0 || t->tp_weaklistoffset != WEAK_REFERENCES)
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

/* As PyCallable_Check, without the call. */
static inline int is_callable(PyObject *value) { return Py_TYPE(value)->tp_call != NULL; }

/* Whether something is to be awaited: a coroutine, a future, whatever has `__await__`. */
static inline int is_awaitable(PyObject *value) {
    const PyAsyncMethods *of = Py_TYPE(value)->tp_as_async;
    return of != NULL && of->am_await != NULL;
}

/* Whether a whole number is a small one, which is read where it stands. Most delays are. */
static inline int is_small(PyObject *value, long long *number) {
    if (unlikely(!PyLong_CheckExact(value)))
        return 0;
#if PY_VERSION_HEX >= 0x030C0000
    if (unlikely(!PyUnstable_Long_IsCompact((PyLongObject *)value)))
        return 0;
    *number = PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
    if (unlikely(Py_SIZE(value) != 1))
        return 0;
    *number = ((PyLongObject *)value)->ob_digit[0];
#endif
    return 1;
}

/* Where a whole number does not fit 64 bits, it lies beyond any time we know: the ends of the range stand
 * for it. */
static long long saturated_any(PyObject *value, int *failed) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (unlikely(overflow))
        return overflow > 0 ? LLONG_MAX : LLONG_MIN;
    if (unlikely(number == -1 && PyErr_Occurred()))
        *failed = 1;
    return number;
}

static inline long long saturated(PyObject *value, int *failed) {
    long long number;
    return likely(is_small(value, &number)) ? number : saturated_any(value, failed);
}

static inline long long saturated_sum(long long a, long long b) {
    long long sum;
    if (unlikely(__builtin_add_overflow(a, b, &sum)))
        return a > 0 ? LLONG_MAX : LLONG_MIN;
    return sum;
}

/* For Cython: raises the exception that is already set. */
static int raise_set(void) { return -1; }

#endif
