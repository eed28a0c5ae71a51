/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/ranges.c: see the header. */
#include "comm/memory/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread/futex.h"
#include "comm/memory/memory.h"

/* What comm_mem_find reads: a window's id, base and mem_span_t. */
enum {
    RANGE_ID,
    RANGE_BASE,
    RANGE_START,
    RANGE_END,
    RANGE_MAPPED,
    RANGE_MAPPED_END,
    RANGE_COPY,
    RANGE_WORDS
};
typedef struct {
    _Atomic uint64_t word[RANGE_WORDS];
} range_t;

static struct {
    _Atomic uint64_t seq; /* odd while the array is being changed */
    _Atomic(range_t *) ranges;
    _Atomic size_t count;
    size_t room;
    /* Arrays that were outgrown: a reader may still look at one. Each is half the size of the next. */
    range_t *old[40];
    int old_count;
} table;

gyre_status_t mem_ranges_reserve(void)
{
    size_t count = atomic_load_explicit(&table.count, memory_order_relaxed);
    range_t *now = atomic_load_explicit(&table.ranges, memory_order_relaxed), *bigger;

    if (count < table.room)
        return GYRE_OK;
    bigger = calloc(table.room ? table.room * 2 : 64, sizeof *bigger);
    if (!bigger)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the table of %zu windows", count + 1);
    for (size_t i = 0; i < count; i++) {
        for (int w = 0; w < RANGE_WORDS; w++)
            atomic_init(&bigger[i].word[w], atomic_load_explicit(&now[i].word[w], memory_order_relaxed));
    }
    if (now)
        table.old[table.old_count++] = now;
    table.room = table.room ? table.room * 2 : 64;
    /* Release: the entries are there before the pointer to them. */
    atomic_store_explicit(&table.ranges, bigger, memory_order_release);
    return GYRE_OK;
}

static void range_move(range_t *ranges, size_t to, size_t from)
{
    for (int w = 0; w < RANGE_WORDS; w++)
        atomic_store_explicit(&ranges[to].word[w],
                              atomic_load_explicit(&ranges[from].word[w], memory_order_relaxed),
                              memory_order_release);
}

/* Every store between begin and end is a release: a reader that sees one of them also sees the odd number
 * before it. */
static void change_begin(void)
{
    atomic_fetch_add_explicit(&table.seq, 1, memory_order_relaxed);
}

static void change_end(void)
{
    atomic_fetch_add_explicit(&table.seq, 1, memory_order_release);
}

void mem_ranges_insert(uint64_t id, const void *base, const mem_span_t *span)
{
    range_t *ranges = atomic_load_explicit(&table.ranges, memory_order_relaxed);
    size_t count = atomic_load_explicit(&table.count, memory_order_relaxed), at = count;
    const uint64_t words[RANGE_WORDS] = {[RANGE_ID] = id,
                                         [RANGE_BASE] = (uintptr_t)base,
                                         [RANGE_START] = span->start,
                                         [RANGE_END] = span->end,
                                         [RANGE_MAPPED] = span->mapped,
                                         [RANGE_MAPPED_END] = span->mapped_end,
                                         [RANGE_COPY] = (uintptr_t)span->copy};

    change_begin();
    for (; at > 0 &&
           atomic_load_explicit(&ranges[at - 1].word[RANGE_START], memory_order_relaxed) > words[RANGE_START];
         at--)
        range_move(ranges, at, at - 1);
    for (int w = 0; w < RANGE_WORDS; w++)
        atomic_store_explicit(&ranges[at].word[w], words[w], memory_order_release);
    atomic_store_explicit(&table.count, count + 1, memory_order_release);
    change_end();
}

