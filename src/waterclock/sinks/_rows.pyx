# cython: language_level=3, binding=False, auto_pickle=False, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Columns of Arrow through a statement of SQLite, a row at a time: what `executemany` does, without a Python object a value.

Rule 1: nothing is linked here. The functions come as addresses, from the SQLite that made the connection.
Rule 2: the interpreter's lock is given up while rows go in. SQLite has a lock of its own for each connection.
Rule 3: texts are not copied: they are bound where they lie, and the caller holds the columns until the call is over.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

ctypedef void* Statement
ctypedef int (*Prepare)(void*, const char*, int, Statement*, const char**) noexcept nogil
ctypedef int (*OfStatement)(Statement) noexcept nogil
ctypedef int (*BindNull)(Statement, int) noexcept nogil
ctypedef int (*BindInteger)(Statement, int, int64_t) noexcept nogil
ctypedef int (*BindReal)(Statement, int, double) noexcept nogil
ctypedef int (*BindText)(Statement, int, const char*, int, void*) noexcept nogil
ctypedef const char* (*Message)(void*) noexcept nogil

NAMES = ("prepare_v2", "step", "reset", "finalize", "bind_null", "bind_int64", "bind_double", "bind_text", "errmsg")
INTEGER, REAL, BOOLEAN, TEXT = range(4)
cdef int OK = 0, DONE = 101
cdef const char* EMPTY = ""
cdef enum:
    AN_INTEGER
    A_REAL
    A_BOOLEAN
    A_TEXT


cdef struct Functions:
    Prepare prepare
    OfStatement step
    OfStatement reset
    OfStatement finalize
    BindNull null
    BindInteger integer
    BindReal real
    BindText text
    Message message


cdef struct Column:
    int kind
    int64_t offset
    const uint8_t* valid
    const void* values
    const char* texts


def insert(addresses, uintptr_t database, bytes statement, batches):
    """Run `statement` for each row of `batches`; None, or (SQLite's code, its words) for the first row that is refused.

    `addresses` are those of NAMES. A batch is (its number of rows, columns); a column is (kind, offset, address of the bits
    that tell what is null, 0 if nothing is, address of the values or of a text's int32 offsets, address of the texts).
    """
    cdef Functions use = functions(addresses)
    cdef void* db = <void*> database
    cdef Statement prepared = NULL
    cdef int code = use.prepare(db, statement, <int> len(statement), &prepared, NULL)
    try:
        for count, columns in batches:
            if code != OK:
                break
            code = insert_batch(&use, prepared, count, columns)
        return None if code == OK else (code, use.message(db).decode("utf-8", "replace"))
    finally:
        use.finalize(prepared)


cdef Functions functions(addresses):
    cdef Functions use
    cdef uintptr_t[9] at
    for place, address in enumerate(addresses):
        at[place] = address
    use.prepare, use.step, use.reset = <Prepare> at[0], <OfStatement> at[1], <OfStatement> at[2]
    use.finalize, use.null, use.integer = <OfStatement> at[3], <BindNull> at[4], <BindInteger> at[5]
    use.real, use.text, use.message = <BindReal> at[6], <BindText> at[7], <Message> at[8]
    return use


cdef int insert_batch(Functions* use, Statement prepared, int64_t count, list columns) except -1:
    cdef int width = <int> len(columns), code
    cdef Column* made = <Column*> calloc(width, sizeof(Column))
    cdef uintptr_t valid, values, texts
    if made == NULL:
        raise MemoryError
    try:
        for place in range(width):
            made[place].kind, made[place].offset, valid, values, texts = columns[place]
            made[place].valid, made[place].values = <const uint8_t*> valid, <const void*> values
            made[place].texts = <const char*> texts
        with nogil:
            code = insert_rows(use, prepared, made, width, count)
        return code
    finally:
        free(made)


cdef int insert_rows(Functions* use, Statement prepared, Column* columns, int width, int64_t count) noexcept nogil:
    cdef int64_t row
    cdef int place, code
    for row in range(count):
        for place in range(width):
            code = bind(use, prepared, place + 1, &columns[place], row + columns[place].offset)
            if code != OK:
                return code
        code = use.step(prepared)
        if code != DONE:
            return code
        use.reset(prepared)
    return OK


cdef inline int bind(Functions* use, Statement prepared, int place, Column* column, int64_t row) noexcept nogil:
    cdef const int32_t* ends
    if column.valid != NULL and not is_set(column.valid, row):
        return use.null(prepared, place)
    if column.kind == A_TEXT:
        ends = <const int32_t*> column.values
        if column.texts == NULL:  # a column of empty texts may have no place for them, and NULL would be null
            return use.text(prepared, place, EMPTY, 0, NULL)
        return use.text(prepared, place, column.texts + ends[row], ends[row + 1] - ends[row], NULL)
    if column.kind == AN_INTEGER:
        return use.integer(prepared, place, (<const int64_t*> column.values)[row])
    if column.kind == A_REAL:
        return use.real(prepared, place, (<const double*> column.values)[row])
    return use.integer(prepared, place, is_set(<const uint8_t*> column.values, row))


cdef inline bint is_set(const uint8_t* bits, int64_t row) noexcept nogil:
    return (bits[row >> 3] >> (row & 7)) & 1
