/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4, and in check-long: 5 8 */
/* TSan in check-long: its calls are those of mp_pairs and mp_events, many times */
/* tests/collectives/mp_contract.c: the bits of a result depend on the inputs and the number of ranks alone:
 * for every algorithm, transport, way of copying, chunk size, segment size, alignment and bucket size
 * all_reduce (and reduce, reduce_scatter) give the bytes of the canonical tree, computed here by plain
 * recursion. */
/* takes: 10 */
#include "tests/support/mp.h"

#include <string.h>

#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "collectives/schedules/schedule.h"

enum { COUNT = 5003 };

static int n, rank;

static float input(int r, size_t i)
{
    uint64_t s = (uint64_t)r * 1000003u + i;
    return (float)((double)(int64_t)random_next(&s) * 1e-17); /* magnitudes differ, so that order matters */
}

static int tree_split(int len)
{
    int k = 1;
    while (k * 2 < len)
        k *= 2;
    return k;
}

static float tree32(int lo, int len, size_t i)
{
    if (len == 1)
        return input(lo, i);
    int k = tree_split(len);
    return tree32(lo, k, i) + tree32(lo + k, len - k, i);
}

static unsigned short tree16(int lo, int len, size_t i)
{
    if (len == 1)
        return coll_float_to_half(input(lo, i));
    int k = tree_split(len);
    return coll_float_to_half(coll_half_to_float(tree16(lo, k, i)) +
                              coll_half_to_float(tree16(lo + k, len - k, i)));
}

static float want32[COUNT];
static unsigned short want16[COUNT];

static void compare(const void *got, const void *want, size_t bytes, const char *what)
{
    size_t i = 0;
    while (i < bytes && ((const char *)got)[i] == ((const char *)want)[i])
        i++;
    MP_CHECK(i == bytes,
             "rank %d of %d: %s: first differing byte %zu of %zu (algo %s transport %s copy %s chunk %s)",
             rank, n, what, i, bytes, base_setting_string(SET_ALGO), base_setting_string(SET_TRANSPORT),
             base_setting_string(SET_SHM_COPY), base_setting_string(SET_CHUNK));
}

static void fill32(char *p)
{
    for (size_t i = 0; i < COUNT; i++) {
        float f = input(rank, i);
        memcpy(p + 4 * i, &f, 4);
    }
}

