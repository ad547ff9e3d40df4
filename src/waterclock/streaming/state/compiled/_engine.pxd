# What _engine.pyx uses of columns.h and the headers that it includes.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "columns.h" nogil:
    cdef cppclass View "waterclock::View":
        View()
        const char *at
        uint32_t size
    cdef cppclass Texts "waterclock::Texts":
        Texts()
        int64_t rows
        View operator[](int64_t)
    Texts checked "waterclock::checked"(
        const int32_t *, int64_t, const char *, int64_t, const uint8_t *, int64_t, int64_t, int64_t) except +
    cdef cppclass Plan "waterclock::Plan":
        Plan()
        vector[pair[int32_t, int32_t]] delays, opens
        vector[int32_t] meets, withdraws
    cdef cppclass Rules "waterclock::Rules":
        Rules()
        int ordering, on_gap
        int64_t wait_us, within_us
        cbool has_events, watches, asks
        int32_t due_columns
        uint32_t conditions, carried, ties
        vector[int64_t] delay_us, expect_us, quiet_us
        vector[int32_t] expect_by, quiet_where
        vector[string] emits
        vector[vector[int32_t]] carry
        vector[Plan] plans
        size_t words()
    void add_type "waterclock::add_type"(Rules &, const string &, int32_t) except +
    cdef cppclass Keys "waterclock::Keys":
        cbool knows(View)
    cdef struct Counters "waterclock::Counters":
        int64_t events, heartbeats, duplicates, late, reordered, released, held, pending
    cdef cppclass Results "waterclock::Results":
        Results()
        vector[uint8_t] kind
        vector[int32_t] rule
        vector[int64_t] due, row
        vector[View] key, source
        size_t key_bytes, source_bytes
        size_t size()
    cdef cppclass Deadlines "waterclock::Deadlines":
        int64_t watermark
        void move(int64_t)
        void open(int, int64_t) except +
        void pass_fresh() except +
        void in_order() except +
    cdef cppclass Core "waterclock::Core":
        Rules rules
        cbool has_lists()
        Deadlines deadlines
        Counters counters
        Results results
        int64_t watermark
    cdef cppclass CEngine "waterclock::Engine":
        Core core
        CEngine(Rules) except +
        vector[View] due_keys() except +
        void fire() except +
        void take(const Texts &, int64_t) except +
    cdef cppclass Chunks "waterclock::Chunks":
        void pass_chunk "pass"(View, const Texts &, const Texts &, const int64_t *, int64_t) except +
    cdef cppclass Stored "waterclock::Stored":
        Chunks chunks
        Stored(CEngine &, cbool) except +
    cdef cppclass Writer "waterclock::Writer":
        string to
    cdef cppclass States "waterclock::States":
        States()
        vector[int32_t] key_ends, packed_ends, held
        vector[uint32_t] hashes
        vector[int64_t] gone_by, rows
        string keys
        Writer packed
    cdef cppclass Slot "waterclock::Slot":
        int level
        int64_t slot, deliveries
        string others
    cdef cppclass Values "waterclock::Values":
        Values()
        char kind
        Texts texts
        const int64_t *wholes
        const double *reals
        const uint8_t *valid
    cdef cppclass Packed "waterclock::Packed":
        int64_t rows()
    void pack "waterclock::pack"(const vector[Values] &, int64_t, cbool, Packed &) except +
    cdef cppclass Carried "waterclock::Carried":
        char kind
        vector[uint8_t] has, valid
        vector[int64_t] wholes
        vector[double] reals
        vector[View] texts
    cbool carries_any "waterclock::carries_any"(const Results &)
    vector[Carried] carried_by "waterclock::carried_by"(const Results &, const Rules &, const string &) except +
    cdef cppclass Incoming "waterclock::Incoming":
        Incoming()
        Texts ids, types
        const int64_t *times
        const int64_t *numbers
        const int64_t *delivers
        const int64_t *promised
        const uint64_t *holds
        const Packed *carried
        const Packed *ties
    cdef cppclass Reader "waterclock::Reader":
        Reader(View)
        void array_of(uint32_t) except +
        View skip() except +
        View binary() except +
    cdef cppclass CWanted "waterclock::Wanted":
        CWanted()
        Keys keys
        void add(const Texts &) except +
        void ready() except +
        cbool is_ready()
        void places(const uint32_t *, int64_t, vector[int64_t] &) except +
    void make_room "waterclock::make_room"(CEngine &, int64_t) except +
    void rows_of "waterclock::rows_of"(CEngine &, const Incoming &, int64_t) except +
    Texts part "waterclock::part"(const Texts &, int64_t, int64_t)
    void states_of "waterclock::states_of"(CEngine &, Stored &, States &) except +
    void wake_all "waterclock::wake_all"(Stored &, const Texts &, const Texts &, const int32_t *, int64_t, int64_t) except +
    vector[Slot] fresh_of "waterclock::fresh_of"(CEngine &, Stored &, vector[int64_t] &) except +
    int64_t first_fresh "waterclock::first_fresh"(const CEngine &, int, int64_t &)
    vector[int64_t] fresh_up_to "waterclock::fresh_up_to"(const CEngine &, int, int64_t) except +
    void texts_of "waterclock::texts_of"(const vector[View] &, int32_t *, char *)
    vector[int64_t] ids_of "waterclock::ids_of"(
        const Results &, const vector[string] &, const vector[string] &, cbool, char *) except +
