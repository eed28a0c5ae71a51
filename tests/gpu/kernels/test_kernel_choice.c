/* tests/gpu/kernels/test_kernel_choice.c: the host picks a kernel by element type and reduction
 * (collectives/gpu/sums/launch.c): every pair has the sums of the host's kernels, and a value that is no
 * type or no reduction is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "collectives/gpu/plans/schedule.h"
#include "collectives/kernels/kernels.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/memory.h"
#include "tests/gpu/values.h"

enum { RANKS = 3, COUNT = 37, ROOM = 512 /* bytes: COUNT of any type, and whole vectors */ };

static int is_signed(gyre_type_t type)
{
    return type == GYRE_INT8 || type == GYRE_INT16 || type == GYRE_INT32 || type == GYRE_INT64;
}

static coll_cuda_op_t describe(gyre_type_t type, gyre_redop_kind_t redop)
{
    coll_cuda_op_t op;
    memset(&op, 0, sizeof op);
    op.n = op.divisor = RANKS;
    op.type = (uint8_t)type;
    op.redop = (uint8_t)redop;
    op.average = redop == GYRE_AVG;
    op.reduces = 1;
    if (is_signed(type))
        op.sign = (uint64_t)1 << (8 * gyre_type_size(type) - 1);
    return op;
}

static void every_pair_has_its_sum(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int type = 0; type < DEVICE_TYPES; type++)
        for (int redop = 0; redop < DEVICE_REDOPS; redop++) {
            char in[RANKS][ROOM] = {{0}}, expected[ROOM] = {0}, got[ROOM];
            const void *from[RANKS];
            coll_cuda_op_t op = describe((gyre_type_t)type, (gyre_redop_kind_t)redop);
            op.sum_bytes = COUNT * gyre_type_size((gyre_type_t)type);
            for (int r = 0; r < RANKS; r++) {
                values_fill(in[r], COUNT, (gyre_type_t)type, &seed);
                from[r] = in[r];
                op.arena[r] = to_device(in[r], ROOM);
            }
            op.sum_to = to_device(expected, ROOM);
            coll_kernel_reduce((gyre_redop_kind_t)redop, (gyre_type_t)type, expected, from, RANKS, COUNT);
            if (redop == GYRE_AVG)
                coll_kernel_divide((gyre_type_t)type, expected, COUNT, RANKS);
            assert_cuda(cudaDeviceSynchronize());
            assert_cuda(coll_cuda_launch_add(&op, 2, NULL));
            from_device(got, op.sum_to, ROOM, NULL);
            assert_memory_equal(got, expected, ROOM);
            for (int r = 0; r < RANKS; r++)
                assert_cuda(cudaFree(op.arena[r]));
        }
}

static void every_type_is_scaled(void **state)
{
    (void)state;
    uint64_t seed = 8;
    for (int type = 0; type < DEVICE_TYPES; type++) {
        char in[ROOM] = {0}, expected[ROOM] = {0}, got[ROOM];
        coll_cuda_op_t op = describe((gyre_type_t)type, GYRE_SUM);
        op.scale = -3.0;
        op.whole = (uint64_t)-3;
        values_fill(in, COUNT, (gyre_type_t)type, &seed);
        char *from = to_device(in, ROOM);
        op.in = from;
        op.out = to_device(expected, ROOM);
        coll_kernel_scale((gyre_type_t)type, expected, in, COUNT, op.scale);
        assert_cuda(cudaDeviceSynchronize());
        assert_cuda(coll_cuda_launch_scale(&op, COUNT * gyre_type_size((gyre_type_t)type), 2, NULL));
        from_device(got, op.out, ROOM, NULL);
        assert_memory_equal(got, expected, ROOM);
        assert_cuda(cudaFree(from));
    }
}

/* Nothing is launched: these operations have no memory. */
static void assert_refused(const coll_cuda_op_t *op)
{
    assert_int_equal(coll_cuda_can_add(op), 0);
    assert_int_equal(coll_cuda_launch_peers(op, 1, NULL), cudaErrorInvalidValue);
    assert_int_equal(coll_cuda_launch_add(op, 1, NULL), cudaErrorInvalidValue);
    assert_int_equal(coll_cuda_launch_scale(op, 16, 1, NULL), cudaErrorInvalidValue);
    assert_cuda(cudaDeviceSynchronize());
}

/* Not only what is no type or reduction, but also those that the host has and device code does not. */
static void what_has_no_kernel_is_refused(void **state)
{
    (void)state;
    coll_cuda_op_t op = describe(GYRE_FLOAT32, GYRE_SUM);
    assert_int_equal(coll_cuda_can_add(&op), 1);
    for (int redop = DEVICE_REDOPS; redop <= GYRE_REDOP_COUNT; redop++) {
        op = describe(GYRE_INT32, GYRE_SUM);
        op.redop = (uint8_t)redop;
        assert_refused(&op);
    }
    for (int type = DEVICE_TYPES; type <= GYRE_TYPE_COUNT; type++) {
        op = describe(GYRE_FLOAT32, GYRE_SUM);
        op.type = (uint8_t)type;
        assert_refused(&op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_has_its_sum),
        cmocka_unit_test(every_type_is_scaled),
        cmocka_unit_test(what_has_no_kernel_is_refused),
    };
    return gpu_here() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
