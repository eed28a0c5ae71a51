/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 4 */
/* tests/collectives/comms/mp_many.c: a thousand communicators live at once: they work, take no descriptor and
 * little memory each, and give it back. */
#include "tests/support/mp.h"

#include <unistd.h>

#include "tests/support/descriptors.h"

/* Memory of a communicator that has done a small call, per rank. A sanitizer adds as much or more. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_KIB = 256 };
#else
enum { MOST_KIB = 64 };
#endif
enum { MANY = 1000 };

/* What of this process is in memory, with what it shares with others. */
static long resident_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    MP_CHECK(f && fscanf(f, "%*d %ld", &pages) == 1, "no /proc/self/statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void works(gyre_comm_t *comm, int number)
{
    int n = gyre_comm_size(comm), value = gyre_comm_rank(comm) + number, sum;
    MP_OK(gyre_all_reduce(&value, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    MP_CHECK(sum == n * number + n * (n - 1) / 2, "communicator %d: %d", number, sum);
}

int main(void)
{
    static gyre_comm_t *comm[MANY];
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world);
    works(world, 0);
    for (int round = 0; round < 2; round++) {
        MP_OK(gyre_barrier(world));
        const int open = descriptors();
        const long kib = resident_kib();
        for (int i = 0; i < MANY; i++) {
            /* of all ranks, of each half, and in the other order */
            MP_OK(gyre_comm_split(world, i % 3 == 1 ? rank % 2 : 0, i % 3 == 2 ? -rank : 0, &comm[i]));
            works(comm[i], i);
        }
        MP_CHECK(descriptors_settle(open) <= open, "%d descriptors, %d before", descriptors(), open);
        MP_CHECK(resident_kib() - kib < (long)MANY * MOST_KIB, "%ld KiB", resident_kib() - kib);
        for (int i = 0; i < MANY; i++)
            works(comm[i], 2 * i); /* those that were made before are as they were */
        for (int i = 0; i < MANY; i++)
            MP_OK(gyre_comm_destroy(comm[(i * 7) % MANY]));
        works(world, round);
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
