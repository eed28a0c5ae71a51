/* ranks: 1 2 */
/* tests/pipeline/mp_train_export.c: weights that rank 0 has no memory to write are an error of that file,
 * and the training goes on. pipeline/train/outputs.c and model/formats/weights.c themselves, in which malloc
 * fails when the test says so.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <gyre/train.h>

#include "tests/support/mp_text.h"

static int fails; /* this malloc from now on; 0: none does */
static int mallocs;

static void *count_malloc(size_t bytes)
{
    return ++mallocs == fails ? NULL : malloc(bytes);
}

#define malloc(bytes) count_malloc(bytes)
#include "model/formats/weights.c"
#include "pipeline/train/outputs.c"

static void export_without(int which, const char *path, gyre_train_t *train, int rank)
{
    mallocs = 0;
    fails = rank == 0 ? which : 0;
    const gyre_status_t status = gyre_train_export(train, path);
    MP_CHECK(status == GYRE_ERR_NO_MEMORY, "%s, malloc %d: %s", path, which, gyre_last_error());
    fails = 0;
    MP_OK(gyre_train_export(train, path));
    MP_OK(gyre_train_step(train, NULL));
}

int main(void)
{
    char folder[] = "/tmp/gyre-train-export-XXXXXX", config[512], path[64];
    gyre_comm_t *world;
    gyre_train_t *train;
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world);
    mp_make_text(world, folder, sizeof folder, 300);
    snprintf(path, sizeof path, "%s/text", folder);
    snprintf(config, sizeof config,
             "{\"data\": \"%s\", \"layers\": 1, \"hidden\": 32, \"heads\": 4, \"seq\": 16, \"batch\": 8,"
             " \"eval-every\": 0, \"eval-sequences\": 2, \"warmup\": 0, \"steps\": 10, \"zero\": 1}",
             path);
    MP_OK(gyre_train_create(world, config, &train));
    MP_OK(gyre_train_step(train, NULL));
    snprintf(path, sizeof path, "%s/model/", folder);
    export_without(1, path, train, rank);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    export_without(1, path, train, rank);
    export_without(2, path, train, rank); /* the writer's */
    MP_OK(gyre_train_destroy(train));
    MP_OK(gyre_finalize(world));
    if (rank == 0)
        mp_remove_folder(folder);
    return 0;
}
