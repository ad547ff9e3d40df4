/* Memory of the compiled wheel: blocks of 2 MB, cut into slots of one size; chunks of buckets and timer handles.
 *
 *     block   | head | numbers of freed slots | slot | slot | slot | ...
 *
 * A block gives the slot that was freed last, which is still warm in the cache, and fetches ahead the one
 * that it will give a dozen times later. A slot finds its block by its address, blocks being aligned to their size, and
 * in the block's head who owns the slab.
 *
 * Rule 1: taking and giving back are O(1), a system call for a block now and then included; no list is walked.
 * Rule 2: a slab lets go of a block that is empty, unless the others have less than a block's slots free, and what is
 *         pledged.
 * Rule 3: no lock in here. Slabs and spare blocks are used under the interpreter's lock, or under that of arena.h.
 * Rule 4: what was let go of is kept in reserve for a second, as bursts follow bursts, and fresh pages cost more than all
 *         else of an add. What nobody took within it goes back to the system at the next turn, or when a block is let go
 *         of; but for SPARES. The reserve is a stack: those that lie longest lie at the bottom.
 * Rule 5: who sleeps until a timer that was cancelled has no turn: `reserve_began` says that there is something to be
 *         given back in a second, from the moment on where that was not so before. arena.h passes it on.
 *
 * Under AddressSanitizer every slot is an allocation of its own, so that a use after free is seen.
 */
#ifndef WATERCLOCK_SLAB_H
#define WATERCLOCK_SLAB_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#include "../clock.h"

#define prefetchw(p) __builtin_prefetch((p), 1)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { BLOCK = 2 << 20, AHEAD = 12, SPARES = 2, RESERVE = MACHINE_CLOCK ? 128 : SPARES };
#define QUIET_NS INT64_C(1000000000)

typedef struct Block Block;
struct Block {
    Block *next, *previous; /* among the blocks that have free slots */
    Block *older, *newer;   /* among all */
    uint32_t first, end;    /* slot numbers count from the start of the block; its head takes those below `first` */
    uint32_t fresh;         /* the first slot never given yet: its page may not have been touched */
    uint32_t freed;         /* how many numbers are on the stack */
    void *owner;            /* whose slab it is */
    uint16_t stack[];
};

typedef struct Slab {
    Block *open, *newest;
    uint64_t free;
    uint64_t pledged; /* free slots that somebody counts on, beyond a block's worth */
    uint32_t shift;   /* a slot has 1 << shift bytes */
    void *owner;      /* for whoever has a slot and looks for what it belongs to */
} Slab;

#ifndef __SANITIZE_ADDRESS__

/* Blocks from the system */

