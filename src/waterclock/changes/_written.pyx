# cython: language_level=3, binding=False, auto_pickle=False, boundscheck=False, wraparound=False
"""A row whose values are JSON text in one piece, as it stands in Maxwell's message: made without an object a value.

Rule 1: to whoever reads it, it is the mapping of column to JSON text that a dict would be, in the table's order.
Rule 2: a message of it has the bytes that the plain code of maxwell.py makes of the dict.
Rule 3: it never changes.
"""

cimport cython

from collections.abc import Mapping
from json.encoder import encode_basestring

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef text_t made  # the message in hand; the interpreter's lock is held while it is made
cdef enum:
    JSON = 1
    NUMBER = 2


cdef class Form:
    """What the messages of a table say beside its rows: `key` are the columns of its key, `kinds` as in ColumnTypes."""

    def __init__(self, str database, str table, tuple names, tuple key, kinds):
        owner = f'{{"database":{encode_basestring(database)},"table":{encode_basestring(table)}'
        self.names, self.key = names, key
        self.head, self.key_head = f"{owner},".encode(), owner.encode()
        self.key_list = ",".join(map(encode_basestring, key)).encode()
        self.pieces = [f"{encode_basestring(name)}:".encode() for name in names]
        self.places = {name: place for place, name in enumerate(names)}
        self.key_pieces = [(self.places[name], f',"pk.{encode_basestring(name)[1:]}:'.encode()) for name in key]
        self.marks = [
            (self.places[name], JSON if kind == "json" else NUMBER, f'{encode_basestring(name)}:"{kind}"'.encode())
            for name, kind in kinds.items() if name in self.places
        ]


cdef class Draft:
    """Rows of a form, written one after the other."""

    def __cinit__(self, Form form):
        self.form = form
        self.spans = <int32_t*> malloc(2 * (len(form.names) + 1) * sizeof(int32_t))
        if self.spans == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.spans)
        free(self.text.bytes)

    cdef void begin(self) noexcept:
        self.text.size = 0

    cdef int name(self, int place) except -1:
        """What stands before a value."""
        cdef bytes piece = <bytes> self.form.pieces[place]
        if text_put(&self.text, ",", 1 if self.text.size else 0):
            raise MemoryError
        if text_put(&self.text, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece)):
            raise MemoryError
        self.spans[2 * place] = <int32_t> self.text.size
        return 0

    cdef void value(self, int place) noexcept:
        """The value is written."""
        self.spans[2 * place + 1] = <int32_t> self.text.size

    cdef Written done(self):
        cdef int count = <int> PyTuple_Size(self.form.names)
        return row_of(self.form, &self.text, self.spans, count, count)


cdef extern from "Python.h":
    Py_ssize_t PyTuple_Size(object)


cdef Written row_of(Form form, text_t* text, int32_t* spans, int places, int count):
    cdef Written row = Written.__new__(Written)
    if text.size > 0x7FFFFFFF:
        raise OverflowError
    row.form, row.count = form, count
    row.raw = PyBytes_FromStringAndSize(text.bytes, text.size)
    row.spans = <int32_t*> malloc(2 * (places + 1) * sizeof(int32_t))
    if row.spans == NULL:
        raise MemoryError
    memcpy(row.spans, spans, 2 * places * sizeof(int32_t))
    return row


