/* SPDX-License-Identifier: Apache-2.0 */
/* base/arena.c: blocks from malloc, filled from the front, freed together.
 *
 *     block:  | header, 64 bytes | used ........ | free ..... |
 *
 * An allocation that fits the newest block is cut from it. A large one gets a block of its own, put after the
 * newest so that the room left in that one is not lost. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define ALIGN       64
#define FIRST_BLOCK ((size_t)4 * 1024)
#define LAST_BLOCK  ((size_t)1024 * 1024)

struct base_arena_block {
    base_arena_block_t *next;
    size_t size; /* bytes after the header */
    size_t used;
    char pad[ALIGN - sizeof(void *) - 2 * sizeof(size_t)]; /* what follows starts on a cache line */
};
_Static_assert(sizeof(struct base_arena_block) == ALIGN, "the header fills one cache line");

static base_arena_block_t *block_new(base_arena_t *arena, size_t size)
{
    size_t total;
    if (!base_add(size, sizeof(base_arena_block_t), &total))
        return NULL;
    base_arena_block_t *block = aligned_alloc(ALIGN, total); /* total is a multiple of ALIGN */
    if (block == NULL)
        return NULL;
    *block = (base_arena_block_t){.size = size};
    arena->bytes += total;
    return block;
}

void *base_arena_alloc(base_arena_t *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!base_mul(count, size, &bytes) || bytes > PTRDIFF_MAX - 2 * ALIGN) /* no object is larger */
        return NULL;
    bytes = bytes == 0 ? ALIGN : base_round_up(bytes, ALIGN); /* every pointer is its own */

    base_arena_block_t *block = arena->blocks;
    if (block == NULL || block->size - block->used < bytes) {
        size_t usual = block == NULL ? FIRST_BLOCK : base_min_size(block->size * 2, LAST_BLOCK);
        if (block != NULL && bytes > usual / 4) {
            base_arena_block_t *own = block_new(arena, bytes);
            if (own == NULL)
                return NULL;
            own->next = block->next;
            block->next = own;
            block = own;
        } else {
            base_arena_block_t *fresh = block_new(arena, base_max_size(usual, bytes));
            if (fresh == NULL)
                return NULL;
            fresh->next = block;
            arena->blocks = block = fresh;
        }
    }
    char *ptr = (char *)block + sizeof(*block) + block->used;
    block->used += bytes;
    return memset(ptr, 0, bytes);
}

char *base_arena_strdup(base_arena_t *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = base_arena_alloc(arena, bytes, 1);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void base_arena_free(base_arena_t *arena)
{
    for (base_arena_block_t *block = arena->blocks; block != NULL;) {
        base_arena_block_t *next = block->next;
        free(block);
        block = next;
    }
    *arena = (base_arena_t){0};
}
