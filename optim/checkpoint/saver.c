/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/saver.c: one thread, one checkpoint under way.
 *
 * `busy` belongs to the mutex: the caller sets it when the job is filled in, the thread clears it when its
 * memory is free again. While it is set the job is the thread's, otherwise the caller's. */
#include "optim/checkpoint/saver.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "optim/checkpoint/kept.h"

/* The pause after the first look for the shards of others. Each is twice as long as the one before, up to the
 * longest: a shared file system is asked once a second, and a checkpoint is ready twice as late at most. */
#define LOOK_FIRST_S 0.02
#define LOOK_LAST_S  1.0
#define LAST_S       0.5 /* a last moment for what was given up */
#define TELL_TIMES   100 /* a rank that could not make the folder tries again, 20 ms apart, to say so in it */

struct optim_saver {
    const model_params_t *whole;
    char *folder, *id;
    checkpoint_kept_t kept; /* the thread's once it runs */
    size_t rank, ranks;
    unsigned char *writes; /* [ranks] */
    unsigned char *came;   /* [ranks] 1: its shard's entry was seen; the thread's */
    json_t **entry;        /* [ranks] of the shards that are there; the thread's */
    double patience;
    size_t elements; /* room in `copy` */
    void (*writing)(int begins);

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int running, busy, quit;
    unsigned char *lost; /* [ranks] 1: dead: its shard is waited for only `lost_patience` seconds */
    double lost_patience;
    int given_up; /* the shards of other ranks do not come any more */
    unsigned attempt;
    int alone; /* the others write nothing */
    /* the job, the thread's while busy */
    uint64_t step;
    base_time_t begun;
    optim_range_t *range; /* [room], of which count are in use; parts are set when it is handed over */
    size_t count, room;
    float *copy; /* [OPTIM_RANGE_PARTS * elements], of which used: ranges back to back, each part by part */
    size_t used; /* elements */
    gyre_status_t added; /* of the first range that could not be had or added */
    char why[512];       /* its text */
    json_t *run;
    int first_sync;
    /* the answer */
    gyre_status_t status;
    char told[512]; /* its text: gyre_last_error() is of the thread that failed */
};

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* The moment `seconds` from now, for pthread_cond_timedwait. */
static struct timespec moment(double seconds)
{
    struct timespec at;
    double whole = seconds > 0.0 ? seconds : 0.0;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)whole;
    at.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}

/* Until the next look, `seconds` at most. 0: the others are given up. */
static int pause_thread(optim_saver_t *saver, double seconds)
{
    const struct timespec until = moment(seconds);
    pthread_mutex_lock(&saver->mutex);
    while (!saver->given_up && pthread_cond_timedwait(&saver->changed, &saver->mutex, &until) != ETIMEDOUT)
        ;
    int goes_on = !saver->given_up;
    pthread_mutex_unlock(&saver->mutex);
    return goes_on;
}

static int is_missing(const optim_saver_t *saver, size_t r)
{
    return (saver->alone ? r == saver->rank : saver->writes[r]) && !saver->entry[r];
}

/* "the shard of rank 3 is", "the shards of ranks 3, 5, and 7 more are" */
static void print_missing(const optim_saver_t *saver, char *text, size_t bytes)
{
    char list[160] = "";
    size_t used = 0, named = 0, more = 0;
    for (size_t r = 0; r < saver->ranks; r++) {
        if (!is_missing(saver, r))
            continue;
        if (used + 60 < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, named++ > 0 ? ", %zu" : "%zu", r);
        else
            more++;
    }
    if (more > 0)
        snprintf(list + used, sizeof list - used, ", and %zu more", more);
    snprintf(text, bytes, named == 1 ? "the shard of rank %s is" : "the shards of ranks %s are", list);
}

/* 1: the ranks whose shards are missing are all dead. *last: until when a finished shard may show. */
static int only_lost(optim_saver_t *saver, base_time_t *last)
{
    int only = 1;
    pthread_mutex_lock(&saver->mutex);
    for (size_t r = 0; only && r < saver->ranks; r++)
        only = !is_missing(saver, r) || saver->lost[r];
    if (only)
        *last = base_deadline(saver->lost_patience);
    pthread_mutex_unlock(&saver->mutex);
    return only;
}

