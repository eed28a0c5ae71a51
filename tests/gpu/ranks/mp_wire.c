/* SPDX-License-Identifier: Apache-2.0 */
/* guard: 0, since UCX reads and writes the pretend device's memory as a network card would */
/* ranks: 2 3 6, and in check-long: 4 */
/* tests/gpu/ranks/mp_wire.c: collectives between hosts (each rank passes for one) from device memory to
 * device memory have the bits of the host's: every operation and reduction, sampled types and roots, sizes
 * around the limits, odd and misaligned, in place, in one chunk and in many; short ones are staged as ever;
 * and what becomes of them where one rank's UCX knows no CUDA memory, as GYRE_CUDA_RDMA says, with too little
 * staging, where a rank aborts, and where ranks call different things. With an even number of ranks also
 * with two on each host. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "collectives/gpu/state.h"
#include "tests/gpu/ranks/mp_gpu.h"
#include "tests/gpu/ranks/pretend_ucx.h"
#include "tests/gpu/values.h"

enum { ROOM = 8 << 20, EDGE = 64, LIMIT = 64 << 10 };

static int n;
static uint64_t seed = 1;
static gyre_comm_t *world, *comm;  /* world: for the host's results */
static char *in, *want, *back;     /* host: ROOM */
static char *there_in, *there_out; /* device: ROOM + 2 EDGE */
static cudaStream_t stream;

/* One call: the same arguments for the host's and the device's form. */
typedef struct {
    coll_op_t op;
    gyre_type_t type;
    gyre_redop_t redop;
    size_t count; /* of the vector, or of a block; of uneven ones see uneven() */
    int v, root, in_place;
    size_t shift;
    size_t counts[8], displs[8], rcounts[8], rdispls[8];
} ask_t;

static gyre_status_t host(const ask_t *a, const void *send, void *recv)
{
    switch (a->op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce(send, recv, a->count, a->type, a->redop, world);
    case COLL_REDUCE:
        return gyre_reduce(send, recv, a->count, a->type, a->redop, a->root, world);
    case COLL_BROADCAST:
        return gyre_broadcast(send, recv, a->count, a->type, a->root, world);
    case COLL_REDUCE_SCATTER:
        return gyre_reduce_scatterv(send, recv, a->counts, a->type, a->redop, world);
    case COLL_ALL_GATHER:
        return gyre_all_gatherv(send, recv, a->counts, a->displs, a->type, world);
    case COLL_GATHER:
        return gyre_gatherv(send, a->counts[rank], recv, a->counts, a->displs, a->type, a->root, world);
    case COLL_SCATTER:
        return gyre_scatterv(send, a->counts, a->displs, recv, a->counts[rank], a->type, a->root, world);
    default:
        return gyre_all_to_allv(send, a->counts, a->displs, recv, a->rcounts, a->rdispls, a->type, world);
    }
}

static gyre_status_t device(const ask_t *a, const void *send, void *recv)
{
    switch (a->op) {
    case COLL_ALL_REDUCE:
        return gyre_all_reduce_stream(send, recv, a->count, a->type, a->redop, comm, stream);
    case COLL_REDUCE:
        return gyre_reduce_stream(send, recv, a->count, a->type, a->redop, a->root, comm, stream);
    case COLL_BROADCAST:
        return gyre_broadcast_stream(send, recv, a->count, a->type, a->root, comm, stream);
    case COLL_REDUCE_SCATTER:
        return a->v ? gyre_reduce_scatterv_stream(send, recv, a->counts, a->type, a->redop, comm, stream)
                    : gyre_reduce_scatter_stream(send, recv, a->count, a->type, a->redop, comm, stream);
    case COLL_ALL_GATHER:
        return a->v ? gyre_all_gatherv_stream(send, recv, a->counts, a->displs, a->type, comm, stream)
                    : gyre_all_gather_stream(send, recv, a->count, a->type, comm, stream);
    case COLL_GATHER:
        return a->v ? gyre_gatherv_stream(send, a->counts[rank], recv, a->counts, a->displs, a->type, a->root,
                                          comm, stream)
                    : gyre_gather_stream(send, recv, a->count, a->type, a->root, comm, stream);
    case COLL_SCATTER:
        return a->v ? gyre_scatterv_stream(send, a->counts, a->displs, recv, a->counts[rank], a->type,
                                           a->root, comm, stream)
                    : gyre_scatter_stream(send, recv, a->count, a->type, a->root, comm, stream);
    default:
        return a->v ? gyre_all_to_allv_stream(send, a->counts, a->displs, recv, a->rcounts, a->rdispls,
                                              a->type, comm, stream)
                    : gyre_all_to_all_stream(send, recv, a->count, a->type, comm, stream);
    }
}