#ifdef MAP_ANONYMOUS
static char *system_map(void) {
    char *raw = (char *)mmap(NULL, 2 * (size_t)BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;
    if (raw == (char *)MAP_FAILED)
        return NULL;
    before = (BLOCK - ((uintptr_t)raw & (BLOCK - 1))) & (BLOCK - 1);
    if (before)
        munmap(raw, before);
    munmap(raw + before + BLOCK, BLOCK - before);
    return raw + before;
}
static void system_unmap(void *block) { munmap(block, BLOCK); }
#else
static char *system_map(void) { return (char *)aligned_alloc(BLOCK, BLOCK); }
static void system_unmap(void *block) { free(block); }
#endif

/* Rule 4. SPARES of them stay for good: a small wheel made and dropped again and again pays for no new pages. */
static struct {
    void *block;
    int64_t since_ns;
} reserve[RESERVE];
static int reserved;
static int reserve_began;

static char *block_map(void) { return reserved > 0 ? (char *)reserve[--reserved].block : system_map(); }

/* Give back what has lain for too long. */
static void reserve_age(int64_t now_ns) {
    int old = 0;
    while (old < reserved - SPARES && now_ns - reserve[old].since_ns >= QUIET_NS)
        system_unmap(reserve[old++].block);
    if (old > 0)
        memmove(reserve, reserve + old, (size_t)(reserved -= old) * sizeof(reserve[0]));
}

static void block_unmap(void *block) {
    int64_t now_ns = machine_now_ns();
    reserve_age(now_ns);
    if (reserved == RESERVE) {
        system_unmap(block);
        return;
    }
    reserve[reserved].block = block;
    reserve[reserved++].since_ns = now_ns;
    reserve_began |= reserved == SPARES + 1;
}

/* At each turn; true while there is something that will be given back. */
static inline int slab_tidy(void) {
    if (unlikely(reserved > SPARES))
        reserve_age(machine_now_ns());
    return reserved > SPARES;
}

/* The first block is used page by page, so that a small wheel is small; later ones ask for a huge page. */
static void block_advise(Block *b, int is_first) {
#ifdef MADV_HUGEPAGE
    madvise(b, BLOCK, is_first ? MADV_NOHUGEPAGE : MADV_HUGEPAGE); /* advice: that it may fail costs speed only */
#else
    (void)b;
    (void)is_first;
#endif
}

/* Lists of blocks */

static inline int block_is_full(const Block *b) { return b->freed == 0 && b->fresh == b->end; }
static inline int block_is_empty(const Block *b) { return b->fresh - b->freed == b->first; }

static void slab_open(Slab *s, Block *b) {
    b->previous = NULL;
    b->next = s->open;
    if (b->next != NULL)
        b->next->previous = b;
    s->open = b;
}

static void slab_shut(Slab *s, Block *b) {
    if (b->next != NULL)
        b->next->previous = b->previous;
    if (b->previous != NULL)
        b->previous->next = b->next;
    else
        s->open = b->next;
}

static int slab_more(Slab *s) {
    Block *b = (Block *)block_map();
    uint32_t slots = (uint32_t)BLOCK >> s->shift;
    if (b == NULL)
        return -1;
    block_advise(b, s->newest == NULL);
    b->first = (uint32_t)((sizeof(Block) + slots * sizeof(uint16_t) + ((size_t)1 << s->shift) - 1) >> s->shift);
    b->end = slots;
    b->fresh = b->first;
    b->freed = 0;
    b->owner = s->owner;
    b->newer = NULL;
    b->older = s->newest;
    if (b->older != NULL)
        b->older->newer = b;
    s->newest = b;
    s->free += b->end - b->first;
    slab_open(s, b);
    return 0;
}

static void slab_return(Slab *s, Block *b) {
    slab_shut(s, b);
    if (b->older != NULL)
        b->older->newer = b->newer;
    if (b->newer != NULL)
        b->newer->older = b->older;
    else
        s->newest = b->older;
    s->free -= b->end - b->first;
    block_unmap(b);
}

/* Slots */

static inline void *slab_take(Slab *s) {
    Block *b;
    uint32_t slot;
    if (unlikely(s->open == NULL) && slab_more(s) < 0)
        return NULL;
    b = s->open;
    if (likely(b->freed > 0)) {
        slot = b->stack[--b->freed];
        if (b->freed >= AHEAD)
            prefetchw((char *)b + ((size_t)b->stack[b->freed - AHEAD] << s->shift));
    } else
        slot = b->fresh++;
    s->free--;
    if (unlikely(block_is_full(b)))
        slab_shut(s, b);
    return (char *)b + ((size_t)slot << s->shift);
}

static inline void slab_give(Slab *s, void *p) {
    Block *b = (Block *)((uintptr_t)p & ~(uintptr_t)(BLOCK - 1));
    if (unlikely(block_is_full(b)))
        slab_open(s, b);
    b->stack[b->freed++] = (uint16_t)(((uintptr_t)p & (BLOCK - 1)) >> s->shift);
    s->free++;
    if (unlikely(block_is_empty(b)) && s->free >= 2 * (uint64_t)(b->end - b->first) + s->pledged)
        slab_return(s, b);
}

/* Whose slab it is that an address inside a slot belongs to. */
static inline void *slab_owner(const void *p, uint32_t shift) {
    (void)shift;
    return ((const Block *)((uintptr_t)p & ~(uintptr_t)(BLOCK - 1)))->owner;
}

/* Make sure that the next `slots` slots can be taken without fail, until `pledged` is set back to 0. */
static int slab_pledge(Slab *s, uint64_t slots) {
    while (s->free < slots)
        if (slab_more(s) < 0)
            return -1;
    s->pledged = slots;
    return 0;
}

static void slab_free(Slab *s) {
    Block *b, *older;
    for (b = s->newest; b != NULL; b = older) {
        older = b->older;
        block_unmap(b);
    }
}

#else /* under AddressSanitizer: the owner stands before the slot; memory does not run out there */

static int reserve_began; /* never */

static inline void *slab_take(Slab *s) {
    size_t size = (size_t)1 << s->shift;
    char *p = (char *)aligned_alloc(size, 2 * size);
    if (p == NULL)
        return NULL;
    *(void **)p = s->owner;
    return p + size;
}
static inline void slab_give(Slab *s, void *p) { free((char *)p - ((size_t)1 << s->shift)); }
static inline void *slab_owner(const void *p, uint32_t shift) {
    size_t size = (size_t)1 << shift;
    return *(void **)(((uintptr_t)p & ~(uintptr_t)(size - 1)) - size);
}
static int slab_pledge(Slab *s, uint64_t slots) { (void)s; (void)slots; return 0; }
static inline int slab_tidy(void) { return 0; }
static void slab_free(Slab *s) { (void)s; }

#endif
#endif
