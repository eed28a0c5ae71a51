/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 5 8, over UCX: 3 */
/* takes: 2 */
/* tests/collectives/mp_exact.c: in exact order each reduction gives the bits of coll_kernel_reduce_exact over
 * the inputs of all ranks (tests/collectives/kernels/test_exact.c proves that one), whichever rank has which
 * input, for all types, sizes, forms and algorithms that serve it. */
#include "tests/support/mp.h"

#include <string.h>

#include "collectives/kernels/kernels.h"

enum { MOST = 40000, RANKS = 8 };

static int n, rank;
static gyre_comm_t *comm;
static gyre_type_t type;
static size_t esize;
static char in[MOST * 8], out[MOST * 8], all[RANKS][MOST * 8], want[MOST * 8];

/* Bits of any exponent; terms that cancel but for a far smaller one; ties; subnormals; now and then a value
 * that is not finite. who: the rank that has it in the first round. */
static uint64_t bits(int who, size_t i)
{
    uint64_t seed = i * 0x9e3779b97f4a7c15u + (uint64_t)type, x = random_next(&seed);
    uint64_t other = seed + (uint64_t)who * 77, own = random_next(&other);
    const int digits = (int)(8 * esize);
    const uint64_t mask = digits == 64 ? UINT64_MAX : ((uint64_t)1 << digits) - 1;
    const uint64_t sign = (uint64_t)1 << (digits - 1);
    const uint64_t low = type == GYRE_FLOAT64   ? 0xfffffffffffff
                         : type == GYRE_FLOAT32 ? 0x7fffff
                         : type == GYRE_FLOAT16 ? 0x3ff
                                                : 0x7f;
    const uint64_t infinity = (mask >> 1) & ~low, one = infinity / 2;
    switch (i % 8) {
    case 0: /* any */
        return (own & infinity) == infinity ? own & sign : own & mask;
    case 1: /* cancels where n is even */
        return (who % 2 ? sign : 0) ^ ((x & infinity) == infinity ? one : x & mask & ~sign);
    case 2: /* a tie, or next to one */
        return who == 0 ? one : who == 1 ? one / 2 + (own & low) / 3 : own & 3;
    case 3: /* subnormal */
        return own & (low | sign);
    case 4: /* overflows on the way, or not at all */
        return (who % 3 ? sign : 0) | (infinity - 1);
    case 5:
        return (own & sign) | (who == 2 && i % 64 == 5 ? infinity + (own & 1) : infinity / 3);
    case 6: /* signed zeros */
        return who == 1 && i % 16 == 6 ? 0 : sign;
    default: /* like gradients */
        return (own & sign) | (one - (own >> 8 & 7) * (low + 1)) | (own & low);
    }
}

static void fill(char *to, int who, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t x = bits(who, i);
        memcpy(to + i * esize, &x, esize); /* little-endian, as all that Gyre runs on */
    }
}

static void expect(gyre_redop_t op, size_t count)
{
    const void *from[RANKS];
    for (int r = 0; r < n; r++) {
        from[r] = all[r];
        if (op.scaled)
            coll_kernel_scale(type, all[r], all[r], count, op.scale);
    }
    coll_kernel_reduce_exact(op.kind, type, want, from, n, count);
}

static void same(const char *call, gyre_redop_t op, size_t count, size_t at)
{
    MP_CHECK(memcmp(out, want + at * esize, count * esize) == 0, "%s of %zu %s, %s%s, of %d ranks", call,
             count, gyre_type_name(type), op.scaled ? "scaled " : "", gyre_redop_name(op.kind), n);
}

/* shift: rank r has the input that rank r + shift has in the first round. */
static void round_of(gyre_redop_t op, size_t count, int shift)
{
    const size_t block = count / (size_t)n;
    gyre_request_t *request;
    fill(in, (rank + shift) % n, count);
    memset(out, 0x55, count * esize);
    MP_OK(gyre_all_reduce(in, out, count, type, op, comm));
    same("all_reduce", op, count, 0);
    memset(out, 0x55, count * esize);
    MP_OK(gyre_ireduce_scatter(in, out, block, type, op, comm, &request));
    MP_OK(gyre_wait(&request));
    same("reduce_scatter", op, block, block * (size_t)rank);
    memset(out, 0x55, count * esize);
    MP_OK(gyre_reduce(in, out, count, type, op, n - 1, comm));
    if (rank == n - 1)
        same("reduce", op, count, 0);
    MP_OK(gyre_group_start());
    memcpy(out, in, count * esize);
    MP_OK(gyre_all_reduce(out, out, count, type, op, comm));
    MP_OK(gyre_group_end());
    same("all_reduce in place", op, count, 0);
}

static void set(const char *algorithm, size_t chunk)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = GYRE_ORDER_EXACT;
    options.algorithm = algorithm;
    options.chunk = chunk;
    MP_OK(gyre_comm_set(comm, &options));
}

int main(void)
{
    static const gyre_type_t types[] = {GYRE_FLOAT64, GYRE_FLOAT32, GYRE_BFLOAT16, GYRE_FLOAT16};
    static const size_t counts[] = {1, 13, 700, 9000, MOST};
    static const char *const algorithms[] = {NULL, "direct", "pairwise", "all_reduce:direct", NULL};
    const gyre_redop_t ops[] = {GYRE_OP(GYRE_SUM), GYRE_OP(GYRE_AVG), GYRE_SCALED_SUM(0.3)};
    MP_OK(gyre_init(NULL, &comm));
    n = gyre_comm_size(comm);
    rank = gyre_comm_rank(comm);
    for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
        set(algorithms[a], a == 4 ? 4096 : 0);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            type = types[t];
            esize = gyre_type_size(type);
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                if (a && counts[c] != 700 && counts[c] != 9000)
                    continue;
                const gyre_redop_t op = ops[(a + t + c) % 3];
                for (int r = 0; r < n; r++)
                    fill(all[r], r, counts[c]);
                expect(op, counts[c]);
                for (int shift = 0; shift < (counts[c] < 1000 ? n : 1); shift++)
                    round_of(op, counts[c], shift);
            }
        }
    }
    /* the order of the settings again: other bits where inputs cancel */
    MP_OK(gyre_comm_set(comm, NULL));
    MP_OK(gyre_finalize(comm));
    return 0;
}
