# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: always_allow_keywords=False, binding=False, auto_pickle=False, freethreading_compatible=True
# cython: embedsignature=True, embedsignature.format=clinic
"""adding.py, compiled: from the caller's seconds and the clock to the wheel without a number of Python's in between.

Rule 1: only what is ordinary goes the short way: the machine's clock or another, the compiled wheel with nothing before it,
    seconds that are a float or a whole number. All else is handed to the function of adding.py.
Rule 2: the same nanosecond comes out as there: one product and one sum, each rounded by itself (setup.py).
"""

cimport cython
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.ref cimport PyObject
from libc.math cimport floor
from libc.stdint cimport int64_t

from waterclock.wheel._objects cimport add_to, is_wheel, move_within

from functools import partial

from waterclock.clock import SystemClock
from waterclock.timer import adding as plain
from waterclock.timer.awaited import is_asynchronous, refused

cdef extern from "../clock.h":
    const bint MACHINE_CLOCK
    int64_t machine_now_ns() noexcept

cdef extern from "Python.h":
    bint PyFunction_Check(object)
    bint PyMethod_Check(object)
    PyObject *PyMethod_GET_FUNCTION(object)  # borrowed
    bint PyCFunction_Check(object)
    bint PyType_Check(object)

cdef extern from *:
    """
    #define IS_ASYNCHRONOUS(fn) ((((PyCodeObject *)PyFunction_GET_CODE(fn))->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0)
    /* A year of nanoseconds, and what a sum of it and any clock of ours is far from: 2**62. */
    #define ORDINARY_NS 3.2e16
    #define ORDINARY_MOMENT (INT64_C(1) << 61)
    """
    bint IS_ASYNCHRONOUS(object)
    const double ORDINARY_NS
    const int64_t ORDINARY_MOMENT

cdef object machine_clock = SystemClock.monotonic_ns
cdef object call_later = plain.Adder.call_later, add_and_look = plain.Adder.add_and_look, bound = plain.bound
cdef object deadline_in = plain.Adder.deadline_in, move_in = plain.Adder.move_in


cdef bint never_runs(fn) except -1:
    """awaited.py's `is_asynchronous`, for what most callbacks are without a call."""
    if PyMethod_Check(fn):
        fn = <object>PyMethod_GET_FUNCTION(fn)
    elif type(fn) is partial:
        return never_runs((<object>fn).func)
    if PyFunction_Check(fn):
        return IS_ASYNCHRONOUS(fn)
    return not PyCFunction_Check(fn) and not PyType_Check(fn) and is_asynchronous(fn)


cdef inline bint is_ordinary(delay_s, int64_t *ns) noexcept:
    """Whether the seconds are a number that C can take; and to the nearest nanosecond."""
    cdef double exact
    cdef int overflow = 0
    if PyFloat_CheckExact(delay_s):
        exact = PyFloat_AS_DOUBLE(delay_s) * 1e9
    elif PyLong_CheckExact(delay_s):
        exact = <double>PyLong_AsLongLongAndOverflow(delay_s, &overflow) * 1e9
        if overflow:
            return False
    else:
        return False
    if not -ORDINARY_NS < exact < ORDINARY_NS:  # what is no number is not between them
        return False
    ns[0] = <int64_t>floor(exact + 0.5)
    return True


