/* The array wheel's time, and its verbs that put timers in and take them out again: schedule, cancel. Structure and
 * rules: slots.h. What comes out by itself: expire.h.
 *
 * Every verb takes whole arrays, and fetches ahead what a later element will need: a timer costs about one
 * cache miss, and a dozen of them are under way at any time.
 */
#ifndef WATERCLOCK_BATCH_H
#define WATERCLOCK_BATCH_H

#include "slots.h"

enum { AHEAD = 24 };          /* elements between asking for a record and needing it */
enum { SOME = 128 };          /* ids that are cancelled before the chunks they left are tidied */
static const int64_t LAST = (int64_t)1 << 62; /* no deadline lies beyond */

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
    uint64_t directories = (uint64_t)w->records.capacity + w->freed.capacity + w->chunks.capacity + w->slots.capacity;
    uint64_t of_records = w->records.count * sizeof(Record) + w->freed.count * sizeof(uint32_t);
    uint64_t of_chunks = w->chunks.count * sizeof(Chunk) + w->slots.count * SLOTS * sizeof(uint32_t);
    return (of_records << RECORD_BITS) + (of_chunks << CHUNK_BITS) + directories * sizeof(char *);
}

/* Time */

/* Whole ticks from base to time; unsigned, as two times of opposite sign may be 2**63 apart. */
static inline uint64_t ticks(const Wheel *w, int64_t time) {
    uint64_t since = (uint64_t)time - (uint64_t)w->base;
    return w->tick < 2 ? since : since / (uint64_t)w->tick; /* asked as == 1, GCC divides always */
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
    prefetchw(chunk_of(w, (uint32_t)chunk_of(w, c)->prev));
    prefetchw(chunk_of(w, (uint32_t)chunk_of(w, c)->next));
    for (uint32_t i = 0; i < SLOTS; i += 16)
        prefetchw(slots_of(w, c) + i);
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

#endif
