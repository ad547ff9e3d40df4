/* The structure of the compiled wheel: entries in buckets, buckets in levels, a cursor. No Python in here.
 *
 * Time is counted in ticks since the wheel was last empty and read as digits: with 256 buckets a level,
 * level k is digit k of that number in base 256. The cursor is the tick the wheel has reached. An entry hangs in
 * the level of the highest digit in which its tick differs from the cursor, in the bucket of that digit:
 * one count of leading zeros, no walk up. A bitmap a level says which buckets are in use, so the next one
 * is found by counting trailing zeros.
 *
 * A bucket is a list of chunks of 30 pointers; an entry knows its place in it. Leaving blanks that place,
 * and when blanks outnumber the living four to one (and 64) the bucket is packed. Its chunks go to a pool
 * and are used again.
 *
 * Rule 1: the cursor enters a block (a value of a digit) only by cascading that block's bucket, in one go.
 *         So what was added before reaches a finer bucket before what is added after: within a tick the
 *         order of adding holds without sequence numbers.
 * Rule 2: `firing` is the bucket being taken from. Meanwhile it is neither packed nor freed; entries of
 *         the same tick may be appended to it, and are taken too.
 * Rule 3: what can fail for want of memory fails before anything has changed.
 */
#ifndef WATERCLOCK_BUCKETS_H
#define WATERCLOCK_BUCKETS_H

#include <stdint.h>

#include "arena.h"

enum { CHUNK = 256, PLACES = 30 }; /* bytes of a chunk, also its alignment: 16 of header and 30 pointers */

typedef struct Entry Entry;
typedef struct Bucket Bucket;
typedef struct Wheel Wheel;

struct Entry {
    void *callback; /* NULL when it waits no more */
    int64_t deadline;
    uint64_t tick;
    void *wheel;
    Bucket *bucket;
    Entry **place;
};

typedef struct Chunk {
    struct Chunk *next;
    uint64_t unused;
    Entry *entry[PLACES];
} Chunk;

struct Bucket {
    Chunk *head;
    Entry **end;    /* where the next one goes; aligned to a chunk, or NULL, when there is no room */
    uint32_t total; /* places taken, blanks included */
    uint32_t live;
};

struct Wheel {
    uint64_t cursor, now;    /* ticks: reached; and asked for by advance */
    uint64_t soonest;        /* tick of the earliest entry; 0 when it has to be looked up */
    int64_t live, cascaded, opened;
    uint64_t used;           /* a bit per level that has a bucket in use */
    uint32_t bits, mask, levels, words;
    Bucket *buckets, *firing;
    Chunk *at;               /* in the firing bucket: the chunk and the place to take next */
    uint32_t at_place;
    uint64_t *bitmap;        /* `words` of them a level */
    Chunk *pool;
    uint64_t pooled;
    char *fresh, *fresh_end; /* what is left of the newest block */
    void **blocks;
    size_t block_count;
    uint8_t level_of[64];    /* by the highest bit that differs */
    int failed;              /* memory ran out */
};

static int wheel_init(Wheel *w, uint32_t bits) {
    w->bits = bits;
    w->mask = (1u << bits) - 1;
    w->levels = (64 + bits - 1) / bits;
    w->words = bits < 6 ? 1 : 1u << (bits - 6);
    for (uint32_t i = 0; i < 64; i++)
        w->level_of[i] = (uint8_t)(i / bits);
    w->buckets = (Bucket *)calloc((size_t)w->levels << bits, sizeof(Bucket));
    w->bitmap = (uint64_t *)calloc((size_t)w->levels * w->words, sizeof(uint64_t));
    return w->buckets != NULL && w->bitmap != NULL ? 0 : -1;
}

static void wheel_free(Wheel *w) {
    for (size_t i = 0; i < w->block_count; i++)
        free(w->blocks[i]);
    free(w->blocks);
    free(w->buckets);
    free(w->bitmap);
}

/* Chunks */

static inline void chunk_release(Wheel *w, Chunk *chunk) {
    chunk->next = w->pool;
    w->pool = chunk;
    w->pooled++;
}

/* One more block: 64 KB at first, so that a small wheel is small, doubling up to 2 MB. */
static int wheel_more(Wheel *w) {
    size_t size = (size_t)65536 << (w->block_count < 5 ? w->block_count : 5);
    void **blocks = (void **)realloc(w->blocks, (w->block_count + 1) * sizeof(void *));
    char *block;
    if (blocks == NULL)
        return -1;
    w->blocks = blocks;
    block = (char *)block_new(size);
    if (block == NULL)
        return -1;
    for (; w->fresh != w->fresh_end; w->fresh += CHUNK)
        chunk_release(w, (Chunk *)w->fresh);
    w->fresh = block;
    w->fresh_end = block + size;
    w->blocks[w->block_count++] = block;
    return 0;
}

