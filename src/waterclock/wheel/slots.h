/* Structure of the array wheel: records, the chunks they stand in, buckets in levels. No Python in here.
 *
 * A timer is a record of 16 bytes, found by its index, which is half of its id; the other half is the
 * record's generation. Time is read as in buckets.h: in ticks since the wheel was last empty, as digits in
 * base 256, with a cursor. A record stands in the level of the highest digit in which its tick differs from the
 * cursor, in the bucket of that digit; a bitmap a level says which buckets are in use.
 *
 * A bucket is a chain of chunks of 64 slots, a slot is the index of a record, and the record knows its slot.
 * Which slots of a chunk are in use is one word beside it: leaving clears a bit and touches no slot. A
 * chunk that is empty leaves the chain; two neighbours with few timers become one.
 *
 *     id = generation, index  ->  record: deadline, mark, slot  ->  chunk: used, next, prev, bucket
 *
 * Two more buckets stand beside the levels: DUE holds what comes out first, LATE what was scheduled for
 * the present or the past. In order of time: DUE, then the levels up to now, then LATE, then the rest.
 *
 * Rule 1: the cursor enters a block (a value of a digit) only by cascading that block's bucket, in one go.
 *         So what was added before reaches a finer bucket before what is added after: within a tick the
 *         order of adding holds without sequence numbers.
 * Rule 2: what can fail for want of memory is reserved before anything changes. Leaving needs no memory:
 *         the stack of free records has space for all records.
 * Rule 3: leaving looks at one chunk and its neighbours, never at a whole bucket. A bucket has at most 4
 *         slots a timer, and 64.
 * Rule 4: free records are a stack: the last one freed is given first. Index 0 is never given.
 */
#ifndef WATERCLOCK_SLOTS_H
#define WATERCLOCK_SLOTS_H

#include "segments.h"

enum { LEVELS = 8, DIGIT = 8, WIDTH = 1 << DIGIT, WORDS = WIDTH / 64 };
enum { BUCKETS = LEVELS * WIDTH, DUE = BUCKETS, LATE, ALL_BUCKETS, NOWHERE = ALL_BUCKETS };
/* Slots a chunk. With LOOSE or fewer timers left it is tidied each time FEW more have left: it and a neighbour become
 * one when they hold MERGED or fewer. So two neighbours hold 34 at least, which is more than a quarter of their slots. */
enum { SLOTS = 64, LOOSE = 32, FEW = 8, MERGED = 48 };
enum { RECORD_BITS = 17, CHUNK_BITS = 13 };   /* a segment: 2 MB of records; 2 MB of slots, 64 a chunk */
enum { MAX_CHUNKS = 1 << 26 };                /* what a link holds, and a slot of 32 bits */

#define FREE_MARK 0x80000000u

typedef struct {
    int64_t deadline;
    uint32_t mark; /* generation, 31 bits; above it FREE_MARK */
    uint32_t slot;
} Record;

typedef struct {
    uint64_t used; /* a bit a slot */
    uint64_t next : 26, prev : 26, bucket : 12;
} Chunk; /* chunk 0 is never used: no chunk */

typedef struct {
    uint32_t head; /* first chunk */
    uint32_t end;  /* the slot for the next one; a multiple of 64, or 0, when the last chunk is full */
    uint32_t live;
} Bucket;

typedef struct {
    Column records, freed, chunks, slots;
    uint32_t fresh, free_count;      /* records from `fresh` on were never given */
    uint32_t fresh_chunk, pool;      /* chunks from `fresh_chunk` on were never used; free ones are chained */
    uint64_t pooled;
    int64_t tick, base, clock;       /* base: the time of tick 0; clock: now, in the caller's unit */
    uint64_t cursor, now, soonest;   /* ticks: reached; now; the earliest in the levels, 0 when not known */
    int64_t live, cascaded, opened, fired, cancelled;
    uint64_t bitmap[LEVELS * WORDS];
    uint32_t used;                   /* a bit a level that has a bucket in use */
    int busy;                        /* a thread is inside */
    Bucket buckets[ALL_BUCKETS];
} Wheel;

static inline Record *record_of(const Wheel *w, uint32_t index) {
    return (Record *)w->records.segment[index >> RECORD_BITS] + (index & ((1u << RECORD_BITS) - 1));
}

static inline uint32_t *freed_at(const Wheel *w, uint32_t place) {
    return (uint32_t *)w->freed.segment[place >> RECORD_BITS] + (place & ((1u << RECORD_BITS) - 1));
}

static inline Chunk *chunk_of(const Wheel *w, uint32_t chunk) {
    return (Chunk *)w->chunks.segment[chunk >> CHUNK_BITS] + (chunk & ((1u << CHUNK_BITS) - 1));
}