/* Counts of the uneven forms: rank 1's blocks are empty, the last rank's are long, between blocks lies
 * something. */
static void spell_out(ask_t *a)
{
    size_t end = 0, rend = 0;
    const size_t gap = a->v && a->op != COLL_REDUCE_SCATTER ? 3 : 0;
    for (int r = 0; r < n; r++) {
        a->counts[r] = a->rcounts[r] = a->count;
        if (a->v && a->op == COLL_ALL_TO_ALL) {
            a->counts[r] = (size_t)((rank * 3 + r) % 4) * a->count / 2;
            a->rcounts[r] = (size_t)((r * 3 + rank) % 4) * a->count / 2;
        } else if (a->v) {
            a->counts[r] = a->rcounts[r] = r % 3 == 1 ? 0 : a->count / 4 * (size_t)(r + 1) + (size_t)r;
        }
        a->displs[r] = end;
        a->rdispls[r] = rend;
        end += a->counts[r] + gap;
        rend += a->rcounts[r] + gap;
    }
    a->displs[n] = end;
    a->rdispls[n] = rend;
}

/* Numbers whose sums and products round, but stay finite. */
static void fill(size_t bytes, gyre_type_t type)
{
    uint64_t own = seed++ * 1000 + (uint64_t)rank;
    for (size_t i = 0; i < bytes; i++) {
        if (type == GYRE_FLOAT32 && i + 4 <= bytes) {
            const float x = ((float)(random_next(&own) >> 40) / (1 << 23) - 1.0f) * 3.0f;
            memcpy(in + i, &x, 4);
            i += 3;
        } else if (type == GYRE_BFLOAT16 && i + 2 <= bytes) { /* exponents from 2^-8 to 2^2 */
            const uint64_t bits = random_next(&own);
            const uint16_t x = (uint16_t)((bits & 0x807f) | (119 + (bits >> 20) % 11) << 7);
            memcpy(in + i, &x, 2);
            i++;
        } else {
            in[i] = (char)(random_next(&own) >> 56);
        }
    }
}

/* What this rank gives and gets, in elements, and where in the output its own block is for in place. */
static void extents(const ask_t *a, size_t *give, size_t *get, size_t *own)
{
    const int here = rank == a->root;
    *own = 0;
    switch (a->op) {
    case COLL_ALL_REDUCE:
        *give = *get = a->count;
        break;
    case COLL_REDUCE:
        *give = a->count;
        *get = here ? a->count : 0;
        break;
    case COLL_BROADCAST:
        *give = here ? a->count : 0;
        *get = a->count;
        break;
    case COLL_REDUCE_SCATTER:
        *give = a->displs[n];
        *get = a->counts[rank];
        break;
    case COLL_ALL_GATHER:
    case COLL_GATHER:
        *give = a->counts[rank];
        *get = a->op == COLL_ALL_GATHER || here ? a->displs[n] : 0;
        *own = a->displs[rank];
        break;
    case COLL_SCATTER:
        *give = here ? a->displs[n] : 0;
        *get = a->counts[rank];
        break;
    default:
        *give = a->displs[n];
        *get = a->rdispls[n];
        break;
    }
}

