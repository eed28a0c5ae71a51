/* base/hash.c: XXH3, 64 bits. */
#include "base/hash.h"

#include <xxhash.h>

uint64_t base_hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
