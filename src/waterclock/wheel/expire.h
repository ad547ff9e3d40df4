/* The array wheel's turn: cascade, take what is due, settle; and looking for the earliest. Structure and rules: slots.h.
 *
 * Due timers leave in one of two ways. A bucket of the finest level is one tick, and leaves front first, up to
 * the limit. A bucket of the level above is a block of 256 ticks; where all of it is due and within the limit, it is
 * sorted by counting its ticks and leaves at a stroke, and no bucket of a single tick is ever made.
 */
#ifndef WATERCLOCK_EXPIRE_H
#define WATERCLOCK_EXPIRE_H

#include "batch.h"
#include "occupancy.h"

enum { FINER = ALL_BUCKETS }; /* where a bucket cascades to: each timer to the bucket of its tick */

typedef struct {
    int64_t *ids, *deadlines;
    int64_t count, limit;
} Expired;

/* The next bucket in use and the tick at which its block begins. The levels are not empty. */
static uint64_t wheel_peek(const Wheel *w, uint32_t *which) {
    uint32_t level = (uint32_t)__builtin_ctz(w->used), shift = level * DIGIT, i, digit;
    const uint64_t *word = &w->bitmap[level * WORDS];
    uint64_t above = shift + DIGIT >= 64 ? 0 : w->cursor >> (shift + DIGIT) << (shift + DIGIT);
    i = (uint32_t)(w->cursor >> shift) % WIDTH / 64; /* none in use lies before the cursor */
    while (word[i] == 0)
        i++;
    digit = i * 64 + (uint32_t)__builtin_ctzll(word[i]);
    *which = level * WIDTH + digit;
    return above + ((uint64_t)digit << shift);
}

/* A walk along a chain of chunks: the indices of one, and those of the next, whose records are fetched meanwhile. */
typedef struct {
    uint32_t chunk, next, now, count[2], index[2][SLOTS];
} Walk;

static inline void walk_begin(Walk *k, const Wheel *w, uint32_t head) {
    k->now = k->count[1] = k->next = 0;
    k->chunk = head;
    if (head == 0)
        return;
    k->count[0] = chunk_gather(w, head, k->index[0]);
    k->next = (uint32_t)chunk_of(w, head)->next;
    if (k->next != 0)
        k->count[1] = chunk_read(w, k->next, k->index[1]);
}

static inline void walk_on(Walk *k, const Wheel *w) {
    k->chunk = k->next;
    k->now ^= 1;
    k->next = k->chunk == 0 ? 0 : (uint32_t)chunk_of(w, k->chunk)->next;
    k->count[k->now ^ 1] = k->next == 0 ? 0 : chunk_read(w, k->next, k->index[k->now ^ 1]);
}

/* The i-th index of the chunk; asks for the record of the i-th of the next one. */
__attribute__((always_inline)) static inline uint32_t walk_at(const Walk *k, const Wheel *w, uint32_t i) {
    if (i < k->count[k->now ^ 1])
        prefetchw(record_of(w, k->index[k->now ^ 1][i]));
    return k->index[k->now][i];
}

/* Empty a bucket into finer ones, or into `to`. Memory for the first chunks of those is reserved; the rest
 * is paid with the chunks this gives back. */
static void bucket_cascade(Wheel *w, uint32_t from, uint32_t to) {
    Walk k;
    walk_begin(&k, w, w->buckets[from].head);
    w->cascaded += w->buckets[from].live;
    w->opened++;
    w->buckets[from] = (Bucket){0, 0, 0};
    bucket_unmark(w, from);
    for (; k.chunk != 0; walk_on(&k, w)) {
        chunk_release(w, k.chunk);
        for (uint32_t i = 0; i < k.count[k.now]; i++) {
            uint32_t index = walk_at(&k, w, i);
            Record *r = record_of(w, index);
            bucket_append(w, to == FINER ? bucket_of(w, tick_of(w, r->deadline)) : to, index, r);
        }
    }
}

