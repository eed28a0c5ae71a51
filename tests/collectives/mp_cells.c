/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 4 34 */
/* tests/collectives/mp_cells.c: ranks that are bound to different NUMA nodes find their cells, all the same
 * ones, and hierarchical over them gives the bits of the other algorithms, also where neighbours in number
 * are in different cells. A machine of two processors is shown as one of two nodes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/support/mp.h"

#include <sched.h>
#include <string.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"

enum { COUNT = 977, OPS = 5 };

static int n, rank;

static void set_algo(const char *name)
{
    MP_OK(base_settings_set(SET_ALGO, name, "test"));
}

static void run(gyre_comm_t *comm, const float *in, float *out)
{
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    size_t un = (size_t)n, root = un / 2;
    memset(out, 0, OPS * COUNT * un * sizeof *out);
    MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, sum, comm));
    out += COUNT * un;
    MP_OK(gyre_reduce(in, out, COUNT, GYRE_FLOAT32, sum, (int)root, comm));
    out += COUNT * un;
    MP_OK(gyre_reduce_scatter(in, out, COUNT / un, GYRE_FLOAT32, sum, comm));
    out += COUNT * un;
    MP_OK(gyre_all_gather(in, out, COUNT, GYRE_FLOAT32, comm));
    out += COUNT * un;
    MP_OK(gyre_broadcast(in, out, COUNT, GYRE_FLOAT32, (int)root, comm));
    MP_OK(gyre_barrier(comm));
}

/* One communicator whose ranks are bound as cpu_of says (-1: not); parts it should find, by cell_of. */
static void check(gyre_comm_t *world, const cpu_set_t *all, int apart, int by, const float *in, float *got,
                  const float *want)
{
    gyre_comm_t *comm;
    cpu_set_t one;
    int cpu = 0;
    for (int seen = 0; cpu < CPU_SETSIZE && (!CPU_ISSET((size_t)cpu, all) || seen++ < rank / by % 2);)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    MP_CHECK(sched_setaffinity(0, sizeof one, apart ? &one : all) == 0, "rank %d to processor %d", rank, cpu);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    const int expected = apart && n > COMM_FLAT_RANKS;
    MP_CHECK(comm->parts == (expected ? 2 : 1), "rank %d of %d has %d parts, apart %d by %d", rank, n,
             comm->parts, apart, by);
    for (int r = 0; r < n; r++)
        MP_CHECK(comm->part_of[r] == (expected ? r / by % 2 : 0), "rank %d takes %d for one of cell %d", rank,
                 r, comm->part_of[r]);
    set_algo("hierarchical");
    run(comm, in, got);
    const size_t each = COUNT * (size_t)n;
    for (size_t i = 0; i < OPS * each; i++)
        MP_CHECK(memcmp(&got[i], &want[i], sizeof *got) == 0,
                 "rank %d of %d, apart %d by %d: call %zu: element %zu is %a, not %a", rank, n, apart, by,
                 i / each, i % each, (double)got[i], (double)want[i]);
    set_algo("");
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    cpu_set_t all, two;
    gyre_comm_t *world;
    CPU_ZERO(&two);
    CPU_SET(0, &two);
    CPU_SET(1, &two);
    /* whatever the launcher bound this rank to */
    if (sched_setaffinity(0, sizeof two, &two) != 0 || sched_getaffinity(0, sizeof all, &all) != 0 ||
        !CPU_EQUAL(&all, &two)) {
        fprintf(stderr, "skipped: needs processors 0 and 1\n");
        return 77;
    }
    MP_CHECK(setenv("HWLOC_SYNTHETIC", "pack:1 numa:2 core:1 pu:1", 1) == 0, "no memory");
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    const size_t all_out = OPS * COUNT * (size_t)n;
    float *in = malloc(COUNT * sizeof *in), *got = malloc(all_out * sizeof *got),
          *want = malloc(all_out * sizeof *want);
    MP_CHECK(in && got && want, "no memory");
    uint64_t seed = (uint64_t)rank;
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)((double)(int64_t)random_next(&seed) * 1e-17);
    set_algo("direct");
    run(world, in, want);
    check(world, &all, 0, 1, in, got, want);
    check(world, &all, 1, 1, in, got, want);
    check(world, &all, 1, n / 2, in, got, want);
    check(world, &all, 1, 3, in, got, want);
    free(in);
    free(got);
    free(want);
    MP_OK(gyre_finalize(world));
    return 0;
}
