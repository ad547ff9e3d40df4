# cython: language_level=3, binding=False, auto_pickle=False, boundscheck=False, wraparound=False
"""Tuples of `pgoutput`, straight from their bytes to the JSON text of their columns.

Rule 1: rows.py says what is right: a tuple that has a value which was not sent, fewer columns than its relation, or bytes that
        are no UTF-8 is not read here (None). JSON that is not certain is asked for there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint64_t

from waterclock.changes._written cimport Draft, Form, Written, is_ascii, text_put, text_quoted, text_t

from waterclock.changes.maxwell import json_of


cdef extern from "../mysql/image.h" nogil:
    uint64_t big(const uint8_t*, int)
    int sure_json(const uint8_t*, size_t)

TEXT, NUMBER, BOOLEAN, JSON = range(4)
cdef enum:
    A_NUMBER = 1
    A_BOOLEAN = 2
    A_JSON = 3


cdef class TuplePlan:
    """How the tuples of a relation are read; `kinds` says TEXT, NUMBER, BOOLEAN or JSON of each column."""

    cdef readonly Form form
    cdef Draft draft
    cdef bytes kinds

    def __init__(self, Form form, bytes kinds):
        self.form, self.kinds, self.draft = form, kinds, Draft(form)

    def row(self, bytes message, Py_ssize_t at):
        """The row at `at` and what follows it; None if it is not read here."""
        cdef const uint8_t* raw = <const uint8_t*> PyBytes_AS_STRING(message)
        cdef const char* kinds = PyBytes_AS_STRING(self.kinds)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(message), size
        cdef Draft draft = self.draft
        cdef int place, count = <int> PyBytes_GET_SIZE(self.kinds), failed
        if end - at < 2 or big(raw + at, 2) != <uint64_t> count:
            return None
        at += 2
        draft.begin()
        for place in range(count):
            if at >= end:
                return None
            draft.name(place)
            if raw[at] == b"n":
                failed = text_put(&draft.text, "null", 4)
                at += 1
            elif raw[at] == b"t" and end - at >= 5 and <uint64_t> (end - at - 5) >= big(raw + at + 1, 4):
                size = <Py_ssize_t> big(raw + at + 1, 4)
                failed = self.value(kinds[place], raw + at + 5, size)
                at += 5 + size
            else:
                return None
            if failed:
                return None
            draft.value(place)
        return draft.done(), at

    def fetched(self, value, int row):
        """A row of a result and the bytes of its values; `value(row, place)` is what came. None if it is not read here."""
        cdef const char* kinds = PyBytes_AS_STRING(self.kinds)
        cdef Draft draft = self.draft
        cdef int place, failed
        cdef Py_ssize_t size = 0
        cdef bytes raw
        draft.begin()
        for place in range(<int> PyBytes_GET_SIZE(self.kinds)):
            draft.name(place)
            raw = value(row, place)
            if raw is None:
                failed = text_put(&draft.text, "null", 4)
            else:
                size += PyBytes_GET_SIZE(raw)
                failed = self.value(kinds[place], <const uint8_t*> PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            if failed:
                return None
            draft.value(place)
        return draft.done(), size

    cdef int value(self, int kind, const uint8_t* text, Py_ssize_t size) except -1:
        """0; 1 if it is not UTF-8, or nothing."""
        cdef Draft draft = self.draft
        cdef Py_ssize_t length
        cdef const char* shown
        if kind == A_NUMBER and (size == 0 or not is_ascii(text, size)):
            return 1
        if kind == A_NUMBER and b"0" <= text[size - 1] <= b"9":
            return 1 if text_put(&draft.text, <const char*> text, size) else 0
        if kind == A_BOOLEAN:
            if size != 1 or text[0] > 127:
                return 1
            yes = text[0] == b"t"
            return 1 if text_put(&draft.text, "true" if yes else "false", 4 if yes else 5) else 0
        if kind == A_JSON:
            if sure_json(text, size):
                return 1 if text_put(&draft.text, <const char*> text, size) else 0
            try:
                plain = json_of(text[:size].decode())
            except UnicodeError:
                return 1
            shown = PyUnicode_AsUTF8AndSize(plain, &length)
            return 1 if text_put(&draft.text, shown, length) else 0
        return 1 if text_quoted(&draft.text, text, size) else 0