/* The entries of shards that have come since the last look. *missing: how many have not. */
static gyre_status_t look(optim_saver_t *saver, const char *made, size_t *missing)
{
    gyre_status_t status = model_shards_look(made, saver->came, saver->ranks);
    *missing = 0;
    for (size_t r = 0; status == GYRE_OK && r < saver->ranks; r++) {
        if (!is_missing(saver, r))
            continue;
        status = saver->came[r] ? model_shard_entry(made, r, &saver->entry[r]) : GYRE_IN_PROGRESS;
        if (status == GYRE_IN_PROGRESS) {
            (*missing)++;
            status = GYRE_OK;
        }
    }
    return status;
}

/* Waits for the shards of all ranks. Once only dead ranks lack, a moment: a shared file system may show late
 * what they had finished. */
static gyre_status_t collect(optim_saver_t *saver, const char *made)
{
    const base_time_t until = base_deadline(saver->patience);
    base_time_t last = until;
    double pause = LOOK_FIRST_S;
    memset(saver->came, 0, saver->ranks);
    for (int goes_on = 1, lost = 0;;) {
        size_t missing;
        gyre_status_t status = look(saver, made, &missing);
        if (status != GYRE_OK || missing == 0)
            return status;
        char text[200];
        print_missing(saver, text, sizeof text);
        lost = lost || only_lost(saver, &last);
        if (!goes_on || (lost && base_now() >= last))
            return gyre_fail(GYRE_ERR_IO, "the checkpoint of step %llu is given up: %s not there",
                             (unsigned long long)saver->step, text);
        if (base_now() >= until)
            return gyre_fail(GYRE_ERR_TIMEOUT,
                             "the checkpoint of step %llu: %s not in %s after %.0f s: is that folder on a "
                             "disk which all hosts share, and does it answer there?",
                             (unsigned long long)saver->step, text, made, saver->patience);
        goes_on = pause_thread(saver, pause);
        pause = 2.0 * pause < LOOK_LAST_S ? 2.0 * pause : LOOK_LAST_S;
    }
}

static gyre_status_t finish(optim_saver_t *saver, const char *made)
{
    gyre_status_t status = collect(saver, made);
    json_t *files = json_array();
    int bad = !files;
    for (size_t r = 0; r < saver->ranks; r++) {
        if (saver->entry[r]) {
            model_shard_forget(made, r);
            bad |= json_array_append(files, saver->entry[r]);
        }
        json_decref(saver->entry[r]);
        saver->entry[r] = NULL;
    }
    if (status == GYRE_OK && bad)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the index of %s", made);
    if (status == GYRE_OK && saver->first_sync >= 0 && base_sync_failed(fdatasync(saver->first_sync)))
        log_warning("the log could not be synced before the checkpoint of step %llu: %s",
                    (unsigned long long)saver->step, strerror(errno));
    if (status == GYRE_OK)
        status = optim_snapshot_publish(saver->folder, saver->step, made, saver->whole, files, saver->run,
                                        checkpoint_kept_bad(&saver->kept, saver->step));
    json_decref(files);
    return status;
}

/* This rank could not make the folder; others have made it, or do so yet. There rank 0 learns of the error:
 * else it would wait for the shard until its patience ends. */
static void tell_of_folder(const optim_saver_t *saver, const char *made)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (int i = 0; i < TELL_TIMES && mkdir(made, 0777) != 0 && errno != EEXIST; i++)
        nanosleep(&pause, NULL);
    model_shard_fail(made, saver->rank);
}

static gyre_status_t write_out(optim_saver_t *saver)
{
    char made[PATH_MAX];
    gyre_status_t status = optim_snapshot_begin(saver->folder, saver->step, saver->id, saver->attempt, made);
    if (status == GYRE_ERR_IO && saver->rank > 0)
        tell_of_folder(saver, made);
    if (status != GYRE_OK)
        return status;
    if (saver->rank == 0) /* what a rank wrote that was late for an attempt which had failed by then */
        optim_snapshot_sweep(saver->folder, saver->id, made);
    if (saver->added != GYRE_OK) {
        (void)gyre_fail_quiet(saver->added, "%s", saver->why); /* that of this thread is what others read */
        model_shard_fail(made, saver->rank);
        status = saver->added;
    } else if (saver->count > 0)
        status = model_shard_write(made, saver->rank, saver->whole, saver->range, saver->count);
    if (saver->rank == 0) {
        if (status == GYRE_OK)
            status = finish(saver, made);
        if (status != GYRE_OK)
            optim_snapshot_abandon(made); /* on a full disk its room is needed */
    }
    return status;
}

