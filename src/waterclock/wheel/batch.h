/* The array wheel's verbs: schedule, cancel, settle, advance, look. Structure and rules: slots.h.
 *
 * Every verb takes whole arrays, and fetches ahead what a later element will need: a timer costs about one
 * cache miss, and a dozen of them are under way at any time.
 */
#ifndef WATERCLOCK_BATCH_H
#define WATERCLOCK_BATCH_H

#include "slots.h"

enum { AHEAD = 24 };          /* elements between asking for a record and needing it */
enum { SOME = 64 };           /* ids that are cancelled before the chunks they left are tidied */
enum { FINER = ALL_BUCKETS }; /* where a bucket cascades to: each to the bucket of its tick */
static const int64_t LAST = (int64_t)1 << 62; /* no deadline lies beyond */

typedef struct {
    int64_t *ids, *deadlines;
    int64_t count, room;
} Expired;

/* One thread at a time, whether Python's lock is held or not. */
static int wheel_enter(Wheel *w) { return !__atomic_exchange_n(&w->busy, 1, __ATOMIC_ACQUIRE); }
static void wheel_leave(Wheel *w) { __atomic_store_n(&w->busy, 0, __ATOMIC_RELEASE); }

static void wheel_free(Wheel *w) {
    column_free(&w->records);
    column_free(&w->freed);
    column_free(&w->chunks);
    column_free(&w->slots);
}

/* Bytes of memory that the wheel has asked for. */
static uint64_t wheel_bytes(const Wheel *w) {
    uint64_t directories = (uint64_t)w->records.room + w->freed.room + w->chunks.room + w->slots.room;
    uint64_t of_records = w->records.count * sizeof(Record) + w->freed.count * sizeof(uint32_t);
    uint64_t of_chunks = w->chunks.count * sizeof(Chunk) + w->slots.count * SLOTS * sizeof(uint32_t);
    return (of_records << RECORD_BITS) + (of_chunks << CHUNK_BITS) + directories * sizeof(char *);
}

/* Time */

/* Whole ticks from base to time; unsigned, as two times of opposite sign may be 2**63 apart. */
static inline uint64_t ticks(const Wheel *w, int64_t time) {
    uint64_t since = (uint64_t)time - (uint64_t)w->base;
    return w->tick == 1 ? since : since / (uint64_t)w->tick;
}

static inline uint64_t tick_of(const Wheel *w, int64_t deadline) { return ticks(w, deadline + (w->tick - 1)); }

/* Nothing waits: count ticks from now on, so that a short timer needs one level after a long rest. */
static void wheel_rebase(Wheel *w) {
    /* C's remainder takes the sign of the time; the floor of a negative one has to be made */
    w->base = w->clock - (w->clock % w->tick + w->tick) % w->tick;
    w->now = w->cursor = w->soonest = 0;
}

static void wheel_init(Wheel *w, int64_t tick, int64_t start) {
    w->fresh = w->fresh_chunk = 1;
    w->tick = tick;
    w->clock = start;
    wheel_rebase(w);
}

static inline uint32_t bucket_of(const Wheel *w, uint64_t tick) {
    uint32_t shift = (63 - (uint32_t)__builtin_clzll((tick ^ w->cursor) | 1)) & ~(DIGIT - 1u);
    return shift / DIGIT * WIDTH + (uint32_t)(tick >> shift) % WIDTH;
}

/* Schedule */

/* The first deadline that cannot be taken, or `count`. */
static int64_t first_beyond(const int64_t *deadlines, int64_t count) {
    int64_t least = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        least = deadlines[i] < least ? deadlines[i] : least;
        most = deadlines[i] > most ? deadlines[i] : most;
    }
    if (least >= -LAST && most <= LAST)
        return count;
    for (int64_t i = 0; i < count; i++)
        if (deadlines[i] < -LAST || deadlines[i] > LAST)
            return i;
    return count;
}

static int schedule_reserve(Wheel *w, int64_t count) {
    int64_t opened = count < ALL_BUCKETS ? count : ALL_BUCKETS; /* each bucket may begin one more chunk */
    if (reserve_records(w, (uint64_t)count) < 0)
        return -1;
    return reserve_chunks(w, (uint64_t)(count / SLOTS + opened));
}

/* Everything is reserved and looked at. A deadline is read once: should another thread write to the
 * array meanwhile, times come out wrong, but the wheel stays whole. */
