/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.h: xxHash under one name. Not for authentication. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t base_hash64(const void *data, size_t bytes, uint64_t seed);

/* The same hash (seed 0) of what comes in pieces: as base_hash64 of all pieces in one. NULL: no memory. */
typedef struct base_hash base_hash_t;
base_hash_t *base_hash_begin(void);
void base_hash_add(base_hash_t *hash, const void *data, size_t bytes);
/* Frees `hash`, which may be NULL (the answer is then 0). */
uint64_t base_hash_end(base_hash_t *hash);

#endif
