/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/mp_tune.c: every rank has another idea of the tuning (GYRE_TUNE, another file each): rank
 * 0's counts for all, so all choose alike and results are right; a broken file of rank 0 ends gyre_init on
 * all ranks with its words.
 *
 * ranks: 2 3 5 */
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "tests/support/mp.h"

static void write_file(const char *path, const char *lines)
{
    FILE *file = fopen(path, "w");
    MP_CHECK(file, "%s", path);
    fprintf(file, "gyre-tune 1\n%s", lines);
    MP_CHECK(fclose(file) == 0, "%s", path);
}

static void use(const char *path)
{
    MP_CHECK(setenv("GYRE_TUNE", path, 1) == 0, "setenv");
    MP_OK(base_settings_reload());
}

static void check_sums(gyre_comm_t *world)
{
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    for (size_t count = 1; count <= 1 << 18; count = count * 7 + 1) {
        float *data = malloc(count * sizeof *data);
        MP_CHECK(data, "memory");
        for (size_t i = 0; i < count; i++)
            data[i] = (float)(rank + 1) * (float)(i % 13);
        MP_OK(gyre_all_reduce(data, data, count, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world));
        for (size_t i = 0; i < count; i++)
            MP_CHECK(data[i] == (float)(n * (n + 1) / 2) * (float)(i % 13), "count %zu, element %zu: %g",
                     count, i, data[i]);
        free(data);
    }
}

/* All ranks see the same, whatever their own files say. */
static void check_alike(gyre_comm_t *world)
{
    enum { MOST = 64 };
    int32_t mine[4] = {world->tune->nlines, world->tune->lines[0].algo, world->tune->lines[1].algo,
                       (int32_t)world->tune->cost.line},
            all[4 * MOST];
    MP_OK(gyre_all_gather(mine, all, 4, GYRE_INT32, world));
    for (int r = 0; r < gyre_comm_size(world); r++)
        MP_CHECK(memcmp(all + 4 * r, mine, sizeof mine) == 0, "rank %d has other numbers", r);
    MP_CHECK(mine[0] == 2 && mine[1] == COLL_BUTTERFLY && mine[2] == COLL_RING && mine[3] == 1000,
             "they are not rank 0's");
}

int main(void)
{
    static const char *const files[] = {"cost line 1000\nchoose all_reduce bytes 0-16K algo "
                                        "butterfly\nchoose all_reduce bytes 16K- algo ring chunk 4K\n",
                                        "cost line 2000\nchoose all_reduce algo tree\n",
                                        "choose all_reduce algo direct\n"};
    char path[64];
    const char *rank_text = getenv("GYRE_RANK");
    const int me = rank_text ? atoi(rank_text) : 0;
    snprintf(path, sizeof path, "build/mp_tune.%ld", (long)getpid());
    write_file(path, files[me % 3]);
    use(path);
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    MP_CHECK(me == gyre_comm_rank(world), "not under ucx-run?");
    check_alike(world);
    check_sums(world);
    gyre_comm_t *half;
    MP_OK(gyre_comm_split(world, me % 2, me, &half));
    check_sums(half);
    MP_OK(gyre_comm_destroy(half));
    MP_OK(gyre_finalize(world));
    unlink(path);
    return 0;
}
