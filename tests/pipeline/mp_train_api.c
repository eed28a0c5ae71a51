/* ranks: 1 2 4 */
/* tests/pipeline/mp_train_api.c: gyre/train.h. A training that is saved, freed and resumed has the losses
 * and the weights of one that was not; refused calls and settings leave the ranks together and the
 * caller's communicator usable.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include <gyre/train.h>

#include "base/log.h"
#include "tests/support/mp.h"

enum { STEPS = 8, SAVED = 5 };
static gyre_comm_t *world;
static int rank;
static char folder[] = "/tmp/gyre-train-api-XXXXXX";

static const char *in(const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static gyre_status_t create(const char *more, gyre_train_t **train)
{
    char config[768];
    snprintf(config, sizeof config,
             " {\"data\": \"%s\", \"steps\": %d, \"layers\": 2, \"hidden\": 32, \"heads\": 4, \"seq\": 16,"
             " \"batch\": 8, \"warmup\": 2, \"eval_every\": 4, \"eval-sequences\": 5, \"zero\": %d%s}",
             in("text"), STEPS, gyre_comm_size(world) > 1, more);
    return gyre_train_create(world, config, train);
}

static uint64_t hash_file(const char *path)
{
    uint64_t hash = 14695981039346656037u;
    FILE *file = fopen(path, "rb");
    MP_CHECK(file, "%s", path);
    for (int c; (c = getc(file)) != EOF;)
        hash = (hash ^ (uint64_t)c) * 1099511628211u;
    fclose(file);
    return hash;
}

/* Steps up to the last, whose losses are or become loss[]. */
static void finish(gyre_train_t *train, uint64_t done, double loss[STEPS], int known)
{
    gyre_train_stats_t stats = {.size = sizeof stats};
    while (done < STEPS) {
        MP_CHECK(!stats.done, "after step %llu", (unsigned long long)done);
        MP_OK(gyre_train_step(train, &stats));
        MP_CHECK(stats.step == ++done, "%llu", (unsigned long long)stats.step);
        MP_CHECK(stats.tokens == 8 * 16 && stats.learning_rate > 0 && stats.grad_norm > 0, "step %llu",
                 (unsigned long long)done);
        MP_CHECK(isnan(stats.validation_loss) == (done % 4 != 0), "%g", stats.validation_loss);
        MP_CHECK(!known || loss[done - 1] == stats.loss, "step %llu: %.17g, not %.17g",
                 (unsigned long long)done, stats.loss, loss[done - 1]);
        loss[done - 1] = stats.loss;
    }
    MP_CHECK(stats.done, "the last step");
    MP_CHECK(gyre_train_step(train, &stats) == GYRE_ERR_INVALID, "a step too many");
}

static void export(gyre_train_t *train, const char *name, uint64_t *hash)
{
    MP_OK(gyre_train_export(train, in(name)));
    MP_OK(gyre_barrier(world));
    if (rank == 0)
        *hash = hash_file(in(name));
}

static void test_resume(void)
{
    double loss[STEPS], first, last;
    uint64_t whole = 0, again = 0, step = 99;
    gyre_train_t *train;
    MP_OK(create("", &train));
    MP_OK(gyre_train_resume(train, in("checkpoints"), &step)); /* there is none yet */
    MP_CHECK(step == 0, "%llu", (unsigned long long)step);
    MP_OK(gyre_train_evaluate(train, &first));
    for (uint64_t i = 0; i < SAVED; i++)
        MP_OK(gyre_train_step(train, NULL));
    MP_OK(gyre_train_save(train, in("checkpoints")));
    MP_CHECK(gyre_train_resume(train, in("checkpoints"), NULL) == GYRE_ERR_INVALID, "too late");
    MP_OK(gyre_train_destroy(train));

    MP_OK(create("", &train)); /* without a break */
    finish(train, 0, loss, 0);
    MP_CHECK(gyre_train_step(train, NULL) == GYRE_ERR_INVALID, "after the last step");
    MP_CHECK(strstr(gyre_last_error(), "the last step, 8, is done"), "%s", gyre_last_error());
    MP_OK(gyre_train_evaluate(train, &last));
    MP_CHECK(last < first && loss[STEPS - 1] < loss[0], "%g, then %g", first, last);
    export(train, "whole.safetensors", &whole);
    MP_CHECK(gyre_train_save(train, in("checkpoints")) == GYRE_ERR_INVALID, "checkpoints of another run");
    MP_CHECK(rank != 0 || strstr(gyre_last_error(), "/checkpoints holds the checkpoints of another run"),
             "%s", gyre_last_error());
    MP_OK(gyre_train_finish(train));
    MP_CHECK(gyre_train_evaluate(train, &last) == GYRE_ERR_INVALID, "after the end");
    MP_OK(gyre_train_destroy(train));

    MP_OK(create("", &train)); /* from the checkpoint */
    MP_OK(gyre_train_resume(train, in("checkpoints"), &step));
    MP_CHECK(step == SAVED, "%llu", (unsigned long long)step);
    finish(train, SAVED, loss, 1);
    export(train, "again.safetensors", &again);
    MP_CHECK(whole == again, "weights differ");
    MP_OK(gyre_train_save(train, in("checkpoints"))); /* of the same run */
    MP_OK(gyre_train_destroy(train));
}

