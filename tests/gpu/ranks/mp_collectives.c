/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3, and in check-long: 4 8 9 */
/* tests/gpu/ranks/mp_collectives.c: collectives on device memory have the bits of those on host memory: every
 * operation, type, reduction and root, odd sizes, misaligned buffers, in place, blocking, non-blocking and on
 * streams; between ranks that map each other's memory, in one shot and in two, in many rounds through
 * little staging, and short ones with a flag in every store (LL); and staged through the host. */
#include "collectives/run/communicator.h"
#include "tests/gpu/ranks/compare.h"

/* Several on streams at once, with and without waiting in between, and messages around the ring. */
static void in_stream_order(void)
{
    enum { COUNT = 3000 };
    float *a = (float *)(there_in + GUARD), *b = (float *)(there_out + GUARD);
    static float host[COUNT];
    cudaStream_t second;
    CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(rank + 1);
    CUDA(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
    MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_all_reduce_stream(b, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_AVG), comm, stream));
    MP_OK(gyre_broadcast_stream(b, a, COUNT, GYRE_FLOAT32, n - 1, comm, second)); /* after the others */
    MP_OK(gyre_send_stream(a, COUNT, GYRE_FLOAT32, (rank + 1) % n, comm, second));
    MP_OK(gyre_recv_stream(b, COUNT, GYRE_FLOAT32, (rank + n - 1) % n, comm, second));
    CUDA(cudaStreamSynchronize(second));
    CUDA(cudaMemcpy(host, b, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(host[i] == (float)(n * (n + 1) / 2), "element %d is %g (%s)", i, (double)host[i], path);
    /* longer than all that can be on its way at once: as a group, on streams and not */
    const size_t many = (MOST - 4 * GUARD) / sizeof(float);
    float *all = malloc(many * sizeof *all);
    MP_CHECK(all, "no memory");
    for (int form = 0; form < 4; form++) {
        gyre_request_t *requests[2];
        for (size_t i = 0; i < many; i++)
            all[i] = (float)(rank * 7 + (int)i % 1000);
        CUDA(cudaMemcpy(a, all, many * sizeof *all, cudaMemcpyHostToDevice));
        CUDA(cudaMemset(b, 0, many * sizeof *b));
        CUDA(cudaDeviceSynchronize());
        MP_OK(gyre_group_start());
        if (form == 0) {
            MP_OK(gyre_send_stream(a, many, GYRE_FLOAT32, (rank + 1) % n, comm, second));
            MP_OK(gyre_recv_stream(b, many, GYRE_FLOAT32, (rank + n - 1) % n, comm, second));
        } else if (form == 1) {
            MP_OK(gyre_send(a, many, GYRE_FLOAT32, (rank + 1) % n, comm));
            MP_OK(gyre_recv(b, many, GYRE_FLOAT32, (rank + n - 1) % n, comm));
        }
        MP_OK(gyre_group_end());
        if (form == 2) { /* the receive first, and no group */
            MP_OK(gyre_irecv(b, many, GYRE_FLOAT32, (rank + n - 1) % n, comm, &requests[0]));
            MP_OK(gyre_isend(a, many, GYRE_FLOAT32, (rank + 1) % n, comm, &requests[1]));
            MP_OK(gyre_wait_all(2, requests));
        }
        if (form == 3) { /* in two blocks */
            const int to[2] = {(rank + 1) % n, (rank + 1) % n},
                      from[2] = {(rank + n - 1) % n, (rank + n - 1) % n};
            const size_t halves[2] = {many / 2, many - many / 2};
            MP_OK(gyre_ineighbor_exchange(a, halves, NULL, 2, to, b, halves, NULL, 2, from, GYRE_FLOAT32,
                                          comm, &requests[0]));
            MP_OK(gyre_wait(&requests[0]));
        }
        CUDA(cudaStreamSynchronize(second));
        CUDA(cudaMemcpy(all, b, many * sizeof *all, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < many; i++)
            MP_CHECK(all[i] == (float)((rank + n - 1) % n * 7 + (int)i % 1000), "element %zu is %g (%s)", i,
                     (double)all[i], path);
    }
    free(all);
    CUDA(cudaStreamDestroy(second));
}

static void refusals(void)
{
    float host[4] = {0};
    MP_CHECK(gyre_all_reduce(there_in, host, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm) == GYRE_ERR_INVALID,
             "memory of two kinds was taken");
    MP_CHECK(gyre_all_reduce_stream(host, host, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream) ==
                 GYRE_ERR_INVALID,
             "host memory was taken on a stream");
    MP_CHECK(gyre_send_stream(there_in, 4, GYRE_FLOAT32, rank, comm, stream) == GYRE_ERR_INVALID,
             "a message to oneself was taken");
    gyre_plan_t *plan;
    MP_OK(gyre_plan_all_reduce(there_in, there_out, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &plan));
    MP_CHECK(gyre_plan_set(plan, NULL) == GYRE_ERR_UNSUPPORTED, "a plan on a device has options");
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.tag = 7;
    MP_OK(gyre_plan_set(plan, &options));
    CUDA(cudaMemset(there_in, 0, 4 * sizeof(float)));
    CUDA(cudaDeviceSynchronize());
    MP_OK(gyre_start(plan, NULL));
    comm_call_t call;
    MP_CHECK(coll_find_call(comm, rank, comm->seq, &call) && call.user_tag == 7, "a plan has no tag");
    MP_OK(gyre_plan_free(&plan));
    MP_CHECK(gyre_comm_error(comm) == GYRE_OK, "a refusal killed the communicator");
}

static void refused(gyre_status_t status, const char *why)
{
    MP_CHECK(status == GYRE_ERR_UNSUPPORTED && strstr(gyre_last_error(), why) &&
                 strstr(gyre_last_error(), "GYRE_CUDA_PATH=staged"),
             "not refused for \"%s\", but %s: %s", why, gyre_status_string(status), gyre_last_error());
}

/* scan or, `before`, exscan, which leaves the result of rank 0 alone. */
static void prefix(const ask_t *a, int before)
{
    const size_t bytes = a->count * gyre_type_size(a->type);
    char *from = begin(a, a->count, 0), *to = there_out + GUARD + a->shift;
    if (before) {
        memset(want, 0x5a, bytes);
        if (a->in_place)
            memcpy(want, in, bytes);
        MP_OK(gyre_exscan(in, want, a->count, a->type, a->op, world));
        MP_OK(gyre_exscan(from, to, a->count, a->type, a->op, comm));
    } else {
        MP_OK(gyre_scan(in, want, a->count, a->type, a->op, world));
        MP_OK(gyre_scan(from, to, a->count, a->type, a->op, comm));
    }
    compare(before ? "exscan" : "scan", a, bytes, to);
    guards(before ? "exscan" : "scan", a, bytes);
}

/* What device code does not have goes through the host, or is refused; what only moves it does. */
static void host_only(int staged)
{
    const ask_t asks[] = {
        {.type = GYRE_INT32, .op = GYRE_OP(GYRE_BXOR), .count = 301},
        {.type = GYRE_INT64_INT32, .op = GYRE_OP(GYRE_MAXLOC), .count = 101, .streamed = 1},
        {.type = GYRE_BOOL, .op = GYRE_OP(GYRE_LXOR), .count = 1001},
    };
    const ask_t prefixes[] = {
        {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = 20011},
        {.type = GYRE_INT64_INT32, .op = GYRE_OP(GYRE_MINLOC), .count = 77, .in_place = 1},
    };
    /* blocks of all ranks fit into MOST */
    const size_t fours = n <= 3 ? 20011 : 60011 / (size_t)n, eights = n <= 3 ? 4001 : 12011 / (size_t)n;
    const ask_t sums[] = {
        {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = fours, .shift = 4},
        {.type = GYRE_FLOAT64, .op = GYRE_OP(GYRE_AVG), .count = eights, .in_place = 1, .streamed = 1},
        {.type = GYRE_BFLOAT16, .op = GYRE_OP(GYRE_SUM), .count = 333},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const ask_t *a = &asks[i];
        broadcast(a);
        if (staged) {
            all_reduce(a);
            continue;
        }
        MP_CHECK(gyre_all_reduce_stream(there_in, there_out, 4, a->type, a->op, comm, stream) ==
                     GYRE_ERR_UNSUPPORTED,
                 "%s of %s was taken", gyre_redop_name(a->op.kind), gyre_type_name(a->type));
        MP_CHECK(strstr(gyre_last_error(), gyre_redop_name(a->op.kind)) &&
                     strstr(gyre_last_error(), gyre_type_name(a->type)),
                 "\"%s\" does not say what is missing", gyre_last_error());
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (staged) {
            prefix(&prefixes[i], 0);
            prefix(&prefixes[i], 1);
        } else {
            refused(gyre_scan(there_in, there_out, 4, prefixes[i].type, prefixes[i].op, comm),
                    "no prefix by ");
        }
    }
    gyre_comm_t *const plain = comm, *const everyone = world;
    MP_OK(gyre_comm_dup(everyone, &world)); /* the host's results */
    MP_OK(gyre_comm_split(everyone, 0, rank, &comm));
    gyre_options_t exact = GYRE_OPTIONS_INITIALIZER;
    exact.order = GYRE_ORDER_EXACT;
    MP_OK(gyre_comm_set(world, &exact));
    MP_OK(gyre_comm_set(comm, &exact));
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        all_reduce(&sums[i]);
        reduce_scatter(&sums[i], 0);
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_destroy(world));
    comm = plain;
    world = everyone;
}

static void one_path(const char *how, const char *staging, const size_t *sizes, int sizes_n)
{
    path = how;
    set(SET_CUDA_PATH, how);
    set(SET_CUDA_STAGING, staging);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    arithmetic(how[0] == 'd' ? 1003 : 37);
    operations(sizes, sizes_n);
    in_stream_order();
    refusals();
    host_only(how[0] == 's');
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    static const size_t direct[] = {0, 1, 5, 333, 4001}, staged[] = {0, 1, 2001};
    if (!gpu_here())
        return 77;
    compare_begin();
    set(SET_CUDA_BLOCKS, "2");
    set(SET_CUDA_ONE_SHOT, "2K");
    set(SET_CUDA_ENGINES, "300");
    set(SET_CUDA_WAIT, "kernel");
    set(SET_CUDA_LL, "1200"); /* some sizes */
    one_path("direct", "64K", direct, sizeof direct / sizeof *direct);
    set(SET_CUDA_WAIT, "stream");
    set(SET_CUDA_ENGINES, "5000"); /* some sizes */
    one_path("direct", "64K", direct, sizeof direct / sizeof *direct);
    one_path("staged", "64K", staged, sizeof staged / sizeof *staged);
    compare_end();
    return 0;
}
