/* The structure of the compiled wheel: entries in buckets, buckets in levels, a cursor. No Python in here.
 *
 * Time is counted in ticks since the wheel was last empty and read as digits: with 256 buckets a level,
 * level k is digit k of that number in base 256. The cursor is the tick the wheel has reached. An entry hangs in
 * the level of the highest digit in which its tick differs from the cursor, in the bucket of that digit. Where all
 * levels have the same power of two that is one count of leading zeros, no walk up. Levels of other sizes are digits
 * of a mixed base, as seconds, minutes and hours are: found by dividing both ticks until they are equal. A bitmap a
 * level says which buckets are in use, so the next one is found by counting trailing zeros.
 *
 * A bucket is a list of chunks of 30 pointers; an entry knows its place in it. Leaving blanks that place.
 * A bucket with many blanks is packed, a few chunks at each leaving: everything moves down to `to`, and the
 * chunks between that and `from` are given back. So a cancel never walks a bucket, and yet no bucket has more
 * than 4 places for each living entry, and 64: packing begins well before, and is done long before.
 *
 * Rule 1: the cursor enters a block (a value of a digit) only by cascading that block's bucket, in one go.
 *         So what was added before reaches a finer bucket before what is added after: within a tick the
 *         order of adding holds without sequence numbers. And at every moment a tick says which bucket it is in.
 * Rule 2: `firing` is the bucket being taken from. Meanwhile it is neither packed nor freed; entries of
 *         the same tick may be appended to it, and are taken too.
 * Rule 3: what can fail for want of memory fails before anything has changed.
 * Rule 4: a place that was left may not be blank yet, and what it points to may be gone. Who reads what stands in
 *         chunks, or gives one back, says blank_all before.
 */
#ifndef WATERCLOCK_BUCKETS_H
#define WATERCLOCK_BUCKETS_H

#include <stdint.h>

#include "arena.h"

enum {
    CHUNK_SHIFT = 8,
    CHUNK = 1 << CHUNK_SHIFT, /* bytes of a chunk, also its alignment: 16 of header and 30 pointers */
    PLACES = 30,
    STRIDE = 4, /* chunks packed at a time */
    SOON = 8,   /* entries fetched ahead */
    LATER = 8,  /* places fetched before they are made blank */
    MAX_LEVELS = 64
};

typedef struct Entry Entry;
typedef struct Bucket Bucket;
typedef struct Wheel Wheel;

struct Entry {
    void *callback; /* NULL when it waits no more */
    void *argument; /* NULL when there is none */
    int64_t deadline;
    uint64_t tick; /* when it waits no more: CANCELLED or 0 */
    Entry **place; /* in a chunk, whose slab knows the wheel; the bucket is that of its tick */
};

typedef struct Chunk {
    struct Chunk *next;
    uint64_t unused; /* thirty pointers and this fill the 256 bytes */
    Entry *entry[PLACES];
} Chunk;

struct Bucket {
    Entry **end;     /* where the next one goes; aligned to a chunk, or NULL, when the last chunk is full */
    uint32_t total;  /* places taken, blanks included */
    uint32_t live;
    Chunk *from;     /* while it is packed: the next chunk to look at, else NULL */
    Chunk *to;       /* and the chunk to which entries move */
    uint32_t place;  /* in it */
    uint32_t packed; /* places taken up to there */
    Chunk *head;
    uint64_t unused; /* a bucket has 64 bytes: its place is found by a shift */
};

struct Wheel {
    uint64_t cursor, now;    /* ticks: reached; and asked for by advance */
    uint64_t soonest;        /* tick of the earliest entry, plus 1; 0 when it has to be looked up */
    int64_t live, cancelled, cascaded, opened;
    uint64_t used;           /* a bit per level that has a bucket in use */
    uint32_t bits, mask;     /* of a digit, where all levels have the same power of two; else bits is 0 */
    uint32_t levels, words;
    Bucket *buckets, *firing;
    Chunk *at;               /* in the firing bucket: the chunk and the place to take next */
    uint32_t at_place;
    uint64_t left;           /* places, since all were blank; the last ones stand in `later`, not blank yet */
    uint64_t *bitmap;        /* `words` of them a level */
    Slab chunks;
    uint8_t level_of[64];    /* by the highest bit that differs; where bits is not 0 */
    int failed;              /* memory ran out */
    void *owner;             /* the Python object around it */
    uint32_t size[MAX_LEVELS], in_use[MAX_LEVELS]; /* of a level: its buckets, and those with an entry */
    uint32_t first[MAX_LEVELS + 1];                /* its first bucket; behind the last level: all buckets */
    uint64_t unit[MAX_LEVELS];                     /* ticks a bucket */
    Entry **later[LATER];
};

