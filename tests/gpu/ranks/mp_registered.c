/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 4, and in check-long: 3 */
/* tests/gpu/ranks/mp_registered.c: operations on buffers that the ranks have registered have the bits of
 * those on host memory, and really go without arenas. Covers every operation that does, types and reductions,
 * lengths around the blocks, other places in other registrations on every rank, misaligned, in place, in
 * graphs, with kernels waiting and with streams; memory that is given up, freed and registered again; ranks
 * that disagree on what is registered, and invalid registrations. */
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "collectives/gpu/state.h"
#include "tests/gpu/ranks/mp_gpu.h"
#include "tests/gpu/values.h"

enum { POOL = 1 << 20, HALF = POOL / 2, GUARD = 64 };

static int n, rank;
static gyre_comm_t *world, *comm; /* world: for the host's results */
static cudaStream_t stream;
static char *pool, *in, *want, *back; /* pool: on the device, inputs in one half and outputs in the other */
static gyre_cuda_registration_t *first, *second;
static uint64_t seed = 1;

static void set(base_setting_t id, const char *value)
{
    MP_OK(base_settings_set(id, value, "test"));
}

typedef struct {
    gyre_type_t type;
    gyre_redop_t op;
    size_t count;
    int in_place, root;
    size_t shift; /* bytes off alignment, on odd ranks */
} ask_t;

static void fill(size_t count, gyre_type_t type)
{
    uint64_t own = ++seed * 1000 + (uint64_t)rank;
    values_fill(in, count, type, &own);
}

static char label[160];
static const char *name_of(const char *call, const ask_t *a)
{
    snprintf(label, sizeof label, "%s %s %s count %zu%s root %d shift %zu, n %d", call,
             gyre_type_name(a->type), gyre_redop_name(a->op.kind), a->count, a->in_place ? " in place" : "",
             a->root, a->shift, n);
    return label;
}

