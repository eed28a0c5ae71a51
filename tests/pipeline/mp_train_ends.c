/* ranks: 1 2 3 */
/* takes: 10 */
/* tests/pipeline/mp_train_ends.c: the end of a training while a checkpoint is being written, and the disk is
 * slow. However it ends (an error that all ranks find, ranks that fell out with one another, or no error),
 * the checkpoint is there when a rank has freed the training. A program of its own, as fsync is the test's
 * here.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <gyre/train.h>

#include "tests/support/mp_text.h"

#define SLOW_US 1800000 /* of the first sync after `slow` was set: longer than a rank waited once */

static atomic_int slow;
static char folder[] = "/tmp/gyre-train-ends-XXXXXX";
static int rank;

int fsync(int fd)
{
    int (*next)(int);
    void *const found = dlsym(RTLD_NEXT, "fsync");
    memcpy(&next, &found, sizeof next);
    if (atomic_exchange(&slow, 0))
        usleep(SLOW_US);
    return next(fd);
}

static void create(const char *name, const char *more, gyre_comm_t *world, gyre_train_t **train)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"data\": \"%s/text\", \"layers\": 1, \"hidden\": 32, \"heads\": 4, \"seq\": 16, \"batch\": 8,"
             " \"eval-every\": 0, \"eval-sequences\": 2, \"warmup\": 0, \"checkpoint\": \"%s/%s\","
             " \"checkpoint-every\": 2, \"steps\": 1000%s}",
             folder, folder, name, more);
    MP_OK(gyre_train_create(world, config, train));
}

static int is_there(const char *name, int step)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/step-%012d/index.json", folder, name, step);
    return access(path, F_OK) == 0;
}

/* Steps 1 and 2, and the checkpoint after them, which takes its time on one rank. */
static void begin_checkpoint(const char *name, int slow_rank, gyre_train_t *train)
{
    MP_OK(gyre_train_step(train, NULL));
    atomic_store(&slow, rank == slow_rank);
    MP_OK(gyre_train_step(train, NULL));
    MP_CHECK(!is_there(name, 2), "rank %d: the checkpoint is written already", rank);
}

/* All ranks find at the same step that the loss is not finite. */
static void test_diverges(gyre_comm_t *world, const char *name, int zero, int slow_rank)
{
    char more[128];
    gyre_train_t *train;
    gyre_status_t status = GYRE_OK;
    snprintf(more, sizeof more, ", \"lr\": 100, \"weight-decay\": 100, \"clip\": 0, \"zero\": %d", zero);
    create(name, more, world, &train);
    begin_checkpoint(name, slow_rank, train);
    for (int i = 0; status == GYRE_OK && i < 40; i++) { /* what is left out meanwhile does not matter */
        status = gyre_train_step(train, NULL);
        if (i == 0)
            MP_CHECK(!is_there(name, 2), "rank %d: the checkpoint is written already", rank);
    }
    MP_CHECK(status == GYRE_ERR_INVALID && strstr(gyre_last_error(), "finite"), "rank %d: %s", rank,
             gyre_last_error());
    MP_OK(gyre_train_destroy(train));
    MP_CHECK(is_there(name, 2), "%s: rank %d is through, but there is no checkpoint", name, rank);
}

/* No error, but gyre_train_finish is not called. */
static void test_destroyed(gyre_comm_t *world)
{
    gyre_train_t *train;
    create("destroyed", "", world, &train);
    begin_checkpoint("destroyed", 0, train);
    MP_OK(gyre_train_destroy(train));
    MP_CHECK(rank != 0 || is_there("destroyed", 2), "there is no checkpoint");
}

/* Ranks fall out with one another: they end one by one, and none of them before rank 0 has the checkpoint. */
static void test_aborted(gyre_comm_t *world)
{
    gyre_train_t *train;
    create("aborted", ", \"zero\": 1", world, &train);
    begin_checkpoint("aborted", 0, train);
    gyre_status_t status =
        rank == gyre_comm_size(world) - 1 ? gyre_train_save(train, NULL) : gyre_train_step(train, NULL);
    MP_CHECK(gyre_status_scope(status) == GYRE_SCOPE_COMMUNICATOR, "rank %d: %s", rank, gyre_last_error());
    MP_OK(gyre_train_destroy(train));
    MP_CHECK(is_there("aborted", 2), "rank %d is through, but there is no checkpoint", rank);
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    mp_make_text(world, folder, sizeof folder, 300);

    test_destroyed(world);
    test_diverges(world, "plain", 0, 0);
    MP_OK(gyre_barrier(world));
    if (gyre_comm_size(world) > 1) {
        test_diverges(world, "shards", 1, 1); /* rank 0 waits for that of another */
        MP_OK(gyre_barrier(world));
        test_aborted(world);
    }
    MP_OK(gyre_finalize(world));
    if (rank == 0)
        mp_remove_folder(folder);
    return 0;
}
