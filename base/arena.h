/* SPDX-License-Identifier: Apache-2.0 */
/* base/arena.h: memory for what lives and dies together. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

typedef struct base_arena_block base_arena_block_t;
typedef struct {
    base_arena_block_t *blocks; /* newest first; owned */
    size_t bytes;               /* taken from malloc so far */
} base_arena_t;                 /* all zero is a valid empty arena */

/* 64-byte aligned, zeroed. NULL if memory is exhausted or count * size overflows. */
void *base_arena_alloc(base_arena_t *arena, size_t count, size_t size);
char *base_arena_strdup(base_arena_t *arena, const char *text);
void base_arena_free(base_arena_t *arena); /* everything; the arena is empty again */

#endif
