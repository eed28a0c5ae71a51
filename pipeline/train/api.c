/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/api.c: gyre/train.h, a thin layer over run.h, which gyre-train uses itself. */
#include <stdlib.h>
#include <string.h>

#include <gyre/train.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/log.h"
#include "collectives/api/sized.h"
#include "comm/boot/bootstrap.h"
#include "pipeline/agree/agree.h"
#include "pipeline/train/run.h"

struct gyre_train {
    train_config_t config;
    train_run_t run;
    int started, finished;
    int done;             /* no further step */
    gyre_status_t failed; /* GYRE_OK, or the status of every call from now on */
};

/* ---- settings -------------------------------------------------------------------------------- */

static gyre_status_t read_object(const char *config, json_t **object)
{
    json_error_t error;
    int lacks;
    if (config[strspn(config, " \t\r\n")] != '{')
        return base_json_read(config, object);
    *object = base_json_text(config, strlen(config), &error, &lacks);
    if (lacks)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_train_create: no memory to read config");
    return *object
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_FORMAT, "gyre_train_create: config, line %d: %s", error.line, error.text);
}

/* What only a person at gyre-train's terminal wants unasked. */
static void drop_defaults(train_config_t *config)
{
    if (!train_config_given(config, "sample-tokens"))
        config->sample_tokens = 0;
    if (!train_config_given(config, "report")) {
        free(config->report);
        config->report = NULL;
    }
}

static gyre_status_t read_settings(train_config_t *settings, const char *config)
{
    char why[TRAIN_WHY];
    json_t *object = NULL;
    if (!train_config_defaults(settings))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_train_create: no memory for the settings");
    gyre_status_t status = read_object(config, &object);
    if (status != GYRE_OK)
        return status;
    status = train_config_read(settings, object, why);
    if (status == GYRE_OK)
        status = train_config_complete(settings, why);
    json_decref(object);
    if (status != GYRE_OK && *why) /* else it is the recipe, which has said why */
        return gyre_fail(status, "gyre_train_create: config: %s", why);
    if (status == GYRE_ERR_NO_MEMORY)
        return status;
    if (status != GYRE_OK)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "gyre_train_create: the recipe cannot be used");
    drop_defaults(settings);
    if (settings->device)
        base_device_prepare_process();
    if (settings->device && base_device_count(BASE_CUDA) == 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "gyre_train_create: \"device\": \"cuda\": %s",
                         base_device_why_not(BASE_CUDA));
    return GYRE_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void release(gyre_train_t *train)
{
    train_free(&train->run);
    train_config_free(&train->config);
    free(train);
}

gyre_status_t gyre_train_create(gyre_comm_t *comm, const char *config, gyre_train_t **out)
{
    if (!config || !out)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_train_create: %s is NULL", config ? "out" : "config");
    gyre_train_t *train = calloc(1, sizeof *train);
    if (!train)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_train_create: no memory");
    train_run_t *run = &train->run;
    run->options = &train->config;
    int first = (comm ? gyre_comm_rank(comm) : comm_identity_rank_hint()) == 0;
    int muted =
        base_log_mute(!first); /* all ranks have the same settings: rank 0 logs what is wrong with them */
    gyre_status_t mine = read_settings(&train->config, config);
    base_log_mute(muted);
    gyre_status_t status = train_join(run, comm);
    if (status == GYRE_OK)
        status = pipe_agree(train->run.comm, mine, &train->run.agreed);
    if (status == GYRE_OK)
        status = train_set_up(run);
    if (status != GYRE_OK) {
        if (run->comm)
            train_leave(run, status);
        release(train);
        return status;
    }
    train->done = run->next >= run->options->steps;
    *out = train;
    return GYRE_OK;
}

