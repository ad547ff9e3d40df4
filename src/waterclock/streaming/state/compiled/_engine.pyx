# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled engine of a bucket, and the compiled search for keys on pages: columns in, columns out.

The rules stand in engine.h and the files that it includes, in C++ without Python. Here are the buffers of the outside: Arrow's
are read where they lie, results and states are written into buffers that Arrow takes over.

Rule 1: a buffer that is read is kept until the engine goes: texts point into it.
Rule 2: what comes from a store or a file is checked before it is believed; what does not fit raises ValueError.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

# what is declared of C++ stands in _engine.pxd

cdef int64_t NONE = -(<int64_t>1 << 62) * 2
cdef size_t MOST = 0x7fffffff


cdef bytes copied(const void *at, size_t size):
    return PyBytes_FromStringAndSize(<const char *>at, size)


cdef class TextColumn:
    """The texts, or bytes, of an Arrow array, which is kept."""

    cdef Texts texts
    cdef object _array

    def __cinit__(self, array):
        offsets = bytes_ = valid = None
        cdef int64_t rows = len(array), first = array.offset
        self._array = array
        if rows == 0:
            return
        valid, offsets, bytes_ = array.buffers()
        self.texts = checked(
            <const int32_t *><uintptr_t>offsets.address + first, offsets.size // 4 - first,
            <const char *><uintptr_t>(0 if bytes_ is None else bytes_.address), 0 if bytes_ is None else bytes_.size,
            <const uint8_t *><uintptr_t>(0 if valid is None else valid.address), 0 if valid is None else valid.size,
            rows, first,
        )

    def __len__(self):
        return self.texts.rows


cdef const void *numbers_of(array, Py_ssize_t width, int64_t rows) except? NULL:
    """Where the numbers of an Arrow array without nulls lie; ValueError where there are fewer."""
    if array is None or rows == 0:
        return NULL
    buffer = array.buffers()[1]
    cdef int64_t first = array.offset
    if len(array) != rows or array.null_count or buffer.size < (first + rows) * width:
        raise ValueError("a column of numbers with nulls, or of another length")
    return <const char *><uintptr_t>buffer.address + first * width


cdef class Lists:
    """A list of plain values for each row (lists.h)."""

    cdef Packed packed

    def __cinit__(self, columns, int64_t rows, cbool each_in_a_list):
        """`columns` are (kind, values, valid): a TextColumn, or numbers of eight bytes with a byte for each, or None."""
        cdef vector[Values] values
        for kind, array, valid in columns:
            values.push_back(values_of(ord(kind), array, valid, rows))
        with nogil:
            pack(values, rows, each_in_a_list, self.packed)


cdef Values values_of(char kind, array, valid, int64_t rows) except *:
    cdef Values made
    made.kind = kind
    if isinstance(array, TextColumn):
        made.texts = (<TextColumn>array).texts
        if made.texts.rows != rows:
            raise ValueError("columns that are not of one length")
    elif kind == b"r":
        made.reals = <const double *>numbers_of(array, 8, rows)
    else:
        made.wholes = <const int64_t *>numbers_of(array, 8, rows)
    made.valid = <const uint8_t *>numbers_of(valid, 1, rows)
    return made


cdef class Wanted:
    """Keys that are looked for; see wanted.h."""

    cdef CWanted wanted
    cdef list _kept

    def __cinit__(self):
        self._kept = []

    def add(self, TextColumn keys):
        self._kept.append(keys)
        self.wanted.add(keys.texts)

    def places(self, const uint32_t[::1] hashes):
        """The places of the hashes that may be of one of the keys, as int64 in bytes."""
        cdef vector[int64_t] found
        cdef int64_t count = hashes.shape[0]
        if not self.wanted.is_ready():
            self.wanted.ready()
        if count:
            with nogil:
                self.wanted.places(&hashes[0], count, found)
        return copied(found.data(), 8 * found.size())

    def among(self, TextColumn keys):
        """A byte for each of `keys`: whether it is one of those looked for."""
        cdef int64_t i, count = keys.texts.rows
        cdef bytes found = PyBytes_FromStringAndSize(NULL, count)
        cdef char *to = PyBytes_AS_STRING(found)
        for i in range(count):
            to[i] = self.wanted.keys.knows(keys.texts[i])
        return found