@cython.no_gc
cdef class Written:
    """One row. A column that it does not have has no span."""

    def __init__(self):
        raise TypeError("a row is made by whoever reads the database's log")

    def __dealloc__(self):
        free(self.spans)

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(self.keys())

    def __contains__(self, name):
        place = self.form.places.get(name)
        return place is not None and self.spans[2 * <int> place] >= 0

    def __getitem__(self, name):
        text = self.get(name)
        if text is None:
            raise KeyError(name)
        return text

    def get(self, name, default=None):
        cdef object place = self.form.places.get(name)
        if place is None or self.spans[2 * <int> place] < 0:
            return default
        return self.text(place)

    cdef str text(self, int place):
        cdef int32_t start = self.spans[2 * place]
        return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(self.raw) + start, self.spans[2 * place + 1] - start, NULL)

    def keys(self):
        return [name for place, name in enumerate(self.form.names) if self.spans[2 * <int> place] >= 0]

    def values(self):
        return [self.text(place) for place in range(len(self.form.names)) if self.spans[2 * <int> place] >= 0]

    def items(self):
        return list(zip(self.keys(), self.values()))

    def __eq__(self, other):
        if isinstance(other, Written):
            return self.items() == other.items()
        return dict(self.items()) == other if isinstance(other, Mapping) else NotImplemented

    def __repr__(self):
        return repr(dict(self.items()))

    cdef bint differs(self, Written other, int place) noexcept:
        cdef int32_t mine = self.spans[2 * place], theirs = other.spans[2 * place]
        cdef int32_t size = self.spans[2 * place + 1] - mine
        if mine < 0 or theirs < 0:
            return mine >= 0 or theirs >= 0
        if size != other.spans[2 * place + 1] - theirs:
            return True
        return memcmp(PyBytes_AS_STRING(self.raw) + mine, PyBytes_AS_STRING(other.raw) + theirs, size) != 0

    def same_key(self, Written other not None):
        """Whether another row of this form is the same one."""
        for place, _ in self.form.key_pieces:
            if self.differs(other, place):
                return False
        return True

    def former(self, Written after not None):
        """The values of this row, the one before, that are others in the row after."""
        return self.part([place for place in range(len(self.form.names)) if self.differs(after, place)])

    def key_alone(self):
        """The key's columns; None if the key names them in another order than the table."""
        places = [place for place, _ in self.form.key_pieces]
        return self.part(places) if places == sorted(places) else None

    cdef Written part(self, list places):
        cdef Draft draft = Draft(self.form)
        cdef int place, count = len(self.form.names)
        cdef int32_t start
        for place in range(count):
            draft.spans[2 * place] = -1
        for place in places:
            start = self.spans[2 * place]
            if start < 0:
                continue
            draft.name(place)
            if text_put(&draft.text, PyBytes_AS_STRING(self.raw) + start, self.spans[2 * place + 1] - start):
                raise MemoryError
            draft.value(place)
        return row_of(self.form, &draft.text, draft.spans, count, len(places))

    def as_key(self):
        """The message's key."""
        cdef int32_t start
        cdef int slot
        made.size = 0
        put(self.form.key_head)
        for place, piece in self.form.key_pieces:
            put(piece)
            slot = place
            start = self.spans[2 * slot]
            if start < 0:
                raise KeyError(self.form.names[place])
            text_put(&made, PyBytes_AS_STRING(self.raw) + start, self.spans[2 * slot + 1] - start)
        text_put(&made, "}", 1)
        return PyBytes_FromStringAndSize(made.bytes, made.size)

    def as_json(self, str kind, int64_t ts, str gtid, int64_t sequence, int64_t xoffset, bint commit, Written old, query):
        """The message's value, with the row before an update, or None."""
        made.size = 0
        put(self.form.head)
        if query is not None:
            put(b'"query":' + encode_basestring(query).encode() + b",")
        put(b'"type":"' + kind.encode() + b'","ts":')
        text_signed(&made, ts)
        put(b',"gtid":"' + gtid.encode() + b'","sequence":')
        text_signed(&made, sequence)
        put(b',"xoffset":')
        text_signed(&made, xoffset)
        put(b',"commit":true,"primary_key_columns":[' if commit else b',"primary_key_columns":[')
        put(self.form.key_list)
        put(b'],"data":{')
        put(self.raw)
        put(b"}")
        if self.form.marks:
            self.types(b',"types":{')
        if old is not None:
            put(b',"old":{')
            put(old.raw)
            put(b"}")
            if self.form.marks:
                old.types(b',"old_types":{')
        if text_put(&made, "}", 1):
            raise MemoryError
        return PyBytes_FromStringAndSize(made.bytes, made.size)

    cdef int types(self, bytes word) except -1:
        """What the values do not say of themselves."""
        first = True
        for place, kind, piece in self.form.marks:
            if self.spans[2 * <int> place] < 0 or not self.says_less(place, kind):
                continue
            put(word if first else b",")
            put(piece)
            first = False
        if not first:
            put(b"}")
        return 0

    cdef bint says_less(self, int place, int kind) noexcept:
        cdef int32_t start = self.spans[2 * place]
        cdef const char* text = PyBytes_AS_STRING(self.raw) + start
        cdef int32_t size = self.spans[2 * place + 1] - start
        if kind == NUMBER:
            return (
                (size == 5 and memcmp(text, b'"NaN"', 5) == 0)
                or (size == 10 and memcmp(text, b'"Infinity"', 10) == 0)
                or (size == 11 and memcmp(text, b'"-Infinity"', 11) == 0)
            )
        return size != 4 or memcmp(text, b"null", 4) != 0


cdef int put(bytes piece) except -1:
    if text_put(&made, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece)):
        raise MemoryError
    return 0


Mapping.register(Written)
