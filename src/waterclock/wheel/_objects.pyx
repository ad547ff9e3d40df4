# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: always_allow_keywords=False, binding=False, auto_pickle=False, freethreading_compatible=True
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled timing wheel: promises and interface of reference.py, with another structure underneath.

The structure stands in buckets.h and turn.h, in C without Python; memory in arena.h. Here are the objects.

Rule 1: the wheel owns the handles that wait, and their callbacks. Handles are unknown to the garbage
    collector (that alone is a factor of twenty at a million); the wheel shows it their callbacks instead.
Rule 2: a handle borrows its wheel, and a wheel that goes ends its timers first: a callback means a wheel.
Rule 3: a reference is given up only when the structure is whole, for giving it up can run any code.
Rule 4: a signature that is no Python literal stands at the head of its docstring, as CPython writes its own.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from waterclock.wheel.bounds cimport MAX_NOW, MAX_TICK, MAX_TIME, whole
from waterclock.wheel.occupancy cimport Used, listed
from waterclock.wheel.structure cimport *  # all of it: the file is there for this one

from operator import attrgetter

from waterclock.wheel.bounds import sizes_of
from waterclock.wheel.occupancy import by_level
from waterclock.wheel.pictures import not_copied, of_handle, of_wheel
from waterclock.wheel.statistics import WheelStatistics

cdef enum:
    CANCELLED = 1                  # in the tick of an entry that waits no more

cdef object NONE = object()        # no argument was given


cdef inline PyObject *given(argument) noexcept:
    return NULL if argument is NONE else <PyObject *>argument


@cython.final
@cython.no_gc
cdef class TimerHandle:
    """The handle of one waiting callback; made by `TimingWheel.add` and `add_at` only."""

    cdef Entry entry               # callback and argument are owned, and NULL once the timer waits no more
    cdef object __weakref__        # the last word of the 64 bytes

    def __init__(self):
        raise TypeError("timers are made by TimingWheel.add and add_at")

    @property
    def deadline(self):
        """When it was asked to run, in the caller's unit, not rounded."""
        return self.entry.deadline

    @property
    def pending(self):
        """Whether it still waits: neither run nor cancelled. False inside its own callback."""
        return self.entry.callback != NULL

    def when(self):
        """The deadline in seconds, for a wheel that counts nanoseconds, as the drivers' do."""
        return self.entry.deadline / 1e9

    def cancelled(self):
        """Whether it was cancelled; False while it waits and after it ran."""
        lock()
        cdef bint was = self.entry.callback == NULL and self.entry.tick == CANCELLED
        unlock()
        return was

    def cancel(self):
        """Take it out in O(1). True once, and then it never runs; else False: it ran or was cancelled."""
        lock()
        cdef PyObject *callback = <PyObject *>self.entry.callback
        cdef PyObject *argument = <PyObject *>self.entry.argument
        if callback == NULL:
            unlock()
            return False
        cdef Wheel *wheel = wheel_around(&self.entry)
        wheel_remove(wheel, &self.entry)
        wheel.cancelled += 1
        self.entry.callback = self.entry.argument = NULL
        self.entry.tick = CANCELLED
        unlock()
        Py_DECREF(self)
        Py_DECREF(<object>callback)
        Py_XDECREF(argument)
        return True

    def reschedule(self, delay, /):
        """Move it to `delay` from the wheel's now, behind timers already added for that tick.

        False when it ran or was cancelled. An error leaves it where it was. Where a driver turns the wheel, `delay`
        is in the driver's unit, from its own now.
        """
        wheel = wheel_of(self)
        if wheel is None:
            return False
        if (<TimingWheel>wheel)._reschedule is not None:
            return (<TimingWheel>wheel)._reschedule(self, delay)
        return (<TimingWheel>wheel).move(self, (<TimingWheel>wheel).after(delay))

    def __repr__(self):
        wheel = wheel_of(self)
        lock()
        waiting = None if self.entry.callback == NULL else <object><PyObject *>self.entry.callback
        unlock()
        return of_handle(self, waiting, wheel is not None and (<TimingWheel>wheel)._reschedule is not None)

    def __reduce__(self):
        raise not_copied(self)


# Not a method: handles have no space for a table of methods.
cdef wheel_of(TimerHandle handle):
    """The wheel it waits in, or None."""
    lock()
    wheel = None if handle.entry.callback == NULL else <TimingWheel>wheel_around(&handle.entry).owner
    unlock()
    return wheel