/* The settings' own folder, and going on with what is there. */
static void test_own_folder(void)
{
    gyre_train_t *train;
    gyre_train_stats_t stats = {.size = sizeof stats};
    char more[192];
    snprintf(more, sizeof more, ", \"checkpoint\": \"%s\", \"checkpoint-every\": 0", in("own"));
    MP_OK(create(more, &train));
    MP_OK(gyre_train_step(train, NULL));
    MP_OK(gyre_train_save(train, NULL));
    MP_CHECK(gyre_train_save(train, in("own")) == GYRE_ERR_INVALID, "the same folder by name");
    MP_CHECK(gyre_train_save(train, in("own/.")) == GYRE_ERR_INVALID, "the same folder by another name");
    MP_CHECK(rank != 0 || strstr(gyre_last_error(), "/own/. is in use: process "), "%s", gyre_last_error());
    MP_OK(gyre_train_save(train, in("other")));
    MP_OK(gyre_train_destroy(train));
    MP_CHECK(create(more, &train) == GYRE_ERR_INVALID, "a folder of another run");
    strcat(more, ", \"resume\": true");
    MP_OK(create(more, &train));
    MP_OK(gyre_train_step(train, &stats));
    MP_CHECK(stats.step == 2, "%llu", (unsigned long long)stats.step);
    MP_OK(gyre_train_destroy(train));
}

/* Refusals that do no harm: the same training goes on after each of them. */
static void test_harmless(void)
{
    gyre_train_t *train;
    gyre_train_stats_t stats = {.size = 8};
    MP_OK(create("", &train));
    MP_CHECK(gyre_train_step(train, &stats) == GYRE_ERR_INVALID, "a wrong size");
    MP_CHECK(gyre_train_save(train, NULL) == GYRE_ERR_INVALID, "no folder");
    MP_CHECK(gyre_train_save(train, "/proc/none/here") == GYRE_ERR_IO, "a folder that cannot be made");
    MP_CHECK(gyre_train_export(train, "/proc/none/weights") == GYRE_ERR_IO, "a file that cannot be made");
    MP_CHECK(gyre_train_export(train, "/dev/shm/") == GYRE_ERR_INVALID, "a mount point cannot be replaced");
    MP_CHECK(gyre_train_export(train, "/proc/none/") == GYRE_ERR_IO, "a folder that cannot be made");
    MP_CHECK(gyre_train_evaluate(train, NULL) == GYRE_ERR_INVALID, "no loss");
    MP_CHECK(gyre_train_export(train, NULL) == GYRE_ERR_INVALID, "no path");
    MP_CHECK(strstr(gyre_last_error(), "path is NULL"), "%s", gyre_last_error());
    MP_CHECK(gyre_train_resume(train, NULL, NULL) == GYRE_ERR_INVALID, "no folder");
    MP_CHECK(strstr(gyre_last_error(), "folder is NULL"), "%s", gyre_last_error());
    MP_CHECK(gyre_train_step(NULL, NULL) == GYRE_ERR_INVALID, "no training");
    MP_CHECK(strstr(gyre_last_error(), "gyre_train_step: train is NULL"), "%s", gyre_last_error());
    struct {
        gyre_train_stats_t known;
        uint64_t newer;
    } later = {.known = {.size = sizeof later}, .newer = 5};
    MP_OK(gyre_train_step(train, &later.known));
    MP_CHECK(later.known.size == sizeof later && later.known.step == 1 && later.newer == 0, "%llu",
             (unsigned long long)later.newer);
    MP_OK(gyre_train_destroy(train));
}

