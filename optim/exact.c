/* SPDX-License-Identifier: Apache-2.0 */
/* optim/exact.c: bins by exponent, then limbs.
 *
 * A finite float of biased exponent e is m 2^(max(e, 1) - 150) with m < 2^24, so its square is m^2 2^(2
 * max(e, 1) - 300), and bin e counts units of 2^(2 max(e, 1) - 300): bit 2 max(e, 1) - 2 of the
 * fixed-point number, whose bit 0 is 2^-298. */
#include <math.h>
#include <string.h>

#include "optim/exact.h"

__extension__ typedef unsigned __int128 wide_t;

#define ROOM  (1u << 16) /* of integers below 2^48 in 64 bits */
#define BLOCK 256u

void optim_exact_begin(optim_exact_t *exact)
{
    memset(exact, 0, sizeof *exact);
    exact->room = ROOM;
}

/* value 2^bit, into limbs that have 32 bits of head room. */
static void deposit(uint64_t *limb, uint64_t value, unsigned bit)
{
    unsigned at = bit / 32, shift = bit % 32;
    wide_t wide = (wide_t)value << shift; /* below 2^96 */
    limb[at] += (uint32_t)wide;
    limb[at + 1] += (uint32_t)(wide >> 32);
    limb[at + 2] += (uint32_t)(wide >> 64);
}

static void carry(uint64_t *limb)
{
    for (size_t k = 0; k + 1 < OPTIM_EXACT_LIMBS; k++) {
        limb[k + 1] += limb[k] >> 32;
        limb[k] &= 0xffffffffu;
    }
}

void optim_exact_close(optim_exact_t *exact)
{
    for (size_t lane = 0; lane < OPTIM_EXACT_LANES; lane++)
        for (unsigned e = 0; e < OPTIM_EXACT_BINS - 1; e++)
            if (exact->bin[lane][e])
                deposit(exact->word, exact->bin[lane][e], 2 * (e > 0 ? e : 1) - 2);
    carry(exact->word);
    memset(exact->bin, 0, sizeof exact->bin);
    exact->room = ROOM;
}

/* First what vectorises, then the scattered additions. Infinities and NaNs go to the last bins, which nobody
 * reads: their sums would not say how many there were. */
static void add_block(optim_exact_t *exact, const float *x, size_t n)
{
    uint64_t square[BLOCK];
    uint8_t exponent[BLOCK];
    unsigned special = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        uint32_t e = bits >> 23 & 0xffu, m = (bits & 0x7fffffu) | (e > 0 ? 0x800000u : 0);
        square[i] = (uint64_t)m * m;
        exponent[i] = (uint8_t)e;
        special += e == 0xffu;
    }
    exact->word[OPTIM_EXACT_LIMBS] += special;
    size_t i = 0;
    for (; i + OPTIM_EXACT_LANES <= n; i += OPTIM_EXACT_LANES)
        for (size_t lane = 0; lane < OPTIM_EXACT_LANES; lane++)
            exact->bin[lane][exponent[i + lane]] += square[i + lane];
    for (size_t lane = 0; i < n; i++, lane++)
        exact->bin[lane][exponent[i]] += square[i];
}

void optim_exact_add(optim_exact_t *exact, const float *x, size_t n)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        if (exact->room < BLOCK)
            optim_exact_close(exact);
        exact->room -= (len + OPTIM_EXACT_LANES - 1) / OPTIM_EXACT_LANES;
        add_block(exact, x + at, len);
    }
}

double optim_exact_value(const uint64_t word[OPTIM_EXACT_WORDS])
{
    uint64_t limb[OPTIM_EXACT_LIMBS];
    if (word[OPTIM_EXACT_LIMBS])
        return NAN;
    memcpy(limb, word, sizeof limb);
    carry(limb);
    size_t top = OPTIM_EXACT_LIMBS;
    while (top > 0 && limb[top - 1] == 0)
        top--;
    if (top == 0)
        return 0.0;
    /* The first 64 significant bits, the last of them also standing for all that follow: rounding to 53 bits
     * then goes as with the whole number. */
    wide_t window = 0;
    int sticky = 0;
    for (size_t k = top, taken = 0; k-- > 0; taken++) {
        if (taken < 3)
            window = window << 32 | limb[k];
        else
            sticky |= limb[k] != 0;
    }
    int missing = top < 3 ? (int)(3 - top) : 0; /* limbs that are not there: the window is that much lower */
    int exponent = 32 * ((int)top - 3) - 298 + 32 * missing;
    while (window >>
           64) { /* at most 32 times, once per norm; the top limb of the last rank's sum may pass 32 bits */
        sticky |= (int)(window & 1);
        window >>= 1;
        exponent++;
    }
    uint64_t head = (uint64_t)window | (uint64_t)sticky;
    return ldexp((double)head, exponent); /* one rounding: the result is a normal double */
}
