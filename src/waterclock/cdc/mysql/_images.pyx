# cython: language_level=3, binding=False, auto_pickle=False, boundscheck=False, wraparound=False
"""All rows of a row event, or of a SELECT, straight from their bytes to the JSON text of their columns.

Rule 1: the plain readers of columns.py say what is right. A value of a type that is not known here, or that is odd, is read by
        its plain reader; an event that does not come out even is not read here at all (None), and the plain code says why.
Rule 2: so with the rows of a SELECT, whose law is selected.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from waterclock.changes._written cimport Draft, Form, Written, text_put, text_t

from zlib import crc32

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import BinlogEvent
from waterclock.cdc.mysql.columns import prefix, reads_ascii
from waterclock.changes.maxwell import quoted


cdef extern from "image.h" nogil:
    ctypedef struct column_t:
        int kind
        int width
        int digits
        int whole
        int place
    int image_value(text_t*, const column_t*, const uint8_t*, Py_ssize_t*, Py_ssize_t)
    int selected_value(text_t*, const column_t*, const uint8_t*, size_t)
    uint64_t little(const uint8_t*, int)
    int IMAGE_DONE, IMAGE_ASK, IMAGE_END
    int ASKED, SIGNED, UNSIGNED, FLOATS, DOUBLES, DECIMAL, BITS, YEARS, DATES, TIMES, DATETIMES, TIMESTAMPS, LABEL, LABELS
    int UTF8, NARROW, BYTES, DOCUMENT, WHOLE, POINT, REAL, SHORT_REAL, PLAIN

cdef dict INTEGERS = {types.TINY: 1, types.SHORT: 2, types.INT24: 3, types.LONG: 4, types.LONGLONG: 8}
cdef dict DIGITS = {types.TIME2: (TIMES, 3), types.DATETIME2: (DATETIMES, 5), types.TIMESTAMP2: (TIMESTAMPS, 4)}
cdef dict FIXED = {
    types.FLOAT: (FLOATS, 4), types.DOUBLE: (DOUBLES, 8), types.YEAR: (YEARS, 1), types.DATE: (DATES, 3),
    types.NEWDATE: (DATES, 3),
}
cdef bytes NULL_TEXT = b"null"


def how(column):
    """(kind, width, digits, whole) of a column, as image.h has them."""
    if column.declared:
        sure = column.declared == "json" and column.charset in ("utf8mb4", "utf8mb3", "utf8")
        return (DOCUMENT, column.size, 0, 0) if sure else (ASKED, 0, 0, 0)
    if column.type in INTEGERS:
        return (UNSIGNED if column.unsigned else SIGNED, INTEGERS[column.type], 0, 0)
    if column.type in FIXED:
        return (*FIXED[column.type], 0, 0)
    if column.type in DIGITS:
        kind, width = DIGITS[column.type]
        return (kind, width + (column.size + 1) // 2, column.size, 0) if column.size <= 6 else (ASKED, 0, 0, 0)
    if column.type == types.NEWDECIMAL:
        return decimal(column.size >> 8, column.size & 255)
    if column.type == types.BIT:
        return (BITS, (column.size + 7) // 8, 0, 0) if column.size <= 64 else (ASKED, 0, 0, 0)
    if column.type in (types.ENUM, types.SET):
        return (LABEL if column.type == types.ENUM else LABELS, column.size, 0, 0)
    if column.type not in (types.VARCHAR, types.VAR_STRING, types.STRING, types.BLOB):
        return (ASKED, 0, 0, 0)
    filled = column.size if column.type == types.STRING else 0
    if column.charset == types.BINARY:
        return (BYTES, prefix(column), 0, filled)
    if column.charset in ("utf8mb4", "utf8mb3", "utf8"):
        return (UTF8, prefix(column), 0, 0)
    return (NARROW if reads_ascii(column.charset) else ASKED, prefix(column), 0, 0)


def decimal(precision, scale):
    widths = (0, 1, 1, 2, 2, 3, 3, 4, 4)
    whole = precision - scale
    size = whole // 9 * 4 + widths[whole % 9] + scale // 9 * 4 + widths[scale % 9]
    return (DECIMAL, size, scale, whole) if precision <= 65 and 0 <= scale <= precision and size else (ASKED, 0, 0, 0)


cdef class ImagePlan:
    """How the rows of a table are read whose images have every column; `hidden` ones are passed over."""

    cdef readonly Form form
    cdef column_t* columns
    cdef int count
    cdef list readers
    cdef list labels

    def __cinit__(self, str database, str table, tuple key, kinds, list columns, list readers, hidden):
        shown = tuple(column.name for column in columns if column.name not in hidden)
        self.form, self.readers, self.count = Form(database, table, shown, key, kinds), readers, len(columns)
        self.labels = [[quoted(label).encode() for label in column.labels] for column in columns]
        self.columns = <column_t*> calloc(self.count + 1, sizeof(column_t))
        if self.columns == NULL:
            raise MemoryError
        seen = 0
        for place, column in enumerate(columns):
            kind, width, digits, whole = how(column)
            self.columns[place] = column_t(kind, width, digits, whole, -1)
            if column.name not in hidden:
                self.columns[place].place = seen
                seen += 1

    def __dealloc__(self):
        free(self.columns)

    def rows_of(self, bytes body, bint second, bint before, bint after):
        """`rows` of an event's body, which names every column (`second`: version 2); None as there, and for any other body."""
        cdef const uint8_t* raw = <const uint8_t*> PyBytes_AS_STRING(body)
        cdef Py_ssize_t at = 8, end = PyBytes_GET_SIZE(body)
        cdef int image, place
        if second:
            if end < 10:
                return None
            at += <Py_ssize_t> little(raw + 8, 2)
        if at >= end or raw[at] >= 0xFB or raw[at] != self.count:
            return None
        at += 1
        for image in range(before + after):
            if end - at < (self.count + 7) // 8:
                return None
            for place in range(self.count):
                if not raw[at + (place >> 3)] >> (place & 7) & 1:
                    return None
            at += (self.count + 7) // 8
        return self.rows(body, at, before, after)

    def rows(self, bytes data, Py_ssize_t at, bint before, bint after):
        """(before, after) of each row from `at` on; None if the bytes do not end with a row, or something is odd."""
        cdef Draft draft = Draft(self.form)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
        cdef Written old = None, new = None
        found = []
        try:
            while at < end:
                if before:
                    old = self.row(draft, data, &at, end)
                    if old is None:
                        return None
                if after:
                    new = self.row(draft, data, &at, end)
                    if new is None:
                        return None
                found.append((old, new))
        except (ArithmeticError, LookupError, ValueError, types.Unreadable, types.struct.error):
            return None
        return found if at == end else None

    cdef Written row(self, Draft draft, bytes data, Py_ssize_t* at, Py_ssize_t end):
        cdef const uint8_t* raw = <const uint8_t*> PyBytes_AS_STRING(data)
        cdef const uint8_t* nulls = raw + at[0]
        cdef const column_t* column
        cdef size_t start
        cdef int place, done
        at[0] += (self.count + 7) // 8
        if at[0] > end:
            return None
        draft.begin()
        for place in range(self.count):
            column = &self.columns[place]
            start = draft.text.size
            if column.place >= 0:
                draft.name(column.place)
            if nulls[place >> 3] >> (place & 7) & 1:
                if text_put(&draft.text, PyBytes_AS_STRING(NULL_TEXT), 4):
                    raise MemoryError
            elif self.value(draft, column, place, data, at, end):
                return None
            if column.place >= 0:
                draft.value(column.place)
            else:
                draft.text.size = start
        return draft.done()

    cdef int value(
        self, Draft draft, const column_t* column, int place, bytes data, Py_ssize_t* at, Py_ssize_t end
    ) except -1:
        """0; 1 if the bytes end before the value."""
        cdef size_t start = draft.text.size
        cdef const uint8_t* raw = <const uint8_t*> PyBytes_AS_STRING(data)
        cdef int done = image_value(&draft.text, column, raw, at, end)
        if done != IMAGE_ASK:
            return done
        draft.text.size = start
        if column.kind == LABEL or column.kind == LABELS:
            self.label(draft, column, self.labels[place], little(raw + at[0], column.width))
            at[0] += column.width
            return 0
        text, after = self.readers[place](data, at[0])
        put(draft, text)
        at[0] = after
        return 1 if at[0] > end else 0

    cdef int label(self, Draft draft, const column_t* column, list labels, uint64_t chosen) except -1:
        """An ENUM's label, counted from one, or a SET's, a bit for each."""
        if column.kind == LABEL:
            if chosen > <uint64_t> len(labels):
                raise IndexError(chosen)
            put_bytes(draft, <bytes> labels[chosen - 1] if chosen else b'""')
            return 0
        put_bytes(draft, b"[")
        first = True
        for place in range(len(labels)):
            if chosen >> <int> place & 1:
                if not first:
                    put_bytes(draft, b",")
                put_bytes(draft, <bytes> labels[place])
                first = False
        return put_bytes(draft, b"]")