cdef class Adder:
    """How timers come into a driver and are moved in it; the driver itself is drive.py's."""

    cdef public int64_t _alarm_ns
    cdef public bint _refuses_asynchronous
    cdef object add, read          # what `_add` and `now_ns` were set to
    cdef object direct             # the wheel, where it is compiled and nothing stands before it; or None
    cdef bint by_machine           # whether `read` is the machine's clock, and C can read it

    @property
    def _add(self):
        return self.add

    @_add.setter
    def _add(self, add):
        owner = getattr(add, "__self__", None)  # of the wheel's own method it is the wheel
        self.direct = owner if is_wheel(owner) else None
        self.add = add

    @property
    def now_ns(self):
        return self.read

    @now_ns.setter
    def now_ns(self, read):
        self.by_machine = MACHINE_CLOCK and read is machine_clock
        self.read = read

    cdef inline int64_t now(self) except? -1:
        return machine_now_ns() if self.by_machine else <int64_t>self.read()

    cdef inline bint takes(self, delay_s, int64_t *deadline) except -1:
        """Whether the short way is open for so many seconds from now; and the deadline."""
        return self.direct is not None and self.counts(delay_s, deadline)

    cdef inline bint counts(self, delay_s, int64_t *deadline) except -1:
        if not is_ordinary(delay_s, deadline):
            return False
        deadline[0] += self.now()
        return -ORDINARY_MOMENT < deadline[0] < ORDINARY_MOMENT

    cdef inline object put(self, int64_t deadline, fn, PyObject *argument):
        handle = add_to(self.direct, deadline, fn, argument)
        if deadline < self._alarm_ns:
            self._look(handle, deadline)
        return handle

    def time(self):
        """Now, in the seconds that `call_at` and `when()` count in: the clock's, less what was spent in pause."""
        return self.now() / 1e9

    def call_later(self, delay_s, fn, /, *args):
        """Call `fn(*args)` once `delay_s` seconds have passed; zero or less means at the driver's next turn.

        `TimerClosed` after `close()`, `TimerFull` as `when_full` says, `ValueError` for a delay that is no number
        or ends more than 146 years after the clock's zero.
        """
        cdef int64_t deadline
        if self._refuses_asynchronous and never_runs(fn):
            raise refused(fn)
        if not self.takes(delay_s, &deadline):
            return call_later(self, delay_s, fn, *args)
        if not args:
            return self.put(deadline, fn, NULL)
        if len(args) == 1:
            return self.put(deadline, fn, <PyObject *>args[0])
        return self.put(deadline, partial(fn, *args) if callable(fn) else bound(fn, args), NULL)

    call_at = plain.Adder.call_at

    def add_and_look(self, deadline, fn, /, *argument):
        """For timers of the driver itself: no cap, no executor."""
        cdef int overflow = 0
        cdef int64_t moment = PyLong_AsLongLongAndOverflow(deadline, &overflow)
        if self.direct is None or overflow or not -ORDINARY_MOMENT < moment < ORDINARY_MOMENT or len(argument) > 1:
            return add_and_look(self, deadline, fn, *argument)
        return self.put(moment, fn, <PyObject *>argument[0] if argument else NULL)

    def deadline_in(self, delay_s, /):
        """The nanosecond of the driver's time that is `delay_s` seconds from now; `ValueError` as for `call_later`."""
        cdef int64_t deadline
        return deadline if self.counts(delay_s, &deadline) else deadline_in(self, delay_s)

    def move_in(self, handle, delay_s, /):
        """What `reschedule` of the handles in the wheel does, in their driver's unit."""
        cdef int64_t deadline, before
        if not self.takes(delay_s, &deadline):
            return move_in(self, handle, delay_s)
        if not move_within(self.direct, handle, deadline, &before):
            return False
        if deadline < self._alarm_ns:
            self._look_again(handle, deadline, before)
        return True

    move = plain.Adder.move
    _look_again = plain.Adder._look_again


@cython.final
cdef class WayBack:
    """What a wheel knows of its driver, which it must not keep alive: the handles' `reschedule`."""

    cdef object driver

    def __init__(self, driver):
        self.driver = driver

    def reschedule(self, handle, delay_s, /):
        driver = self.driver()
        return driver is not None and driver.move_in(handle, delay_s)


cdef class Touch:
    """When something happened last, in its driver's time: what an `IdleTimeout` notes and no more."""

    cdef public Adder _drive
    cdef public int64_t _touched_ns

    def touch(self):
        """Something happened: count from now on."""
        self._touched_ns = self._drive.now()