gyre_status_t gyre_train_destroy(gyre_train_t *train)
{
    if (!train)
        return GYRE_OK;
    gyre_status_t status = train_leave(&train->run, train->failed);
    if (train->failed != GYRE_OK)
        status = GYRE_OK; /* that was returned before */
    release(train);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whether a call can begin. */
static gyre_status_t check(const gyre_train_t *train, const char *call)
{
    if (!train)
        return gyre_fail(GYRE_ERR_INVALID, "%s: train is NULL", call);
    if (train->failed != GYRE_OK)
        return gyre_fail_quiet(train->failed, "%s: the training has failed before", call);
    if (train->finished)
        return gyre_fail(GYRE_ERR_INVALID, "%s: gyre_train_finish was called before", call);
    return GYRE_OK;
}

/* The end of a call whose errors are those of all ranks. */
static gyre_status_t ended(gyre_train_t *train, gyre_status_t status)
{
    if (status != GYRE_OK) {
        train->failed = status;
        train_abort(&train->run); /* the other ranks do not wait for one that failed alone */
    }
    return status;
}

/* The end of a call that may fail without harm: the ranks agree on `mine`, and go on unless the
 * communicator failed. */
static gyre_status_t survived(gyre_train_t *train, gyre_status_t mine)
{
    gyre_status_t status = pipe_agree(train->run.comm, mine, &train->run.agreed);
    if (gyre_comm_error(train->run.comm) != GYRE_OK)
        return ended(train, status);
    train->run.agreed = 0; /* of errors to come nothing is known */
    return status;
}

static gyre_status_t start(gyre_train_t *train)
{
    if (train->started)
        return GYRE_OK;
    train->started = 1;
    return train_start(&train->run);
}

static gyre_train_stats_t stats_of(const gyre_train_t *train, const train_step_t *step)
{
    return (gyre_train_stats_t){.size = sizeof(gyre_train_stats_t),
                                .step = step->step,
                                .tokens = step->batch * train->run.shape.seq,
                                .loss = step->loss,
                                .validation_loss = step->val,
                                .grad_norm = step->grad_norm,
                                .learning_rate = step->lr,
                                .seconds = step->seconds,
                                .skipped = step->skipped ? 1
                                           : step->spike ? 2
                                                         : 0,
                                .done = train->done != 0};
}

gyre_status_t gyre_train_step(gyre_train_t *train, gyre_train_stats_t *stats)
{
    const size_t least = sizeof(gyre_train_stats_t);
    gyre_train_stats_t unused = {.size = sizeof unused};
    train_step_t step = {0};
    gyre_status_t status = check(train, "gyre_train_step");
    if (status == GYRE_OK && train->done)
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_train_step: the last step, %llu, is done",
                           (unsigned long long)train->run.next);
    if (status == GYRE_OK && stats)
        status = coll_sized_write(stats, least, &unused, sizeof unused, "gyre_train_step");
    if (status != GYRE_OK)
        return status;
    status = start(train);
    if (status == GYRE_OK)
        status = train_advance(&train->run, &step, &train->done);
    if (status != GYRE_OK)
        return ended(train, status);
    const gyre_train_stats_t own = stats_of(train, &step);
    return stats ? coll_sized_write(stats, least, &own, sizeof own, "gyre_train_step") : GYRE_OK;
}

gyre_status_t gyre_train_evaluate(gyre_train_t *train, double *loss)
{
    double each[MODEL_DATA_SETS];
    gyre_status_t status = check(train, "gyre_train_evaluate");
    if (status == GYRE_OK && !loss)
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_train_evaluate: loss is NULL");
    return status == GYRE_OK ? ended(train, train_evaluate(&train->run, each, loss)) : status;
}

gyre_status_t gyre_train_finish(gyre_train_t *train)
{
    gyre_status_t output[TRAIN_OUTPUTS], mine = GYRE_OK;
    gyre_status_t status = check(train, "gyre_train_finish");
    if (status != GYRE_OK)
        return status;
    train_run_t *run = &train->run;
    status = start(train);
    if (status == GYRE_OK)
        status = train_conclude(run);
    if (status != GYRE_OK)
        return ended(train, status);
    train->finished = 1;
    if (run->rank == 0)
        mine = train_write_outputs(run, output);
    else if (run->saver)
        mine = optim_saver_wait(run->saver, 0.0, NULL);
    return survived(train, mine);
}

gyre_status_t gyre_train_export(gyre_train_t *train, const char *path)
{
    gyre_status_t written = GYRE_OK, status = check(train, "gyre_train_export");
    if (status == GYRE_OK && !path)
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_train_export: path is NULL");
    if (status != GYRE_OK)
        return status;
    status = train_export(&train->run, path, &written);
    return status == GYRE_OK ? survived(train, written) : ended(train, status);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A checkpoint names its data by their hash, which set-up takes only with the setting "checkpoint". */
static gyre_status_t identify(void *user)
{
    train_run_t *run = user;
    return run->data->hash == 0 ? model_data_identify(run->data) : GYRE_OK;
}

/* INVALID: the newest checkpoint in run->folder that can be read is of another run, which would lose it. */
static gyre_status_t check_own(const train_run_t *run)
{
    optim_snapshot_t *snapshot = NULL;
    uint64_t step;
    const int muted = base_log_mute(1); /* what cannot be read is no reason to stop */
    gyre_status_t status = optim_snapshot_open_newest(run->folder, &step, &snapshot);
    base_log_mute(muted);
    status = status == GYRE_ERR_NO_MEMORY ? status : GYRE_OK;
    if (snapshot &&
        base_json_hex_value(json_object_get(optim_snapshot_run(snapshot), "id")) != run->record.id)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "gyre_train_save: %s holds the checkpoints of another run: name another folder, "
                           "or call gyre_train_resume before the first step to go on with that run",
                           run->folder);
    optim_snapshot_close(snapshot);
    return status;
}