/* The device's result against the host's, with what lies around it. */
static void check(ask_t *a)
{
    const size_t size = gyre_type_size(a->type);
    size_t give, get, own;
    spell_out(a);
    extents(a, &give, &get, &own);
    MP_CHECK(give * size <= ROOM && get * size <= ROOM, "%zu and %zu elements", give, get);
    const int place = a->in_place && get && give;
    char *to = there_out + EDGE + a->shift, *from = place ? to + own * size : there_in + EDGE + a->shift;
    const int inner = place && (a->op == COLL_REDUCE_SCATTER || a->op == COLL_SCATTER);
    char *result = inner ? from + a->displs[rank] * size : to; /* a block of the input */
    fill(give * size, a->type);
    memset(want, 0x5a, get * size + EDGE);
    MP_OK(host(a, give ? in : NULL, get ? want : NULL));
    CUDA(cudaMemset(there_out, 0x5a, ROOM + 2 * EDGE));
    CUDA(cudaMemcpy(from, in, give * size, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    MP_OK(device(a, give ? from : NULL, get ? result : NULL));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(back, result, get * size + (inner ? 0 : EDGE), cudaMemcpyDeviceToHost));
    size_t i = 0;
    while (i < get * size + (inner ? 0 : EDGE) && (back[i] == want[i] || (place && i >= get * size)))
        i++;
    MP_CHECK(i == get * size + (inner ? 0 : EDGE),
             "rank %d of %d: op %d%s, %s, redop %d, count %zu, root %d%s: byte %zu of %zu is %02x, not %02x",
             rank, n, (int)a->op, a->v ? "v" : "", gyre_type_name(a->type), (int)a->redop.kind, a->count,
             a->root, a->in_place ? ", in place" : "", i, get * size, (unsigned char)back[i],
             (unsigned char)want[i]);
    if (place && (a->op == COLL_REDUCE || a->op == COLL_ALL_REDUCE)) {
        CUDA(cudaMemcpy(back, to + get * size, EDGE, cudaMemcpyDeviceToHost));
        for (i = 0; i < EDGE; i++)
            MP_CHECK(back[i] == 0x5a, "rank %d: %zu bytes beyond the end", rank, i + 1);
    }
}

static const coll_op_t ops[] = {COLL_ALL_REDUCE, COLL_REDUCE, COLL_BROADCAST, COLL_REDUCE_SCATTER,
                                COLL_ALL_GATHER, COLL_GATHER, COLL_SCATTER,   COLL_ALL_TO_ALL};
enum { OPS = sizeof ops / sizeof *ops };

/* Every operation, with parts of `bytes`, more or less. */
static void operations(size_t bytes, int turn)
{
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_BFLOAT16, GYRE_INT8};
    for (int i = 0; i < OPS; i++)
        for (int v = 0; v < 2; v++) {
            const int vector = coll_op_is_vector(ops[i]);
            ask_t a = {.op = ops[i], .type = types[turn % 3], .redop = GYRE_OP(GYRE_SUM), .v = v && !vector};
            if (v && vector)
                continue;
            turn++;
            a.root = turn % n;
            a.in_place = turn % 2 && !(a.v && a.op == COLL_ALL_TO_ALL);
            a.shift = turn % 5 == 0 ? gyre_type_size(a.type) : 0;
            if (coll_op_reduces(a.op) && turn % 7 == 0)
                a.redop = GYRE_OP(GYRE_AVG);
            a.count = (vector ? (size_t)n : 1) * bytes / gyre_type_size(a.type) + (size_t)(turn % 3);
            check(&a);
        }
}

/* Every reduction, with types of all widths. hosts: which several ranks share. */
static void reductions(int hosts)
{
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_BFLOAT16, GYRE_INT8, GYRE_UINT16, GYRE_INT64};
    int turn = 0;
    for (int op = 0; op <= DEVICE_REDOPS; op++) {
        ask_t a = {.op = turn % 2 || hosts ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER,
                   .type = types[turn % 5],
                   .redop = op == DEVICE_REDOPS ? GYRE_SCALED_SUM(rank % 2 ? 1.7 : -3.0)
                                                : GYRE_OP((gyre_redop_kind_t)op)};
        a.count = (a.op == COLL_ALL_REDUCE ? (size_t)n : 1) * 70000 / gyre_type_size(a.type) + 1;
        turn++;
        check(&a);
    }
}

