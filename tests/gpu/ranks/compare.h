/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/ranks/compare.h: collectives on device memory compared with those on host memory, byte by byte,
 * guards around: every operation, type, reduction and root, odd sizes, misaligned buffers, in place,
 * blocking, non-blocking and on streams. For tests of several ranks, which set `comm` and `path`, what the
 * calls run on, and call compare_begin first. */
#ifndef TESTS_GPU_COMPARE_H
#define TESTS_GPU_COMPARE_H

#include <stdlib.h>
#include <string.h>

#include "base/settings/settings.h"
#include "tests/gpu/ranks/mp_gpu.h"
#include "tests/gpu/values.h"

enum { MOST = 1 << 18, GUARD = 64 };

static int n, rank;
static const char *path;
static gyre_comm_t *world, *comm; /* world: for the host's results */
static cudaStream_t stream;
static char *in, *want;            /* host */
static char *there_in, *there_out; /* device */
static uint64_t seed = 1;

static void set(base_setting_t id, const char *value)
{
    MP_OK(base_settings_set(id, value, "test"));
}

static void fill(char *to, size_t count, gyre_type_t type)
{
    uint64_t own = seed * 1000 + (uint64_t)rank;
    values_fill(to, count, type, &own);
}

/* What is asked for, with arrays for the uneven forms. */
typedef struct {
    gyre_type_t type;
    gyre_redop_t op;
    size_t count;
    int root, in_place, streamed;
    size_t shift; /* bytes off alignment */
} ask_t;

static char label[200];
static const char *name_of(const char *call, const ask_t *a)
{
    snprintf(label, sizeof label, "%s %s %s%s count %zu root %d%s%s shift %zu, %s, n %d", call,
             gyre_type_name(a->type), a->op.scaled ? "scaled " : "", gyre_redop_name(a->op.kind), a->count,
             a->root, a->in_place ? " in place" : "", a->streamed ? " streamed" : "", a->shift, path, n);
    return label;
}

/* `got` bytes of the device at there_out, with their surroundings, against `want`. */
static void compare(const char *call, const ask_t *a, size_t bytes, const char *from)
{
    static char back[MOST + 2 * GUARD];
    CUDA(cudaMemcpy(back, from - GUARD, bytes + 2 * GUARD, cudaMemcpyDeviceToHost));
    size_t i = 0;
    while (i < bytes && back[GUARD + i] == want[i])
        i++;
    MP_CHECK(i == bytes, "rank %d: %s: byte %zu of %zu is %02x, not %02x", rank, name_of(call, a), i, bytes,
             (unsigned char)back[GUARD + i], (unsigned char)want[i]);
}

static void guards(const char *call, const ask_t *a, size_t bytes)
{
    char back[GUARD];
    CUDA(cudaMemcpy(back, there_out + GUARD + a->shift + bytes, GUARD, cudaMemcpyDeviceToHost));
    for (int i = 0; i < GUARD; i++)
        MP_CHECK(back[i] == 0x5a, "rank %d: %s wrote %d bytes beyond its %zu", rank, name_of(call, a), i + 1,
                 bytes);
}

