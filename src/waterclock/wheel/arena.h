/* Memory of the compiled wheel: blocks for buckets, and an arena for timer handles.
 *
 * A handle is 64 bytes, one cache line, and lives for one timer. The arena cuts blocks into such slots and
 * keeps the free ones on a stack: the last one freed is the next one given, still warm in the cache, and
 * the one to be given a dozen allocations later is fetched ahead. Blocks are never handed back: memory for
 * handles stays at its peak. The stack has no lock, so free-threaded builds use Python's own allocator.
 */
#ifndef WATERCLOCK_ARENA_H
#define WATERCLOCK_ARENA_H

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <limits.h>
#include <Python.h>

#define prefetchw(p) __builtin_prefetch((p), 1)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { HANDLE = 64, BLOCK = 2 << 20, AHEAD = 12 };

/* A block of n bytes aligned to 256 (the size of a chunk), or to a huge page when it fills one. */
static void *block_new(size_t n) {
    void *p = aligned_alloc(n >= BLOCK ? BLOCK : 4096, n);
#ifdef MADV_HUGEPAGE
    if (p != NULL && n >= BLOCK)
        madvise(p, n, MADV_HUGEPAGE); /* advice: that it may fail costs speed only */
#endif
    return p;
}

static char *arena_next, *arena_end; /* what is left of the newest block */
static void **arena_stack;           /* free slots */
static size_t arena_free_slots, arena_room;

static void *arena_slot(void) {
    if (likely(arena_free_slots > 0)) {
        void *slot = arena_stack[--arena_free_slots];
        if (arena_free_slots > AHEAD)
            prefetchw(arena_stack[arena_free_slots - AHEAD]);
        return slot;
    }
    if (arena_next == arena_end) {
        char *block = (char *)block_new(BLOCK);
        if (block == NULL)
            return NULL;
        arena_next = block;
        arena_end = block + BLOCK;
    }
    arena_next += HANDLE;
    return arena_next - HANDLE;
}

static PyObject *arena_alloc(PyTypeObject *type, Py_ssize_t n) {
    PyObject *handle = (PyObject *)arena_slot();
    (void)n;
    if (unlikely(handle == NULL))
        return PyErr_NoMemory();
    memset(handle, 0, HANDLE);
    Py_SET_TYPE(handle, type);
    Py_SET_REFCNT(handle, 1);
    return handle;
}

static void arena_free(void *slot) {
    if (unlikely(arena_free_slots == arena_room)) {
        size_t room = arena_room * 2 + 4096;
        void **stack = (void **)realloc(arena_stack, room * sizeof(void *));
        if (stack == NULL)
            return; /* 64 bytes lost rather than a crash while freeing */
        arena_stack = stack;
        arena_room = room;
    }
    arena_stack[arena_free_slots++] = slot;
}

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