static gyre_status_t prepare_folder(void *user)
{
    train_run_t *run = user;
    gyre_status_t status = identify(run);
    if (status != GYRE_OK || run->rank != 0)
        return status;
    status = optim_lock_take(run->folder, 0.0, &run->lock);
    if (status == GYRE_OK)
        status = optim_snapshot_prepare(run->folder);
    return status == GYRE_OK ? check_own(run) : status;
}

/* Begins a checkpoint with run->saver and waits for it. *mine: what became of it on this rank. */
static gyre_status_t save_now(train_run_t *run, gyre_status_t *mine)
{
    gyre_status_t status = train_await(run); /* of the checkpoint before */
    if (status == GYRE_OK)
        status = train_save(run, 0.0);
    if (status != GYRE_OK)
        return status;
    *mine = run->saved;
    if (*mine == GYRE_IN_PROGRESS)
        *mine = gyre_fail(GYRE_ERR_TIMEOUT,
                          "gyre_train_save: the checkpoint before is not written after %.0f s", SAVE_END_S);
    if (*mine == GYRE_OK) {
        status = train_await(run);
        if (status == GYRE_OK && run->saver)
            *mine = optim_saver_wait(run->saver, 0.0, NULL);
    }
    return status;
}

/* The same in another folder, with a saver for this once. What fails before there is a checkpoint is
 * *mine, too. */
static gyre_status_t save_elsewhere(train_run_t *run, const char *folder, gyre_status_t *mine)
{
    optim_saver_t *own = run->saver;
    optim_lock_t *lock = run->lock;
    const uint64_t saved_step = run->saved_step, begun = run->begun;
    const gyre_status_t saved = run->saved;
    gyre_status_t status = GYRE_OK;
    run->folder = folder;
    run->saver = NULL;
    run->lock = NULL;
    *mine = train_by_all(run, prepare_folder);
    if (*mine == GYRE_OK)
        *mine = train_by_all(run, train_open_saver);
    if (*mine == GYRE_OK)
        status = save_now(run, mine);
    run->stuck |= !optim_saver_destroy(run->saver, run->hung ? 0.0 : SAVE_END_S);
    if (!run->stuck)
        optim_lock_leave(run->lock);
    run->begun = begun;
    run->saver = own;
    run->lock = lock;
    run->folder = NULL;
    run->saved_step = saved_step;
    run->saved = saved;
    return status;
}

gyre_status_t gyre_train_save(gyre_train_t *train, const char *folder)
{
    gyre_status_t mine = GYRE_OK, status = check(train, "gyre_train_save");
    const char *own = status == GYRE_OK ? train->config.checkpoint : NULL;
    if (status == GYRE_OK && !folder && !own)
        status =
            gyre_fail(GYRE_ERR_INVALID, "gyre_train_save: there is no setting \"checkpoint\": name a folder");
    if (status == GYRE_OK && folder && own && strcmp(folder, own) == 0)
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_train_save: %s is the setting \"checkpoint\": pass NULL",
                           folder);
    if (status != GYRE_OK)
        return status;
    status = start(train);
    if (status == GYRE_OK)
        status = folder ? save_elsewhere(&train->run, folder, &mine) : save_now(&train->run, &mine);
    return status == GYRE_OK ? survived(train, mine) : ended(train, status);
}

gyre_status_t gyre_train_resume(gyre_train_t *train, const char *folder, uint64_t *step)
{
    gyre_status_t status = check(train, "gyre_train_resume");
    if (status == GYRE_OK && (!folder || train->started || train->run.next > 0))
        status = gyre_fail(GYRE_ERR_INVALID, "gyre_train_resume: %s",
                           folder ? "it must come before the first step" : "folder is NULL");
    if (status != GYRE_OK)
        return status;
    train_run_t *run = &train->run;
    run->folder = folder;
    status = train_by_all(run, identify);
    if (status == GYRE_OK)
        status = train_by_all(run, train_resume_run);
    run->folder = NULL;
    if (status == GYRE_OK) /* the ranks' files may differ */
        status = pipe_train_verify(run->train);
    if (status == GYRE_OK && step)
        *step = run->next;
    train->done = run->next >= run->options->steps;
    return ended(train, status);
}
