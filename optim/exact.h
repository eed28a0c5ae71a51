/* SPDX-License-Identifier: Apache-2.0 */
/* optim/exact.h: the exact sum of squares of floats, in any order, cut anywhere, merged by integer sums.
 *
 * The square of a float is an integer of 48 bits times a power of four. Such integers are added up in 64-bit
 * bins, one per exponent, and bins in a long fixed-point number; nothing is ever rounded before the very end
 * (after Kulisch's accumulator; Neal 2015, "Fast exact summation using small and large superaccumulators",
 * has the bins). So a gradient's norm has the same bits for every order, every cut into shards, and every
 * number of ranks. */
#ifndef OPTIM_EXACT_H
#define OPTIM_EXACT_H

#include <stddef.h>
#include <stdint.h>

/* The fixed-point number: limb k counts units of 2^(32 k - 298). After optim_exact_close each is below 2^32,
 * so up to 2^32 of them may be added limb by limb, say by a GYRE_SUM of GYRE_UINT64 over ranks. The sum of
 * any 2^40 floats fits. */
#define OPTIM_EXACT_LIMBS 20
/* What travels: the limbs, then the number of elements that were infinite or NaN. */
#define OPTIM_EXACT_WORDS (OPTIM_EXACT_LIMBS + 1)

#define OPTIM_EXACT_BINS 256 /* one per exponent of a float */
#define OPTIM_EXACT_LANES \
    4 /* neighbouring elements go to different bins, so that no addition waits for the one before */

typedef struct {
    uint64_t bin[OPTIM_EXACT_LANES][OPTIM_EXACT_BINS];
    size_t room; /* elements per lane until a bin might overflow */
    uint64_t word[OPTIM_EXACT_WORDS];
} optim_exact_t;

void optim_exact_begin(optim_exact_t *exact);
void optim_exact_add(optim_exact_t *exact, const float *x, size_t n);
/* Brings everything into exact->word, limbs below 2^32. More may be added afterwards. */
void optim_exact_close(optim_exact_t *exact);

/* The sum that the words stand for, rounded once to the nearest double (ties to even); limbs may be any sums
 * of closed ones. NaN if an element was not finite. */
double optim_exact_value(const uint64_t word[OPTIM_EXACT_WORDS]);

#endif