/* The input to the device; other places on every rank. out: where the output goes. */
static char *begin(const ask_t *a, size_t count, size_t at, char **out)
{
    const size_t shift = GUARD + 48 * (size_t)rank + (rank % 2 ? a->shift : 0);
    *out = pool + HALF + shift;
    char *from = a->in_place ? *out + at : pool + 2 * shift;
    fill(count, a->type);
    CUDA(cudaMemset(pool + HALF, 0x5a, HALF));
    CUDA(cudaMemcpy(from, in, count * gyre_type_size(a->type), cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    return from;
}

/* The bytes at `from`, and those around it, which must not have been written. */
static void compare(const char *call, const ask_t *a, const char *from, size_t bytes, int alone)
{
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(back, from - GUARD, bytes + 2 * GUARD, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        MP_CHECK(back[GUARD + i] == want[i], "rank %d: %s: byte %zu of %zu is %02x, not %02x", rank,
                 name_of(call, a), i, bytes, (unsigned char)back[GUARD + i], (unsigned char)want[i]);
    for (size_t i = 0; alone && i < GUARD; i++)
        MP_CHECK(back[i] == 0x5a && back[GUARD + bytes + i] == 0x5a, "rank %d: %s wrote beyond its end", rank,
                 name_of(call, a));
}

/* The call worked in registered memory, or did not. */
static uint64_t worked;
static void directly(const char *call, const ask_t *a, int wanted)
{
    MP_CHECK(comm->cuda->read_directly == worked + (uint64_t)wanted, "rank %d: %s went %s", rank,
             name_of(call, a), wanted ? "through the arenas" : "directly");
    worked = comm->cuda->read_directly;
}

static void all_reduce(const ask_t *a)
{
    char *to, *from = begin(a, a->count, 0, &to);
    MP_OK(gyre_all_reduce(in, want, a->count, a->type, a->op, world));
    MP_OK(gyre_all_reduce_stream(from, to, a->count, a->type, a->op, comm, stream));
    compare("all_reduce", a, to, a->count * gyre_type_size(a->type), 1);
    directly("all_reduce", a, 1);
}

static void reduce_scatter(const ask_t *a)
{
    const size_t size = gyre_type_size(a->type);
    size_t counts[16], all = 0, before = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = a->count + 5 * (size_t)r;
        before += r < rank ? counts[r] : 0;
        all += counts[r];
    }
    char *to, *from = begin(a, all, 0, &to);
    to = a->in_place ? from + before * size : to;
    MP_OK(gyre_reduce_scatterv(in, want, counts, a->type, a->op, world));
    MP_OK(gyre_reduce_scatterv_stream(from, to, counts, a->type, a->op, comm, stream));
    compare("reduce_scatterv", a, to, counts[rank] * size, !a->in_place);
    from = begin(a, a->count * (size_t)n, 0, &to);
    to = a->in_place ? from + (size_t)rank * a->count * size : to;
    MP_OK(gyre_reduce_scatter(in, want, a->count, a->type, a->op, world));
    MP_OK(gyre_reduce_scatter(from, to, a->count, a->type, a->op, comm));
    compare("reduce_scatter", a, to, a->count * size, !a->in_place);
    directly("reduce_scatter", a, 2);
}

static void all_gather(const ask_t *a)
{
    const size_t size = gyre_type_size(a->type);
    size_t counts[16], displs[16], end = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = a->count + 5 * (size_t)r;
        displs[r] = end;
        end += counts[r] + 3;
    }
    char *to, *from = begin(a, counts[rank], displs[rank] * size, &to);
    memset(want, 0x5a, end * size);
    MP_OK(gyre_all_gatherv(in, want, counts, displs, a->type, world));
    MP_OK(gyre_all_gatherv_stream(from, to, counts, displs, a->type, comm, stream));
    compare("all_gatherv", a, to, end * size, 1);
    from = begin(a, a->count, (size_t)rank * a->count * size, &to);
    MP_OK(gyre_all_gather(in, want, a->count, a->type, world));
    gyre_request_t *request;
    MP_OK(gyre_iall_gather(from, to, a->count, a->type, comm, &request));
    MP_OK(gyre_wait(&request));
    compare("all_gather", a, to, a->count * (size_t)n * size, 1);
    directly("all_gather", a, 2);
}

static void broadcast(const ask_t *a)
{
    const int here = rank == a->root;
    ask_t b = *a;
    b.in_place = a->in_place && here;
    char *to, *from = begin(&b, a->count, 0, &to);
    MP_OK(gyre_broadcast(in, want, a->count, a->type, a->root, world));
    MP_OK(gyre_broadcast_stream(here ? from : NULL, to, a->count, a->type, a->root, comm, stream));
    compare("broadcast", a, to, a->count * gyre_type_size(a->type), 1);
    directly("broadcast", a, 1);
}

static void all_to_all(const ask_t *a)
{
    const size_t bytes = a->count * (size_t)n * gyre_type_size(a->type);
    char *to, *from = begin(a, a->count * (size_t)n, 0, &to);
    MP_OK(gyre_all_to_all(in, want, a->count, a->type, world));
    MP_OK(gyre_all_to_all_stream(from, to, a->count, a->type, comm, stream));
    compare("all_to_all", a, to, bytes, 1);
    directly("all_to_all", a, !a->in_place);
}

static void operations(const size_t *sizes, int sizes_n)
{
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_BFLOAT16, GYRE_FLOAT64, GYRE_UINT8, GYRE_INT16};
    static const gyre_redop_kind_t redops[] = {GYRE_SUM, GYRE_AVG, GYRE_MAX};
    int turn = 0;
    for (int i = 0; i < sizes_n; i++)
        for (int form = 0; form < 4; form++, turn++) {
            ask_t a = {.type = types[turn % 5],
                       .op = GYRE_OP(redops[turn % 3]),
                       .in_place = form % 2,
                       .root = turn % n};
            const size_t size = gyre_type_size(a.type);
            a.count = sizes[i] / size + 1;
            a.shift = form < 2 ? 0 : form == 2 ? size : 1;
            all_reduce(&a);
            reduce_scatter(&a);
            all_gather(&a);
            broadcast(&a);
            all_to_all(&a);
        }
}

