/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_saver.c: the thread that writes checkpoints: what stays, what goes, what is left out,
 * what fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "optim/checkpoint/saver.h"

static const model_config_t config = {.vocab = 13, .seq = 8, .layers = 1, .hidden = 12, .heads = 3};
static char folder[] = "/tmp/gyre-saver-XXXXXX";
static model_params_t *params;
static float *state[OPTIM_RANGE_PARTS];
static char id[OPTIM_SNAPSHOT_ID];
#define PATIENT 60.0

/* ---- what the saver asks of the file system: these functions are the test's, for the whole program ---- */

static atomic_int asked; /* calls about names in `folder` */

static void *system_call(const char *name, const char *path)
{
    if (strncmp(path, folder, sizeof folder - 1) == 0)
        atomic_fetch_add(&asked, 1);
    return dlsym(RTLD_NEXT, name);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    int (*next)(const char *, struct stat *);
    void *const found = system_call("stat", path);
    memcpy(&next, &found, sizeof next);
    return next(path, info);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    FILE *(*next)(const char *, const char *);
    void *const found = system_call("fopen", path);
    memcpy(&next, &found, sizeof next);
    return next(path, mode);
}

DIR *opendir(const char *path)
{
    DIR *(*next)(const char *);
    void *const found = system_call("opendir", path);
    memcpy(&next, &found, sizeof next);
    return next(path);
}

static atomic_int no_room; /* so many folders cannot be made */

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t);
    void *const found = system_call("mkdir", path);
    memcpy(&next, &found, sizeof next);
    if (atomic_load(&no_room) > 0 && atomic_fetch_sub(&no_room, 1) > 0) {
        errno = ENOSPC;
        return -1;
    }
    return next(path, mode);
}

static atomic_int under_way; /* as the savers said */

static void count_writing(int begins)
{
    atomic_fetch_add(&under_way, begins ? 1 : -1);
}

static int begin(void **unused)
{
    (void)unused;
    base_log_set_level(BASE_LOG_NONE);
    optim_snapshot_id(id, sizeof id);
    if (!mkdtemp(folder) || model_params_create(&config, &params) != GYRE_OK)
        return -1;
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        if (!(state[p] = calloc(params->total, sizeof(float))))
            return -1;
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    model_params_destroy(params);
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        free(state[p]);
    return rmdir(folder);
}

/* The arrays as they are after `step`. */
static void fill(uint64_t step)
{
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        for (size_t i = 0; i < params->total; i++)
            state[p][i] = (float)((p + 1) * step + i);
}

/* Rank `rank` of `ranks` adds its piece of each row. */
static void add(optim_saver_t *saver, size_t rank, size_t ranks)
{
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        size_t first = row->count * rank / ranks, at = row->offset + first;
        const optim_range_t range = {.row = r,
                                     .first = first,
                                     .count = row->count * (rank + 1) / ranks - first,
                                     .part = {state[0] + at, state[1] + at, state[2] + at}};
        if (range.count > 0 && row->alias == MODEL_NONE) /* a tied head has no place of its own */
            assert_int_equal(optim_saver_add(saver, &range), GYRE_OK);
    }
}

static gyre_status_t save_piece(optim_saver_t *saver, uint64_t step, size_t rank, size_t ranks,
                                double patience)
{
    if (!optim_saver_ready(saver, patience)) {
        optim_saver_skip(saver, step);
        return GYRE_IN_PROGRESS;
    }
    fill(step);
    add(saver, rank, ranks);
    gyre_status_t status = optim_saver_save(saver, step, rank == 0 ? json_object() : NULL, -1);
    fill(999); /* training goes on: what is written was copied */
    return status;
}

static gyre_status_t save(optim_saver_t *saver, uint64_t step, double patience)
{
    return save_piece(saver, step, 0, 1, patience);
}

/* The same of the run `name`. */
static gyre_status_t save_of(const char *name, optim_saver_t *saver, uint64_t step)
{
    fill(step);
    add(saver, 0, 1);
    assert_int_equal(optim_saver_save(saver, step, json_pack("{s:s}", "id", name), -1), GYRE_OK);
    return optim_saver_wait(saver, PATIENT, NULL);
}

