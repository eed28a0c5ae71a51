/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3, and in check-long: 4 8 */
/* tests/gpu/ranks/mp_schedule.c: the host's schedules in a kernel on device memory: every algorithm with the
 * operations that it serves, and the bits of the host's; every type and reduction; types that only move; both
 * orders in turns; long vectors in many segments through little staging; in graphs; after and before
 * operations of the other kernel; and a rank that dies in the middle. */
#include <unistd.h>

#include "base/clock.h"
#include "collectives/gpu/gpu.h"
#include "collectives/gpu/sums/types.h"
#include "collectives/schedules/algorithms.h"

#include "tests/gpu/ranks/compare.h" /* has names that headers use, so it comes last */

/* That the schedule runs, and not what serves in its place. */
static void runs(const char *algo, coll_op_t op, size_t count)
{
    coll_cuda_explanation_t x;
    const coll_shape_t shape = {
        .op = op, .type = GYRE_FLOAT32, .redop = GYRE_SUM, .uniform = 1, .count = count, .root = 0};
    MP_OK(coll_cuda_explain(comm, &shape, 0, &x));
    MP_CHECK(strcmp(x.algorithm, algo) == 0, "%s runs as %s, not %s", coll_op_name(op), x.algorithm, algo);
    MP_CHECK(x.blocks >= 1 && x.rounds >= 1, "%s: %d blocks, %u segments", algo, x.blocks, x.rounds);
}

static void serves(const char *algo)
{
    static const struct {
        const char *algo;
        coll_op_t op;
    } list[] = {{"ring", COLL_ALL_REDUCE},
                {"ring", COLL_REDUCE_SCATTER},
                {"ring", COLL_ALL_GATHER},
                {"ring", COLL_BROADCAST},
                {"ring", COLL_REDUCE},
                {"tree", COLL_ALL_REDUCE},
                {"tree", COLL_BROADCAST},
                {"tree", COLL_REDUCE},
                {"butterfly", COLL_ALL_REDUCE},
                {"butterfly", COLL_ALL_GATHER},
                {"butterfly", COLL_REDUCE_SCATTER},
                {"binomial", COLL_ALL_REDUCE},
                {"binomial", COLL_GATHER},
                {"binomial", COLL_SCATTER}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].algo, algo) == 0)
            runs(algo, list[i].op, 3000);
}

/* Types of which devices have no sums. */
static void moved_types(void)
{
    gyre_type_t own;
    MP_OK(gyre_type_create(12, &own));
#define TYPE(id) id,
    const gyre_type_t types[] = {COLL_CUDA_HOST_TYPES(TYPE) own};
#undef TYPE
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const ask_t a = {.type = types[i], .count = 321, .root = (int)i % n, .streamed = (int)i % 2};
        broadcast(&a);
        all_gather(&a, 0);
        gather(&a, 0);
        scatter(&a, 0);
    }
    MP_OK(gyre_type_free(&own));
}

/* Staging of 64 KiB is 32 KiB per block: vectors of MOST bytes are many segments. */
static void one_algorithm(const char *algo)
{
    static const size_t few[] = {1, 333, 2500};
    path = algo;
    set(SET_ALGO, algo);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    serves(algo);
    operations(few, sizeof few / sizeof *few);
    moved_types();
    const ask_t large = {
        .type = GYRE_BFLOAT16, .op = GYRE_OP(GYRE_SUM), .count = MOST / 4 - 5, .streamed = 1};
    all_reduce(&large);
    broadcast(&large);
    const ask_t scaled = {
        .type = GYRE_FLOAT32, .op = GYRE_SCALED_SUM(0.37), .count = 5001, .streamed = 1, .in_place = 1};
    all_reduce(&scaled);
    set(SET_ALGO, "auto"); /* shots and schedules in turns */
    all_reduce(&scaled);
    set(SET_ALGO, algo);
    all_reduce(&scaled);
    MP_OK(gyre_comm_destroy(comm));
}

static void every_type(const char *algo)
{
    path = algo;
    set(SET_ALGO, algo);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    arithmetic(517);
    MP_OK(gyre_comm_destroy(comm));
}

