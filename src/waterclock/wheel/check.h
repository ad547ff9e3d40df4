/* The compiled wheel's invariants, for tests. Rules: buckets.h. */
#ifndef WATERCLOCK_CHECK_H
#define WATERCLOCK_CHECK_H

#include "turn.h"

#define MUST(what, text) \
    if (!(what))         \
    return text

typedef struct Place {
    Wheel *wheel;
    uint32_t index; /* of the bucket that is looked through */
} Place;

static int entry_is_misplaced(Entry *e, void *where) {
    const Place *at = (const Place *)where;
    Wheel *w = at->wheel;
    return e->callback == NULL || *e->place != e || e->tick < w->cursor || e->tick < wheel_soonest(w) ||
           wheel_around(e) != w || bucket_of(w, e->tick) != at->index;
}

/* The bound of places is in its own words, not those of the code it checks. */
static const char *check_bucket(const Wheel *w, uint32_t level, uint32_t index) {
    const Bucket *b = &w->buckets[index];
    int marked = (*word_of(w, level, index) & bit_of(w, level, index)) != 0;
    MUST(level_at(w, index) == level, "a bucket is taken for one of another level");
    MUST(marked == (b->live > 0), "marked as in use and empty, or the other way round");
    if (b == w->firing)
        return NULL;
    MUST(b->total <= 4 * (uint64_t)b->live + 64, "too many blanks");
    MUST(b->live > 0 || b->end == NULL, "an empty bucket keeps memory");
    return NULL;
}

/* What is wrong with the wheel, or NULL; counts the buckets that are being packed. */
static const char *wheel_check(Wheel *w, int advancing, uint32_t *packing) {
    const char *wrong;
    int64_t live = 0;
    MUST(advancing || w->firing == NULL, "a bucket was left open");
    blank_all(w);
    for (uint32_t level = 0; level < w->levels; level++) {
        uint32_t in_use = 0;
        for (uint32_t index = w->first[level]; index < w->first[level + 1]; index++) {
            if ((wrong = check_bucket(w, level, index)) != NULL)
                return wrong;
            in_use += w->buckets[index].live > 0;
            live += w->buckets[index].live;
            *packing += w->buckets[index].from != NULL;
            MUST(bucket_each(&w->buckets[index], entry_is_misplaced, &(Place){w, index}) == 0, "a timer in the wrong place");
        }
        MUST(in_use == w->in_use[level], "the buckets in use of a level are miscounted");
        MUST((w->used >> level & 1) == (in_use > 0), "a level is marked wrongly");
    }
    MUST(live == w->live, "a timer is counted that does not wait, or the other way round");
    return NULL;
}

#endif