/* The folder holds exactly these steps, newest first, each with its own arrays. */
static void holds(const uint64_t *expected, size_t count)
{
    uint64_t *steps = NULL;
    size_t found = 0;
    assert_int_equal(optim_snapshot_list(folder, &steps, &found), GYRE_OK);
    assert_int_equal(found, count);
    for (size_t s = 0; s < count; s++) {
        assert_int_equal(steps[s], expected[s]);
        optim_snapshot_t *snapshot = NULL;
        float *read[OPTIM_RANGE_PARTS];
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
            assert_non_null(read[p] = calloc(params->total, sizeof(float)));
        assert_int_equal(optim_snapshot_open(folder, steps[s], &snapshot), GYRE_OK);
        assert_int_equal(optim_snapshot_verify(snapshot, 0, 1), GYRE_OK);
        for (size_t r = 0; r < params->rows; r++) {
            size_t at = params->row[r].offset;
            const optim_range_t range = {
                .row = r, .count = params->row[r].count, .part = {read[0] + at, read[1] + at, read[2] + at}};
            assert_int_equal(optim_snapshot_read(snapshot, params, &range, 1), GYRE_OK);
        }
        optim_snapshot_close(snapshot);
        fill(steps[s]);
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++) {
            assert_memory_equal(read[p], state[p], params->total * sizeof(float));
            free(read[p]);
        }
    }
    free(steps);
}
#define HOLDS(...) \
    holds((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

/* The saver of one rank; those of `writes` have something to write. */
static optim_saver_t *make_rank(size_t keep, uint64_t resumed, size_t rank, size_t ranks, double patience)
{
    const unsigned char writes[] = {1, 1, 1, 1};
    const optim_saver_config_t how_to = {.folder = folder,
                                         .id = id,
                                         .keep = keep,
                                         .resumed = resumed,
                                         .rank = rank,
                                         .ranks = ranks,
                                         .writes = writes,
                                         .patience = patience,
                                         .writing = count_writing};
    optim_saver_t *saver = NULL;
    assert_true(ranks <= sizeof writes);
    /* too few for all: more is taken as it is needed */
    assert_int_equal(optim_saver_create(params, &how_to, params->total / ranks / 2, &saver), GYRE_OK);
    return saver;
}

static optim_saver_t *make(size_t keep, uint64_t resumed)
{
    return make_rank(keep, resumed, 0, 1, PATIENT);
}

static void make_bad(uint64_t step)
{
    char path[PATH_MAX];
    assert_true(optim_snapshot_path(folder, step, path, sizeof path));
    assert_int_equal(mkdir(path, 0777), 0);
}

static void keeps(void **unused)
{
    (void)unused;
    uint64_t newest = 0;
    optim_saver_t *saver = make(2, 0);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_true(newest == UINT64_MAX);
    for (uint64_t step = 10; step <= 50; step += 10)
        assert_int_equal(save(saver, step, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 50);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1);
    HOLDS(50, 40);

    /* gone on with at 40: 50 is known to be no good and is written anew; a bad one that is older goes,
     * newer ones wait */
    make_bad(20);
    make_bad(45);
    make_bad(70);
    saver = make(2, 40);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 40);
    assert_int_equal(save(saver, 50, PATIENT), GYRE_OK);
    assert_int_equal(save(saver, 60, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1); /* which waits for what is under way */
    assert_int_equal(optim_snapshot_check(folder, 70), GYRE_ERR_NOT_FOUND);
    assert_int_equal(optim_snapshot_remove(folder, 70), GYRE_OK);
    HOLDS(60, 50);
    assert_int_equal(optim_snapshot_remove(folder, 50), GYRE_OK);
    assert_int_equal(optim_snapshot_remove(folder, 60), GYRE_OK);
}

/* Two runs in one folder: neither takes the other's checkpoints away, also when one of them goes on. */
static void two_runs(void **unused)
{
    (void)unused;
    optim_saver_t *one = make(1, 0), *two = make(1, 0);
    assert_int_equal(save_of("one", one, 10), GYRE_OK);
    assert_int_equal(save_of("two", two, 10), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "is of another run"));
    assert_int_equal(save_of("two", two, 15), GYRE_OK);
    assert_int_equal(save_of("one", one, 10), GYRE_OK); /* its own */
    assert_int_equal(save_of("one", one, 20), GYRE_OK);
    HOLDS(20, 15);
    assert_int_equal(optim_saver_destroy(one, PATIENT), 1);
    assert_int_equal(optim_saver_destroy(two, PATIENT), 1);

    one = make(1, 20);
    assert_int_equal(save_of("one", one, 30), GYRE_OK);
    HOLDS(30, 15);
    assert_int_equal(optim_saver_destroy(one, PATIENT), 1);

    /* what is newer than where a run goes on is replaced and removed, of whatever run: it is known to be no
     * good */
    one = make(1, 10);
    assert_int_equal(save_of("three", one, 30), GYRE_OK);
    assert_int_equal(optim_saver_destroy(one, PATIENT), 1);
    HOLDS(30);
    assert_int_equal(optim_snapshot_remove(folder, 30), GYRE_OK);
}

static void busy(void **unused)
{
    (void)unused;
    optim_saver_t *saver = make(5, 0);
    size_t left_out = 0;
    for (uint64_t step = 1; step <= 30; step++) {
        gyre_status_t status = save(saver, step, 0.0); /* no patience: a few get through */
        left_out += status == GYRE_IN_PROGRESS;
        assert_true(status == GYRE_OK || status == GYRE_IN_PROGRESS);
    }
    assert_true(left_out > 0);
    assert_int_equal(save(saver, 31, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1);
    uint64_t *steps = NULL;
    size_t count = 0;
    assert_int_equal(optim_snapshot_list(folder, &steps, &count), GYRE_OK);
    assert_true(count >= 2 && count <= 5 && steps[0] == 31);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(optim_snapshot_remove(folder, steps[i]), GYRE_OK);
    free(steps);
}

/* What cannot be written is an answer, and the next one is tried again. */
static void fails(void **unused)
{
    (void)unused;
    uint64_t newest = 0;
    optim_saver_t *saver = make(2, 0);
    assert_int_equal(save(saver, 1, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, NULL), GYRE_OK);
    char away[PATH_MAX];
    snprintf(away, sizeof away, "%s-away", folder);
    assert_int_equal(rename(folder, away), 0);
    assert_int_equal(save(saver, 2, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_ERR_IO);
    assert_int_equal(under_way, 0);
    assert_int_equal(newest, 1);
    assert_int_equal(rename(away, folder), 0);
    assert_int_equal(save(saver, 3, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 3);
    assert_int_equal(optim_saver_save(saver, 4, NULL, -1), GYRE_ERR_NO_MEMORY);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1);
    HOLDS(3, 1);
    assert_int_equal(optim_snapshot_remove(folder, 1), GYRE_OK);
    assert_int_equal(optim_snapshot_remove(folder, 3), GYRE_OK);
    assert_int_equal(optim_saver_destroy(NULL, 0.0), 1);
}

static size_t hidden_entries(void)
{
    size_t n = 0;
    DIR *all = opendir(folder);
    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all));)
        n += entry->d_name[0] == '.' && strlen(entry->d_name) > 2;
    closedir(all);
    return n;
}