static void test_refused(void)
{
    gyre_train_t *train = NULL;
    MP_CHECK(create(", \"lerning-rate\": 1", &train) == GYRE_ERR_INVALID, "no such key");
    MP_CHECK(rank != 0 || strstr(gyre_last_error(), "lerning-rate"), "%s", gyre_last_error());
    MP_CHECK(create(", \"lr\": -1", &train) == GYRE_ERR_INVALID, "out of range");
    MP_CHECK(create(", \"tp\": 3", &train) == GYRE_ERR_INVALID, "a layout that does not suit");
    MP_CHECK(create(", \"resume\": true", &train) == GYRE_ERR_INVALID, "a resume without a folder");
    MP_CHECK(create(",", &train) == GYRE_ERR_FORMAT, "no JSON");
    MP_CHECK(gyre_train_create(world, in("none.json"), &train) == GYRE_ERR_NOT_FOUND, "no file");
    MP_CHECK(gyre_train_create(world, NULL, &train) == GYRE_ERR_INVALID, "no settings");
    MP_CHECK(gyre_train_create(world, "{\"recipe\": \"/proc/none\"}", &train) == GYRE_ERR_INVALID,
             "no recipe");
    MP_CHECK(strstr(gyre_last_error(), rank == 0 ? "the recipe cannot be used" : "recipe"), "%s",
             gyre_last_error());
    const gyre_status_t on_device = create(", \"device\": \"cuda\"", &train);
    if (on_device == GYRE_OK) { /* this machine has one */
        MP_OK(gyre_train_destroy(train));
        train = NULL;
    } else
        MP_CHECK(on_device == GYRE_ERR_UNSUPPORTED && strstr(gyre_last_error(), "\"device\": \"cuda\": "),
                 "%s", gyre_last_error());
    if (gyre_comm_size(world) > 1) /* one rank alone has it wrong */
        MP_CHECK(create(rank == 1 ? ", \"lr\": -1" : "", &train) == GYRE_ERR_INVALID, "of one rank");
    MP_CHECK(!train, "nothing was made");
    MP_OK(gyre_train_destroy(NULL));
    MP_OK(gyre_barrier(world));
}

/* Without a communicator the training joins the job by itself. */
static void test_alone(void)
{
    gyre_train_t *train;
    gyre_train_stats_t stats = {.size = sizeof stats};
    char config[256];
    snprintf(config, sizeof config, "{\"data\": \"%s\", \"steps\": 1, \"hidden\": 32, \"seq\": 16}",
             in("text"));
    MP_OK(gyre_train_create(NULL, config, &train));
    MP_OK(gyre_train_step(train, &stats));
    MP_CHECK(stats.done, "one step");
    MP_OK(gyre_train_finish(train));
    MP_OK(gyre_train_destroy(train));
}

int main(void)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    if (rank == 0)
        MP_CHECK(mkdtemp(folder), "%s", folder);
    MP_OK(gyre_broadcast(folder, folder, sizeof folder, GYRE_UINT8, 0, world));
    if (rank == 0) {
        FILE *text = fopen(in("text"), "w");
        MP_CHECK(text, "%s", in("text"));
        for (int i = 0; i < 300; i++)
            fprintf(text, "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23);
        MP_CHECK(fclose(text) == 0, "%s", in("text"));
    }
    MP_OK(gyre_barrier(world));
    test_resume();
    base_log_set_level(BASE_LOG_NONE); /* the errors are wanted */
    test_refused();
    test_harmless();
    test_own_folder();
    gyre_train_t *outlives, *used;
    double loss;
    MP_OK(create("", &outlives));
    MP_OK(create("", &used));
    MP_OK(gyre_finalize(world));
    MP_CHECK(gyre_train_step(used, NULL) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    MP_CHECK(gyre_train_evaluate(used, &loss) == GYRE_ERR_INVALID, "it has failed before");
    MP_CHECK(strstr(gyre_last_error(), "gyre_train_evaluate: the training has failed before"), "%s",
             gyre_last_error());
    MP_OK(gyre_train_destroy(used)); /* its error was returned before */
    MP_CHECK(gyre_train_destroy(outlives) == GYRE_ERR_INVALID, "%s", gyre_last_error());
    test_alone();
    if (rank == 0) { /* the others have left, too */
        char command[96];
        snprintf(command, sizeof command, "rm -r %s", folder);
        MP_CHECK(system(command) == 0, "%s", command);
    }
    return 0;
}