/* One vector, misaligned by `shift` bytes, out of place and in place. */
static void one_call(gyre_comm_t *comm, char *a, char *b, size_t shift)
{
    fill32(a + shift);
    MP_OK(gyre_all_reduce(a + shift, b + shift, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    compare(b + shift, want32, sizeof want32, "all_reduce");
    MP_OK(gyre_all_reduce(a + shift, a + shift, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    compare(a + shift, want32, sizeof want32, "all_reduce in place");
    for (size_t i = 0; i < COUNT; i++) {
        unsigned short h = coll_float_to_half(input(rank, i));
        memcpy(a + shift + 2 * i, &h, 2);
    }
    MP_OK(gyre_all_reduce(a + shift, b + shift, COUNT, GYRE_FLOAT16, GYRE_OP(GYRE_SUM), comm));
    compare(b + shift, want16, sizeof want16, "all_reduce half");
}

/* The same vector in pieces. */
static void pieces(gyre_comm_t *comm, char *a, char *b, size_t piece)
{
    fill32(a);
    for (size_t at = 0; at < COUNT; at += piece) {
        size_t len = at + piece < COUNT ? piece : COUNT - at;
        MP_OK(gyre_all_reduce(a + 4 * at, b + 4 * at, len, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    }
    compare(b, want32, sizeof want32, "all_reduce in pieces");
}

static void other_reductions(gyre_comm_t *comm, char *a, char *b)
{
    fill32(a);
    for (int root = 0; root < n; root++) {
        MP_OK(gyre_reduce(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), root, comm));
        if (rank == root)
            compare(b, want32, sizeof want32, "reduce");
    }
    size_t each = COUNT / (size_t)n;
    MP_OK(gyre_reduce_scatter(a, b, each, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    compare(b, want32 + each * (size_t)rank, each * 4, "reduce_scatter");
}

static void buckets(gyre_comm_t *comm, size_t bucket_bytes)
{
    size_t counts[64], tensors = 0;
    uint64_t seed = 7;
    for (size_t at = 0; at < COUNT; tensors++) {
        size_t len = 1 + (size_t)(random_next(&seed) % 300);
        counts[tensors] = at + len < COUNT ? len : COUNT - at;
        at += counts[tensors];
        MP_CHECK(tensors < 63, "too many tensors");
    }
    gyre_buckets_config_t config = {.size = sizeof config,
                                    .type = GYRE_FLOAT32,
                                    .op = GYRE_OP(GYRE_SUM),
                                    .mode = GYRE_BUCKET_ALL_REDUCE,
                                    .bucket_bytes = bucket_bytes};
    gyre_buckets_t *b;
    MP_OK(gyre_buckets_create(comm, &config, tensors, counts, &b));
    for (int round = 0; round < 2; round++) {
        size_t at = 0;
        for (size_t t = 0; t < tensors; t++) {
            float *data = gyre_buckets_tensor(b, t);
            for (size_t i = 0; i < counts[t]; i++)
                data[i] = input(rank, at + i);
            at += counts[t];
        }
        for (size_t t = 0; t < tensors; t++)
            MP_OK(gyre_buckets_ready(b, t));
        MP_OK(gyre_buckets_wait(b));
        at = 0;
        for (size_t t = 0; t < tensors; t++) {
            compare(gyre_buckets_tensor(b, t), want32 + at, counts[t] * 4, "bucket");
            at += counts[t];
        }
    }
    MP_OK(gyre_buckets_destroy(b));
}

static void set(base_setting_t id, const char *value)
{
    MP_OK(base_settings_set(id, value, "test"));
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    for (size_t i = 0; i < COUNT; i++) {
        want32[i] = tree32(0, n, i);
        want16[i] = tree16(0, n, i);
    }
    char *window[2], *plain[2];
    for (int i = 0; i < 2; i++) {
        MP_OK(gyre_mem_alloc(COUNT * 4 + 64, (void **)&window[i]));
        plain[i] = malloc(COUNT * 4 + 64);
        MP_CHECK(plain[i], "no memory");
    }
    /* transport, way of copying, ranks per host (0: as it is) */
    static const char *const ways[][3] = {{"shm", "auto", "0"}, {"shm", "window", "0"},
                                          {"shm", "cma", "0"},  {"shm", "copy", "0"},
                                          {"ucx", "auto", "0"}, {"auto", "auto", "2"}};
    static const char *const chunks[] = {"0", "512", "4096"};
    const int all = getenv("TEST_LONG") != NULL;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int algo = COLL_ALGO_AUTO; algo < COLL_ALGO_END; algo++)
            for (size_t c = 0; c < 3; c++) {
                if (algo != COLL_ALGO_AUTO && !coll_algo_serves((coll_algo_t)algo, COLL_ALL_REDUCE, NULL))
                    continue;
                if (!all && c > 0 &&
                    (w + (size_t)algo + c) % 2 != 0) /* each algorithm with half of the ways */
                    continue;
                set(SET_TRANSPORT, ways[w][0]);
                set(SET_SHM_COPY, ways[w][1]);
                set(SET_HOST_RANKS, ways[w][2]);
                set(SET_ALGO, algo == COLL_ALGO_AUTO ? "" : coll_algo_name((coll_algo_t)algo));
                set(SET_CHUNK, chunks[c]);
                set(SET_SCRATCH, c == 2 ? "16K" : "4M"); /* forces several segments */
                gyre_comm_t *comm;
                MP_OK(gyre_comm_split(world, 0, rank, &comm));
                one_call(comm, window[0], window[1], 0);
                one_call(comm, plain[0], plain[1], c == 0 ? 1 : 6);
                pieces(comm, plain[0], window[1], 701);
                if (c == 0) {
                    other_reductions(comm, window[0], plain[1]);
                    buckets(comm, 1000);
                    buckets(comm, 1 << 20);
                }
                MP_OK(gyre_comm_destroy(comm));
            }
    for (int i = 0; i < 2; i++) {
        MP_OK(gyre_mem_free(window[i]));
        free(plain[i]);
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
