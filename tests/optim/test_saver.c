/* tests/optim/test_saver.c: the thread that writes checkpoints: what stays, what goes, what is left out, what fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "optim/saver.h"

static const model_config_t config = {.vocab = 13, .seq = 8, .layers = 1, .hidden = 12, .heads = 3};
static const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
static char folder[] = "/tmp/gyre-saver-XXXXXX";
static model_params_t *params;
static optim_adamw_t *adamw;
static float *flat;
#define PATIENT 60.0

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    if (!mkdtemp(folder) || model_params_create(&config, &params) != GYRE_OK ||
        optim_adamw_create(params, &how, &adamw) != GYRE_OK || !(flat = calloc(params->total, sizeof *flat)))
        return -1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    optim_adamw_destroy(adamw);
    model_params_destroy(params);
    free(flat);
    return rmdir(folder);
}

/* The arrays as they are behind `step`. */
static void fill(uint64_t step)
{
    for (size_t i = 0; i < params->total; i++) {
        flat[i] = (float)(step + i);
        optim_adamw_exp_avg(adamw)[i] = (float)(2 * step + i);
        optim_adamw_exp_avg_sq(adamw)[i] = (float)(3 * step + i);
    }
}

static gyre_status_t save(optim_saver_t *saver, uint64_t step, double patience)
{
    fill(step);
    gyre_status_t status = optim_saver_save(saver, step, flat, adamw, json_object(), -1, patience);
    fill(999); /* training goes on: what is written was copied */
    return status;
}

/* The folder holds exactly these steps, newest first, each with its own arrays. */
static void holds(const uint64_t *expected, size_t count)
{
    uint64_t *steps = NULL;
    size_t found = 0;
    assert_int_equal(model_snapshot_list(folder, &steps, &found), GYRE_OK);
    assert_int_equal(found, count);
    for (size_t s = 0; s < count; s++) {
        assert_int_equal(steps[s], expected[s]);
        float *read[OPTIM_SAVER_PARTS];
        model_snapshot_part_t part[OPTIM_SAVER_PARTS];
        for (size_t p = 0; p < OPTIM_SAVER_PARTS; p++)
            assert_non_null(read[p] = calloc(params->total, sizeof(float)));
        optim_saver_parts(read[0], read[1], read[2], part);
        assert_int_equal(model_snapshot_load(folder, steps[s], params, part, OPTIM_SAVER_PARTS, NULL),
                         GYRE_OK);
        fill(steps[s]);
        assert_memory_equal(read[0], flat, params->total * sizeof(float));
        assert_memory_equal(read[1], optim_adamw_exp_avg(adamw), params->total * sizeof(float));
        assert_memory_equal(read[2], optim_adamw_exp_avg_sq(adamw), params->total * sizeof(float));
        for (size_t p = 0; p < OPTIM_SAVER_PARTS; p++)
            free(read[p]);
    }
    free(steps);
}
#define HOLDS(...) \
    holds((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static optim_saver_t *make(size_t keep, uint64_t resumed)
{
    const optim_saver_config_t how_to = {.folder = folder, .keep = keep, .resumed = resumed};
    optim_saver_t *saver = NULL;
    assert_int_equal(optim_saver_create(params, &how_to, &saver), GYRE_OK);
    return saver;
}

static void make_bad(uint64_t step)
{
    char path[PATH_MAX];
    assert_true(model_snapshot_path(folder, step, path, sizeof path));
    assert_int_equal(mkdir(path, 0777), 0);
}

static void keeps(void **state)
{
    (void)state;
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

    /* gone on with at 40: 50 is known to be no good and is written anew; a bad one that is older goes, newer ones wait */
    make_bad(20);
    make_bad(45);
    make_bad(70);
    saver = make(2, 40);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 40);
    assert_int_equal(save(saver, 50, PATIENT), GYRE_OK);
    assert_int_equal(save(saver, 60, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1); /* which waits for what is under way */
    assert_int_equal(model_snapshot_check(folder, 70, NULL), GYRE_ERR_NOT_FOUND);
    assert_int_equal(model_snapshot_remove(folder, 70), GYRE_OK);
    HOLDS(60, 50);
    assert_int_equal(model_snapshot_remove(folder, 50), GYRE_OK);
    assert_int_equal(model_snapshot_remove(folder, 60), GYRE_OK);
}

static void busy(void **state)
{
    (void)state;
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
    assert_int_equal(model_snapshot_list(folder, &steps, &count), GYRE_OK);
    assert_true(count >= 2 && count <= 5 && steps[0] == 31);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(model_snapshot_remove(folder, steps[i]), GYRE_OK);
    free(steps);
}

/* What cannot be written is an answer, and the next one is tried again. */
static void fails(void **state)
{
    (void)state;
    uint64_t newest = 0;
    optim_saver_t *saver = make(2, 0);
    assert_int_equal(save(saver, 1, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, NULL), GYRE_OK);
    char away[PATH_MAX];
    snprintf(away, sizeof away, "%s-away", folder);
    assert_int_equal(rename(folder, away), 0);
    assert_int_equal(save(saver, 2, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_ERR_IO);
    assert_int_equal(newest, 1);
    assert_int_equal(rename(away, folder), 0);
    assert_int_equal(save(saver, 3, PATIENT), GYRE_OK);
    assert_int_equal(optim_saver_wait(saver, PATIENT, &newest), GYRE_OK);
    assert_int_equal(newest, 3);
    assert_int_equal(optim_saver_save(saver, 4, flat, adamw, NULL, -1, PATIENT), GYRE_ERR_NO_MEMORY);
    assert_int_equal(optim_saver_destroy(saver, PATIENT), 1);
    HOLDS(3, 1);
    assert_int_equal(model_snapshot_remove(folder, 1), GYRE_OK);
    assert_int_equal(model_snapshot_remove(folder, 3), GYRE_OK);
    assert_int_equal(optim_saver_destroy(NULL, 0.0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps), cmocka_unit_test(busy),
                                       cmocka_unit_test(fails)};
    return cmocka_run_group_tests(tests, begin, end);
}
