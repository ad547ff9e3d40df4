/* The compiled wheel's verbs: add, remove, move; cascade and take what is due; look. Rules: buckets.h. */
#ifndef WATERCLOCK_TURN_H
#define WATERCLOCK_TURN_H

#include "buckets.h"
#include "occupancy.h"

static inline int wheel_add(Wheel *w, Entry *e) {
    if (bucket_add(w, e) < 0)
        return -1;
    if (w->live++ == 0 || e->tick < w->soonest)
        w->soonest = e->tick + 1;
    return 0;
}

static inline void wheel_remove(Wheel *w, Entry *e) {
    w->live--;
    blank_later(w, e->place);
    bucket_leave(w, bucket_around(w, e), e->tick);
}

static int wheel_move(Wheel *w, Entry *e, uint64_t tick, int64_t deadline) {
    Bucket *b = bucket_around(w, e);
    Entry **place = e->place;
    uint64_t before = e->tick;
    e->tick = tick;
    if (bucket_add(w, e) < 0) {
        e->tick = before;
        return -1;
    }
    e->deadline = deadline;
    blank_later(w, place);
    bucket_leave(w, b, before);
    if (tick < w->soonest)
        w->soonest = tick + 1;
    return 0;
}

/* The turn */

/* The next bucket in use and the tick at which its block begins. The wheel is not empty. */
static uint64_t wheel_peek(const Wheel *w, uint32_t *index) {
    uint32_t level = (uint32_t)__builtin_ctzll(w->used), size = w->size[level], hand, i, slot;
    uint64_t passed = likely(w->bits != 0) ? w->cursor >> (level * w->bits) : w->cursor / w->unit[level];
    const uint64_t *word = &w->bitmap[level * w->words];
    hand = likely(w->bits != 0) ? (uint32_t)passed & w->mask : (uint32_t)(passed % size);
    i = hand >> 6; /* none in use lies before the cursor */
    while (word[i] == 0)
        i++;
    slot = i * 64 + (uint32_t)__builtin_ctzll(word[i]);
    *index = w->first[level] + slot;
    return (passed - hand + slot) * w->unit[level];
}

/* An entry is fetched when SOON others are still to be read before it. Never what stands beyond the last one: that is
 * garbage, and to load it costs more than it brings. */
static inline void fetch_first(const Chunk *chunk, uint32_t count) {
    for (uint32_t i = 0; i < SOON && i < count; i++)
        prefetchw(chunk->entry[i]);
}

static inline void fetch_later(const Chunk *chunk, uint32_t place) {
    if (place + SOON < PLACES)
        prefetchw(chunk->entry[place + SOON]);
    else
        prefetchw(chunk->next->entry[place + SOON - PLACES]);
}

/* All lines of it: fetch_later will want those behind the first, too. */
static inline void fetch_chunk(const Chunk *chunk) {
    for (uint32_t line = 0; line < CHUNK; line += 64)
        prefetchw((const char *)chunk + line);
}

/* The block of a coarse bucket begins: its entries go down. At most one new chunk a finer bucket is
 * needed, the rest is paid with the chunks it gives back. */
static int wheel_cascade(Wheel *w, uint32_t index, uint64_t tick) {
    Bucket *b = &w->buckets[index];
    Chunk *chunk = b->head, *next;
    uint64_t finer = w->first[level_at(w, index)];
    uint32_t left = b->total;
    if (slab_pledge(&w->chunks, b->live < finer ? b->live : finer) < 0)
        return -1;
    fetch_first(chunk, left);
    w->cursor = tick;
    w->cascaded += b->live;
    b->head = b->from = NULL;
    b->end = NULL;
    b->total = b->live = 0;
    bucket_unmark(w, b);
    for (; chunk != NULL; chunk = next) {
        next = chunk->next;
        if (left > PLACES)
            fetch_chunk(next);
        for (uint32_t i = 0; i < PLACES && left > 0; i++, left--) {
            if (left > SOON)
                fetch_later(chunk, i);
            if (chunk->entry[i] != NULL)
                bucket_add(w, chunk->entry[i]); /* pledged: cannot fail */
        }
        slab_give(&w->chunks, chunk);
    }
    w->chunks.pledged = 0;
    return 0;
}

/* Go on to the next due bucket of the finest level; 0 when there is none. */
static int wheel_open(Wheel *w) {
    uint32_t index;
    while (w->live > 0) {
        uint64_t tick = wheel_peek(w, &index);
        if (tick > w->now)
            break;
        if (index < w->size[0]) {
            w->cursor = tick;
            w->firing = &w->buckets[index];
            w->firing->from = NULL;
            w->at = w->firing->head;
            w->at_place = 0;
            fetch_first(w->at, w->firing->live);
            w->opened++;
            return 1;
        }
        if (wheel_cascade(w, index, tick) < 0) {
            w->failed = 1;
            return 0;
        }
        w->opened++;
    }
    w->cursor = w->now;
    return 0;
}

static void wheel_close(Wheel *w) {
    Bucket *b = w->firing;
    w->firing = NULL;
    if (b != NULL)
        bucket_close(w, b);
}