static int wheel_reserve(Wheel *w, uint64_t chunks) {
    while (w->pooled + (uint64_t)(w->fresh_end - w->fresh) / CHUNK < chunks)
        if (wheel_more(w) < 0)
            return -1;
    return 0;
}

static int bucket_grow(Wheel *w, Bucket *b) {
    Chunk *chunk;
    if (wheel_reserve(w, 1) < 0)
        return -1;
    if (w->pool != NULL) {
        chunk = w->pool;
        w->pool = chunk->next;
        w->pooled--;
        prefetchw(w->pool);
    } else {
        chunk = (Chunk *)w->fresh;
        w->fresh += CHUNK;
    }
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

static inline uint32_t bucket_of(const Wheel *w, uint64_t tick) {
    uint32_t level = w->level_of[63 - __builtin_clzll((tick ^ w->cursor) | 1)];
    return (level << w->bits) | ((uint32_t)(tick >> (level * w->bits)) & w->mask);
}

static inline uint64_t *word_of(const Wheel *w, uint32_t index) {
    return &w->bitmap[(index >> w->bits) * w->words + ((index & w->mask) >> 6)];
}

static void bucket_unmark(Wheel *w, Bucket *b) {
    uint32_t index = (uint32_t)(b - w->buckets), level = index >> w->bits;
    uint64_t left = 0;
    *word_of(w, index) &= ~((uint64_t)1 << (index & w->mask & 63));
    for (uint32_t i = 0; i < w->words; i++)
        left |= w->bitmap[level * w->words + i];
    if (left == 0)
        w->used &= ~((uint64_t)1 << level);
}

static inline int bucket_add(Wheel *w, Entry *e) {
    uint32_t index = bucket_of(w, e->tick);
    Bucket *b = &w->buckets[index];
    if (unlikely(is_full(b->end)) && bucket_grow(w, b) < 0)
        return -1;
    if (((uintptr_t)b->end & 63) == 0)
        prefetchw((char *)b->end + 64);
    *b->end = e;
    e->place = b->end++;
    e->bucket = b;
    b->total++;
    if (b->live++ == 0) {
        *word_of(w, index) |= (uint64_t)1 << (index & w->mask & 63);
        w->used |= (uint64_t)1 << (index >> w->bits);
    }
    return 0;
}

static void bucket_release(Wheel *w, Bucket *b) {
    Chunk *chunk = b->head, *next;
    for (; chunk != NULL; chunk = next) {
        next = chunk->next;
        chunk_release(w, chunk);
    }
    b->head = NULL;
    b->end = NULL;
    b->total = 0;
}

/* Close the blanks, in order, and release the chunks that this frees. The bucket is not empty. */
static void bucket_pack(Wheel *w, Bucket *b) {
    Chunk *from = b->head, *to = from, *next;
    Entry **end = to->entry;
    for (uint32_t left = b->total; left > 0; from = from->next)
        for (uint32_t i = 0; i < PLACES && left > 0; i++, left--) {
            Entry *e = from->entry[i];
            if (e == NULL)
                continue;
            if (is_full(end)) {
                to = to->next;
                end = to->entry;
            }
            *end = e;
            e->place = end++;
        }
    b->end = end;
    b->total = b->live;
    from = to->next;
    to->next = NULL;
    for (; from != NULL; from = next) {
        next = from->next;
        chunk_release(w, from);
    }
}

static inline int bucket_is_loose(const Bucket *b) { return b->total > 4 * (uint64_t)b->live + 64; }

static void bucket_settle(Wheel *w, Bucket *b) {
    if (b->live == 0)
        bucket_unmark(w, b);
    if (b == w->firing)
        return;
    if (b->live == 0)
        bucket_release(w, b);
    else if (bucket_is_loose(b))
        bucket_pack(w, b);
}

static inline void bucket_remove(Wheel *w, Bucket *b, Entry **place, uint64_t tick) {
    *place = NULL;
    b->live--;
    if (tick == w->soonest)
        w->soonest = 0;
    if (unlikely(b->live == 0 || bucket_is_loose(b)))
        bucket_settle(w, b);
}

#endif
