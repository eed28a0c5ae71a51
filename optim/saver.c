/* optim/saver.c: one thread, one checkpoint under way.
 *
 * `busy` belongs to the mutex: the caller sets it when buffers are filled, the thread clears it when they are free
 * again. While it is set the buffers are the thread's, otherwise the caller's. */
#include "optim/saver.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

struct optim_saver {
    const model_params_t *params;
    char *folder;
    size_t keep, goods;
    uint64_t *good; /* [keep + 1] steps known to be good, oldest first; the thread's once it runs */
    float *copy[OPTIM_SAVER_PARTS];

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int running, busy, quit;
    /* the job, while busy */
    uint64_t step;
    json_t *run;
    int first_sync;
    /* the answer */
    gyre_status_t status;
    uint64_t newest;
};

void optim_saver_parts(float *weights, float *exp_avg, float *exp_avg_sq,
                       model_snapshot_part_t part[OPTIM_SAVER_PARTS])
{
    part[0] = (model_snapshot_part_t){"model.safetensors", weights};
    part[1] = (model_snapshot_part_t){"adamw_exp_avg.safetensors", exp_avg};
    part[2] = (model_snapshot_part_t){"adamw_exp_avg_sq.safetensors", exp_avg_sq};
}

/* ---- the thread ----------------------------------------------------------------------------------------- */

static int is_good(const optim_saver_t *saver, uint64_t step)
{
    for (size_t i = 0; i < saver->goods; i++)
        if (saver->good[i] == step)
            return 1;
    return 0;
}

/* Behind a new good checkpoint: the oldest goes, and so does whatever is older than the new one and no good. Nothing
 * depends on them any more, so what cannot be removed is told and left. */
static void forget_old(optim_saver_t *saver)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (saver->goods > saver->keep) {
        memmove(saver->good, saver->good + 1, saver->keep * sizeof *saver->good);
        saver->goods = saver->keep;
    }
    if (model_snapshot_list(saver->folder, &steps, &count) != GYRE_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (steps[i] < saver->newest && !is_good(saver, steps[i]))
            (void)model_snapshot_remove(saver->folder, steps[i]);
    free(steps);
}

static gyre_status_t write_out(optim_saver_t *saver)
{
    model_snapshot_part_t part[OPTIM_SAVER_PARTS];
    optim_saver_parts(saver->copy[0], saver->copy[1], saver->copy[2], part);
    if (saver->first_sync >= 0 && fdatasync(saver->first_sync) != 0 && errno != EINVAL && errno != EROFS)
        log_warning("the log could not be synced before the checkpoint of step %llu: %s",
                    (unsigned long long)saver->step, strerror(errno));
    return model_snapshot_write(saver->folder, saver->step, saver->params, part, OPTIM_SAVER_PARTS,
                                saver->run);
}

static void *saver_main(void *argument)
{
    optim_saver_t *saver = argument;
    pthread_mutex_lock(&saver->mutex);
    for (;;) {
        while (!saver->busy && !saver->quit)
            pthread_cond_wait(&saver->changed, &saver->mutex);
        if (!saver->busy)
            break;
        pthread_mutex_unlock(&saver->mutex);
        base_time_t start = base_now();
        gyre_status_t status = write_out(saver);
        double seconds = (double)(base_now() - start) * 1e-9;
        if (status == GYRE_OK) {
            /* a step that was written before (its checkpoint was found damaged) has its place already */
            if (!is_good(saver, saver->step))
                saver->good[saver->goods++] = saver->step;
            saver->newest = saver->step;
            log_info("checkpoint of step %llu: written and synced in %.3f s, %.0f MB/s",
                     (unsigned long long)saver->step, seconds,
                     (double)(OPTIM_SAVER_PARTS * saver->params->total * sizeof(float)) / seconds * 1e-6);
            forget_old(saver);
        } else if (saver->newest != UINT64_MAX) {
            log_warning("there is no checkpoint of step %llu, training goes on; the newest is still that of "
                        "step %llu in %s",
                        (unsigned long long)saver->step, (unsigned long long)saver->newest, saver->folder);
        } else {
            log_warning("there is no checkpoint of step %llu, training goes on without any in %s",
                        (unsigned long long)saver->step, saver->folder);
        }
        json_decref(saver->run);
        saver->run = NULL;
        pthread_mutex_lock(&saver->mutex);
        saver->status = status;
        saver->busy = 0;
        pthread_cond_broadcast(&saver->changed);
    }
    saver->running = 0;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

/* ---- the caller ----------------------------------------------------------------------------------------- */

/* Waits until *flag is 0; holds the mutex. 0: the time is up. */
static int wait_until_clear(optim_saver_t *saver, const int *flag, double patience)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = patience > 0.0 ? patience : 0.0;
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    while (*flag)
        if (pthread_cond_timedwait(&saver->changed, &saver->mutex, &until) == ETIMEDOUT)
            return !*flag;
    return 1;
}

