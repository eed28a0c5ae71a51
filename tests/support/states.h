/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/states.h: which states a search has met, by their hashes. */
#ifndef TESTS_SUPPORT_STATES_H
#define TESTS_SUPPORT_STATES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* An open table. */
typedef struct {
    uint64_t *hash; /* [size]; 0: free */
    size_t size, met;
} states_t;

/* 0: no memory. size: twice as many as states are met, or more. */
static inline int states_open(states_t *s, size_t size)
{
    *s = (states_t){.hash = calloc(size, sizeof(uint64_t)), .size = size};
    return s->hash != NULL;
}

static inline void states_clear(states_t *s)
{
    memset(s->hash, 0, s->size * sizeof *s->hash);
    s->met = 0;
}

static inline void states_close(states_t *s)
{
    free(s->hash);
}

/* 1: a state with this hash was not met before. -1: the same, and the table is half full. */
static inline int states_new(states_t *s, uint64_t hash)
{
    const uint64_t h = hash | 1; /* never 0 */
    for (size_t at = h % s->size;; at = (at + 1) % s->size) {
        if (s->hash[at] == h)
            return 0;
        if (s->hash[at] == 0) {
            s->hash[at] = h;
            return ++s->met < s->size / 2 ? 1 : -1;
        }
    }
}

#endif