enum { RANKS = 4 };

static void make_all(optim_saver_t **saver, uint64_t resumed, double patience)
{
    for (size_t r = 0; r < RANKS; r++)
        saver[r] = make_rank(2, resumed, r, RANKS, patience);
}

static void save_all(optim_saver_t **saver, uint64_t step, size_t ranks)
{
    for (size_t r = 0; r < ranks; r++) /* they agree that all are ready before one begins */
        assert_int_equal(optim_saver_ready(saver[r], PATIENT), 1);
    for (size_t r = ranks; r-- > 0;)
        assert_int_equal(save_piece(saver[r], step, r, RANKS, PATIENT), GYRE_OK);
}

/* Four ranks in one process; a rank that is late, and ranks that are lost. */
static void together(void **unused)
{
    (void)unused;
    optim_saver_t *saver[RANKS];
    uint64_t newest = 0;
    make_all(saver, 0, PATIENT);
    for (uint64_t step = 1; step <= 3; step++)
        save_all(saver, step, RANKS);
    for (size_t r = 0; r < RANKS; r++) {
        assert_int_equal(optim_saver_wait(saver[r], PATIENT, &newest), GYRE_OK);
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    }
    HOLDS(3, 2);

    /* the last rank does not come in time; what it writes late is swept with the next one */
    make_all(saver, 3, 0.1);
    save_all(saver, 4, RANKS - 1);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_ERR_TIMEOUT);
    assert_int_equal(newest, 3);
    assert_int_equal(save_piece(saver[RANKS - 1], 4, RANKS - 1, RANKS, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver[RANKS - 1], PATIENT, NULL), GYRE_OK);
    assert_true(hidden_entries() >= 1);
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    make_all(saver, 3, PATIENT);
    save_all(saver, 5, RANKS);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 5);
    assert_int_equal(hidden_entries(), 0);
    HOLDS(5, 3);

    /* the others are lost: rank 0 gives up what waits for them, and writes what it has */
    for (size_t r = 1; r < RANKS; r++)
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    assert_int_equal(optim_saver_alone(saver[0], 0.0), 1);
    fill(6);
    add(saver[0], 0, 1);
    assert_int_equal(optim_saver_save(saver[0], 6, json_object(), -1), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 6);
    HOLDS(6, 5);
    add(saver[0], 0, 2); /* holes are no checkpoint */
    assert_int_equal(optim_saver_save(saver[0], 7, json_object(), -1), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_ERR_FORMAT);
    assert_int_equal(newest, 6);
    assert_int_equal(optim_saver_destroy(saver[0], PATIENT), 1);
    assert_int_equal(hidden_entries(), 0);
    assert_int_equal(optim_snapshot_remove(folder, 5), GYRE_OK);
    assert_int_equal(optim_snapshot_remove(folder, 6), GYRE_OK);
}