/* How an all_reduce with shards of `bytes` would go: "wire" or "staged"; *why may be NULL. */
static void expect(size_t bytes, const char *path, const char *word)
{
    const coll_shape_t shape = {
        .op = COLL_ALL_REDUCE, .type = GYRE_UINT8, .uniform = 1, .count = (size_t)n * bytes};
    coll_cuda_explanation_t told;
    if (!pretend)
        return;
    MP_OK(coll_cuda_explain(comm, &shape, 0, &told));
    MP_CHECK(strcmp(told.path, path) == 0, "shards of %zu bytes go %s: %s", bytes, told.path, told.why);
    MP_CHECK(!word || strstr(told.why, word), "rank %d reads \"%s\" without \"%s\"", rank, told.why, word);
}

static void open_comm(const char *rdma, const char *staging)
{
    MP_OK(base_settings_set(SET_CUDA_RDMA, rdma, "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, staging, "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    sent = received = 0;
}

static void close_comm(int direct)
{
    MP_CHECK(!pretend || ((sent > 0) == direct && (received > 0) == direct),
             "rank %d: %lu messages went and %lu came in device memory", rank, sent, received);
    MP_OK(gyre_comm_destroy(comm));
}

/* One that goes well, so that all are connected: the UCX of Debian 12 cannot end a worker that is just
 * connecting. */
static void once(void)
{
    ask_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .redop = GYRE_OP(GYRE_SUM)};
    a.count = (size_t)n * 20000;
    check(&a);
}

/* A message that was sent before a collective and is received after it goes its own way. */
static void message_across(void)
{
    const size_t bytes = 200001;
    char *aside = there_in + ROOM / 2, *got = there_in + ROOM / 4 * 3;
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    CUDA(cudaMemset(aside, rank + 1, bytes));
    CUDA(cudaDeviceSynchronize());
    MP_OK(gyre_send_stream(aside, bytes, GYRE_UINT8, next, comm, stream));
    once();
    MP_OK(gyre_recv_stream(got, bytes, GYRE_UINT8, before, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(back, got, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        MP_CHECK(back[i] == before + 1, "rank %d: byte %zu of a message is %d", rank, i, back[i]);
}

/* Rank 1 aborts while the others are in a long operation: their streams end, and the next communicator
 * works. */
static void aborted(void)
{
    open_comm("auto", "4M");
    once();
    if (rank != 1)
        MP_OK(gyre_all_reduce_stream(there_in, there_out, ROOM, GYRE_UINT8, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_barrier(world));
    if (rank == 1)
        MP_OK(gyre_comm_abort(comm, "enough"));
    CUDA(cudaStreamSynchronize(stream));
    MP_CHECK(gyre_barrier(comm) == GYRE_ERR_ABORTED, "rank %d: %s", rank, gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* Rank 0 passes another length than the others: no rank gets a result, and all get the error. */
static void disagreeing(void)
{
    open_comm("auto", "4M");
    once();
    MP_OK(gyre_barrier(world)); /* all have its result, which the failure would take from a late rank */
    const size_t count = (size_t)n * LIMIT * 2 + (rank == 0 ? 1024 : 0);
    const gyre_status_t st =
        gyre_all_reduce_stream(there_in, there_out, count, GYRE_UINT8, GYRE_OP(GYRE_SUM), comm, stream);
    /* a rank that is late gets the error */
    MP_CHECK(st == GYRE_OK || gyre_comm_error(comm) == st, "%s", gyre_last_error());
    CUDA(cudaStreamSynchronize(stream));
    MP_CHECK(gyre_comm_error(comm) != GYRE_OK || gyre_barrier(comm) != GYRE_OK,
             "rank %d: ranks that disagree go on", rank);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* Counts of which the last rank of a host gets a shard that is barely too short for the wire: averages are
 * right all the same. */
static void last_shards(void)
{
    for (size_t more = 1; more < 6; more += 2) {
        ask_t a = {.op = COLL_ALL_REDUCE,
                   .type = GYRE_FLOAT32,
                   .redop = GYRE_OP(GYRE_AVG),
                   .count = (size_t)n * LIMIT / 4 + more};
        check(&a);
    }
}

/* Sums that are rounded once. Ranks alone on their hosts add all parts at once. Sums of a host's ranks, which
 * other calls go on with between hosts, would be rounded twice, so these calls go through the host. */
static void exact_sums(const char *path)
{
    gyre_comm_t *const plain = comm, *const everyone = world;
    gyre_options_t exact = GYRE_OPTIONS_INITIALIZER;
    exact.order = GYRE_ORDER_EXACT;
    MP_OK(gyre_comm_dup(everyone, &world)); /* the host's results */
    MP_OK(gyre_comm_split(everyone, 0, rank, &comm));
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(gyre_comm_set(world, &exact));
    MP_OK(gyre_comm_set(comm, &exact));
    for (int turn = 0; turn < 4; turn++) {
        ask_t a = {.op = turn % 2 ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE,
                   .type = turn < 2 ? GYRE_FLOAT32 : GYRE_BFLOAT16,
                   .redop = GYRE_OP(turn == 1 ? GYRE_AVG : GYRE_SUM)};
        a.count = (turn % 2 ? 1 : (size_t)n) * 100000 / gyre_type_size(a.type) + 3;
        coll_cuda_explanation_t told;
        const coll_shape_t shape = {.op = COLL_ALL_REDUCE,
                                    .type = a.type,
                                    .redop = a.redop.kind,
                                    .order = GYRE_ORDER_EXACT,
                                    .uniform = 1,
                                    .count = a.count};
        if (pretend && turn == 0) {
            MP_OK(coll_cuda_explain(comm, &shape, 0, &told));
            MP_CHECK(strcmp(told.path, path) == 0, "exact sums go %s: %s", told.path, told.why);
        }
        check(&a);
    }
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_destroy(world));
    comm = plain;
    world = everyone;
}

/* What gyre_comm_set gives a communicator reaches those that its calls are made of. */
static void options(void)
{
    gyre_options_t given = GYRE_OPTIONS_INITIALIZER;
    given.order = GYRE_ORDER_FAST;
    given.algorithm = "ring";
    given.timeout_s = 7;
    MP_OK(gyre_comm_set(comm, &given));
    if (!pretend)
        return;
    gyre_comm_t *const parts[] = {atomic_load(&comm->cuda->within), atomic_load(&comm->cuda->between)};
    for (int i = 0; i < 2; i++) {
        MP_CHECK(parts[i]->options.order == GYRE_ORDER_FAST &&
                     strcmp(parts[i]->options.algorithm, "ring") == 0,
                 "part %d has order %d and algorithm \"%s\"", i, (int)parts[i]->options.order,
                 parts[i]->options.algorithm);
        MP_CHECK(parts[i]->timeout_s == 7 && parts[i]->cuda->shadow->timeout_s == 7, "part %d has %g s", i,
                 parts[i]->timeout_s);
    }
    MP_OK(gyre_comm_set(comm, NULL));
    operations(LIMIT + 64, 0);
}

/* Two ranks on each host: all_reduce, broadcast and all_gather within hosts and between. */
static void shared_hosts(void)
{
    MP_OK(base_settings_set(SET_HOST_RANKS, "2", "test"));
    open_comm("auto", "4M");
    expect(LIMIT, "staged", "within hosts (");
    expect(LIMIT + 16, "wire", "and between them, parts of more than 64 KiB from device memory: UCX ");
    operations(LIMIT / 2, 0);
    operations(LIMIT + 64, 1);
    operations(3 * LIMIT + 5, 2);
    reductions(1);
    last_shards();
    exact_sums("staged");
    message_across();
    options();
    close_comm(1);
    aborted();
    disagreeing();
    open_comm("off", "4M");
    expect(LIMIT + 16, "staged", "GYRE_CUDA_RDMA=off");
    operations(LIMIT + 64, 1);
    close_comm(0);
}

/* tests/gpu/ranks/jobs.sh: the last rank dies, or never calls: streams end, and all the others get the
 * error. */
static void without_the_last(int dies, const char *per_host)
{
    const base_time_t until = base_now() + (base_time_t)20e9;
    MP_OK(base_settings_set(SET_HOST_RANKS, per_host, "test"));
    open_comm("auto", "4M");
    once();
    expect(LIMIT + 16, "wire", NULL);
    MP_OK(gyre_barrier(world));
    if (rank == n - 1 && dies) {
        usleep(50 * 1000); /* the others have left the barrier */
        _exit(0);
    }
    if (rank != n - 1) /* may know already */
        (void)gyre_all_reduce_stream(there_in, there_out, ROOM, GYRE_UINT8, GYRE_OP(GYRE_SUM), comm, stream);
    CUDA(cudaStreamSynchronize(stream));
    while (gyre_comm_error(comm) == GYRE_OK && base_now() < until)
        usleep(1000);
    const gyre_status_t st = gyre_comm_error(comm);
    MP_CHECK(st == (dies ? GYRE_ERR_PEER_DEAD : GYRE_ERR_TIMEOUT) || st == GYRE_ERR_ABORTED,
             "rank %d: ended with %s", rank, gyre_status_string(st));
    MP_OK(gyre_comm_destroy(comm));
    if (!dies)
        MP_OK(gyre_finalize(world));
}

int main(int argc, char **argv)
{
    if (!gpu_here())
        return 77;
    pretend_ucx();
    says_cuda = 1;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(base_settings_set(SET_HOST_RANKS, "1", "test"));
    in = malloc(ROOM + EDGE);
    want = malloc(ROOM + EDGE);
    back = malloc(ROOM + EDGE);
    MP_CHECK(in && want && back, "no memory");
    CUDA(cudaMalloc((void **)&there_in, ROOM + 2 * EDGE));
    CUDA(cudaMalloc((void **)&there_out, ROOM + 2 * EDGE));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    if (argc == 3) {
        without_the_last(strcmp(argv[1], "dying") == 0, argv[2]);
        return 0;
    }
    open_comm("auto", "4M"); /* places of at least 174,080 bytes */
    expect(LIMIT, "staged", "parts of more than 64 KiB");
    expect(LIMIT + 16, "wire", "from device memory: UCX ");
    operations(LIMIT / 2, 0);     /* staged, but for those that only some ranks know */
    operations(LIMIT + 64, 1);    /* barely not */
    operations(3 * LIMIT + 5, 2); /* chunks: 2 or so, */
    operations(500000, 3);        /* and more than there are sets */
    reductions(0);
    exact_sums("wire");
    message_across();
    close_comm(1);

    aborted();
    disagreeing();

    open_comm("off", "4M");
    expect(LIMIT + 16, "staged", "GYRE_CUDA_RDMA=off");
    operations(LIMIT + 64, 0);
    close_comm(0);
    open_comm("auto", "1M"); /* places of 87,040 bytes for 2 ranks, of too few for 3 */
    expect(LIMIT + 16, n == 2 ? "wire" : "staged", n == 2 ? NULL : "GYRE_CUDA_STAGING=1M");
    operations(LIMIT + 64, 1);
    close_comm(n == 2);
    says_cuda = rank != 0; /* one cannot: all know */
    open_comm("auto", "4M");
    expect(LIMIT + 16, "staged", "rank 0 cannot otherwise: this UCX");
    operations(LIMIT + 64, 2);
    close_comm(0);
    says_cuda = 1;
    if (n > 2 && n % 2 == 0)
        shared_hosts();

    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(there_in));
    CUDA(cudaFree(there_out));
    free(in);
    free(want);
    free(back);
    MP_OK(gyre_finalize(world));
    return 0;
}