void mem_ranges_remove(uint64_t id)
{
    range_t *ranges = atomic_load_explicit(&table.ranges, memory_order_relaxed);
    size_t count = atomic_load_explicit(&table.count, memory_order_relaxed), at = 0;

    while (at < count && atomic_load_explicit(&ranges[at].word[RANGE_ID], memory_order_relaxed) != id)
        at++;
    if (at == count)
        return;
    change_begin();
    for (; at + 1 < count; at++)
        range_move(ranges, at, at + 1);
    atomic_store_explicit(&table.count, count - 1, memory_order_release);
    change_end();
}

/* The last range that begins at or before `at`; count: none. Acquire everywhere: see change_begin. */
static size_t ranges_search(const range_t *ranges, size_t count, uintptr_t at)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (atomic_load_explicit(&ranges[mid].word[RANGE_START], memory_order_acquire) <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? low - 1 : count;
}

typedef struct {
    uint64_t word[RANGE_WORDS];
} found_t;

static int look_up(const void *ptr, size_t bytes, found_t *out)
{
    const uintptr_t at = (uintptr_t)ptr;

    for (;;) {
        uint64_t before = atomic_load_explicit(&table.seq, memory_order_acquire);
        /* The count first: arrays only grow, so a count read before the pointer fits the array. */
        size_t count = atomic_load_explicit(&table.count, memory_order_acquire);
        const range_t *ranges = atomic_load_explicit(&table.ranges, memory_order_acquire);
        size_t hit = before & 1 ? count : ranges_search(ranges, count, at);
        int found = 0;

        if (hit < count) {
            for (int w = 0; w < RANGE_WORDS; w++)
                out->word[w] = atomic_load_explicit(&ranges[hit].word[w], memory_order_acquire);
            found = at >= out->word[RANGE_START] && at < out->word[RANGE_END] &&
                    bytes <= out->word[RANGE_END] - at;
        }
        if (before & 1 || before != atomic_load_explicit(&table.seq, memory_order_relaxed)) {
            base_relax();
            continue;
        }
        return found;
    }
}

int comm_mem_find(const void *ptr, size_t bytes, uint64_t *id, size_t *offset)
{
    found_t found;

    if (!look_up(ptr, bytes, &found))
        return 0;
    *id = found.word[RANGE_ID];
    *offset = (uintptr_t)ptr - found.word[RANGE_BASE];
    return 1;
}

/* Copies what of the buffer lies in the pages at the window's ends: there, or back. */
static void copy_ends(const found_t *found, unsigned char *buf, size_t bytes, int back)
{
    const uintptr_t at = (uintptr_t)buf, from = found->word[RANGE_MAPPED], to = found->word[RANGE_MAPPED_END];
    const size_t head = at < from ? base_min_size(bytes, from - at) : 0;
    const size_t tail = at + bytes > to ? base_min_size(bytes - head, at + bytes - to) : 0;
    unsigned char *copy = (unsigned char *)found->word[RANGE_COPY]; /* NOLINT: an address */

    if (head + tail == 0)
        return;
    copy += at - found->word[RANGE_BASE];
    memcpy(back ? buf : copy, back ? copy : buf, head);
    buf += bytes - tail;
    copy += bytes - tail;
    memcpy(back ? buf : copy, back ? copy : buf, tail);
}

int comm_mem_show(const void *ptr, size_t bytes, uint64_t *id, size_t *offset, uint64_t *address)
{
    found_t found;

    *address = (uintptr_t)ptr;
    if (!look_up(ptr, bytes, &found))
        return 0;
    if (found.word[RANGE_COPY])
        *address += found.word[RANGE_COPY] - found.word[RANGE_BASE];
    copy_ends(&found, (unsigned char *)(uintptr_t)ptr, bytes, 0);
    *id = found.word[RANGE_ID];
    *offset = (uintptr_t)ptr - found.word[RANGE_BASE];
    return 1;
}

void comm_mem_fetch(void *ptr, size_t bytes)
{
    found_t found;

    if (look_up(ptr, bytes, &found))
        copy_ends(&found, ptr, bytes, 1);
}