cdef enum:
    LARGEST = 0xFFFFFF  # a packet of so many bytes goes on in the next one
    NULL_MARK = 0xFB
    EVENT_HEAD = 19
    FORMAT_DESCRIPTION = 15


def passed(bytearray data, Py_ssize_t at):
    """(behind the last whole row that is in `data` from `at` on, rows, whether a packet that is no row follows it)."""
    cdef const uint8_t* raw = <const uint8_t*> PyByteArray_AS_STRING(data)
    cdef Py_ssize_t end = PyByteArray_GET_SIZE(data), here = at, rows = 0, size
    while end - here >= 5:
        size = <Py_ssize_t> little(raw + here, 3)
        if here == at and (raw[here + 4] == 0xFF or (raw[here + 4] == 0xFE and size < 9)):
            return at, rows, True
        if end - here - 4 < size:
            break
        here += 4 + size
        if size < LARGEST:
            at = here
            rows += 1
    return at, rows, False


def events_of(bytearray data, Py_ssize_t at, bint checksums):
    """The whole events in packets from `at` on, and where the next packet begins. It ends before whatever is not certain."""
    cdef const uint8_t* raw = <const uint8_t*> PyByteArray_AS_STRING(data)
    cdef const uint8_t* event
    cdef Py_ssize_t end = PyByteArray_GET_SIZE(data), size, last
    found = []
    while end - at > 4 + EVENT_HEAD:
        size = <Py_ssize_t> little(raw + at, 3)
        event = raw + at + 5
        if size == LARGEST or end - at - 4 < size or size <= EVENT_HEAD or raw[at + 4] != 0:
            break
        size -= 1
        if <Py_ssize_t> little(event + 9, 4) != size or event[4] == FORMAT_DESCRIPTION:
            break
        last = size
        if checksums:
            last -= 4
            if last < EVENT_HEAD or crc32(PyBytes_FromStringAndSize(<const char*> event, last)) != little(event + last, 4):
                break
        found.append(BinlogEvent(
            little(event, 4), event[4], little(event + 5, 4), little(event + 13, 4), little(event + 17, 2),
            PyBytes_FromStringAndSize(<const char*> event + EVENT_HEAD, last - EVENT_HEAD),
        ))
        at += 5 + size
    return found, at


