/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2, over UCX: 2 */
/* tests/comm/ucx/mp_loaded.c: a job loads UCX if its ranks reach each other over UCX, and only then. */
#include <stdio.h>
#include <string.h>

#include "tests/support/mp.h"

static int is_mapped(const char *library)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;

    MP_CHECK(maps != NULL, "no /proc/self/maps");
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

int main(void)
{
    const char *transport = getenv("GYRE_TRANSPORT");
    const int over_ucx = transport && strcmp(transport, "ucx") == 0;
    gyre_comm_t *world;
    double one = 1, sum = 0;

    MP_CHECK(!is_mapped("/libucp.so"), "UCX is loaded before the job begins");
    MP_OK(gyre_init(NULL, &world));
    MP_OK(gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(sum == gyre_comm_size(world), "%g", sum);
    MP_CHECK(is_mapped("/libucp.so") == over_ucx, "UCX is%s loaded", over_ucx ? " not" : "");
    MP_OK(gyre_finalize(world));
    return 0;
}