/* A rank whose state cannot be read, from its first range or a later one on, says so: rank 0 does not wait
 * for its shard. */
static void unreadable(void **unused)
{
    (void)unused;
    optim_saver_t *saver[RANKS];
    uint64_t newest = 0;
    make_all(saver, 0, 1000.0);
    for (uint64_t step = 1; step <= 2; step++) {
        fill(step);
        for (size_t r = RANKS; r-- > 0;) {
            assert_int_equal(optim_saver_ready(saver[r], PATIENT), 1);
            if (r < RANKS - 1 || step == 2)
                add(saver[r], r, RANKS);
            if (r == RANKS - 1) {
                optim_saver_fail(saver[r], gyre_fail(GYRE_ERR_IO, "offload: the disk is gone"));
                optim_saver_fail(saver[r], gyre_fail(GYRE_ERR_SYSTEM, "a later reason"));
            }
            assert_int_equal(optim_saver_save(saver[r], step, r == 0 ? json_object() : NULL, -1),
                             r == RANKS - 1 ? GYRE_ERR_IO : GYRE_OK);
        }
        assert_int_equal(optim_saver_wait(saver[RANKS - 1], PATIENT, NULL), GYRE_ERR_IO);
        assert_int_equal(optim_saver_wait(saver[0], PATIENT, NULL), GYRE_ERR_IO);
    }
    save_all(saver, 3, RANKS); /* and the next one is whole again */
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 3);
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    HOLDS(3);
    assert_int_equal(hidden_entries(), 0);
    assert_int_equal(optim_snapshot_remove(folder, 3), GYRE_OK);
}

/* A rank that cannot make the folder says so in the one that another rank makes. */
static void no_folder(void **unused)
{
    (void)unused;
    optim_saver_t *saver[RANKS];
    uint64_t newest = 0;
    make_all(saver, 0, 1000.0);
    for (size_t r = RANKS; r-- > 0;) {
        if (r == RANKS - 1)
            atomic_store(&no_room, 1);
        assert_int_equal(save_piece(saver[r], 1, r, RANKS, PATIENT), GYRE_OK);
        while (atomic_load(&no_room) > 0)
            usleep(1000);
    }
    assert_int_equal(optim_saver_wait(saver[RANKS - 1], PATIENT, NULL), GYRE_ERR_IO);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, NULL), GYRE_ERR_IO);
    save_all(saver, 2, RANKS);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 2);
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    assert_int_equal(hidden_entries(), 0);
    assert_int_equal(optim_snapshot_remove(folder, 2), GYRE_OK);
}

/* Waiting for a rank that never comes ends at once when it is given up. */
static void given_up(void **unused)
{
    (void)unused;
    optim_saver_t *saver = make_rank(2, 0, 0, 2, 1000.0);
    assert_int_equal(save_piece(saver, 1, 0, 2, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, 0.05, NULL), GYRE_ERR_TIMEOUT);
    assert_int_equal(optim_saver_ready(saver, 0.0), 0);
    assert_int_equal(optim_saver_save(saver, 2, json_object(), -1), GYRE_IN_PROGRESS);
    assert_int_equal(under_way, 1);
    assert_int_equal(optim_saver_destroy(saver, 0.0), 1);
    assert_int_equal(under_way, 0);
    assert_int_equal(hidden_entries(), 0);

    saver = make_rank(2, 0, 0, 2, 1000.0); /* one that is dead, after a while */
    assert_int_equal(save_piece(saver, 1, 0, 2, PATIENT), GYRE_OK);
    optim_saver_lost(saver, 1, 0.1);
    assert_int_equal(optim_saver_wait(saver, PATIENT, NULL), GYRE_ERR_IO);
    assert_string_equal(gyre_last_error(),
                        "the checkpoint of step 1 is given up: the shard of rank 1 is not there");
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1);
    assert_int_equal(hidden_entries(), 0);
}

/* Ranks die, but the one whose shard is missing lives, and its disk is busy: rank 0 waits, whatever the dead
 * ones had written. It does not when that one dies, too. */
