/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4 5 9 16, and in check-long: 6 7 8; over UCX: 3 */
/* takes: 2 */
/* tests/collectives/mp_exact.c: in exact order each reduction gives the exact value, rounded once: every bit
 * of hostile inputs is that of integers of 2400 bits (tests/support/hostile.h). Whichever rank has which
 * input, on any number of ranks, for all types, sizes, forms and algorithms that serve it. */
#include "tests/support/mp.h"

#include <string.h>

#include "collectives/kernels/kernels.h"
#include "tests/support/hostile.h"

/* Vectors repeat after ELEMENTS numbers: the reference takes long. A prime, so blocks begin with different
 * ones. */
enum { MOST = 40000, ELEMENTS = 509, MOST_INPUTS = 16 };

static int n, rank;
static gyre_comm_t *comm, *aside; /* aside: keeps its options */
static const format_t *format;    /* of a number; complex values have two */
static gyre_type_t type;
static uint64_t input[ELEMENTS][MOST_INPUTS], want[ELEMENTS];
static char in[MOST_INPUTS * MOST * 8], out[MOST * 8];

/* As many numbers as `inputs` leaves have, and what `op` makes of them. Rank 0 computes that for all. */
static void make_elements(gyre_redop_t op, int inputs)
{
    for (int e = 0; rank == 0 && e < ELEMENTS; e++) {
        uint64_t scaled[MOST_INPUTS] = {0};
        fill_element(format, MIXED, input[e], inputs);
        for (int k = 0; k < inputs; k++) {
            scaled[k] = input[e][k];
            if (op.scaled)
                coll_kernel_scale(format->type, &scaled[k], &scaled[k], 1, op.scale);
        }
        want[e] = expected_of(format, scaled, inputs, op.kind == GYRE_AVG ? (uint32_t)inputs : 1);
    }
    mp_wait_for_0(aside);
    MP_OK(gyre_broadcast(input, input, sizeof input, GYRE_UINT8, 0, aside));
    MP_OK(gyre_broadcast(want, want, sizeof want, GYRE_UINT8, 0, aside));
    MP_OK(gyre_broadcast(&seed, &seed, sizeof seed, GYRE_UINT8, 0, aside)); /* permute goes on with it */
}

/* Other ranks have them: another order for each element, the same on all ranks. */
static void permute(int inputs)
{
    for (int e = 0; e < ELEMENTS; e++)
        for (int k = inputs - 1; k > 0; k--) {
            const uint64_t other = next_random() % (uint64_t)(k + 1), x = input[e][k];
            input[e][k] = input[e][other];
            input[e][other] = x;
        }
}

static void fill(char *to, int which, size_t numbers)
{
    for (size_t i = 0; i < numbers; i++) /* little-endian, as all that Gyre runs on */
        memcpy(to + i * (size_t)format->size, &input[i % ELEMENTS][which], (size_t)format->size);
}

/* first: of `out`, in the vector */
static void same(const char *call, gyre_redop_t op, size_t numbers, size_t first)
{
    for (size_t i = 0; i < numbers; i++) {
        uint64_t got = 0;
        memcpy(&got, out + i * (size_t)format->size, (size_t)format->size);
        MP_CHECK(got == want[(first + i) % ELEMENTS],
                 "%s of %zu numbers, %s, %s%s, of %d ranks: number %zu is %llx, not %llx", call, numbers,
                 gyre_type_name(type), op.scaled ? "scaled " : "", gyre_redop_name(op.kind), n, i,
                 (unsigned long long)got, (unsigned long long)want[(first + i) % ELEMENTS]);
    }
}

/* per: numbers of an element of `type`. */
static void round_of(gyre_redop_t op, size_t count, size_t per)
{
    const size_t block = count / (size_t)n, bytes = count * per * (size_t)format->size;
    gyre_request_t *request;
    fill(in, rank, count * per);
    memset(out, 0x55, bytes);
    MP_OK(gyre_all_reduce(in, out, count, type, op, comm));
    same("all_reduce", op, count * per, 0);
    memset(out, 0x55, bytes);
    MP_OK(gyre_ireduce_scatter(in, out, block, type, op, comm, &request));
    MP_OK(gyre_wait(&request));
    same("reduce_scatter", op, block * per, block * per * (size_t)rank);
    memset(out, 0x55, bytes);
    MP_OK(gyre_reduce(in, out, count, type, op, n - 1, comm));
    if (rank == n - 1)
        same("reduce", op, count * per, 0);
    MP_OK(gyre_group_start());
    memcpy(out, in, bytes);
    MP_OK(gyre_all_reduce(out, out, count, type, op, comm));
    MP_OK(gyre_group_end());
    same("all_reduce in place", op, count * per, 0);
}

static void set(const char *algorithm, size_t chunk, int leaves)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = GYRE_ORDER_EXACT;
    options.algorithm = algorithm;
    options.chunk = chunk;
    options.leaves = leaves;
    MP_OK(gyre_comm_set(comm, &options));
}

/* Sixteen inputs, dealt out to the ranks there are: the bytes of each number of ranks. */
static void sixteen_inputs(gyre_redop_t op, size_t count)
{
    const int first = rank * MOST_INPUTS / n, mine = (rank + 1) * MOST_INPUTS / n - first;
    set(NULL, 0, mine);
    make_elements(op, MOST_INPUTS);
    for (int leaf = 0; leaf < mine; leaf++)
        fill(in + (size_t)leaf * count * (size_t)format->size, first + leaf, count);
    MP_OK(gyre_all_reduce(in, out, count, type, op, comm));
    same("all_reduce of 16 leaves", op, count, 0);
}

int main(void)
{
    static const size_t counts[] = {1, 13, 700, 9000, MOST / 2};
    static const char *const algorithms[] = {NULL, "direct", "pairwise", "all_reduce:direct", NULL};
    const gyre_redop_t ops[] = {GYRE_OP(GYRE_SUM), GYRE_OP(GYRE_AVG), GYRE_SCALED_SUM(0.3)};
    MP_OK(gyre_init(NULL, &comm));
    n = gyre_comm_size(comm);
    rank = gyre_comm_rank(comm);
    MP_OK(gyre_comm_split(comm, 0, rank, &aside));
    for (int t = 0; t < FORMATS + 2; t++) {
        static const gyre_type_t complex[2] = {GYRE_COMPLEX64, GYRE_COMPLEX128};
        const int parts = t >= FORMATS;
        format = &formats[parts ? t - 2 : t]; /* the last two are float and double */
        type = parts ? complex[t - FORMATS] : format->type;
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            make_elements(ops[o], n);
            for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
                set(algorithms[a], a == 4 ? 4096 : 0, 1);
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    if ((a + c + o) % 4 == 0 || (a == 0 && c < 3)) {
                        permute(n);
                        round_of(ops[o], counts[c], parts ? 2 : 1);
                    }
            }
        }
        if (!parts)
            for (int o = 0; o < 2; o++)
                sixteen_inputs(ops[o], 700);
    }
    MP_OK(gyre_comm_destroy(aside));
    MP_OK(gyre_finalize(comm));
    return 0;
}
