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

#ifdef __CUDACC__
#define BASE_KERNELS_TOO __host__ __device__
#else
#define BASE_KERNELS_TOO
#endif

/* The finaliser of splitmix64: every bit of the result depends on every bit of z. */
static BASE_KERNELS_TOO inline uint64_t base_mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 64 random bits, to tell apart what several processes make; not for secrets. */
uint64_t base_random64(void);

#endif