/* The next entry of the firing bucket, or NULL at its end. Chunks left behind are given back. */
static Entry *wheel_step(Wheel *w) {
    Bucket *b = w->firing;
    while (b->live > 0) {
        Chunk *chunk = w->at;
        uint32_t i = w->at_place++;
        if (i == PLACES) {
            w->at = b->head = chunk->next;
            w->at_place = 0;
            b->total -= PLACES;
            slab_give(&w->chunks, chunk);
            prefetchw(b->head->next);
            continue;
        }
        if (b->live > SOON) /* so many places are left, and more where there are blanks */
            fetch_later(chunk, i);
        if (chunk->entry[i] != NULL)
            return chunk->entry[i];
    }
    return NULL;
}

/* Take out the next entry that is due; NULL when there is none, or when memory `failed`. */
static Entry *wheel_take(Wheel *w) {
    Entry *e;
    blank_all(w);
    do {
        if (w->firing == NULL && !wheel_open(w))
            return NULL;
        e = wheel_step(w);
        if (e == NULL)
            wheel_close(w);
    } while (e == NULL);
    w->live--;
    *e->place = NULL;
    bucket_leave(w, w->firing, e->tick);
    if (w->live == 0) { /* the last one: the wheel is idle before its callback runs */
        wheel_close(w);
        w->cursor = w->now;
    }
    return e;
}

/* Looking */

typedef int (*EntryVisit)(Entry *, void *);

static int bucket_each(const Bucket *b, EntryVisit visit, void *context) {
    uint32_t left = b->live;
    int stop;
    for (const Chunk *chunk = b->head; left > 0; chunk = chunk->next)
        for (uint32_t i = 0; i < PLACES && left > 0; i++)
            if (chunk->entry[i] != NULL) {
                left--;
                if ((stop = visit(chunk->entry[i], context)) != 0)
                    return stop;
            }
    return 0;
}

/* The first bucket in use from this one on; behind the last one: all of them. Words without a bit are passed over. */
static uint32_t wheel_next(const Wheel *w, uint32_t index) {
    for (uint32_t level = 0; level < w->levels; level++) {
        uint32_t slot = index > w->first[level] ? index - w->first[level] : 0;
        if (w->in_use[level] == 0)
            continue;
        for (; slot < w->size[level]; slot = (slot | 63) + 1) {
            uint64_t left = w->bitmap[level * w->words + slot / 64] >> slot % 64;
            if (left != 0)
                return w->first[level] + slot + (uint32_t)__builtin_ctzll(left);
        }
    }
    return w->first[w->levels];
}

static int wheel_each(Wheel *w, EntryVisit visit, void *context) {
    int stop;
    blank_all(w);
    for (uint32_t index = wheel_next(w, 0); index < w->first[w->levels]; index = wheel_next(w, index + 1))
        if ((stop = bucket_each(&w->buckets[index], visit, context)) != 0)
            return stop;
    return 0;
}

static uint32_t wheel_in_use(const Wheel *w) {
    uint32_t in_use = 0;
    for (uint32_t level = 0; level < w->levels; level++)
        in_use += w->in_use[level];
    return in_use;
}

/* The buckets in use and how many, to be freed; NULL where memory is short. */
static Used *wheel_occupied(const Wheel *w, uint32_t *count) {
    uint32_t most = wheel_in_use(w);
    Used *used = (Used *)malloc((most + 1) * sizeof(Used));
    *count = 0;
    for (uint32_t index = wheel_next(w, 0); used != NULL && *count < most; index = wheel_next(w, index + 1)) {
        uint32_t level = level_at(w, index);
        used[(*count)++] = (Used){level, index - w->first[level], w->buckets[index].live};
    }
    return used;
}

/* What entries own, for the collector */
typedef struct Visit {
    visitproc visit;
    void *argument;
} Visit;

static int entry_visit(Entry *e, void *to) {
    Visit *v = (Visit *)to;
    int stop = v->visit((PyObject *)e->callback, v->argument);
    return stop != 0 || e->argument == NULL ? stop : v->visit((PyObject *)e->argument, v->argument);
}

static int wheel_traverse(Wheel *w, visitproc visit, void *argument) {
    Visit to = {visit, argument};
    return wheel_each(w, entry_visit, &to);
}

static int entry_least(Entry *e, void *least) {
    if (e->tick < *(uint64_t *)least)
        *(uint64_t *)least = e->tick;
    return 0;
}

/* Tick of the earliest entry: it is in the first bucket in use. The wheel is not empty. */
static uint64_t wheel_soonest(Wheel *w) {
    uint64_t least = UINT64_MAX;
    uint32_t index;
    if (w->soonest == 0) {
        wheel_peek(w, &index);
        blank_all(w);
        bucket_each(&w->buckets[index], entry_least, &least);
        w->soonest = least + 1;
    }
    return w->soonest - 1;
}

/* Empty the wheel at a stroke. The entries come back as a chain through `place`, the callback in `tick`. */
static int entry_chain(Entry *e, void *chain) {
    e->tick = (uint64_t)(uintptr_t)e->callback; /* no address is CANCELLED */
    e->callback = NULL;
    e->place = *(Entry ***)chain;
    *(Entry **)chain = e;
    return 0;
}

static Entry *wheel_empty(Wheel *w) {
    Entry *chain = NULL;
    wheel_each(w, entry_chain, &chain);
    for (uint32_t index = wheel_next(w, 0); index < w->first[w->levels]; index = wheel_next(w, index + 1)) {
        bucket_unmark(w, &w->buckets[index]);
        w->buckets[index].live = 0;
        bucket_release(w, &w->buckets[index]);
    }
    w->live = 0;
    w->firing = NULL;
    return chain;
}

#endif