static void wheel_schedule(Wheel *w, const int64_t *deadlines, int64_t *ids, int64_t count) {
    uint64_t least;
    if (w->live == 0)
        wheel_rebase(w);
    least = w->used == 0 ? UINT64_MAX : w->soonest; /* not known stays not known: 0 */
    for (int64_t i = 0; i < count; i++) {
        int64_t deadline = deadlines[i] <= LAST ? deadlines[i] : LAST;
        uint32_t index = record_take(w), which = LATE;
        Record *r = record_of(w, index);
        r->deadline = deadline;
        r->mark &= ~FREE_MARK;
        ids[i] = id_of(r, index);
        if (deadline > w->clock) {
            uint64_t tick = tick_of(w, deadline);
            least = tick < least ? tick : least;
            which = bucket_of(w, tick);
        }
        bucket_append(w, which, index, r);
    }
    w->soonest = least == UINT64_MAX ? 0 : least;
    w->live += count;
}

/* Cancel */

static inline int was_given(const Wheel *w, uint32_t index) { return index - 1 < w->fresh - 1; }

/* Inlined by force: GCC drops the call of a function that does nothing but fetch. */
__attribute__((always_inline)) static inline void cancel_fetch(const Wheel *w, const int64_t *ids, int64_t i, int64_t count) {
    if (i + 2 * AHEAD < count && was_given(w, (uint32_t)ids[i + 2 * AHEAD]))
        prefetchw(record_of(w, (uint32_t)ids[i + 2 * AHEAD]));
    if (i + AHEAD < count && was_given(w, (uint32_t)ids[i + AHEAD]))
        prefetchw(chunk_of(w, record_of(w, (uint32_t)ids[i + AHEAD])->slot / SLOTS));
}

__attribute__((always_inline)) static inline void tidy_fetch(const Wheel *w, uint32_t c) {
    const uint32_t *slots = slots_of(w, c);
    prefetchw(chunk_of(w, (uint32_t)chunk_of(w, c)->prev));
    prefetchw(chunk_of(w, (uint32_t)chunk_of(w, c)->next));
    for (uint32_t i = 0; i < SLOTS; i += 16)
        prefetchw(slots + i);
}

/* Chunks are tidied a little later, when what that needs has been fetched. */
static int64_t cancel_some(Wheel *w, const int64_t *ids, uint8_t *done, int64_t count, int64_t ahead) {
    int64_t cancelled = 0, soonest = (int64_t)((uint64_t)w->base + w->soonest * (uint64_t)w->tick);
    uint32_t loose[SOME], loose_count = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t index = (uint32_t)ids[i];
        Record *r;
        cancel_fetch(w, ids, i, count + ahead);
        done[i] = 0;
        if (unlikely(ids[i] < 0 || !was_given(w, index)))
            continue;
        r = record_of(w, index);
        if (r->mark != (uint32_t)(ids[i] >> 32))
            continue;
        if (unlikely(r->deadline <= soonest))
            w->soonest = 0;
        if (slot_clear(w, r->slot)) {
            loose[loose_count++] = r->slot / SLOTS;
            tidy_fetch(w, r->slot / SLOTS);
        }
        record_free(w, index, r);
        cancelled++;
        done[i] = 1;
    }
    for (uint32_t i = 0; i < loose_count; i++)
        chunk_tidy(w, loose[i]);
    return cancelled;
}

static void wheel_cancel(Wheel *w, const int64_t *ids, uint8_t *done, int64_t count) {
    int64_t cancelled = 0;
    for (int64_t i = 0; i < count; i += SOME) {
        int64_t some = count - i < SOME ? count - i : SOME;
        cancelled += cancel_some(w, ids + i, done + i, some, count - i - some);
    }
    w->live -= cancelled;
    w->cancelled += cancelled;
}

/* The turn */

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

/* Take out up to `room` from the front of a bucket; 1 when it is empty then. */
static int bucket_expire(Wheel *w, uint32_t which, Expired *out) {
    Bucket *b = &w->buckets[which];
    Walk k;
    for (walk_begin(&k, w, b->head); k.chunk != 0 && out->count < out->room; walk_on(&k, w)) {
        Chunk *chunk = chunk_of(w, k.chunk);
        uint32_t count = k.count[k.now];
        if (count > out->room - out->count)
            count = (uint32_t)(out->room - out->count);
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
            chunk_tidy(w, k.chunk); /* there is no room: the walk ends */
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
    return out != NULL && live >= WIDTH / 16 && live <= out->room - out->count;
}

/* Bring the next due bucket of the finest level to the front; 0 when there is none. A whole block goes out here where
 * there is room for it. */
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

/* Take out what is due, up to the room there is; 1 when nothing due is left. */
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

/* Time moves on to `now`. What was due before comes first; should there not be room for all of it, it is
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

#endif