cdef class Engine:
    """Rules over one bucket; who drives it does what engine.h says, in its order."""

    cdef CEngine *engine
    cdef Stored *stored
    cdef list _kept
    cdef vector[string] _kinds, _names, _types
    cdef cbool _has_numbers
    cdef TextColumn _delivery_keys, _delivery_ids
    cdef const int64_t *_delivery_dues
    cdef int64_t _rows

    def __cinit__(self, spec, names, kinds):
        """`spec` is what rules.h calls Rules, as a mapping; `names` are those of results' rules."""
        cdef Rules rules
        cdef Plan plan
        for name in spec["emits"]:
            rules.emits.push_back(name.encode())
        rules.ordering, rules.on_gap = spec["ordering"], spec["on_gap"]
        rules.wait_us, rules.within_us = spec["wait_us"], spec["within_us"]
        rules.has_events, rules.watches, rules.asks = spec["has_events"], spec["watches"], spec["asks"]
        rules.due_columns, rules.conditions = spec["due_columns"], spec["conditions"]
        rules.delay_us, rules.expect_us, rules.quiet_us = spec["delay_us"], spec["expect_us"], spec["quiet_us"]
        rules.expect_by, rules.quiet_where = spec["expect_by"], spec["quiet_where"]
        rules.carried, rules.ties, rules.carry = spec["carried"], spec["ties"], spec["carry"]
        self._types = [name.encode() for name in spec["plans"]]
        for number, of in enumerate(spec["plans"].values()):
            plan = Plan()
            plan.delays, plan.opens, plan.meets, plan.withdraws = of
            rules.plans.push_back(plan)
            add_type(rules, self._types[number], number)
        self._names = [name.encode() for name in names]
        self._kinds = [kind.encode() for kind in kinds]
        self._kept = []
        self.engine = new CEngine(rules)
        self.stored = new Stored(self.engine[0], False)

    def __dealloc__(self):
        del self.stored
        del self.engine

    def numbered(self, cbool has_numbers):
        """Say whether keys are numbers, before anything else is done; they come and go as texts of digits."""
        if has_numbers == self._has_numbers:
            return
        del self.stored
        self._has_numbers = has_numbers
        self.stored = new Stored(self.engine[0], has_numbers)

    # before a step -------------------------------------------------------------------------------------------

    def load(self, int64_t watermark, counters):
        self.engine.core.watermark = watermark
        self.engine.core.deadlines.move(watermark)
        self.engine.core.counters = counters

    def room(self, int64_t rows):
        """Make room for so many rows, all that there were with them."""
        if rows < self._rows:
            raise ValueError("fewer rows than there were")
        make_room(self.engine[0], rows)
        self._rows = rows

    def wake(self, TextColumn keys, TextColumn packed, held, int64_t first, int64_t rows):
        """Take back the states of keys; the rows that they hold have the numbers from `first` on."""
        cdef const int32_t *counts = <const int32_t *>numbers_of(held, 4, keys.texts.rows)
        if packed.texts.rows != keys.texts.rows or first + rows > self._rows:
            raise ValueError("states, keys and rows that are not of each other")
        self._kept += [keys, packed]
        wake_all(self.stored[0], keys.texts, packed.texts, counts, first, rows)

    # one step ------------------------------------------------------------------------------------------------

    def move(self, int64_t watermark):
        """Move the watermark; False where that is where it was, and nothing rests that it could pass."""
        watermark = min(max(watermark, self.engine.core.watermark), <int64_t>1 << 62)
        self.engine.core.watermark = watermark
        if watermark <= self.engine.core.deadlines.watermark:
            return False
        self.engine.core.deadlines.move(watermark)
        return True

    def deliveries(self, TextColumn keys, TextColumn ids, dues):
        """The deliveries of the chunks that pass next, all of them."""
        if keys.texts.rows != ids.texts.rows:
            raise ValueError("deliveries whose columns are not of one length")
        self._delivery_dues = <const int64_t *>numbers_of(dues, 8, keys.texts.rows)
        self._delivery_keys, self._delivery_ids = keys, ids
        self._kept += [keys, ids, dues]

    def pass_chunk(self, bytes chunk, int64_t start, int64_t count, int64_t first):
        """The deadlines of a chunk pass; its deliveries are the `count` from `start` on, whose rows begin at `first`."""
        cdef int64_t all_of_them = 0 if self._delivery_keys is None else self._delivery_keys.texts.rows
        cdef View others = self._parts(chunk).first
        cdef Texts keys, ids
        cdef const int64_t *dues = NULL
        if start < 0 or count < 0 or start + count > all_of_them:
            raise ValueError("a chunk of more deliveries than there are")
        if count:
            keys = part(self._delivery_keys.texts, start, count)
            ids = part(self._delivery_ids.texts, start, count)
            dues = self._delivery_dues + start
        self._kept.append(chunk)
        self.stored.chunks.pass_chunk(others, keys, ids, dues, first)

    cdef pair[View, View] _parts(self, bytes chunk) except *:
        cdef View whole
        cdef pair[View, View] found
        whole.at, whole.size = PyBytes_AS_STRING(chunk), len(chunk)
        cdef Reader *reader = new Reader(whole)
        try:
            reader.array_of(2)
            found.first = reader.skip()
            found.second = reader.binary()
        finally:
            del reader
        return found

    def rows_in(self, bytes chunk):
        """Where the rows of a chunk's deliveries begin in it, and how many bytes they are."""
        cdef View rows = self._parts(chunk).second
        return rows.at - PyBytes_AS_STRING(chunk), rows.size

    def open(self, int level, int64_t slot):
        """Before the chunks of a slot pass."""
        self.engine.core.deadlines.open(level, slot)

    def pass_fresh(self):
        """What was fresh in the slot opened last passes, behind its chunks."""
        self.engine.core.deadlines.pass_fresh()

    def fresh_up_to(self, int level, int64_t last):
        """The slots of a level, up to `last`, that have fresh deadlines."""
        return fresh_up_to(self.engine[0], level, last)

    def due_keys(self):
        """The keys that are to be woken before `fire`: an end for each, and their bytes."""
        self.engine.core.deadlines.in_order()
        return self._texts(self.engine.due_keys())

    def fire(self):
        self.engine.fire()

    def take(
        self, TextColumn keys, TextColumn ids, TextColumn types, times, numbers, delivers, holds, promised,
        Lists carried, Lists ties, int64_t first,
    ):
        """Take rows, whose numbers are those from `first` on; columns that the rules do not ask for are None."""
        cdef Incoming rows
        cdef int64_t count = keys.texts.rows
        cdef int64_t width = 0 if promised is None else len(promised) // count if count else 0
        if first + count > self._rows or ids.texts.rows != count or (types is not None and types.texts.rows != count):
            raise ValueError("columns that are not of one length")
        rows.ids, rows.times = ids.texts, <const int64_t *>numbers_of(times, 8, count)
        if types is not None:
            rows.types = types.texts
        rows.numbers = <const int64_t *>numbers_of(numbers, 8, count)
        rows.delivers = <const int64_t *>numbers_of(delivers, 8, count)
        rows.holds = <const uint64_t *>numbers_of(holds, 8, count * <int64_t>self.engine.core.rules.words())
        rows.promised = <const int64_t *>numbers_of(promised, 8, count * width)
        if self.engine.core.has_lists():
            if carried.packed.rows() != count or ties.packed.rows() != count:
                raise ValueError("columns that are not of one length")
            rows.carried, rows.ties = &carried.packed, &ties.packed
        self._kept += [keys, ids, types, carried, ties]
        rows_of(self.engine[0], rows, first)
        with nogil:
            self.engine.take(keys.texts, first)

    # after a step --------------------------------------------------------------------------------------------

    @property
    def watermark(self):
        return self.engine.core.watermark

    @property
    def counters(self):
        return dict(self.engine.core.counters)

    def results(self, bytes kinds):
        """What was found since the last call, a column each, as bytes: kind, rule, due, row, key, source, id. `row` is -1
        where a result carries no event. Then the places of the ids that Python must make, and the columns of events whose
        kinds are `kinds` as results carry them, None where none does."""
        cdef Results *found = &self.engine.core.results
        cdef size_t count = found.size()
        cdef bytes hex = PyBytes_FromStringAndSize(NULL, 32 * count)
        cdef vector[int64_t] others = ids_of(found[0], self._kinds, self._names, self._has_numbers, PyBytes_AS_STRING(hex))
        columns = (
            count,
            copied(found.kind.data(), count),
            copied(found.rule.data(), 4 * count),
            copied(found.due.data(), 8 * count),
            copied(found.row.data(), 8 * count),
            self._texts(found.key),
            self._texts(found.source),
            hex,
            list(others),
            self._carried(kinds) if kinds and carries_any(found[0]) else None,
        )
        self.engine.core.results = Results()
        return columns

    cdef list _carried(self, bytes kinds):
        cdef vector[Carried] columns = carried_by(self.engine.core.results, self.engine.core.rules, kinds)
        made = []
        for column in range(columns.size()):
            made.append(self._column(&columns[column]))
        return made

    cdef tuple _column(self, const Carried *of):
        """(whether each result has one, whether that is there, the values)."""
        has, valid = copied(of.has.data(), of.has.size()), copied(of.valid.data(), of.valid.size())
        if of.kind == b"r":
            return has, valid, copied(of.reals.data(), 8 * of.reals.size())
        if of.kind in (b"t", b"b"):
            return has, valid, self._texts(of.texts)
        return has, valid, copied(of.wholes.data(), 8 * of.wholes.size())

    cdef tuple _texts(self, const vector[View] &texts):
        cdef size_t size = 0, i
        for i in range(texts.size()):
            size += texts[i].size
        if size > MOST:
            raise OverflowError("more than 2 GB of texts in one batch of a bucket: use more buckets")
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (texts.size() + 1))
        cdef bytes all_of_them = PyBytes_FromStringAndSize(NULL, size)
        texts_of(texts, <int32_t *>PyBytes_AS_STRING(ends), PyBytes_AS_STRING(all_of_them))
        return ends, all_of_them

    def states(self):
        """The states of all keys, as bytes: ends and texts of keys, ends and bytes of states, how many rows each holds, the
        numbers of these rows, hashes, and the watermarks by which they get smaller."""
        cdef States to
        states_of(self.engine[0], self.stored[0], to)
        return (
            to.held.size(),
            (copied(to.key_ends.data(), 4 * to.key_ends.size()), copied(to.keys.data(), to.keys.size())),
            (copied(to.packed_ends.data(), 4 * to.packed_ends.size()), copied(to.packed.to.data(), to.packed.to.size())),
            copied(to.held.data(), 4 * to.held.size()),
            copied(to.rows.data(), 8 * to.rows.size()),
            copied(to.hashes.data(), 4 * to.hashes.size()),
            copied(to.gone_by.data(), 8 * to.gone_by.size()),
        )

    def fresh(self):
        """The fresh deadlines, which are fresh no more: (level, slot, deliveries, the others packed) of each slot, and the
        numbers of the rows of all deliveries."""
        cdef vector[int64_t] rows
        cdef vector[Slot] slots = fresh_of(self.engine[0], self.stored[0], rows)
        found = [(slot.level, slot.slot, slot.deliveries, <bytes>slot.others) for slot in slots]
        return found, copied(rows.data(), 8 * rows.size())

    def first_fresh(self, int level):
        """(slot, due) of the first slot with fresh deadlines, and the earliest of them; None where there is none."""
        cdef int64_t slot = 0, due = first_fresh(self.engine[0], level, slot)
        return None if due == NONE else (slot, due)
