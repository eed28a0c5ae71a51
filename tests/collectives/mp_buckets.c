/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 */
/* TSan in check-long: its calls are those of mp_pairs and mp_events, many times */
/* tests/collectives/mp_buckets.c: what gyre_buckets_times counts: communication that the caller spends its
 * time on is exposed, also where a bucket's reduction starts inside gyre_buckets_ready, and only what goes
 * on while it computes is hidden. */
#include "tests/support/mp.h"

#include "base/clock.h"

enum { TENSORS = 4, ELEMENTS = 1 << 18, ROUNDS = 25 };

static int n, rank;
static gyre_comm_t *world;

/* Something to do between the tensors that takes about so long. */
static void compute(double seconds)
{
    for (base_time_t end = base_now() + (base_time_t)(seconds * 1e9); base_now() < end;) {
    }
}

/* One round with so much computing before each tensor; what was under way outside of the calls, and how
 * long it computed. */
static double hidden(gyre_buckets_t *buckets, double seconds, double *total, double *computed)
{
    double exposed = 0.0;
    base_time_t inside = 0;
    MP_OK(gyre_barrier(world));
    for (size_t i = 0; i < TENSORS; i++) {
        base_time_t start = base_now();
        if (seconds > 0.0)
            compute(seconds);
        inside += base_now() - start;
        MP_OK(gyre_buckets_ready(buckets, i));
    }
    MP_OK(gyre_buckets_wait(buckets));
    MP_OK(gyre_buckets_times(buckets, total, &exposed));
    *computed = (double)inside * 1e-9;
    return *total - exposed;
}

/* Without computing nothing can be hidden. A rank may lose its core between two calls, so the best of some
 * rounds counts. */
static void nothing_hidden(gyre_buckets_t *buckets, const char *what)
{
    double least = 1.0;
    for (int round = 0; round < ROUNDS; round++) {
        double total, computed;
        double share = hidden(buckets, 0.0, &total, &computed) / total;
        least = share < least ? share : least;
    }
    MP_CHECK(least < 0.02, "rank %d: %s: %.1f %% of the time overlaps with nothing", rank, what,
             least * 100.0);
}

/* No more can be hidden than was computed. */
static void bounded(gyre_buckets_t *buckets, const char *what)
{
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double total, computed;
        double beyond = hidden(buckets, 200e-6, &total, &computed) - computed;
        least = beyond < least ? beyond : least;
    }
    MP_CHECK(least < 10e-6, "rank %d: %s: %.1f us more are hidden than were computed", rank, what,
             least * 1e6);
}

int main(void)
{
    static const size_t counts[TENSORS] = {ELEMENTS, ELEMENTS, ELEMENTS, ELEMENTS};
    static const struct {
        size_t bytes;
        const char *name;
    } sizes[] = {{1, "a bucket per tensor"}, {(size_t)1 << 30, "one bucket"}};
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        gyre_buckets_config_t config = {.size = sizeof config,
                                        .type = GYRE_FLOAT32,
                                        .op = GYRE_OP(GYRE_SUM),
                                        .mode = GYRE_BUCKET_ALL_REDUCE,
                                        .bucket_bytes = sizes[i].bytes};
        gyre_buckets_t *buckets = NULL;
        MP_OK(gyre_buckets_create(world, &config, TENSORS, counts, &buckets));
        MP_CHECK(gyre_buckets_count(buckets) == (i == 0 ? TENSORS : 1), "%zu buckets",
                 gyre_buckets_count(buckets));
        nothing_hidden(buckets, sizes[i].name);
        bounded(buckets, sizes[i].name);
        MP_OK(gyre_buckets_destroy(buckets));
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
