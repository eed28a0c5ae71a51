/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.c: XXH3, 64 bits. */
#include "base/hash.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"

uint64_t base_hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

/* base_hash_t is xxHash's own state under our name. */
base_hash_t *base_hash_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        XXH3_64bits_reset(state);
    return (base_hash_t *)state;
}

void base_hash_add(base_hash_t *hash, const void *data, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)hash, data, bytes);
}

uint64_t base_hash_end(base_hash_t *hash)
{
    if (!hash)
        return 0;
    uint64_t value = XXH3_64bits_digest((XXH3_state_t *)hash);
    XXH3_freeState((XXH3_state_t *)hash);
    return value;
}

uint64_t base_random64(void)
{
    static _Atomic uint64_t counter;
    uint64_t word = 0;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
        const uint64_t mix[3] = {(uint64_t)base_now(), (uint64_t)getpid(), atomic_fetch_add(&counter, 1)};
        word = base_hash64(mix, sizeof mix, 0);
    }
    return word;
}
