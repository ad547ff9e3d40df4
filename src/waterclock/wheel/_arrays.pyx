# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, freethreading_compatible=True
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled array wheel: promises and interface of plain_arrays.py, with another structure underneath.

The structure stands in slots.h, batch.h, expire.h and saved.h, in C without Python; memory in segments.h. Here are the
arrays of the outside: looked at, held while they are read, and made before anything changes.

Rule 1: whatever can raise comes before the structure changes: arguments, then results, then memory.
Rule 2: between the change and the return no Python code runs, which a signal could break off.
Rule 3: who works on the structure is inside the door (`enter`, `leave`), with the interpreter's lock or without.
"""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from waterclock.wheel.occupancy cimport Used, listed

from array import array

from waterclock.wheel import columns, saved
from waterclock.wheel.bounds import whole
from waterclock.wheel.occupancy import by_level
from waterclock.wheel.pictures import of_wheel
from waterclock.wheel.statistics import WheelStatistics

cdef extern from "saved.h":
    enum:
        LEVELS, WORDS, SLOTS, ALL_BUCKETS
    ctypedef struct Bucket:
        uint32_t live
    ctypedef struct Wheel:
        uint32_t fresh, free_count, used
        int64_t tick, base, clock, live, cascaded, opened, fired, cancelled
        uint64_t *bitmap
        Bucket *buckets
    ctypedef struct Expired:
        int64_t *ids
        int64_t *deadlines
        int64_t count, limit
    enum:
        DUE
    uint32_t count_bits(uint64_t) noexcept nogil
    int wheel_enter(Wheel *) noexcept nogil
    void wheel_leave(Wheel *) noexcept nogil
    void wheel_init(Wheel *, int64_t, int64_t) noexcept nogil
    void wheel_free(Wheel *) noexcept nogil
    uint64_t wheel_bytes(const Wheel *) noexcept nogil
    int64_t first_beyond(const int64_t *, int64_t) noexcept nogil
    int schedule_reserve(Wheel *, int64_t) noexcept nogil
    void wheel_schedule(Wheel *, const int64_t *, int64_t *, int64_t) noexcept nogil
    void wheel_cancel(Wheel *, const int64_t *, uint8_t *, int64_t) noexcept nogil
    int64_t turn_reserve(Wheel *, int64_t) noexcept nogil
    void wheel_advance(Wheel *, int64_t, Expired *) noexcept nogil
    void wheel_settle(Wheel *) noexcept nogil
    uint64_t wheel_soonest(Wheel *) noexcept nogil
    Used *wheel_occupied(const Wheel *, uint32_t *) noexcept nogil
    void wheel_save(const Wheel *, char *) noexcept nogil
    int load_reserve(Wheel *, uint32_t, uint32_t) noexcept nogil
    int wheel_load(Wheel *, const char *, uint32_t, uint32_t, uint32_t) noexcept nogil
    const char *wheel_check(const Wheel *) noexcept nogil

cdef extern from *:
    "static int clz32(unsigned x) { return __builtin_clz(x); }"
    int clz32(unsigned) noexcept nogil

cdef int64_t MAX_TIME = <int64_t>1 << 62
cdef int64_t MAX_TICK = <int64_t>1 << 61
cdef int64_t MAX_NOW = MAX_TIME + MAX_TICK


cdef bint is_row(const Py_buffer *view) noexcept:
    return view.ndim == 1 and view.itemsize == 8 and view.format != NULL and (
        view.format[0] == c"l" or view.format[0] == c"q"
    ) and view.format[1] == 0


cdef int hold(column, read, Py_buffer *view) except -1:
    """Hold the numbers of a column: as it stands where it is a row of int64, else as `read` makes it one, or raises."""
    try:
        PyObject_GetBuffer(column, view, PyBUF_FORMAT | PyBUF_ND)
    except (BufferError, TypeError, ValueError):
        pass
    else:
        if is_row(view):
            return 0
        PyBuffer_Release(view)
    PyObject_GetBuffer(read(column), view, PyBUF_SIMPLE)
    return 0


cdef int64_t *place_of(column) except? NULL:
    """Where the numbers of a new column stand."""
    cdef Py_buffer view
    PyObject_GetBuffer(column, &view, PyBUF_SIMPLE)
    cdef int64_t *place = <int64_t *>view.buf
    PyBuffer_Release(&view)
    return place


cdef new_column(int64_t count):
    np = columns.numpy()
    return array("q", [0]) * count if np is None else np.empty(count, np.int64)


cdef shortened(column, int64_t count):
    if len(column) == count:
        return column
    if type(column) is array:
        del column[count:]
    else:
        column.resize(count, refcheck=False)
    return column


@cython.final
cdef class ArrayWheel:
    """ArrayWheel(tick=1, start=0)\n--\n
    Timers by the million, as ids in arrays; no clock, no thread, no callbacks: `advance` gives back who is due.

    As plain_arrays.ArrayWheel, where an example stands. At most 40 bytes a timer from a million on, counted by the
    most that were ever pending at once: a place that was given stays, for its generation.
    """

    cdef Wheel wheel

    def __cinit__(self, tick=1, start=0):
        wheel_init(
            &self.wheel,
            whole("tick", tick, 1, MAX_TICK),
            whole("start", start, -MAX_TIME, MAX_TIME),
        )

    def __dealloc__(self):
        wheel_free(&self.wheel)

    def __sizeof__(self):
        """Bytes of memory that the wheel holds."""
        return sizeof(Wheel) + wheel_bytes(&self.wheel)

    cdef int enter(self) except -1:
        if not wheel_enter(&self.wheel):
            raise RuntimeError("another thread is inside this ArrayWheel: put a lock around it")
        return 0

    @property
    def now(self):
        """The latest `now` handed to `advance`, or `start`."""
        return self.wheel.clock

    def __repr__(self):
        return of_wheel(self)

    def __len__(self):
        """How many timers wait."""
        return self.wheel.live

    def schedule(self, deadlines):
        """One timer for each deadline; returns their ids, in the same order.

        A deadline that has passed is due at the next `advance`, behind what is due already. `ValueError` when one
        lies beyond 2**62, `TypeError` for what is no row of 64-bit integers; then nothing was scheduled.
        """
        cdef Py_buffer given
        hold(deadlines, columns.deadlines, &given)
        try:
            return self.schedule_all(<const int64_t *>given.buf, given.len // 8)
        finally:
            PyBuffer_Release(&given)

    cdef schedule_all(self, const int64_t *deadlines, int64_t count):
        cdef int64_t wrong
        cdef int full
        ids = new_column(count)
        cdef int64_t *to = place_of(ids)
        self.enter()
        with nogil:
            wrong = first_beyond(deadlines, count)
            full = wrong == count and schedule_reserve(&self.wheel, count) < 0
            if wrong == count and not full:
                wheel_schedule(&self.wheel, deadlines, to, count)
            wheel_leave(&self.wheel)
        if wrong < count:
            raise columns.beyond(deadlines[wrong])
        if full:
            raise MemoryError
        return ids

    def cancel(self, ids):
        """Take these out; for each, True where this call cancelled it.

        An id that is not known, that has expired, was cancelled before or stands in `ids` a second time is False.
        """
        cdef Py_buffer given
        hold(ids, columns.ids, &given)
        try:
            return self.cancel_all(<const int64_t *>given.buf, given.len // 8)
        finally:
            PyBuffer_Release(&given)

    cdef cancel_all(self, const int64_t *ids, int64_t count):
        np = columns.numpy()
        done = PyBytes_FromStringAndSize(NULL, count) if np is None else np.empty(count, np.bool_)
        cdef uint8_t *to = <uint8_t *>place_of(done)
        self.enter()
        with nogil:
            wheel_cancel(&self.wheel, ids, to, count)
            wheel_leave(&self.wheel)
        return done

    def advance(self, now, limit=None):
        """Move on to `now` and take out who is due, at most `limit`; returns their ids and deadlines, in order.

        The order is that of ticks, then that of scheduling. What `limit` holds back stays due and comes first
        next time. A `now` before the wheel's does nothing and gives empty arrays.
        """
        cdef int64_t time = whole("now", now, -MAX_NOW, MAX_NOW)
        cdef int64_t most = MAX_NOW if limit is None else whole("limit", limit, 0, MAX_NOW)
        cdef int64_t due = 0
        cdef Expired out = Expired(NULL, NULL, 0, 0)
        self.enter()
        try:
            if time >= self.wheel.clock:
                due = turn_reserve(&self.wheel, time)
            if due < 0:
                raise MemoryError
            out.limit = due if due < most else most
            ids, deadlines = new_column(out.limit), new_column(out.limit)
            out.ids = place_of(ids)
            out.deadlines = place_of(deadlines)
            if time >= self.wheel.clock:
                with nogil:
                    wheel_advance(&self.wheel, time, &out)
        finally:
            wheel_leave(&self.wheel)
        return shortened(ids, out.count), shortened(deadlines, out.count)

    def next_deadline(self):
        """The least `now` for which `advance(now)` gives back a timer; None when nothing waits.

        That is the earliest deadline rounded up to the tick, or the present `now` where that has passed.
        Remembered; looked up in one bucket when that one has left.
        """
        cdef uint64_t since
        self.enter()
        try:
            if self.wheel.live == 0:
                return None
            since = wheel_soonest(&self.wheel) * <uint64_t>self.wheel.tick
            return max(self.wheel.clock, <int64_t>(<uint64_t>self.wheel.base + since))
        finally:
            wheel_leave(&self.wheel)

    def statistics(self):
        """Counts since the start, as one frozen record."""
        cdef uint32_t i
        self.enter()
        try:
            buckets = 0
            for i in range(<uint32_t>(LEVELS * WORDS)):
                buckets += count_bits(self.wheel.bitmap[i])
            return WheelStatistics(
                now=self.wheel.clock,
                pending=self.wheel.live,
                added=self.wheel.live + self.wheel.fired + self.wheel.cancelled,
                fired=self.wheel.fired,
                cancelled=self.wheel.cancelled,
                cascaded=self.wheel.cascaded,
                opened=self.wheel.opened,
                levels=32 - clz32(self.wheel.used | 1),
                buckets=buckets,
            )
        finally:
            wheel_leave(&self.wheel)

    def occupancy(self):
        """How many timers wait in each bucket in use, one mapping a level, the finest first: occupancy.py.

        What is due and held back by a limit stands in the finest level, in the bucket of now.
        """
        cdef uint32_t count = 0
        cdef Used *used
        self.enter()
        try:
            self.settle()
            used = wheel_occupied(&self.wheel, &count)
        finally:
            wheel_leave(&self.wheel)
        return by_level(listed(used, count))

    cdef int settle(self) except -1:
        """What is due leaves the levels, in order; nothing else changes."""
        if turn_reserve(&self.wheel, self.wheel.clock) < 0:
            raise MemoryError
        with nogil:
            wheel_settle(&self.wheel)
        return 0

    def to_bytes(self):
        """All of the wheel; `from_bytes` goes on from there, here or in the plain wheel. The format: saved.py."""
        self.enter()
        try:
            self.settle()
            return self.saved()
        finally:
            wheel_leave(&self.wheel)

    cdef saved(self):
        header = saved.Header(
            due=self.wheel.buckets[DUE].live,
            pending=self.wheel.live,
            free=self.wheel.free_count,
            tick=self.wheel.tick,
            now=self.wheel.clock,
            fired=self.wheel.fired,
            cancelled=self.wheel.cancelled,
            cascaded=self.wheel.cascaded,
            opened=self.wheel.opened,
        )
        cdef bytes start = header.packed()
        cdef bytes blob = PyBytes_FromStringAndSize(NULL, header.size)
        cdef char *to = PyBytes_AS_STRING(blob)
        cdef Py_ssize_t size = len(start)
        memcpy(to, PyBytes_AS_STRING(start), size)
        with nogil:
            wheel_save(&self.wheel, to + size)
        cdef bytes end = saved.digest(memoryview(blob)[: header.size - saved.DIGEST])
        memcpy(to + len(blob) - len(end), PyBytes_AS_STRING(end), len(end))
        return blob

    @classmethod
    def from_bytes(cls, blob):
        """The wheel that `to_bytes` was asked of. `ValueError` for bytes that are cut, altered or no wheel's."""
        header, content = saved.opened(blob)
        cdef ArrayWheel made = ArrayWheel(header.tick)
        made.wheel.fired = header.fired
        made.wheel.cancelled = header.cancelled
        made.wheel.cascaded = header.cascaded
        made.wheel.opened = header.opened
        wheel_init(&made.wheel, header.tick, header.now)
        cdef uint32_t due = header.due, pending = header.pending, free = header.free
        cdef Py_buffer given
        cdef int full, wrong = 0
        PyObject_GetBuffer(content, &given, PyBUF_SIMPLE)
        with nogil:
            full = load_reserve(&made.wheel, pending, free) < 0
            if not full:
                wrong = wheel_load(&made.wheel, <const char *>given.buf, due, pending, free)
        PyBuffer_Release(&given)
        if full:
            raise MemoryError
        if wrong < 0:
            raise saved.impossible()
        return made

    def __reduce__(self):
        return ArrayWheel.from_bytes, (self.to_bytes(),)

    def _check(self):
        """Raise AssertionError when a rule of the structure is broken; for tests, O(timers + buckets)."""
        cdef const char *wrong = wheel_check(&self.wheel)
        assert wrong == NULL, wrong.decode()