/* Which go through arenas all the same: short ones, scaled sums, operations that have no such form. */
static void others(void)
{
    const ask_t a = {.type = GYRE_FLOAT32, .op = GYRE_SCALED_SUM(rank % 2 ? 0.5 : -3.0), .count = 5000};
    char *to, *from = begin(&a, a.count, 0, &to);
    MP_OK(gyre_all_reduce(in, want, a.count, a.type, a.op, world));
    MP_OK(gyre_all_reduce_stream(from, to, a.count, a.type, a.op, comm, stream));
    compare("all_reduce, scaled", &a, to, a.count * 4, 1);
    MP_OK(gyre_all_reduce_stream(from, to, 100, a.type, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_reduce_stream(from, to, a.count, a.type, GYRE_OP(GYRE_SUM), 0, comm, stream));
    MP_OK(gyre_all_gather_stream(from, to, 0, a.type, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    directly("others", &a, 0);
}

/* Two operations, the second on the first one's result, run three times from a graph. */
static void graphs(void)
{
    enum { COUNT = 6000 };
    float *a = (float *)(pool + 256 * (size_t)(rank + 1)), *b = (float *)(pool + HALF), *host = (float *)back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(i % 7);
    CUDA(cudaMemcpy(a, host, COUNT * sizeof *a, cudaMemcpyHostToDevice));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MP_OK(gyre_all_reduce_stream(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_broadcast_stream(b, a, COUNT, GYRE_FLOAT32, n - 1, comm, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    float factor = 1;
    for (int k = 0; k < 3; k++) {
        CUDA(cudaGraphLaunch(exec, stream));
        factor *= (float)n;
    }
    MP_OK(gyre_all_reduce_stream(b, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm, stream)); /* after it */
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(host, b, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(host[i] == factor * (float)(i % 7), "element %d is %g, not %g", i, (double)host[i],
                 (double)factor * (i % 7));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    directly("a graph", &(ask_t){.type = GYRE_FLOAT32}, 3);
}

static void open_comm(const char *wait)
{
    set(SET_CUDA_WAIT, wait);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    CUDA(cudaMalloc((void **)&pool, POOL));
    worked = 0;
    /* the halves in two registrations, on odd ranks in the other order */
    MP_OK(gyre_comm_register_cuda(comm, pool + (rank % 2 ? HALF : 0), HALF, &first));
    MP_OK(gyre_comm_register_cuda(comm, pool + (rank % 2 ? 0 : HALF), HALF, &second));
}

static void close_comm(void)
{
    MP_OK(gyre_comm_deregister_cuda(comm, second));
    MP_OK(gyre_comm_deregister_cuda(comm, first));
    CUDA(cudaFree(pool));
    MP_OK(gyre_comm_destroy(comm));
}

/* Given up, freed, and something else registered in its place. */
static void again(void)
{
    const ask_t a = {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = 9000};
    MP_OK(gyre_comm_deregister_cuda(comm, first));
    MP_OK(gyre_comm_deregister_cuda(comm, second));
    CUDA(cudaFree(pool));
    CUDA(cudaMalloc((void **)&pool, 2 * (size_t)POOL));
    char *to, *from = begin(&a, a.count, 0, &to);
    MP_OK(gyre_all_reduce(in, want, a.count, a.type, a.op, world));
    MP_OK(gyre_all_reduce_stream(from, to, a.count, a.type, a.op, comm, stream)); /* none is registered */
    compare("all_reduce", &a, to, a.count * 4, 1);
    directly("all_reduce", &a, 0);
    MP_OK(gyre_comm_register_cuda(comm, pool, POOL, &first)); /* all in one, */
    all_reduce(&a);
    MP_OK(gyre_comm_register_cuda(comm, pool + HALF, HALF, &second)); /* and twice */
    all_reduce(&a);
}

/* The last rank gives up another registration than the others: refused on all, and nothing is changed. */
static void other_order(void)
{
    const ask_t a = {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = 9000};
    gyre_cuda_registration_t *mine = rank == n - 1 ? first : second;
    MP_CHECK(gyre_comm_deregister_cuda(comm, mine) == GYRE_ERR_INVALID,
             "rank %d: ranks gave up different registrations", rank);
    MP_CHECK(strstr(gyre_last_error(), "in the same order") != NULL, "rank %d: error: %s", rank,
             gyre_last_error());
    all_reduce(&a);
}

/* An invalid registration on one rank: reported on all, and nothing is changed. */
static void refusals(void)
{
    enum { MORE = COLL_CUDA_REGISTERED };
    gyre_cuda_registration_t *none = NULL, *many[MORE];
    const int odd = rank == n - 1;
    MP_CHECK(gyre_comm_register_cuda(comm, odd ? in : pool, 4096, &none) == GYRE_ERR_INVALID && !none,
             "rank %d: host memory was registered", rank);
    MP_CHECK(strstr(gyre_last_error(), "is not in the memory of CUDA device") != NULL, "rank %d: error: %s",
             rank, gyre_last_error());
    MP_CHECK(gyre_comm_register_cuda(comm, pool, odd ? (size_t)1 << 40 : 4096, &none) == GYRE_ERR_INVALID &&
                 !none,
             "rank %d: more than an allocation was registered", rank);
    MP_CHECK(gyre_comm_register_cuda(comm, pool, odd ? 0 : 4096, &none) == GYRE_ERR_INVALID && !none,
             "rank %d: nothing was registered", rank);
    MP_CHECK(gyre_comm_deregister_cuda(comm, NULL) == GYRE_ERR_INVALID, "rank %d: nothing was deregistered",
             rank);
    int have = 0;
    gyre_status_t st = GYRE_OK;
    while (have < MORE && (st = gyre_comm_register_cuda(comm, pool, 4096, &many[have])) == GYRE_OK)
        have++;
    MP_CHECK(st == GYRE_ERR_NO_MEMORY && have == MORE - 2, "rank %d: %d registrations, then %s", rank, have,
             gyre_status_string(st));
    while (have > 0)
        MP_OK(gyre_comm_deregister_cuda(comm, many[--have]));
    const ask_t a = {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .count = 9000};
    all_reduce(&a);
}

/* One rank's buffer is not registered: all ranks get the error, and what is not registered is not touched. */
static void disagreeing(void)
{
    char *other;
    open_comm("auto");
    CUDA(cudaMalloc((void **)&other, HALF));
    MP_OK(gyre_barrier(world));
    char *from = rank == 0 ? other : pool;
    (void)gyre_all_reduce_stream(from, pool + HALF, 9000, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm,
                                 stream); /* may know already */
    CUDA(cudaStreamSynchronize(stream));
    gyre_status_t st = GYRE_OK;
    for (int k = 0; st == GYRE_OK && k < 20000; k++) {
        st = gyre_comm_error(comm);
        usleep(1000);
    }
    MP_CHECK(st == GYRE_ERR_MISMATCH, "rank %d: ended with %s", rank, gyre_status_string(st));
    MP_CHECK(gyre_comm_deregister_cuda(comm, first) == GYRE_ERR_MISMATCH, "rank %d: deregistered", rank);
    MP_CHECK(strstr(gyre_last_error(), "on registered device memory") != NULL, "rank %d: error: %s", rank,
             gyre_last_error());
    MP_OK(gyre_comm_destroy(comm)); /* with the other one */
    MP_OK(gyre_barrier(world));
    CUDA(cudaFree(other));
    CUDA(cudaFree(pool));
}

/* Ranks of one process: each registers for itself, one thread calls for all. */
static void in_one_process(void)
{
    enum { RANKS = 3, COUNT = 5003 };
    gyre_comm_t *comms[RANKS];
    gyre_cuda_registration_t *r[RANKS];
    cudaStream_t streams[RANKS];
    int *memory[RANKS], *host = (int *)back;
    MP_OK(gyre_cuda_comms_create(RANKS, (int[RANKS]){0}, comms));
    for (int k = 0; k < RANKS; k++) {
        CUDA(cudaMalloc((void **)&memory[k], 2 * COUNT * sizeof(int)));
        CUDA(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
        MP_OK(gyre_comm_register_cuda(comms[k], memory[k], 2 * COUNT * sizeof(int), &r[k]));
        for (int i = 0; i < COUNT; i++)
            host[i] = i * (k + 1);
        CUDA(cudaMemcpy(memory[k], host, COUNT * sizeof(int), cudaMemcpyHostToDevice));
    }
    for (int k = 0; k < RANKS; k++)
        MP_OK(gyre_all_reduce_stream(memory[k], memory[k] + COUNT, COUNT, GYRE_INT32, GYRE_OP(GYRE_SUM),
                                     comms[k], streams[k]));
    for (int k = 0; k < RANKS; k++) {
        MP_CHECK(comms[k]->cuda->read_directly == 1, "rank %d of one process went through arenas", k);
        MP_OK(gyre_comm_deregister_cuda(comms[k], r[k]));
        CUDA(cudaMemcpy(host, memory[k] + COUNT, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            MP_CHECK(host[i] == i * RANKS * (RANKS + 1) / 2, "rank %d of one process: element %d is %d", k, i,
                     host[i]);
    }
    for (int k = 0; k < RANKS; k++) {
        MP_OK(gyre_comm_destroy(comms[k]));
        CUDA(cudaStreamDestroy(streams[k]));
        CUDA(cudaFree(memory[k]));
    }
}

static void staged(void)
{
    gyre_cuda_registration_t *none = NULL;
    set(SET_CUDA_PATH, "staged");
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    CUDA(cudaMalloc((void **)&pool, POOL));
    MP_CHECK(gyre_comm_register_cuda(comm, pool, POOL, &none) == GYRE_ERR_UNSUPPORTED && !none,
             "rank %d: memory was registered where operations are staged", rank);
    MP_OK(gyre_all_reduce(pool, pool, 100, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    CUDA(cudaFree(pool));
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    static const size_t sizes[] = {2100, 9001, 40000};
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    set(SET_CUDA_PATH, "direct");
    set(SET_CUDA_BLOCKS, "3");
    set(SET_CUDA_STAGING,
        "32K"); /* what goes through it takes many rounds, and what is put aside some pieces */
    set(SET_CUDA_ONE_SHOT, "2K");
    in = calloc(1, HALF);
    want = calloc(1, HALF);
    back = calloc(1, HALF);
    MP_CHECK(in && want && back, "no memory");
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    open_comm("kernel");
    operations(sizes, sizeof sizes / sizeof *sizes);
    others();
    graphs();
    close_comm();
    open_comm("stream");
    operations(sizes, 2);
    graphs();
    again();
    refusals();
    other_order();
    close_comm();
    disagreeing();
    in_one_process();
    staged();
    CUDA(cudaStreamDestroy(stream));
    free(in);
    free(want);
    free(back);
    MP_OK(gyre_finalize(world));
    return 0;
}