/* Rank 0: what became of it. */
static void conclude(optim_saver_t *saver, gyre_status_t status, double seconds)
{
    if (status == GYRE_OK) {
        log_info("checkpoint of step %llu: written and synced in %.3f s", (unsigned long long)saver->step,
                 seconds);
        checkpoint_kept_add(&saver->kept, saver->step, saver->run);
    } else if (saver->kept.newest != UINT64_MAX) {
        log_warning("there is no new checkpoint of step %llu; the newest is still that of step %llu in %s",
                    (unsigned long long)saver->step, (unsigned long long)saver->kept.newest, saver->folder);
    } else {
        log_warning("there is no checkpoint of step %llu, nor an older one in %s",
                    (unsigned long long)saver->step, saver->folder);
    }
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
        if (saver->rank == 0)
            conclude(saver, status, (double)(base_now() - start) * 1e-9);
        json_decref(saver->run);
        saver->run = NULL;
        saver->count = saver->used = 0;
        saver->added = GYRE_OK;
        pthread_mutex_lock(&saver->mutex);
        saver->status = status;
        snprintf(saver->told, sizeof saver->told, "%s", status == GYRE_OK ? "" : gyre_last_error());
        saver->busy = 0;
        if (saver->writing)
            saver->writing(0);
        pthread_cond_broadcast(&saver->changed);
    }
    saver->running = 0;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

/* ---- the caller ---------------------------------------------------------------------------------------- */

/* Waits until *flag is 0; holds the mutex. 0: the time is up. */
static int wait_until_clear(optim_saver_t *saver, const int *flag, double patience)
{
    const struct timespec until = moment(patience);
    while (*flag)
        if (pthread_cond_timedwait(&saver->changed, &saver->mutex, &until) == ETIMEDOUT)
            return !*flag;
    return 1;
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
    free(saver->copy);
    free(saver->range);
    checkpoint_kept_free(&saver->kept);
    free(saver->writes);
    free(saver->came);
    free(saver->lost);
    free(saver->entry);
    free(saver->folder);
    free(saver->id);
    free(saver);
}

/* Memory for what it keeps. */
static int fill_in(optim_saver_t *saver, const optim_saver_config_t *config, size_t elements)
{
    size_t bytes = OPTIM_RANGE_PARTS * elements * sizeof(float);
    saver->rank = config->rank;
    saver->ranks = config->ranks;
    saver->patience = config->patience;
    saver->writing = config->writing;
    saver->elements = elements;
    if (!(saver->folder = strdup(config->folder)) || !(saver->id = strdup(config->id)) ||
        !checkpoint_kept_begin(&saver->kept, saver->folder, config->keep) ||
        !(saver->writes = calloc(config->ranks, 1)) || !(saver->came = calloc(config->ranks, 1)) ||
        !(saver->lost = calloc(config->ranks, 1)) ||
        !(saver->entry = calloc(config->ranks, sizeof(json_t *))) || !(saver->copy = malloc(bytes + 1)))
        return 0;
    if (config->rank == 0)
        memcpy(saver->writes, config->writes, config->ranks);
    memset(saver->copy, 0x55, bytes); /* the pages come now, not in a step */
    return 1;
}

gyre_status_t optim_saver_create(const model_params_t *whole, const optim_saver_config_t *config,
                                 size_t elements, optim_saver_t **out)
{
    optim_saver_t *saver = calloc(1, sizeof *saver);
    if (!saver || !fill_in(saver, config, elements)) {
        if (saver)
            release(saver);
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no memory for this rank's part of a checkpoint, %zu elements of 12 bytes",
                         elements);
    }
    saver->whole = whole;
    gyre_status_t status =
        config->rank == 0 ? checkpoint_kept_take_stock(&saver->kept, config->resumed) : GYRE_OK;
    if (status == GYRE_OK)
        status = start_thread(saver);
    if (status != GYRE_OK) {
        release(saver);
        return status;
    }
    *out = saver;
    return GYRE_OK;
}

size_t optim_saver_bytes(const optim_saver_t *saver)
{
    return saver ? OPTIM_RANGE_PARTS * saver->elements * sizeof *saver->copy : 0;
}

int optim_saver_ready(optim_saver_t *saver, double patience)
{
    pthread_mutex_lock(&saver->mutex);
    int ready = wait_until_clear(saver, &saver->busy, patience);
    pthread_mutex_unlock(&saver->mutex);
    return ready;
}

void optim_saver_skip(optim_saver_t *saver, uint64_t step)
{
    if (saver->rank == 0)
        log_warning("no checkpoint of step %llu: the one before is still being written to %s",
                    (unsigned long long)step, saver->folder);
}