/* Take out up to `limit` from the front of a bucket; 1 when it is empty then. */
static int bucket_expire(Wheel *w, uint32_t which, Expired *out) {
    Bucket *b = &w->buckets[which];
    Walk k;
    for (walk_begin(&k, w, b->head); k.chunk != 0 && out->count < out->limit; walk_on(&k, w)) {
        Chunk *chunk = chunk_of(w, k.chunk);
        uint32_t count = k.count[k.now];
        if (count > out->limit - out->count)
            count = (uint32_t)(out->limit - out->count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t index = walk_at(&k, w, i);
            Record *r = record_of(w, index);
            out->ids[out->count] = id_of(r, index);
            out->deadlines[out->count++] = r->deadline;
            record_free(w, index, r);
            chunk->used &= chunk->used - 1;
        }
        b->live -= count;
        if (chunk->used == 0)
            chunk_unlink(w, k.chunk);
        else
            chunk_tidy(w, k.chunk); /* the limit: the walk ends */
    }
    return b->head == 0;
}

/* A bucket of WIDTH ticks that is due as a whole goes out at a stroke: its timers are sorted by counting them. */
static void block_expire(Wheel *w, uint32_t which, Expired *out) {
    uint32_t place[WIDTH] = {0}, sum = 0;
    Walk k;
    for (walk_begin(&k, w, w->buckets[which].head); k.chunk != 0; walk_on(&k, w))
        for (uint32_t i = 0; i < k.count[k.now]; i++)
            place[tick_of(w, record_of(w, walk_at(&k, w, i))->deadline) % WIDTH]++;
    for (uint32_t i = 0; i < WIDTH; i++) {
        uint32_t count = place[i];
        place[i] = sum;
        sum += count;
    }
    for (walk_begin(&k, w, w->buckets[which].head); k.chunk != 0; walk_on(&k, w)) {
        for (uint32_t i = 0; i < k.count[k.now]; i++) {
            uint32_t index = walk_at(&k, w, i);
            Record *r = record_of(w, index);
            uint32_t at = place[tick_of(w, r->deadline) % WIDTH]++;
            out->ids[out->count + at] = id_of(r, index);
            out->deadlines[out->count + at] = r->deadline;
            *freed_at(w, w->free_count + at) = index;
            r->mark = (r->mark + 1) | FREE_MARK;
        }
        chunk_release(w, k.chunk);
    }
    w->free_count += sum;
    out->count += sum;
    w->opened++;
    w->buckets[which] = (Bucket){0, 0, 0};
    bucket_unmark(w, which);
}

static int block_fits(const Wheel *w, uint32_t which, const Expired *out) {
    uint32_t live = w->buckets[which].live;
    return out != NULL && live >= WIDTH / 16 && live <= out->limit - out->count;
}

/* Bring the next due bucket of the finest level to the front; 0 when there is none. A whole block goes out here where
 * the limit allows it. */
static int wheel_open(Wheel *w, uint32_t *which, Expired *out) {
    while (w->used != 0) {
        uint64_t tick = wheel_peek(w, which);
        if (tick > w->now)
            break;
        w->cursor = tick;
        if (*which < WIDTH)
            return 1;
        if (*which < 2 * WIDTH && w->now - tick >= WIDTH - 1 && block_fits(w, *which, out))
            block_expire(w, *which, out);
        else
            bucket_cascade(w, *which, FINER);
    }
    w->cursor = w->now;
    return 0;
}

/* Take out what is due, up to the limit; 1 when nothing due is left. */
static int wheel_turn(Wheel *w, Expired *out) {
    uint32_t which;
    if (!bucket_expire(w, DUE, out))
        return 0;
    while (wheel_open(w, &which, out)) {
        if (!bucket_expire(w, which, out))
            return 0;
        w->opened++;
    }
    return bucket_expire(w, LATE, out);
}