/* gyre_comm_set changes the order: a program of the one is not run for the other. */
static void orders(void)
{
    gyre_options_t fast = GYRE_OPTIONS_INITIALIZER;
    const ask_t a = {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = 3001, .streamed = 1};
    fast.order = GYRE_ORDER_FAST;
    path = "ring, after another order";
    set(SET_ALGO, "ring");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_set(comm, &fast));
    MP_OK(gyre_all_reduce_stream(there_in + GUARD, there_out + GUARD, a.count, a.type, a.op, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    MP_OK(gyre_comm_set(comm, NULL));
    all_reduce(&a);
    MP_OK(gyre_comm_destroy(comm));
}

/* Captured before and after the shape has run by itself, and launched again and again between other
 * operations, among them one whose LL kernel begins with a sweep of its lines. */
static void in_graphs(void)
{
    enum { COUNT = 4000 };
    static float host[COUNT];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *a = (float *)(there_in + GUARD), *b = (float *)(there_out + GUARD);
    set(SET_ALGO, "ring");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    for (int i = 0; i < COUNT; i++)
        host[i] = 1;
    CUDA(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_all_reduce_stream(b, a, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_AVG), comm, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int k = 0; k < 3; k++) {
        CUDA(cudaGraphLaunch(exec, stream)); /* multiplies by n */
        CUDA(cudaStreamSynchronize(stream));
        set(SET_ALGO, k == 1 ? "tree" : "auto");
        MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm, stream));
        set(SET_ALGO, "auto");
        runs("ll", COLL_ALL_REDUCE, 4);
        MP_OK(gyre_all_reduce_stream(a, b, 4, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm, stream));
        CUDA(cudaStreamSynchronize(stream));
    }
    CUDA(cudaMemcpy(host, b, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(host[i] == (float)(n * n * n), "element %d is %g", i, (double)host[i]);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    MP_OK(gyre_comm_destroy(comm));
}

/* The last rank ends in the middle of a ring, while the others wait for its messages:
 * tests/gpu/ranks/jobs.sh. */
static void dying(void)
{
    const size_t count = (size_t)8 << 20;
    float *much;
    gyre_status_t st = GYRE_OK;
    CUDA(cudaMalloc((void **)&much, count * sizeof *much));
    set(SET_ALGO, "ring");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(gyre_barrier(world));
    for (int i = 0; i < 50 && st == GYRE_OK; i++)
        st = gyre_all_reduce_stream(much, much, count, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm, stream);
    if (rank == n - 1) {
        usleep(100 * 1000);
        _exit(0);
    }
    CUDA(cudaStreamSynchronize(stream));
    const base_time_t from = base_now();
    for (st = GYRE_OK; st == GYRE_OK && base_now() - from < (base_time_t)20e9; usleep(1000))
        st = gyre_comm_error(comm);
    MP_CHECK(st == GYRE_ERR_PEER_DEAD || st == GYRE_ERR_ABORTED, "rank %d: a death ended with %s", rank,
             gyre_status_string(st));
    MP_OK(gyre_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    if (!gpu_here())
        return 77;
    compare_begin();
    set(SET_CUDA_PATH, "direct");
    set(SET_CUDA_BLOCKS, "2");
    set(SET_CUDA_STAGING, "64K");
    set(SET_CUDA_ENGINES, "0");
    set(SET_CUDA_WAIT, "kernel");
    if (argc == 2 && strcmp(argv[1], "dying") == 0) {
        dying();
        return 0;
    }
    for (coll_algo_t a = COLL_ALGO_AUTO + 1; a < COLL_ALGO_END; a++)
        if (a != COLL_LEAVES && !coll_algo_is(a, COLL_FLAT) && !coll_algo_is(a, COLL_BY_PARTS))
            one_algorithm(coll_algo_name(a));
    every_type("ring");
    every_type("tree");
    orders();
    in_graphs();
    set(SET_CUDA_WAIT, "stream"); /* shots then wait in streams, schedules in their kernel */
    one_algorithm("ring");
    set(SET_ALGO, "auto");
    compare_end();
    return 0;
}
