/* The array wheel's columns in its bytes, out and in, and its invariants. The format: saved.py.
 *
 * Rule 1: what comes in is looked at before it is believed: every index is given once, as pending or as free, and
 *         no time is out of range. Bytes may be wrong in any way and still nothing is touched beyond them.
 */
#ifndef WATERCLOCK_SAVED_H
#define WATERCLOCK_SAVED_H

#include "expire.h"

/* Columns in this order, little-endian, unaligned: deadlines (8 bytes a timer), their indices, the free
 * indices, the generations of indices 1 .. n (4 bytes each). */
typedef struct {
    uint32_t pending, free;
    uint64_t indices, freed, generations; /* where they begin; the deadlines begin at 0 */
} Saved;

static inline uint64_t swapped64(uint64_t x) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static inline void put64(char *to, int64_t i, int64_t value) {
    uint64_t x = swapped64((uint64_t)value);
    memcpy(to + 8 * i, &x, 8);
}

static inline int64_t get64(const char *from, int64_t i) {
    uint64_t x;
    memcpy(&x, from + 8 * i, 8);
    return (int64_t)swapped64(x);
}

static inline void put32(char *to, int64_t i, uint32_t x) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap32(x);
#endif
    memcpy(to + 4 * i, &x, 4);
}

static inline uint32_t get32(const char *from, int64_t i) {
    uint32_t x;
    memcpy(&x, from + 4 * i, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap32(x);
#endif
    return x;
}

static Saved saved_of(uint32_t pending, uint32_t free) {
    Saved s = {pending, free, 8 * (uint64_t)pending, 12 * (uint64_t)pending, 12 * (uint64_t)pending + 4 * (uint64_t)free};
    return s;
}

static int64_t save_bucket(const Wheel *w, uint32_t which, char *columns, int64_t at) {
    Saved s = saved_of((uint32_t)w->live, 0);
    uint32_t index[SLOTS];
    for (uint32_t c = w->buckets[which].head; c != 0; c = (uint32_t)chunk_of(w, c)->next) {
        uint32_t count = chunk_gather(w, c, index);
        for (uint32_t i = 0; i < count; i++, at++) {
            put64(columns, at, record_of(w, index[i])->deadline);
            put32(columns + s.indices, at, index[i]);
        }
    }
    return at;
}

/* Write the columns of a settled wheel: what is DUE comes first. */
static void wheel_save(const Wheel *w, char *columns) {
    Saved s = saved_of((uint32_t)w->live, w->free_count);
    int64_t at = save_bucket(w, DUE, columns, 0);
    for (uint32_t which = 0; which < BUCKETS; which++)
        at = save_bucket(w, which, columns, at);
    for (uint32_t i = 0; i < w->free_count; i++)
        put32(columns + s.freed, i, *freed_at(w, i));
    for (uint32_t index = 1; index < w->fresh; index++)
        put32(columns + s.generations, index - 1, record_of(w, index)->mark & ~FREE_MARK);
}

static int load_reserve(Wheel *w, uint32_t pending, uint32_t free) {
    if (reserve_records(w, (uint64_t)pending + free) < 0)
        return -1;
    return reserve_chunks(w, pending / SLOTS + ALL_BUCKETS);
}

static int load_pending(Wheel *w, const char *columns, const Saved *s, uint32_t due) {
    for (uint32_t i = 0; i < s->pending; i++) {
        int64_t deadline = get64(columns, i);
        uint32_t index = get32(columns + s->indices, i), which = DUE;
        Record *r;
        if (index == 0 || index >= w->fresh || deadline < -LAST || deadline > LAST)
            return -1;
        r = record_of(w, index);
        if (r->mark < FREE_MARK)
            return -1; /* twice */
        if (i < due ? deadline > w->clock : deadline <= w->base)
            return -1;
        r->deadline = deadline;
        r->mark &= ~FREE_MARK;
        if (i >= due)
            which = bucket_of(w, tick_of(w, deadline));
        bucket_append(w, which, index, r);
    }
    w->live = s->pending;
    return 0;
}

static int load_free(Wheel *w, const char *freed, uint32_t free) {
    for (uint32_t i = 0; i < free; i++) {
        uint32_t index = get32(freed, i);
        Record *r;
        if (index == 0 || index >= w->fresh)
            return -1;
        r = record_of(w, index);
        if (r->mark < FREE_MARK || r->slot != 0)
            return -1; /* pending, or free twice */
        r->slot = 1;
        *freed_at(w, i) = index;
    }
    for (uint32_t i = 0; i < free; i++)
        record_of(w, *freed_at(w, i))->slot = 0;
    w->free_count = free;
    return 0;
}

/* Fill an empty wheel whose memory is reserved; -1 when the columns contradict themselves. */
static int wheel_load(Wheel *w, const char *columns, uint32_t due, uint32_t pending, uint32_t free) {
    Saved s = saved_of(pending, free);
    w->fresh = 1 + pending + free;
    for (uint32_t index = 1; index < w->fresh; index++) {
        uint32_t generation = get32(columns + s.generations, index - 1);
        if (generation >= FREE_MARK)
            return -1;
        *record_of(w, index) = (Record){0, generation | FREE_MARK, 0};
    }
    if (load_pending(w, columns, &s, due) < 0)
        return -1;
    return load_free(w, columns + s.freed, free);
}

/* Invariants, for tests */

#define MUST(what, text) \
    if (!(what))         \
    return text

static const char *check_record(const Wheel *w, uint32_t which, uint32_t index, uint32_t slot) {
    const Record *r;
    MUST(index > 0 && index < w->fresh, "a slot holds an index that was never given");
    r = record_of(w, index);
    MUST(r->mark < FREE_MARK, "a record is free and in a bucket");
    MUST(r->slot == slot, "a record stands elsewhere than it says");
    if (which >= BUCKETS)
        return r->deadline <= w->clock ? NULL : "a timer is due before its time";
    MUST(tick_of(w, r->deadline) >= w->cursor, "a timer lies behind the cursor");
    MUST(bucket_of(w, tick_of(w, r->deadline)) == which, "a timer is in the wrong bucket");
    MUST(w->soonest == 0 || tick_of(w, r->deadline) >= w->soonest, "a timer is earlier than the earliest");
    return NULL;
}

static const char *check_bucket(const Wheel *w, uint32_t which, uint64_t *live, uint64_t *chunks) {
    const Bucket *b = &w->buckets[which];
    uint64_t held = 0, places = 0;
    const char *wrong;
    for (uint32_t c = b->head, prev = 0; c != 0; prev = c, c = (uint32_t)chunk_of(w, c)->next) {
        const Chunk *chunk = chunk_of(w, c);
        MUST(chunk->prev == prev && chunk->bucket == which, "a chunk is linked wrongly");
        MUST(chunk->used != 0, "an empty chunk is kept");
        if (chunk->next == 0)
            MUST(tail_of(b) == c && (b->end % SLOTS == 0 || chunk->used >> b->end % SLOTS == 0),
                 "the end of a bucket is not behind its last timer");
        for (uint64_t left = chunk->used; left != 0; left &= left - 1, held++) {
            uint32_t place = (uint32_t)__builtin_ctzll(left);
            if ((wrong = check_record(w, which, slots_of(w, c)[place], c * SLOTS + place)) != NULL)
                return wrong;
        }
        places += SLOTS;
        ++*chunks;
    }
    MUST(held == b->live, "a bucket has miscounted");
    MUST(places <= 4 * held + 64, "a bucket keeps too many empty slots");
    MUST((b->head == 0) == (b->end == 0), "an empty bucket has an end");
    if (which < BUCKETS)
        MUST((w->bitmap[which / 64] >> which % 64 & 1) == (held > 0), "the bitmap is wrong");
    *live += held;
    return NULL;
}

static const char *check_free(const Wheel *w, uint64_t chunks) {
    uint64_t free = 0, pooled = 0;
    for (uint32_t index = 1; index < w->fresh; index++)
        free += record_of(w, index)->mark >= FREE_MARK;
    MUST(free == w->free_count, "the free records are miscounted");
    for (uint32_t i = 0; i < w->free_count; i++)
        MUST(record_of(w, *freed_at(w, i))->mark >= FREE_MARK, "a record on the stack is not free");
    for (uint32_t c = w->pool; c != 0; c = (uint32_t)chunk_of(w, c)->next)
        pooled++;
    MUST(pooled == w->pooled, "the free chunks are miscounted");
    MUST(pooled + chunks + 1 == w->fresh_chunk, "a chunk is lost");
    return NULL;
}

/* What is wrong with the wheel, or NULL. */
static const char *wheel_check(const Wheel *w) {
    uint64_t live = 0, chunks = 0;
    const char *wrong;
    for (uint32_t which = 0; which < ALL_BUCKETS; which++)
        if ((wrong = check_bucket(w, which, &live, &chunks)) != NULL)
            return wrong;
    MUST(live == (uint64_t)w->live, "a timer is counted that does not wait, or the other way round");
    MUST(live + w->free_count + 1 == w->fresh, "a record is lost");
    MUST(w->cursor <= w->now, "the cursor is ahead of now");
    for (uint32_t level = 0; level < LEVELS; level++) {
        const uint64_t *word = &w->bitmap[level * WORDS];
        MUST((w->used >> level & 1) == ((word[0] | word[1] | word[2] | word[3]) != 0), "a level is marked wrongly");
    }
    return check_free(w, chunks);
}

#endif