/* Move all that is due to DUE, in order. */
static void wheel_settle(Wheel *w) {
    uint32_t which;
    while (wheel_open(w, &which, NULL))
        bucket_cascade(w, which, DUE);
    if (w->buckets[LATE].head != 0)
        bucket_cascade(w, LATE, DUE);
}

/* How many are due at `now`, rounded up by what only the next cascade can tell. Reserves for that turn; -1 when
 * memory has run out, and nothing has changed. */
static int64_t turn_reserve(Wheel *w, int64_t now) {
    int64_t due = (int64_t)w->buckets[DUE].live + w->buckets[LATE].live;
    uint64_t target = ticks(w, now);
    uint32_t chunks = 0;
    for (uint32_t level = 0; level < LEVELS; level++) {
        uint32_t shift = level * DIGIT, most = level * (WIDTH - 1) + 1;
        uint64_t above = shift + DIGIT >= 64 ? 0 : w->cursor >> (shift + DIGIT) << (shift + DIGIT);
        for (uint32_t i = 0; i < WORDS; i++)
            for (uint64_t left = w->bitmap[level * WORDS + i]; left != 0; left &= left - 1) {
                uint32_t digit = i * 64 + (uint32_t)__builtin_ctzll(left);
                uint32_t live = w->buckets[level * WIDTH + digit].live;
                if (above + ((uint64_t)digit << shift) > target)
                    break;
                due += live;
                live = live < most ? live : most; /* so many finer buckets it can open */
                chunks = live > chunks ? live : chunks;
            }
    }
    return reserve_chunks(w, (uint64_t)chunks + 4) < 0 ? -1 : due;
}

/* Time moves on to `now`. What was due before comes first; should the limit hold some of it back, it is
 * put in order before time moves on, for what is LATE lies between what was due and what becomes due. */
static void wheel_advance(Wheel *w, int64_t now, Expired *out) {
    if (!wheel_turn(w, out) && w->buckets[LATE].head != 0)
        wheel_settle(w);
    w->clock = now;
    w->now = ticks(w, now);
    wheel_turn(w, out);
    if (w->soonest <= w->now)
        w->soonest = 0;
    w->live -= out->count;
    w->fired += out->count;
}

/* Looking */

static uint64_t bucket_least(const Wheel *w, uint32_t which) {
    uint32_t index[SLOTS], count;
    uint64_t least = UINT64_MAX;
    for (uint32_t c = w->buckets[which].head; c != 0; c = (uint32_t)chunk_of(w, c)->next) {
        count = chunk_gather(w, c, index);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t tick = tick_of(w, record_of(w, index[i])->deadline);
            least = tick < least ? tick : least;
        }
    }
    return least;
}

/* Tick of the earliest that waits. The wheel is not empty. */
static uint64_t wheel_soonest(Wheel *w) {
    uint32_t which;
    if (w->buckets[DUE].head != 0 || w->buckets[LATE].head != 0)
        return w->now;
    if (w->soonest == 0) {
        w->soonest = wheel_peek(w, &which);
        if (which >= WIDTH)
            w->soonest = bucket_least(w, which);
    }
    return w->soonest < w->now ? w->now : w->soonest;
}

/* The buckets in use of a settled wheel and how many, to be freed; NULL where memory is short. What is due stands in the
 * bucket of now, which is empty, as all of it is DUE. */
static Used *wheel_occupied(const Wheel *w, uint32_t *count) {
    Used *used = (Used *)malloc((BUCKETS + 1) * sizeof(Used));
    *count = 0;
    if (used != NULL && w->buckets[DUE].live > 0)
        used[(*count)++] = (Used){0, (uint32_t)(w->cursor % WIDTH), w->buckets[DUE].live};
    for (uint32_t i = 0; used != NULL && i < LEVELS * WORDS; i++)
        for (uint64_t left = w->bitmap[i]; left != 0; left &= left - 1) {
            uint32_t which = i * 64 + (uint32_t)__builtin_ctzll(left);
            used[(*count)++] = (Used){which / WIDTH, which % WIDTH, w->buckets[which].live};
        }
    return used;
}

#endif