/* What the folder holds already and is whole by a quick look: it counts towards `keep`. */
static gyre_status_t take_stock(optim_saver_t *saver, uint64_t resumed)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    gyre_status_t status = model_snapshot_list(saver->folder, &steps, &count);
    int level = base_log_limit;
    base_log_set_level(BASE_LOG_NONE); /* whoever resumed has told what is no good */
    for (size_t i = count; status == GYRE_OK && i-- > 0;) {
        if (steps[i] > resumed || model_snapshot_check(saver->folder, steps[i], NULL) != GYRE_OK)
            continue;
        if (saver->goods == saver->keep) {
            memmove(saver->good, saver->good + 1, (saver->keep - 1) * sizeof *saver->good);
            saver->goods--;
        }
        saver->good[saver->goods++] = saver->newest = steps[i];
    }
    base_log_set_level((base_log_level_t)level);
    free(steps);
    return status;
}

static gyre_status_t start_thread(optim_saver_t *saver)
{
    pthread_condattr_t attribute;
    sigset_t all, before;
    pthread_condattr_init(&attribute);
    pthread_condattr_setclock(&attribute, CLOCK_MONOTONIC);
    pthread_mutex_init(&saver->mutex, NULL);
    pthread_cond_init(&saver->changed, &attribute);
    pthread_condattr_destroy(&attribute);
    sigfillset(&all); /* signals are for the thread that trains */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&saver->thread, NULL, saver_main, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, why, "cannot start the thread that writes checkpoints");
    saver->running = 1;
    return GYRE_OK;
}

static void release(optim_saver_t *saver)
{
    for (size_t p = 0; p < OPTIM_SAVER_PARTS; p++)
        free(saver->copy[p]);
    free(saver->good);
    free(saver->folder);
    free(saver);
}

gyre_status_t optim_saver_create(const model_params_t *params, const optim_saver_config_t *config,
                                 optim_saver_t **out)
{
    optim_saver_t *saver = calloc(1, sizeof *saver);
    int bad = !saver || !(saver->folder = strdup(config->folder)) ||
              !(saver->good = calloc(config->keep + 1, sizeof *saver->good));
    for (size_t p = 0; !bad && p < OPTIM_SAVER_PARTS; p++)
        if (!(bad = !(saver->copy[p] = calloc(params->total, sizeof(float)))))
            memset(saver->copy[p], 0x55,
                   params->total * sizeof(float)); /* the pages come now, not in a step */
    if (bad) {
        if (saver)
            release(saver);
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no memory for the checkpoint of %zu parameters, which is %zu bytes", params->total,
                         OPTIM_SAVER_PARTS * params->total * sizeof(float));
    }
    saver->params = params;
    saver->keep = config->keep;
    saver->newest = UINT64_MAX;
    gyre_status_t status = take_stock(saver, config->resumed);
    if (status == GYRE_OK)
        status = start_thread(saver);
    if (status != GYRE_OK) {
        release(saver);
        return status;
    }
    *out = saver;
    return GYRE_OK;
}

gyre_status_t optim_saver_save(optim_saver_t *saver, uint64_t step, const float *flat, optim_adamw_t *adamw,
                               json_t *run, int first_sync, double patience)
{
    if (!run)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the index of the checkpoint of step %llu",
                         (unsigned long long)step);
    const float *const from[OPTIM_SAVER_PARTS] = {flat, optim_adamw_exp_avg(adamw),
                                                  optim_adamw_exp_avg_sq(adamw)};
    base_time_t start = base_now();
    pthread_mutex_lock(&saver->mutex);
    int ready = wait_until_clear(saver, &saver->busy, patience);
    if (ready) {
        for (size_t p = 0; p < OPTIM_SAVER_PARTS; p++)
            memcpy(saver->copy[p], from[p], saver->params->total * sizeof(float));
        saver->step = step;
        saver->run = run;
        saver->first_sync = first_sync;
        saver->busy = 1;
        pthread_cond_broadcast(&saver->changed);
    } else {
        log_warning("no checkpoint of step %llu: that of step %llu is still being written to %s after %.0f s "
                    "more",
                    (unsigned long long)step, (unsigned long long)saver->step, saver->folder, patience);
    }
    pthread_mutex_unlock(&saver->mutex);
    log_info("checkpoint of step %llu: training was held up for %.4f s", (unsigned long long)step,
             (double)(base_now() - start) * 1e-9);
    if (!ready)
        json_decref(run);
    return ready ? GYRE_OK : GYRE_IN_PROGRESS;
}

gyre_status_t optim_saver_wait(optim_saver_t *saver, double patience, uint64_t *newest)
{
    pthread_mutex_lock(&saver->mutex);
    gyre_status_t status = saver->status;
    if (wait_until_clear(saver, &saver->busy, patience)) {
        status = saver->status;
        if (newest)
            *newest = saver->newest;
    } else {
        status = gyre_fail(GYRE_ERR_TIMEOUT,
                           "the checkpoint of step %llu is still being written to %s after %.0f s: the file "
                           "system does not answer",
                           (unsigned long long)saver->step, saver->folder, patience);
    }
    pthread_mutex_unlock(&saver->mutex);
    return status;
}

int optim_saver_destroy(optim_saver_t *saver, double patience)
{
    if (!saver)
        return 1;
    pthread_mutex_lock(&saver->mutex);
    saver->quit = 1;
    pthread_cond_broadcast(&saver->changed);
    int ended = wait_until_clear(saver, &saver->running, patience);
    pthread_mutex_unlock(&saver->mutex);
    if (!ended) {
        pthread_detach(saver->thread);
        return 0;
    }
    pthread_join(saver->thread, NULL);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    release(saver);
    return 1;
}
