/* tests/gpu/kernels/test_exact_sums.c: device code rounds sums and averages once, as the host's kernels do:
 * hostile inputs of 1 to 64 ranks, against integers of 2400 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <string.h>

#include "collectives/gpu/shots/peers.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/memory.h"
#include "tests/support/hostile.h"

enum { MOST = COLL_CUDA_RANKS, COUNT = 203, GUARD = 16, ROOM = COUNT * 8 + 2 * GUARD };

static uint64_t input[COUNT][MOST];
static char host[ROOM];

/* One set of inputs, as a sum and as an average; the result begins at any element. */
static void compare(const format_t *f, int k, int kind)
{
    const size_t size = (size_t)f->size, shift = (size_t)(next_random() % 5) * size;
    coll_cuda_op_t op;
    memset(&op, 0, sizeof op);
    op.n = op.divisor = (uint16_t)k;
    op.type = (uint8_t)f->type;
    op.exact = op.reduces = 1;
    op.sum_bytes = COUNT * size;
    for (int i = 0; i < COUNT; i++)
        fill_element(f, kind, input[i], k);
    for (int r = 0; r < k; r++) {
        for (int i = 0; i < COUNT; i++)
            memcpy(host + (size_t)i * size, &input[i][r], size);
        op.arena[r] = to_device(host, ROOM);
    }
    for (int average = 0; average <= 1; average++) {
        char got[ROOM + 64];
        memset(got, 0x5a, sizeof got);
        char *to = to_device(got, sizeof got);
        op.average = (uint8_t)average;
        op.redop = (uint8_t)(average ? GYRE_AVG : GYRE_SUM);
        op.sum_to = to + GUARD + shift;
        assert_cuda(coll_cuda_launch_add(&op, 3, NULL));
        from_device(got, to, sizeof got, NULL);
        for (int i = 0; i < COUNT; i++) {
            const uint64_t want = expected_of(f, input[i], k, average ? (uint32_t)k : 1);
            uint64_t have = 0;
            memcpy(&have, got + GUARD + shift + (size_t)i * size, size);
            if (have != want)
                fail_msg("%s of %s, %d ranks, kind %d, element %d: got %" PRIx64 ", want %" PRIx64,
                         average ? "average" : "sum", gyre_type_name(f->type), k, kind, i, have, want);
        }
        for (size_t i = 0; i < sizeof got; i++)
            if (i < GUARD + shift || i >= GUARD + shift + op.sum_bytes)
                assert_int_equal(got[i], 0x5a);
    }
    for (int r = 0; r < k; r++)
        assert_cuda(cudaFree(op.arena[r]));
}

static void every_bit_is_right(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, MOST};
    (void)state;
    for (int f = 0; f < FORMATS; f++)
        for (int kind = 0; kind <= MIXED; kind++)
            for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++)
                compare(&formats[f], ranks[k], kind);
}

static void only_sums_of_floats(void **state)
{
    coll_cuda_op_t op;
    (void)state;
    memset(&op, 0, sizeof op);
    op.n = 2;
    op.exact = 1;
    op.type = GYRE_INT32;
    op.redop = GYRE_SUM;
    assert_int_equal(coll_cuda_launch_add(&op, 1, NULL), cudaErrorInvalidValue);
    op.type = GYRE_FLOAT32;
    op.redop = GYRE_PROD;
    assert_int_equal(coll_cuda_launch_add(&op, 1, NULL), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_is_right),
        cmocka_unit_test(only_sums_of_floats),
    };
    return gpu_here() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