/* A call in the form that is asked for. NAME(args..., comm[, stream]). */
#define CALL(a, NAME, ...)                                          \
    do {                                                            \
        if ((a)->streamed) {                                        \
            MP_OK(gyre_##NAME##_stream(__VA_ARGS__, comm, stream)); \
            CUDA(cudaStreamSynchronize(stream));                    \
        } else if (seed % 2) {                                      \
            gyre_request_t *request_;                               \
            MP_OK(gyre_i##NAME(__VA_ARGS__, comm, &request_));      \
            MP_OK(gyre_wait(&request_));                            \
        } else {                                                    \
            MP_OK(gyre_##NAME(__VA_ARGS__, comm));                  \
        }                                                           \
    } while (0)

/* The input to both memories; returns where it lies on the device. in_place: in the output buffer, `at`
 * bytes in. */
static char *begin(const ask_t *a, size_t count, size_t at)
{
    const size_t bytes = count * gyre_type_size(a->type);
    char *place = a->in_place ? there_out + GUARD + a->shift + at : there_in + GUARD + a->shift;
    seed++;
    fill(in, count, a->type);
    CUDA(cudaMemset(there_out, 0x5a, MOST + 4 * GUARD));
    CUDA(cudaMemcpy(place, in, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    return place;
}

static void all_reduce(const ask_t *a)
{
    const size_t bytes = a->count * gyre_type_size(a->type);
    char *from = begin(a, a->count, 0), *to = there_out + GUARD + a->shift;
    MP_OK(gyre_all_reduce(in, want, a->count, a->type, a->op, world));
    CALL(a, all_reduce, from, to, a->count, a->type, a->op);
    compare("all_reduce", a, bytes, to);
    guards("all_reduce", a, bytes);
}

static void reduce(const ask_t *a)
{
    const int here = rank == a->root;
    const size_t bytes = here ? a->count * gyre_type_size(a->type) : 0;
    ask_t b = *a;
    b.in_place = a->in_place && here;
    char *from = begin(&b, a->count, 0), *to = there_out + GUARD + a->shift;
    MP_OK(gyre_reduce(in, want, a->count, a->type, a->op, a->root, world));
    CALL(a, reduce, from, here ? to : NULL, a->count, a->type, a->op, a->root);
    compare("reduce", a, bytes, to);
    guards("reduce", a, b.in_place || here ? bytes : 0);
}

static void broadcast(const ask_t *a)
{
    const int here = rank == a->root;
    const size_t bytes = a->count * gyre_type_size(a->type);
    ask_t b = *a;
    b.in_place = a->in_place && here;
    char *from = begin(&b, a->count, 0), *to = there_out + GUARD + a->shift;
    MP_OK(gyre_broadcast(in, want, a->count, a->type, a->root, world));
    CALL(a, broadcast, here ? from : NULL, to, a->count, a->type, a->root);
    compare("broadcast", a, bytes, to);
    guards("broadcast", a, bytes);
}

/* Uneven blocks: some empty, the same on all ranks. */
static size_t uneven(size_t count, int r)
{
    return r % 3 == 1 ? 0 : count + (size_t)(7 * r);
}

static void reduce_scatter(const ask_t *a, int v)
{
    const size_t size = gyre_type_size(a->type);
    size_t counts[16], all = 0, before = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = v ? uneven(a->count, r) : a->count;
        before += r < rank ? counts[r] : 0;
        all += counts[r];
    }
    ask_t b = *a;
    char *from = begin(&b, all, 0), *to = a->in_place ? from + before * size : there_out + GUARD + a->shift;
    if (v) {
        MP_OK(gyre_reduce_scatterv(in, want, counts, a->type, a->op, world));
        CALL(a, reduce_scatterv, from, to, counts, a->type, a->op);
    } else {
        MP_OK(gyre_reduce_scatter(in, want, a->count, a->type, a->op, world));
        CALL(a, reduce_scatter, from, to, a->count, a->type, a->op);
    }
    compare("reduce_scatter", a, counts[rank] * size, to);
    if (!a->in_place)
        guards("reduce_scatter", a, counts[rank] * size);
}

/* Blocks of all ranks, uneven ones with `gap` elements between them; returns where they end. */
static size_t lay_out(const ask_t *a, int v, size_t gap, size_t *counts, size_t *displs)
{
    size_t end = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = v ? uneven(a->count, r) : a->count;
        displs[r] = end;
        end += counts[r] + (v ? gap : 0);
    }
    return end;
}

static void all_gather(const ask_t *a, int v)
{
    const size_t size = gyre_type_size(a->type);
    size_t counts[16], displs[16];
    const size_t end = lay_out(a, v, 3, counts, displs);
    char *from = begin(a, counts[rank], displs[rank] * size), *to = there_out + GUARD + a->shift;
    memset(want, 0x5a, end * size);
    if (v) {
        MP_OK(gyre_all_gatherv(in, want, counts, displs, a->type, world));
        CALL(a, all_gatherv, from, to, counts, displs, a->type);
    } else {
        MP_OK(gyre_all_gather(in, want, a->count, a->type, world));
        CALL(a, all_gather, from, to, a->count, a->type);
    }
    compare("all_gather", a, end * size, to);
    guards("all_gather", a, end * size);
}

static void gather(const ask_t *a, int v)
{
    const size_t size = gyre_type_size(a->type);
    const int here = rank == a->root;
    size_t counts[16], displs[16];
    const size_t end = lay_out(a, v, 0, counts, displs);
    ask_t b = *a;
    b.in_place = a->in_place && here;
    char *from = begin(&b, counts[rank], displs[rank] * size),
         *to = here ? there_out + GUARD + a->shift : NULL;
    if (v) {
        MP_OK(gyre_gatherv(in, counts[rank], want, counts, displs, a->type, a->root, world));
        CALL(a, gatherv, from, counts[rank], to, counts, displs, a->type, a->root);
    } else {
        MP_OK(gyre_gather(in, want, a->count, a->type, a->root, world));
        CALL(a, gather, from, to, a->count, a->type, a->root);
    }
    if (here)
        compare("gather", a, end * size, to);
    guards("gather", a, here ? end * size : 0);
}

static void scatter(const ask_t *a, int v)
{
    const size_t size = gyre_type_size(a->type);
    const int here = rank == a->root;
    size_t counts[16], displs[16];
    const size_t end = lay_out(a, v, 0, counts, displs);
    ask_t b = *a;
    b.in_place = a->in_place && here;
    char *from = begin(&b, here ? end : 0, 0);
    char *to = b.in_place ? from + displs[rank] * size : there_out + GUARD + a->shift;
    if (v) {
        MP_OK(gyre_scatterv(in, counts, displs, want, counts[rank], a->type, a->root, world));
        CALL(a, scatterv, here ? from : NULL, counts, displs, to, counts[rank], a->type, a->root);
    } else {
        MP_OK(gyre_scatter(in, want, a->count, a->type, a->root, world));
        CALL(a, scatter, here ? from : NULL, to, a->count, a->type, a->root);
    }
    compare("scatter", a, counts[rank] * size, to);
    if (!b.in_place)
        guards("scatter", a, counts[rank] * size);
}

static void all_to_all(const ask_t *a, int v)
{
    const size_t size = gyre_type_size(a->type);
    size_t counts[16], displs[16], rcounts[16], rdispls[16], end = 0, rend = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = v ? (size_t)((rank * 3 + r) % 4) * a->count / 2 : a->count;
        rcounts[r] = v ? (size_t)((r * 3 + rank) % 4) * a->count / 2 : a->count;
        displs[r] = end;
        rdispls[r] = rend;
        end += counts[r];
        rend += rcounts[r];
    }
    ask_t b = *a;
    b.in_place = a->in_place && !v;
    char *from = begin(&b, end, 0), *to = there_out + GUARD + a->shift;
    if (v) {
        MP_OK(gyre_all_to_allv(in, counts, displs, want, rcounts, rdispls, a->type, world));
        CALL(a, all_to_allv, from, counts, displs, to, rcounts, rdispls, a->type);
    } else {
        MP_OK(gyre_all_to_all(in, want, a->count, a->type, world));
        CALL(a, all_to_all, from, to, a->count, a->type);
    }
    compare("all_to_all", a, rend * size, to);
    guards("all_to_all", a, rend * size);
}

/* Every type with every reduction. */
static void arithmetic(size_t count)
{
    for (int type = 0; type < DEVICE_TYPES; type++)
        for (int op = 0; op <= DEVICE_REDOPS; op++) {
            const ask_t a = {.type = (gyre_type_t)type,
                             .op = op == DEVICE_REDOPS ? GYRE_SCALED_SUM(rank % 2 ? 1.7 : -3.0)
                                                       : GYRE_OP((gyre_redop_kind_t)op),
                             .count = count,
                             .streamed = op % 2};
            all_reduce(&a);
        }
}

/* Every operation, at sizes around the vectors and the slots. */
static void operations(const size_t *sizes, int sizes_n)
{
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_UINT8, GYRE_FLOAT16};
    int turn = 0;
    for (int i = 0; i < sizes_n; i++)
        for (int place = 0; place < 2; place++) {
            ask_t a = {.type = types[turn % 3],
                       .op = GYRE_OP(GYRE_SUM),
                       .count = sizes[i],
                       .in_place = place,
                       .streamed = turn % 2,
                       .root = turn % n};
            const size_t shifts[] = {0, gyre_type_size(a.type), 0, 1};
            a.shift = shifts[turn % 4];
            turn++;
            all_reduce(&a);
            broadcast(&a);
            reduce(&a);
            for (int v = 0; v < 2; v++) {
                reduce_scatter(&a, v);
                all_gather(&a, v);
                gather(&a, v);
                scatter(&a, v);
                all_to_all(&a, v);
            }
        }
    for (int root = 0; root < n; root++) {
        const ask_t a = {
            .type = GYRE_INT32, .op = GYRE_OP(GYRE_MAX), .count = 77, .root = root, .streamed = 1};
        reduce(&a);
        broadcast(&a);
        gather(&a, 1);
        scatter(&a, 1);
    }
    MP_OK(gyre_barrier_stream(comm, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void compare_begin(void)
{
    setenv("EMULATED_PROCESSORS", "64", 0); /* room for several blocks of every rank */
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    in = calloc(1, MOST);
    want = calloc(1, MOST);
    MP_CHECK(in && want, "no memory");
    CUDA(cudaMalloc((void **)&there_in, MOST + 4 * GUARD));
    CUDA(cudaMalloc((void **)&there_out, MOST + 4 * GUARD));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

static void compare_end(void)
{
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(there_in));
    CUDA(cudaFree(there_out));
    free(in);
    free(want);
    MP_OK(gyre_finalize(world));
}

#endif
