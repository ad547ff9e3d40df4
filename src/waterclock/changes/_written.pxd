from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "waterclock/changes/text.h" nogil:
    ctypedef struct text_t:
        char* bytes
        size_t size
        size_t room
    int text_put(text_t*, const char*, size_t)
    int text_number(text_t*, uint64_t, int)
    int text_signed(text_t*, int64_t)
    int text_quoted(text_t*, const uint8_t*, size_t)
    int text_base64(text_t*, const uint8_t*, size_t, size_t)
    int is_ascii(const uint8_t*, size_t)


cdef class Form:
    cdef readonly tuple names
    cdef readonly tuple key
    cdef bytes head
    cdef bytes key_head
    cdef bytes key_list
    cdef list pieces
    cdef list key_pieces
    cdef dict places
    cdef list marks


cdef class Draft:
    cdef text_t text
    cdef Form form
    cdef int32_t* spans
    cdef void begin(self) noexcept
    cdef int name(self, int place) except -1
    cdef void value(self, int place) noexcept
    cdef Written done(self)


cdef class Written:
    cdef readonly Form form
    cdef bytes raw
    cdef int32_t* spans
    cdef int count
    cdef str text(self, int place)
    cdef bint differs(self, Written other, int place) noexcept
    cdef Written part(self, list places)
    cdef int types(self, bytes word) except -1
    cdef bint says_less(self, int place, int kind) noexcept