/* Room for one more range and its elements; what was copied moves along. */
static int make_room(optim_saver_t *saver, size_t count)
{
    if (!base_grow(&saver->range, &saver->room, saver->count, 1, sizeof *saver->range))
        return 0;
    if (count > saver->elements - saver->used) {
        size_t elements = base_max_size(saver->used + count, saver->elements + saver->elements / 2);
        float *grown = realloc(saver->copy, OPTIM_RANGE_PARTS * elements * sizeof *grown);
        if (!grown)
            return 0;
        saver->copy = grown;
        saver->elements = elements;
    }
    return 1;
}

void optim_saver_fail(optim_saver_t *saver, gyre_status_t why)
{
    if (saver->added != GYRE_OK)
        return;
    saver->added = why;
    snprintf(saver->why, sizeof saver->why, "%s", gyre_last_error());
}

gyre_status_t optim_saver_add(optim_saver_t *saver, const optim_range_t *range)
{
    if (!make_room(saver, range->count)) {
        optim_saver_fail(saver, gyre_fail(GYRE_ERR_NO_MEMORY,
                                          "no memory for %zu more elements of a checkpoint", range->count));
        return GYRE_ERR_NO_MEMORY;
    }
    float *to = saver->copy + OPTIM_RANGE_PARTS * saver->used;
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        if (range->part[p])
            memcpy(to + p * range->count, range->part[p], range->count * sizeof *to);
        else
            memset(to + p * range->count, 0, range->count * sizeof *to);
    saver->range[saver->count++] =
        (optim_range_t){.row = range->row, .first = range->first, .count = range->count};
    saver->used += range->count;
    return GYRE_OK;
}

/* Where the copies are, now that they do not move any more. */
static void set_parts(optim_saver_t *saver)
{
    float *at = saver->copy;
    for (size_t i = 0; i < saver->count; i++)
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++, at += saver->range[i].count)
            saver->range[i].part[p] = at;
}

gyre_status_t optim_saver_save(optim_saver_t *saver, uint64_t step, json_t *run, int first_sync)
{
    gyre_status_t status = GYRE_IN_PROGRESS;
    pthread_mutex_lock(&saver->mutex);
    if (!saver->busy) {
        if (saver->rank == 0 && !run)
            optim_saver_fail(saver, gyre_fail(GYRE_ERR_NO_MEMORY,
                                              "no memory for the index of the checkpoint of step %llu",
                                              (unsigned long long)step));
        status = saver->added;
        saver->attempt++; /* the same on all ranks, whatever fails on one: the others must hear of it */
        set_parts(saver);
        saver->step = step;
        saver->begun = base_now();
        saver->run = run;
        saver->first_sync = first_sync;
        saver->busy = 1;
        if (saver->writing)
            saver->writing(1);
        pthread_cond_broadcast(&saver->changed);
        run = NULL;
    }
    pthread_mutex_unlock(&saver->mutex);
    json_decref(run);
    return status;
}

int optim_saver_alone(optim_saver_t *saver, double patience)
{
    pthread_mutex_lock(&saver->mutex);
    (void)wait_until_clear(saver, &saver->busy, patience);
    saver->given_up = 1;
    pthread_cond_broadcast(&saver->changed);
    int ready = wait_until_clear(saver, &saver->busy, patience);
    if (ready)
        saver->alone = 1;
    pthread_mutex_unlock(&saver->mutex);
    return ready;
}

void optim_saver_lost(optim_saver_t *saver, size_t rank, double patience)
{
    pthread_mutex_lock(&saver->mutex);
    saver->lost_patience = patience;
    saver->lost[rank] = 1;
    pthread_mutex_unlock(&saver->mutex);
}

gyre_status_t optim_saver_wait(optim_saver_t *saver, double patience, uint64_t *newest)
{
    gyre_status_t status;
    pthread_mutex_lock(&saver->mutex);
    if (wait_until_clear(saver, &saver->busy, patience)) {
        status = saver->status;
        if (status != GYRE_OK)
            gyre_fail_quiet(status, "%s", saver->told);
        if (newest)
            *newest = saver->kept.newest;
    } else {
        status = gyre_fail(
            GYRE_ERR_TIMEOUT,
            "the checkpoint of step %llu is not finished in %s after %.0f s: the file system is "
            "slow, or does not answer",
            (unsigned long long)saver->step, saver->folder, (double)(base_now() - saver->begun) * 1e-9);
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
    (void)wait_until_clear(saver, &saver->running, patience);
    saver->given_up = 1;
    pthread_cond_broadcast(&saver->changed);
    int ended = wait_until_clear(saver, &saver->running, LAST_S);
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