/* As many levels as 64 bits of ticks have digits; of the highest one no bucket that no tick could reach, unless a
 * digit is a number of bits. */
static void wheel_layout(Wheel *w, const uint32_t *sizes, uint32_t count) {
    uint64_t unit = 1, largest;
    uint32_t size;
    do {
        uint32_t level = w->levels++;
        size = sizes[level < count ? level : count - 1];
        largest = UINT64_MAX / unit; /* what there could be of this digit and those above it */
        w->unit[level] = unit;
        w->size[level] = w->bits == 0 && largest < size ? (uint32_t)largest + 1 : size;
        w->first[level + 1] = w->first[level] + w->size[level];
        if (w->words < (size + 63) / 64)
            w->words = (size + 63) / 64;
        unit *= size;
    } while (largest >= size);
}

static int wheel_init(Wheel *w, const uint32_t *sizes, uint32_t count) {
    int same = (sizes[0] & (sizes[0] - 1)) == 0;
    for (uint32_t i = 1; i < count; i++)
        same &= sizes[i] == sizes[0];
    w->bits = same ? (uint32_t)__builtin_ctz(sizes[0]) : 0;
    w->mask = sizes[0] - 1;
    wheel_layout(w, sizes, count);
    for (uint32_t i = 0; i < 64 && same; i++)
        w->level_of[i] = (uint8_t)(i / w->bits);
    w->chunks.shift = CHUNK_SHIFT;
    w->chunks.owner = w;
    w->buckets = (Bucket *)calloc(w->first[w->levels], sizeof(Bucket));
    w->bitmap = (uint64_t *)calloc((size_t)w->levels * w->words, sizeof(uint64_t));
    return w->buckets != NULL && w->bitmap != NULL ? 0 : -1;
}

static void wheel_free(Wheel *w) {
    slab_free(&w->chunks);
    free(w->buckets);
    free(w->bitmap);
}

/* Chunks */

static int bucket_grow(Wheel *w, Bucket *b) {
    Chunk *chunk = (Chunk *)slab_take(&w->chunks);
    if (chunk == NULL)
        return -1;
    chunk->next = NULL;
    if (b->end != NULL)
        ((Chunk *)((char *)b->end - CHUNK))->next = chunk;
    else
        b->head = chunk;
    b->end = chunk->entry;
    return 0;
}

static inline int is_full(Entry **end) { return ((uintptr_t)end & (CHUNK - 1)) == 0; }

/* Buckets */

/* The digits are compared from the lowest on: where what is above them is equal, they are the highest that differ. */
static uint32_t bucket_of_mixed(const Wheel *w, uint64_t tick) {
    uint64_t cursor = w->cursor;
    uint32_t level = 0;
    while (tick / w->size[level] != cursor / w->size[level]) {
        tick /= w->size[level];
        cursor /= w->size[level++];
    }
    return w->first[level] + (uint32_t)(tick % w->size[level]);
}

static inline uint32_t bucket_of(const Wheel *w, uint64_t tick) {
    uint32_t level;
    if (unlikely(w->bits == 0))
        return bucket_of_mixed(w, tick);
    level = w->level_of[63 - __builtin_clzll((tick ^ w->cursor) | 1)];
    return (level << w->bits) | ((uint32_t)(tick >> (level * w->bits)) & w->mask);
}

static inline uint32_t level_at(const Wheel *w, uint32_t index) {
    uint32_t level = 0;
    if (likely(w->bits != 0))
        return index >> w->bits;
    while (index >= w->first[level + 1])
        level++;
    return level;
}

static inline uint64_t *word_of(const Wheel *w, uint32_t level, uint32_t index) {
    return &w->bitmap[level * w->words + ((index - w->first[level]) >> 6)];
}

static inline uint64_t bit_of(const Wheel *w, uint32_t level, uint32_t index) {
    return (uint64_t)1 << ((index - w->first[level]) & 63);
}

static inline void bucket_mark(Wheel *w, uint32_t index) {
    uint32_t level = level_at(w, index);
    *word_of(w, level, index) |= bit_of(w, level, index);
    w->used |= (uint64_t)1 << level;
    w->in_use[level]++;
}

/* A bucket that is empty already may be unmarked again. */
static void bucket_unmark(Wheel *w, Bucket *b) {
    uint32_t index = (uint32_t)(b - w->buckets), level = level_at(w, index);
    uint64_t *word = word_of(w, level, index), bit = bit_of(w, level, index);
    if ((*word & bit) == 0)
        return;
    *word &= ~bit;
    if (--w->in_use[level] == 0)
        w->used &= ~((uint64_t)1 << level);
}

