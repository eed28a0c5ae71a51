/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/training.c: steps of training, their checkpoints, and models that are exported and loaded. */
#include <stdio.h>

#include "tests/failing/scenario.h"

static char files[64];

int training_prepare(const char *at)
{
    char path[80];
    snprintf(files, sizeof files, "%s", at);
    snprintf(path, sizeof path, "%s/text", files);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < 200; i++)
        fprintf(file, "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23);
    return file && fclose(file) == 0;
}

/* One training step, a checkpoint, the model's files; then the checkpoint is resumed and the model loaded. */
gyre_status_t training_alone(job_t *job, double patience)
{
    static const char settings[] =
        "{\"data\": \"%s/text\", \"steps\": 4, \"seq\": 8, \"batch\": 2, \"eval-sequences\": 1%s}";
    char plain[512], loads[640], load[128], checkpoint[96], model[96];
    gyre_train_stats_t stats = {.size = sizeof stats};
    uint64_t began = 0, step = 0; /* it goes on after the checkpoint of a job before */
    (void)patience;
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", job->folder);
    snprintf(model, sizeof model, "%s/model/", job->folder);
    snprintf(load, sizeof load, ", \"load\": \"%s\"", model);
    snprintf(plain, sizeof plain, settings, files, ", \"layers\": 1, \"hidden\": 16, \"heads\": 2");
    snprintf(loads, sizeof loads, settings, files, load);
    STEP("train_create", gyre_train_create(NULL, plain, &job->train));
    STEP("train_resume at first", gyre_train_resume(job->train, checkpoint, &began));
    STEP("train_step", gyre_train_step(job->train, &stats));
    STEP("train_save", gyre_train_save(job->train, checkpoint));
    STEP("train_export", gyre_train_export(job->train, model));
    gyre_train_t *first = job->train;
    job->train = NULL;
    STEP("train_destroy", gyre_train_destroy(first));
    STEP("train_create to resume", gyre_train_create(NULL, plain, &job->train));
    STEP("train_resume", gyre_train_resume(job->train, checkpoint, &step));
    job->wrong |= step != began + 1;
    STEP("train_step after a resume", gyre_train_step(job->train, &stats));
    STEP("train_finish", gyre_train_finish(job->train));
    first = job->train;
    job->train = NULL;
    STEP("train_destroy", gyre_train_destroy(first));
    STEP("train_create with a model", gyre_train_create(NULL, loads, &job->train));
    STEP("train_step", gyre_train_step(job->train, &stats));
    return GYRE_OK;
}

/* Two steps with a checkpoint after each; then the second is resumed. */
static gyre_status_t sharded(job_t *job, double patience, int zero)
{
    char settings[512], checkpoint[96];
    gyre_train_stats_t stats = {.size = sizeof stats};
    uint64_t began = 0, step = 0;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.init_timeout_s = config.timeout_s = patience;
    snprintf(checkpoint, sizeof checkpoint, "%s/sharded", job->folder);
    snprintf(settings, sizeof settings,
             "{\"data\": \"%s/text\", \"steps\": 8, \"seq\": 8, \"batch\": 2, \"eval-sequences\": 1, "
             "\"layers\": 1, "
             "\"hidden\": 16, \"heads\": 2, \"zero\": %d}",
             files, zero);
    STEP("init", gyre_init(&config, &job->world));
    STEP("train_create", gyre_train_create(job->world, settings, &job->train));
    STEP("train_resume at first", gyre_train_resume(job->train, checkpoint, &began));
    for (int i = 0; i < 2; i++) {
        STEP("train_step", gyre_train_step(job->train, &stats));
        STEP("train_save", gyre_train_save(job->train, checkpoint));
    }
    gyre_train_t *first = job->train;
    job->train = NULL;
    STEP("train_destroy", gyre_train_destroy(first));
    STEP("train_create to resume", gyre_train_create(job->world, settings, &job->train));
    STEP("train_resume", gyre_train_resume(job->train, checkpoint, &step));
    job->wrong |= step != began + 2; /* an older one was taken without a word */
    STEP("train_step after a resume", gyre_train_step(job->train, &stats));
    STEP("train_finish", gyre_train_finish(job->train));
    return GYRE_OK;
}

gyre_status_t training_zero_1(job_t *job, double patience)
{
    return sharded(job, patience, 1);
}

gyre_status_t training_zero_2(job_t *job, double patience)
{
    return sharded(job, patience, 2);
}

gyre_status_t training_zero_3(job_t *job, double patience)
{
    return sharded(job, patience, 3);
}