cdef class SelectedPlan:
    """How the rows of a SELECT are read: of each column how (a word of selected.py, "" to ask), its charset, its writer."""

    cdef readonly Form form
    cdef column_t* columns
    cdef int count
    cdef list writers

    def __cinit__(self, Form form, list columns):
        self.form, self.count = form, len(columns)
        self.writers = [write for _, _, write in columns]
        self.columns = <column_t*> calloc(self.count + 1, sizeof(column_t))
        if self.columns == NULL:
            raise MemoryError
        for place, (word, charset, _) in enumerate(columns):
            self.columns[place].kind = selected_kind(word, charset)

    def __dealloc__(self):
        free(self.columns)

    def rows(self, bytearray data, Py_ssize_t end):
        """The rows of the packets up to `end`, where one ends, and what stands behind the columns of the last one."""
        cdef Draft draft = Draft(self.form)
        cdef const uint8_t* raw = <const uint8_t*> PyByteArray_AS_STRING(data)
        cdef Py_ssize_t at = 0, size, behind
        cdef bytes joined, last = b""
        found = []
        while at < end:
            size = <Py_ssize_t> little(raw + at, 3)
            at += 4
            if size < LARGEST:
                behind = self.row(draft, raw + at, size)
                if at + size >= end:
                    last = bytes(data[at + behind:at + size])
            else:
                pieces = [data[at:at + size]]
                while size == LARGEST:
                    at += size
                    size = <Py_ssize_t> little(raw + at, 3)
                    at += 4
                    pieces.append(data[at:at + size])
                joined = b"".join(pieces)
                last = joined[self.row(draft, <const uint8_t*> PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined)):]
            at += size
            found.append(draft.done())
        return found, last

    cdef Py_ssize_t row(self, Draft draft, const uint8_t* raw, Py_ssize_t end) except -1:
        """Where the values behind the columns begin."""
        cdef Py_ssize_t at = 0, size
        cdef int place, width
        cdef size_t start
        draft.begin()
        for place in range(self.count):
            draft.name(place)
            if at >= end:
                raise types.Unreadable("the server sent fewer values than it was asked for.")
            if raw[at] == NULL_MARK:
                at += 1
                if text_put(&draft.text, PyBytes_AS_STRING(NULL_TEXT), 4):
                    raise MemoryError
                draft.value(place)
                continue
            width = 0 if raw[at] < NULL_MARK else 8 if raw[at] == 0xFE else raw[at] - 0xFA
            if end - at <= width:
                raise types.Unreadable("the server sent a value that is cut off.")
            size = <Py_ssize_t> little(raw + at + 1, width) if width else raw[at]
            at += 1 + width
            if size < 0 or end - at < size:
                raise types.Unreadable("the server sent a value that is cut off.")
            start = draft.text.size
            if selected_value(&draft.text, &self.columns[place], raw + at, size):
                draft.text.size = start
                put(draft, self.writers[place](raw[at:at + size]))
            draft.value(place)
            at += size
        return at


cdef int selected_kind(str word, str charset):
    if word == "text" or word == "json":
        if charset in ("utf8mb4", "utf8mb3", "utf8"):
            return UTF8 if word == "text" else DOCUMENT
        return NARROW if word == "text" and reads_ascii(charset) else ASKED
    return {"whole": WHOLE, "point": POINT, "real": REAL, "short": SHORT_REAL, "plain": PLAIN, "bytes": BYTES}.get(word, ASKED)


cdef int put(Draft draft, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* shown = PyUnicode_AsUTF8AndSize(text, &size)
    if text_put(&draft.text, shown, size):
        raise MemoryError
    return 0


cdef int put_bytes(Draft draft, bytes text) except -1:
    if text_put(&draft.text, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)):
        raise MemoryError
    return 0
