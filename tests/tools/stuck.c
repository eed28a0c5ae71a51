/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/stuck.c: a job that gets stuck, for test_gyre_doctor_job.sh and system/patience.sh: after some
 * collectives a rank (2, or the second argument) does what the first argument says while the others go into
 * the next one: compute, sleep. The calls of rank r have the tag 100 + r. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

int main(int argc, char **argv)
{
    gyre_comm_t *world = NULL;
    double mine = 1, sum = 0;
    const char *how = argc > 1 ? argv[1] : "compute";
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    const char *rank = getenv("GYRE_RANK"); /* of ucx-run */
    options.tag = 100 + (uint64_t)(rank ? atoi(rank) : 0);
    config.options = &options;
    if (gyre_init(&config, &world) != GYRE_OK)
        return 1;
    for (int i = 0; i < 20; i++)
        if (gyre_all_reduce(&mine, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
            return 1;
    if (gyre_comm_rank(world) == (argc > 2 ? atoi(argv[2]) : 2)) {
        volatile unsigned turns = 0;
        while (strcmp(how, "compute") == 0)
            turns++;
        sleep(60);
    }
    if (gyre_broadcast(&mine, &sum, 1, GYRE_FLOAT64, 0, world) != GYRE_OK ||
        gyre_all_reduce(&mine, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
        return 1;
    return gyre_finalize(world) != GYRE_OK;
}