static void slow_shard(void **unused)
{
    (void)unused;
    optim_saver_t *saver[RANKS];
    make_all(saver, 0, 1000.0);
    for (uint64_t step = 1; step <= 2; step++) {
        for (size_t r = 0; r < RANKS; r++)
            if (r != 1 && r != (step == 2 ? 3 : RANKS))
                assert_int_equal(save_piece(saver[r], step, r, RANKS, PATIENT), GYRE_OK);
        optim_saver_lost(saver[0], 2, 0.0);
        optim_saver_lost(saver[0], 3, 0.0);
        optim_saver_lost(saver[0], 3, 0.0);
        assert_int_equal(optim_saver_wait(saver[0], 0.3, NULL), GYRE_ERR_TIMEOUT);
        if (step == 1) {
            assert_int_equal(save_piece(saver[1], step, 1, RANKS, PATIENT), GYRE_OK);
            assert_int_equal(optim_saver_wait(saver[0], PATIENT, NULL), GYRE_OK);
        }
    }
    optim_saver_lost(saver[0], 1, 0.1);
    assert_int_equal(optim_saver_wait(saver[0], PATIENT, NULL), GYRE_ERR_IO);
    assert_string_equal(gyre_last_error(),
                        "the checkpoint of step 2 is given up: the shards of ranks 1, 3 are "
                        "not there");
    for (size_t r = 0; r < RANKS; r++)
        assert_int_equal(optim_saver_destroy(saver[r], PATIENT), 1);
    assert_int_equal(hidden_entries(), 0);
    HOLDS(1);
    assert_int_equal(optim_snapshot_remove(folder, 1), GYRE_OK);
}

/* A shared file system is asked ever more rarely for shards that do not come: once a second in the end,
 * however many ranks are missing. */
static void asks_rarely(void **unused)
{
    (void)unused;
    optim_saver_t *saver = make_rank(2, 0, 0, RANKS, 1000.0);
    assert_int_equal(save_piece(saver, 1, 0, RANKS, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, 0.3, NULL), GYRE_ERR_TIMEOUT); /* its own shard is written */
    atomic_store(&asked, 0);
    assert_int_equal(optim_saver_wait(saver, 1.5, NULL), GYRE_ERR_TIMEOUT);
    assert_in_range(atomic_load(&asked), 0, 5); /* with a look every 20 ms for each of 3 ranks: 450 */
    assert_int_equal(optim_saver_destroy(saver, 0.0), 1);
    assert_int_equal(hidden_entries(), 0);
}

/* Ranks that wait for another one's checkpoint look at the folder, and not at each of its files; where the
 * other process is, they see whether it lives. */
static void waits_cheaply(void **unused)
{
    (void)unused;
    const pid_t child = fork();
    if (child == 0)
        _exit((int)sleep(60));
    char host[HOST_NAME_MAX + 1] = "", made[PATH_MAX], other[OPTIM_SNAPSHOT_ID];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    const struct {
        const char *host;
        pid_t pid;
        int busy, most;
    } writer[] = {{host, child, 1, 1}, {"elsewhere", 7, 1, 2}, {host, child, 0, 1}};
    for (size_t i = 0; i < sizeof writer / sizeof *writer; i++) {
        if (!writer[i].busy) {
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, NULL, 0), child);
        }
        snprintf(other, sizeof other, "%s-%ld", writer[i].host, (long)writer[i].pid);
        assert_int_equal(optim_snapshot_begin(folder, 1, other, 1, made), GYRE_OK);
        for (size_t r = 0; r < 20; r++)
            model_shard_fail(made, r);
        atomic_store(&asked, 0);
        assert_int_equal(optim_snapshot_busy(folder, other), writer[i].busy);
        assert_in_range(atomic_load(&asked), 1, writer[i].most);
        const struct timespec old[2] = {{.tv_sec = time(NULL) - 4000}, {.tv_sec = time(NULL) - 4000}};
        assert_int_equal(utimensat(AT_FDCWD, made, old, 0), 0);
        assert_int_equal(optim_snapshot_busy(folder, other), writer[i].busy && writer[i].most == 1);
        optim_snapshot_abandon(made);
        assert_int_equal(optim_snapshot_busy(folder, other), 0);
    }
    assert_int_equal(hidden_entries(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_cheaply), cmocka_unit_test(asks_rarely), cmocka_unit_test(keeps),
        cmocka_unit_test(two_runs),      cmocka_unit_test(busy),        cmocka_unit_test(fails),
        cmocka_unit_test(together),      cmocka_unit_test(unreadable),  cmocka_unit_test(no_folder),
        cmocka_unit_test(given_up),      cmocka_unit_test(slow_shard)};
    return cmocka_run_group_tests(tests, begin, end);
}
