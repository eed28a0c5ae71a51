/* SPDX-License-Identifier: Apache-2.0 */
/* model/philox.h: the rounds of Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011), one source for the
 * host's numbers (model/random.c), its dropout (model/kernels/residual.inc) and that of a device
 * (model/gpu/scalar.h, which says with MODEL_SCALAR how a function is made part of a kernel). */
#ifndef MODEL_PHILOX_H
#define MODEL_PHILOX_H

#include <stdint.h>

#ifndef MODEL_SCALAR
#define MODEL_SCALAR static inline __attribute__((always_inline))
#endif

/* c: the counter, which becomes the four numbers. */
MODEL_SCALAR void model_philox_rounds(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The numbers of elements 4 block .. 4 block + 3 of the tensor that words 0..2 of model_dropout_key and
 * `place`, its last word, name. */
MODEL_SCALAR void model_dropout_numbers(const uint32_t *key, uint32_t place, uint64_t block,
                                        uint32_t number[4])
{
    number[0] = (uint32_t)block;
    number[1] = key[2];
    number[2] = place;
    number[3] = 0x80000000u | (uint32_t)(block >> 32);
    model_philox_rounds(number, key[0], key[1]);
}

#endif