static inline uint32_t *slots_of(const Wheel *w, uint32_t chunk) {
    return (uint32_t *)w->slots.segment[chunk >> CHUNK_BITS] + (chunk & ((1u << CHUNK_BITS) - 1)) * SLOTS;
}

/* Bits that are set; without the processor's own instruction, which not every machine has. */
static inline uint32_t count_bits(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    return (uint32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

/* The place behind the highest bit that is set. */
static inline uint32_t width(uint64_t x) { return x == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(x); }

static inline uint64_t lowest(uint32_t bits) { return bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1; }

/* Memory */

static inline uint64_t capacity_left(uint32_t segments, uint32_t bits, uint32_t fresh) {
    uint64_t capacity = (uint64_t)segments << bits;
    return capacity > fresh ? capacity - fresh : 0;
}

static int reserve_records(Wheel *w, uint64_t count) {
    while (w->free_count + capacity_left(w->records.count, RECORD_BITS, w->fresh) < count) {
        if (w->records.count == 1u << (32 - RECORD_BITS))
            return -1;
        if (w->freed.count == w->records.count && column_grow(&w->freed, sizeof(uint32_t) << RECORD_BITS) < 0)
            return -1;
        if (column_grow(&w->records, sizeof(Record) << RECORD_BITS) < 0)
            return -1;
    }
    return 0;
}

static int reserve_chunks(Wheel *w, uint64_t count) {
    while (w->pooled + capacity_left(w->chunks.count, CHUNK_BITS, w->fresh_chunk) < count) {
        if (w->chunks.count == MAX_CHUNKS >> CHUNK_BITS)
            return -1;
        if (w->slots.count == w->chunks.count && column_grow(&w->slots, (SLOTS * sizeof(uint32_t)) << CHUNK_BITS) < 0)
            return -1;
        if (column_grow(&w->chunks, sizeof(Chunk) << CHUNK_BITS) < 0)
            return -1;
    }
    return 0;
}

/* Records */

static inline uint32_t record_take(Wheel *w) {
    if (w->free_count == 0) {
        *record_of(w, w->fresh) = (Record){0, 0, 0};
        return w->fresh++;
    }
    if (w->free_count > 32)
        prefetchw(record_of(w, *freed_at(w, w->free_count - 32)));
    return *freed_at(w, --w->free_count);
}

/* The timer is over: the next one here has the next generation, which goes round after 2**31 of them. */
static inline void record_free(Wheel *w, uint32_t index, Record *r) {
    r->mark = (r->mark + 1) | FREE_MARK;
    *freed_at(w, w->free_count++) = index;
}

static inline int64_t id_of(const Record *r, uint32_t index) { return (int64_t)((uint64_t)r->mark << 32 | index); }

/* Chunks */

static inline uint32_t chunk_take(Wheel *w) { /* reserved before: cannot fail */
    uint32_t c = w->pool;
    if (c == 0)
        return w->fresh_chunk++;
    w->pool = chunk_of(w, c)->next;
    w->pooled--;
    if (w->pool != 0)
        prefetchw(slots_of(w, w->pool));
    return c;
}

static inline void chunk_release(Wheel *w, uint32_t c) {
    *chunk_of(w, c) = (Chunk){0, w->pool, 0, NOWHERE};
    w->pool = c;
    w->pooled++;
}

/* The indices in a chunk, in order. */
static inline uint32_t chunk_read(const Wheel *w, uint32_t c, uint32_t *index) {
    const uint32_t *slots = slots_of(w, c);
    uint32_t count = 0;
    for (uint64_t left = chunk_of(w, c)->used; left != 0; left &= left - 1)
        index[count++] = slots[__builtin_ctzll(left)];
    return count;
}

/* The same, and their records are fetched. */
static inline uint32_t chunk_gather(const Wheel *w, uint32_t c, uint32_t *index) {
    uint32_t count = chunk_read(w, c, index);
    for (uint32_t i = 0; i < count; i++)
        prefetchw(record_of(w, index[i]));
    return count;
}

/* Make these the content of a chunk, without gaps. */
static void chunk_fill(Wheel *w, uint32_t c, const uint32_t *index, uint32_t count) {
    uint32_t *slots = slots_of(w, c);
    for (uint32_t place = 0; place < count; place++) {
        slots[place] = index[place];
        record_of(w, index[place])->slot = c * SLOTS + place;
    }
    chunk_of(w, c)->used = lowest(count);
}

/* Buckets */

static inline uint32_t tail_of(const Bucket *b) { return (b->end - 1) / SLOTS; } /* of one that is not empty */

static inline void bucket_mark(Wheel *w, uint32_t which) {
    if (which < BUCKETS) {
        w->bitmap[which / 64] |= (uint64_t)1 << which % 64;
        w->used |= 1u << which / WIDTH;
    }
}

static void bucket_unmark(Wheel *w, uint32_t which) {
    const uint64_t *level;
    if (which >= BUCKETS)
        return;
    level = &w->bitmap[which / WIDTH * WORDS];
    w->bitmap[which / 64] &= ~((uint64_t)1 << which % 64);
    if ((level[0] | level[1] | level[2] | level[3]) == 0)
        w->used &= ~(1u << which / WIDTH);
}

/* Space for one, which is taken at once: the last chunk is packed when it is loose, else there is one more. */
static void bucket_grow(Wheel *w, uint32_t which) {
    Bucket *b = &w->buckets[which];
    uint32_t index[SLOTS], tail = 0, c;
    if (b->head == 0) {
        bucket_mark(w, which);
    } else {
        tail = tail_of(b);
        if (count_bits(chunk_of(w, tail)->used) <= LOOSE) {
            uint32_t count = chunk_gather(w, tail, index);
            chunk_fill(w, tail, index, count);
            b->end = tail * SLOTS + count;
            return;
        }
    }
    c = chunk_take(w);
    *chunk_of(w, c) = (Chunk){0, 0, tail, which};
    if (tail == 0)
        b->head = c;
    else
        chunk_of(w, tail)->next = c;
    b->end = c * SLOTS;
}

static inline void bucket_append(Wheel *w, uint32_t which, uint32_t index, Record *r) {
    Bucket *b = &w->buckets[which];
    uint32_t slot, *place;
    if (unlikely(b->end % SLOTS == 0))
        bucket_grow(w, which);
    slot = b->end++;
    place = slots_of(w, slot / SLOTS) + slot % SLOTS;
    if (slot % 16 == 0)
        prefetchw(place + 16);
    *place = index;
    chunk_of(w, slot / SLOTS)->used |= (uint64_t)1 << slot % SLOTS;
    r->slot = slot;
    b->live++;
}

static void chunk_unlink(Wheel *w, uint32_t c) {
    Chunk *chunk = chunk_of(w, c);
    Bucket *b = &w->buckets[chunk->bucket];
    uint32_t next = chunk->next, prev = chunk->prev;
    if (prev != 0)
        chunk_of(w, prev)->next = next;
    else
        b->head = next;
    if (next != 0)
        chunk_of(w, next)->prev = prev;
    else /* the one before is the last now, with space behind its last timer */
        b->end = prev == 0 ? 0 : prev * SLOTS + width(chunk_of(w, prev)->used);
    if (b->head == 0)
        bucket_unmark(w, chunk->bucket);
    chunk_release(w, c);
}

/* Take what is in the chunk behind c into c, where it fits. */
static void chunk_merge(Wheel *w, uint32_t c) {
    uint32_t index[SLOTS], next = (uint32_t)chunk_of(w, c)->next, count = chunk_gather(w, c, index);
    count += chunk_gather(w, next, index + count);
    chunk_fill(w, c, index, count);
    chunk_unlink(w, next);
}

static int chunks_fit(const Wheel *w, uint32_t c, uint32_t next) {
    return c != 0 && next != 0 && count_bits(chunk_of(w, c)->used) + count_bits(chunk_of(w, next)->used) <= MERGED;
}

/* The first of two neighbours that fit into one, of which c is one; else 0. */
static uint32_t pair_of(const Wheel *w, uint32_t c) {
    uint32_t prev = (uint32_t)chunk_of(w, c)->prev, next = (uint32_t)chunk_of(w, c)->next;
    return chunks_fit(w, prev, c) ? prev : chunks_fit(w, c, next) ? c : 0;
}

/* After leaving: an empty chunk goes, and of three neighbours two become one where they fit. */
static void chunk_tidy(Wheel *w, uint32_t c) {
    uint32_t prev = (uint32_t)chunk_of(w, c)->prev, first;
    if (chunk_of(w, c)->bucket == NOWHERE)
        return; /* a neighbour has taken it in meanwhile */
    if (chunk_of(w, c)->used == 0) {
        chunk_unlink(w, c);
        if ((c = prev) == 0 || chunk_of(w, c)->used == 0)
            return; /* that one's own turn is still to come */
    }
    if ((first = pair_of(w, c)) != 0)
        chunk_merge(w, first);
}

/* A timer leaves its slot; true when its chunk is to be tidied soon, which is when a few more have left a
 * loose one. */
static inline int slot_clear(Wheel *w, uint32_t slot) {
    Chunk *chunk = chunk_of(w, slot / SLOTS);
    uint32_t left;
    chunk->used &= ~((uint64_t)1 << slot % SLOTS);
    w->buckets[chunk->bucket].live--;
    left = count_bits(chunk->used);
    return unlikely(left <= LOOSE && left % FEW == 0);
}

#endif