/* Of an entry that waits. */
static inline Wheel *wheel_around(const Entry *e) { return (Wheel *)slab_owner(e->place, CHUNK_SHIFT); }
static inline Bucket *bucket_around(const Wheel *w, const Entry *e) { return &w->buckets[bucket_of(w, e->tick)]; }

static inline int bucket_add(Wheel *w, Entry *e) {
    uint32_t index = bucket_of(w, e->tick);
    Bucket *b = &w->buckets[index];
    if (unlikely(is_full(b->end)) && bucket_grow(w, b) < 0)
        return -1;
    if (((uintptr_t)b->end & 63) == 0)
        prefetchw((char *)b->end + 64);
    *b->end = e;
    e->place = b->end++;
    b->total++;
    if (b->live++ == 0)
        bucket_mark(w, index);
    return 0;
}

/* Leaving. The place may be cold: it is asked for, and made blank when LATER others have been left, or by blank_all. */

static inline void blank_later(Wheel *w, Entry **place) {
    uint64_t count = w->left++;
    prefetchw(place);
    if (count >= LATER)
        *w->later[count % LATER] = NULL;
    w->later[count % LATER] = place;
}

/* Before anybody reads what stands in a chunk, or gives it back. */
static inline void blank_all(Wheel *w) {
    uint32_t count = w->left < LATER ? (uint32_t)w->left : LATER;
    if (likely(count == 0))
        return;
    for (uint32_t i = 0; i < count; i++)
        *w->later[i] = NULL;
    w->left = 0;
}

static void bucket_release(Wheel *w, Bucket *b) {
    Chunk *chunk = b->head, *next;
    blank_all(w);
    for (; chunk != NULL; chunk = next) {
        next = chunk->next;
        slab_give(&w->chunks, chunk);
    }
    b->head = b->from = NULL;
    b->end = NULL;
    b->total = 0;
}

/* Packing. Between any two strides the bucket is whole: what was moved left a blank behind. */

static inline Chunk *last_chunk(const Bucket *b) {
    return (Chunk *)(((uintptr_t)b->end - 1) & ~(uintptr_t)(CHUNK - 1));
}

static void pack_begin(Bucket *b) {
    b->from = b->to = b->head;
    b->place = b->packed = 0;
}

static void pack_chunk(Bucket *b, Chunk *chunk, uint32_t places) {
    for (uint32_t i = 0; i < places; i++)
        if (chunk->entry[i] != NULL)
            prefetchw(&chunk->entry[i]->place);
    for (uint32_t i = 0; i < places; i++) {
        Entry *e = chunk->entry[i];
        if (e == NULL)
            continue;
        if (b->place == PLACES) {
            b->to = b->to->next;
            b->place = 0;
        }
        chunk->entry[i] = NULL;
        e->place = &b->to->entry[b->place++];
        *e->place = e;
        b->packed++;
    }
}

/* The chunk was emptied, unless entries went to it. */
static void pack_drop(Wheel *w, Bucket *b, Chunk *chunk) {
    if (chunk == b->to)
        return;
    b->to->next = chunk->next;
    slab_give(&w->chunks, chunk);
}

static void bucket_pack(Wheel *w, Bucket *b) {
    Chunk *last = last_chunk(b);
    blank_all(w);
    if (b->from == NULL)
        pack_begin(b);
    for (int i = 0; i < STRIDE; i++) {
        Chunk *chunk = b->from;
        pack_chunk(b, chunk, chunk == last ? (uint32_t)(b->end - chunk->entry) : PLACES);
        b->from = chunk->next;
        b->total -= chunk != b->to && chunk != last ? PLACES : 0;
        pack_drop(w, b, chunk);
        if (chunk == last) {
            b->end = &b->to->entry[b->place];
            b->total = b->packed;
            b->from = NULL;
            return;
        }
    }
}

static inline int bucket_is_loose(const Bucket *b) { return b->total > 3 * (uint64_t)b->live + 32; }

static void bucket_settle(Wheel *w, Bucket *b) {
    if (b->live == 0)
        bucket_unmark(w, b);
    if (b == w->firing)
        return;
    if (b->live == 0)
        bucket_release(w, b);
    else
        bucket_pack(w, b);
}

/* No longer firing: what left it meanwhile is packed at once, as `advance` may take its time. */
static void bucket_close(Wheel *w, Bucket *b) {
    while (b->live > 0 && bucket_is_loose(b))
        bucket_pack(w, b);
    if (b->live == 0)
        bucket_settle(w, b);
}

/* Its place is blank, or will be. */
static inline void bucket_leave(Wheel *w, Bucket *b, uint64_t tick) {
    b->live--;
    if (tick + 1 == w->soonest)
        w->soonest = 0;
    if (unlikely(b->live == 0 || bucket_is_loose(b)))
        bucket_settle(w, b);
}

#endif
