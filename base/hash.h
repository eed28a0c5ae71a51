/* base/hash.h: xxHash under one name. Not for authentication. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t base_hash64(const void *data, size_t bytes, uint64_t seed);

#endif
