/* The clock of clock.py in C, for compiled code that cannot pay for a call of Python at each timer.
 *
 * Rule 1: it is the very clock that `time.monotonic_ns()` reads. Where C has no such way to it, MACHINE_CLOCK is 0,
 *         nothing here is called, and Python is asked.
 * Rule 2: no other file of C or Cython reads a clock.
 */
#ifndef WATERCLOCK_CLOCK_H
#define WATERCLOCK_CLOCK_H

#include <Python.h>
#include <stdint.h>

#if PY_VERSION_HEX >= 0x030D0000
#define MACHINE_CLOCK 1
static inline int64_t machine_now_ns(void) {
    PyTime_t now;
    return PyTime_MonotonicRaw(&now) < 0 ? 0 : (int64_t)now;
}
#elif defined(__linux__)
#include <time.h>
#define MACHINE_CLOCK 1
static inline int64_t machine_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* with a clock that is there it cannot fail */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#else
#define MACHINE_CLOCK 0
static inline int64_t machine_now_ns(void) { return 0; }
#endif

#endif