@cython.final
cdef class TimingWheel:
    """TimingWheel(tick=1, start=0, *, slots=256, rounding="late")\n--\n
    Timers by tick; no clock, no thread, no lock: time comes in through `advance`.

    As reference.TimingWheel. Fastest where slots is one power of two for all levels; a level of another size divides.
    """

    cdef Wheel wheel
    cdef list errors               # of callbacks in this advance; being an object it has Cython make GC slots
    cdef public object _reschedule # a driver's, which has a unit of its own and a sleeper to wake; or None
    cdef public object _returned   # is given what a callback returned that is to be awaited; or None
    cdef int64_t clock, tick, base                 # base: the time of tick 0
    cdef int64_t round_up, fired
    cdef bint advancing

    def __cinit__(self, tick=1, start=0, *, slots=256, rounding="late"):
        if rounding not in ("late", "early"):
            raise ValueError(f"rounding must be 'late' or 'early', got {rounding!r}")
        self.tick = whole("tick", tick, 1, MAX_TICK)
        self.clock = whole("start", start, -MAX_TIME, MAX_TIME)
        self.rebase()
        self.round_up = self.tick - 1 if rounding == "late" else 0
        self.errors = []
        given = sizes_of(slots)[:MAX_LEVELS]       # no level lies above: 64 of two buckets are 2**64 ticks
        cdef uint32_t[MAX_LEVELS] sizes
        for level, size in enumerate(given):
            sizes[<int>level] = size
        if wheel_init(&self.wheel, sizes, len(given)) < 0:
            raise MemoryError
        self.wheel.owner = <void *><PyObject *>self

    def __dealloc__(self):
        let_go(self)
        lock()
        wheel_free(&self.wheel)
        unlock()

    cdef void rebase(self) noexcept:
        """Nothing waits: count ticks from now on, so that a short timer needs one level after a long rest."""
        # C's remainder takes the sign of the time; the floor of a negative one has to be made
        self.base = self.clock - (self.clock % self.tick + self.tick) % self.tick
        self.wheel.now = self.wheel.cursor = 0

    cdef inline uint64_t ticks(self, int64_t time) noexcept:
        """Whole ticks from base to time; unsigned, as two times of opposite sign may be 2**63 apart."""
        cdef uint64_t since = <uint64_t>time - <uint64_t>self.base
        # asked as == 1, GCC takes the question out and divides always
        return since if self.tick < 2 else since // <uint64_t>self.tick

    cdef inline uint64_t tick_of(self, int64_t deadline) noexcept:
        return self.wheel.now if deadline <= self.clock else self.ticks(deadline + self.round_up)

    cdef inline int64_t after(self, delay) except? -1:
        cdef int failed = 0
        cdef int64_t deadline = saturated_sum(self.clock, saturated(delay, &failed))
        if unlikely(failed):
            raise_set()
        if unlikely(deadline > MAX_TIME or deadline < -MAX_TIME):
            raise ValueError(
                f"deadline must lie within {-MAX_TIME} and {MAX_TIME}, got {self.clock} + {delay}"
            )
        return deadline

    cdef inline TimerHandle schedule(self, int64_t deadline, callback, PyObject *argument):
        if unlikely(not is_callable(callback)):
            raise TypeError(f"callback must be callable, got {callback!r}")
        cdef TimerHandle timer = <TimerHandle>handle_new(TimerHandle)
        timer.entry.callback = NULL
        timer.entry.deadline = deadline
        lock()
        if unlikely(self.wheel.live == 0) and self.wheel.firing == NULL:
            self.rebase()
        timer.entry.tick = self.tick_of(deadline)
        if unlikely(wheel_add(&self.wheel, &timer.entry) < 0):
            unlock()
            raise MemoryError
        Py_INCREF(callback)
        Py_INCREF(timer)
        Py_XINCREF(argument)
        timer.entry.argument = <void *>argument
        timer.entry.callback = <void *><PyObject *>callback
        unlock()
        return timer

    cdef bint move(self, TimerHandle timer, int64_t deadline) except -1:
        cdef int failed = 0
        lock()
        cdef bint here = timer.entry.callback != NULL and wheel_around(&timer.entry) == &self.wheel
        if here:
            failed = wheel_move(&self.wheel, &timer.entry, self.tick_of(deadline), deadline)
        unlock()
        if failed:
            raise MemoryError
        return here

    def _move(self, TimerHandle timer not None, deadline):
        """For a driver: as `reschedule`, to a deadline."""
        return self.move(timer, whole("deadline", deadline, -MAX_TIME, MAX_TIME))

    @property
    def now(self):
        """The latest `now` handed to `advance`, or `start`; inside a callback already the new one."""
        return self.clock

    def __len__(self):
        """How many timers wait."""
        return self.wheel.live

    @cython.embedsignature(False)
    def add(self, delay, callback, argument=NONE, /):
        """add($self, delay, callback, /, *argument)\n--\n
        Run `callback()`, or `callback(argument)` where one is given, once `delay` has passed since `now`.

        Zero or less means at the next `advance`. `ValueError` when the deadline lies beyond 2**62, `TypeError`
        for a delay that is no whole number.
        """
        return self.schedule(self.after(delay), callback, given(argument))

    @cython.embedsignature(False)
    def add_at(self, deadline, callback, argument=NONE, /):
        """add_at($self, deadline, callback, /, *argument)\n--\n
        As `add`, at `deadline`; at the next `advance` when that has passed."""
        return self.schedule(whole("deadline", deadline, -MAX_TIME, MAX_TIME), callback, given(argument))

    def advance(self, now, limit=None):
        """Run every timer due at `now`, in order, at most `limit`; returns how many. As reference.py."""
        cdef int64_t time = whole("now", now, -MAX_NOW, MAX_NOW)
        cdef int64_t budget = -1 if limit is None else whole("limit", limit, 0, MAX_NOW)
        if self.begin(time) == 0:
            return 0
        try:
            ran = self.turn(budget)
        except BaseException as stop:
            if self.errors:
                raise stop from self.group()
            raise
        finally:
            lock()
            wheel_close(&self.wheel)
            self.advancing = False
            unlock()
        if self.errors:
            raise self.group()
        return ran

    cdef int begin(self, int64_t time) except -1:
        """Move the clock; 0 when that would be back."""
        lock()
        slab_tidy()
        cdef bint running = self.advancing, back = time < self.clock
        if not running and not back:
            self.clock = time
            self.wheel.now = self.ticks(time)
            self.advancing = True
        unlock()
        if running:
            raise RuntimeError(
                "advance() called while advance() runs: from a callback add timers, or cancel them"
            )
        return not back

    cdef int64_t turn(self, int64_t budget) except -1:
        cdef int64_t ran = 0
        while ran != budget and self.run_next():
            ran += 1
        if self.wheel.failed:
            self.wheel.failed = 0
            raise MemoryError
        return ran

    cdef inline int run_next(self) except -1:
        cdef PyObject *argument
        cdef PyObject *result
        lock()
        cdef Entry *entry = wheel_take(&self.wheel)
        if entry == NULL:
            unlock()
            return 0
        timer = <object>HANDLE_OF(entry)
        callback = <object>entry.callback
        argument = <PyObject *>entry.argument
        entry.callback = entry.argument = NULL
        entry.tick = 0
        self.fired += 1
        unlock()
        Py_DECREF(timer)                           # the wheel's references; our own end with this function
        Py_DECREF(callback)
        if argument == NULL:
            result = PyObject_CallNoArgs(callback)
        else:
            result = PyObject_CallOneArg(callback, <object>argument)
            Py_DECREF(<object>argument)
        if unlikely(result == NULL):
            return self.note_failure()
        if unlikely(is_awaitable(result)) and self._returned is not None:
            return hand_on(self, result)
        Py_DECREF(<object>result)
        return 1

    cdef int note_failure(self) except -1:
        try:
            return raise_set()
        except Exception as error:
            self.errors.append(error)
        return 1

    cdef group(self):
        errors, self.errors = self.errors, []
        return ExceptionGroup("callbacks of timers failed", errors)

    def clear(self):
        """Cancel everything that waits; the handles, by deadline. Allowed inside a callback."""
        handles = []
        lock()
        cdef int failed = wheel_each(&self.wheel, collect_handle, <void *><PyObject *>handles)
        unlock()
        if failed:
            raise_set()
        handles.sort(key=attrgetter("deadline"))
        return [handle for handle in handles if handle.cancel()]

    def next_deadline(self):
        """The least `now` for which `advance(now)` runs a callback; None when nothing waits.

        That is the tick of the earliest waiting timer: its deadline rounded to the tick, or the present `now`
        when it is already due. Exact, not a bound. Remembered; looked up in one bucket when that has left.
        """
        lock()
        cdef bint waits = self.wheel.live > 0
        cdef uint64_t since = wheel_soonest(&self.wheel) * <uint64_t>self.tick if waits else 0
        cdef int64_t deadline = max(self.clock, <int64_t>(<uint64_t>self.base + since))
        unlock()
        return deadline if waits else None

    def statistics(self):
        """Counts since the start, as one frozen record."""
        return WheelStatistics(
            now=self.clock,
            pending=self.wheel.live,
            added=self.wheel.live + self.fired + self.wheel.cancelled,
            fired=self.fired,
            cancelled=self.wheel.cancelled,
            cascaded=self.wheel.cascaded,
            opened=self.wheel.opened,
            levels=64 - clz(self.wheel.used | 1),
            buckets=wheel_in_use(&self.wheel),
        )

    def occupancy(self):
        """How many timers wait in each bucket in use, one mapping a level, the finest first: occupancy.py."""
        cdef uint32_t count = 0
        lock()
        cdef Used *used = wheel_occupied(&self.wheel, &count)
        unlock()
        return by_level(listed(used, count))

    def _check(self):
        """Raise AssertionError when a rule is broken; how many buckets are being packed. For tests; walks all."""
        cdef uint32_t packing = 0
        cdef const char *wrong = wheel_check(&self.wheel, self.advancing, &packing)
        assert wrong == NULL, wrong.decode()
        return packing

    def __repr__(self):
        return of_wheel(self)

    def __reduce__(self):
        raise not_copied(self)


include "collected.pxi"
include "driven.pxi"

if not use_arena(TimerHandle):
    raise ImportError("a timer handle does not fit the arena's 64 bytes")
use_collector(TimingWheel, traverse, clear)
