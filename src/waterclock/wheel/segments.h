/* Memory of the array wheel: columns that grow by a segment and never move.
 *
 * A column is an array cut into segments of one size, found through a directory: element i of a column of
 * 2^k a segment is segment[i >> k][i & (2^k - 1)]. The directory costs one load, and it is in the cache.
 *
 * Rule 1: what has an index stays where it is. Growing adds a segment, and copies at most the directory:
 *         8 bytes for 2 MB.
 * Rule 2: segments are given back when the wheel goes, not before.
 * Rule 3: the first segment of a column is not asked for as a huge page, so that a small wheel is small.
 */
#ifndef WATERCLOCK_SEGMENTS_H
#define WATERCLOCK_SEGMENTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define prefetchw(p) __builtin_prefetch((p), 1)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { HUGE_PAGE = 2 << 20 };

typedef struct {
    char **segment;
    uint32_t count, capacity;
} Column;

static char *segment_new(size_t bytes, int huge) {
    char *segment = (char *)aligned_alloc(huge ? HUGE_PAGE : 4096, bytes);
#ifdef MADV_HUGEPAGE
    if (segment != NULL && huge)
        madvise(segment, bytes, MADV_HUGEPAGE); /* advice: that it may fail costs speed only */
#endif
    return segment;
}

/* One more segment, or -1 and nothing has changed. */
static int column_grow(Column *c, size_t bytes) {
    char *segment;
    if (c->count == c->capacity) {
        uint32_t capacity = c->capacity * 2 + 8;
        char **directory = (char **)realloc(c->segment, capacity * sizeof(char *));
        if (directory == NULL)
            return -1;
        c->segment = directory;
        c->capacity = capacity;
    }
    segment = segment_new(bytes, c->count > 0 && bytes % HUGE_PAGE == 0);
    if (segment == NULL)
        return -1;
    c->segment[c->count++] = segment;
    return 0;
}

static void column_free(Column *c) {
    for (uint32_t i = 0; i < c->count; i++)
        free(c->segment[i]);
    free(c->segment);
    memset(c, 0, sizeof *c);
}

#endif
