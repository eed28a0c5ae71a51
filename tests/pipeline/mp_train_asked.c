/* ranks: 1 2 */
/* tests/pipeline/mp_train_asked.c: a checkpoint that SIGUSR1 asks for: while another one is being written on
 * a slow disk, during the last validation, and during one that a resumed run makes up for.
 * pipeline/train/run.c itself, with less patience and with validations in which the signal comes; fsync is
 * the test's, too.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/train/run.h"
#include "tests/support/mp_text.h"

static volatile sig_atomic_t saves; /* SIGUSR1 so far */
static volatile sig_atomic_t signal_number;
static int asks_in_validation; /* in so many of the next it comes */
static int ends_in_validation; /* in so many of the next SIGTERM comes */
static int validations;        /* one for each set */
static int timed;              /* the last one was a part of the training's seconds */

static gyre_status_t evaluate(pipe_train_t *train, pipe_fetch_fn fetch, void *user, size_t count,
                              pipe_asks_fn asked_for, unsigned *asked, double *loss)
{
    validations++;
    timed = ((const train_run_t *)user)->start != 0;
    if (ends_in_validation > 0) {
        ends_in_validation--;
        signal_number = SIGTERM;
    }
    if (asks_in_validation > 0) {
        asks_in_validation--;
        saves++;
    }
    return pipe_train_evaluate(train, fetch, user, count, asked_for, asked, loss);
}

#undef SAVE_PATIENCE_S
#define SAVE_PATIENCE_S     0.2
#define pipe_train_evaluate evaluate
#include "pipeline/train/run.c"

static atomic_int busy;
static char folder[] = "/tmp/gyre-train-asked-XXXXXX";

int fsync(int fd)
{
    int (*next)(int);
    void *const found = dlsym(RTLD_NEXT, "fsync");
    memcpy(&next, &found, sizeof next);
    while (atomic_load(&busy))
        usleep(1000);
    return next(fd);
}

static void prepare(const char *name, const char *more, train_config_t *options, train_run_t *run,
                    gyre_comm_t *world)
{
    char config[1024], why[TRAIN_WHY];
    snprintf(config, sizeof config,
             "{\"data\": \"%s/text\", \"layers\": 1, \"hidden\": 32, \"heads\": 4, \"seq\": 16, \"batch\": 8,"
             " \"warmup\": 0, \"zero\": 1, \"sample-tokens\": 0, \"report\": \"none\","
             " \"peak-flops\": 1e9, \"checkpoint\": \"%s/%s\", \"checkpoint-every\": 0, %s}",
             folder, folder, name, more);
    json_t *object = json_loads(config, 0, NULL);
    MP_CHECK(object && train_config_defaults(options), "%s", config);
    MP_CHECK(train_config_read(options, object, why) == GYRE_OK, "%s", why);
    MP_CHECK(train_config_complete(options, why) == GYRE_OK, "%s", why);
    json_decref(object);
    saves = signal_number = validations = 0;
    *run = (train_run_t){.options = options, .saves = &saves, .signal = &signal_number};
    MP_OK(train_join(run, world));
    MP_OK(train_set_up(run));
}

static void set_up(const char *name, const char *more, train_config_t *options, train_run_t *run,
                   gyre_comm_t *world)
{
    prepare(name, more, options, run, world);
    MP_OK(train_start(run));
}

static void tear_down(train_config_t *options, train_run_t *run)
{
    MP_OK(train_leave(run, GYRE_OK));
    train_free(run);
    train_config_free(options);
}

/* Signals come to one rank, and the disk of another is slow. The second checkpoint is asked for while the
 * first is written; validations go on meanwhile. */
static void test_while_writing(gyre_comm_t *world)
{
    const int last = gyre_comm_rank(world) == gyre_comm_size(world) - 1;
    train_config_t options;
    train_run_t run;
    train_step_t step = {0};
    int stop;
    set_up("writing", "\"steps\": 2000, \"eval-every\": 1, \"eval-sequences\": 2", &options, &run, world);
    MP_OK(train_advance(&run, &step, &stop));
    atomic_store(&busy, run.rank == 0);
    saves = last;
    MP_OK(train_advance(&run, &step, &stop));
    MP_CHECK(run.begun == 2 && run.saved == GYRE_OK && isnan(step.val), "no checkpoint is begun");
    saves = 2 * last;
    for (int i = 0; i < 4; i++) {
        MP_OK(train_advance(&run, &step, &stop));
        MP_CHECK(run.begun == 2 && run.saved == GYRE_IN_PROGRESS, "the first one is not under way any more");
        MP_CHECK(isnan(step.val) == (i == 0), "step %llu: %g", (unsigned long long)run.next, step.val);
    }
    atomic_store(&busy, 0);
    for (int i = 0; i < 1000 && run.begun == 2; i++) {
        MP_OK(train_advance(&run, &step, &stop));
        usleep(1000);
    }
    MP_CHECK(run.begun > 2 && run.begun == run.next, "what was asked for was forgotten");
    const uint64_t begun = run.begun;
    for (int i = 0; i < 3; i++)
        MP_OK(train_advance(&run, &step, &stop));
    MP_CHECK(run.begun == begun, "it was asked for once");
    MP_OK(train_await(&run));
    MP_CHECK(optim_snapshot_check(options.checkpoint, begun) == GYRE_OK, "%s", gyre_last_error());
    tear_down(&options, &run);
}

/* The checkpoint comes first, then the validation, from its beginning; the signal that comes in that one
 * changes nothing. The loss is that of the checkpoint, too. */
static void test_last_validation(gyre_comm_t *world)
{
    train_config_t options;
    train_run_t run;
    train_step_t step = {0};
    optim_snapshot_t *snapshot;
    int stop;
    set_up("validation", "\"steps\": 2, \"eval-every\": 0, \"eval-sequences\": 200", &options, &run, world);
    MP_OK(train_advance(&run, &step, &stop));
    validations = 0;
    asks_in_validation = 2;
    MP_OK(train_advance(&run, &step, &stop));
    MP_CHECK(stop && validations == 2 && isfinite(step.val), "%d validations, %g", validations, step.val);
    MP_CHECK(step.val == run.record.final_val && step.val != run.record.first_val, "%g", step.val);
    MP_OK(train_await(&run));
    MP_OK(optim_snapshot_open(options.checkpoint, 2, &snapshot));
    const char *text = json_string_value(json_object_get(optim_snapshot_run(snapshot), "final_val"));
    MP_CHECK(text && strtod(text, NULL) == step.val, "%s instead of %.17g", text, step.val);
    optim_snapshot_close(snapshot);
    tear_down(&options, &run);
}

/* 1: some file of events has this tag. */
static int board_has(const char *tag)
{
    char command[128];
    snprintf(command, sizeof command, "grep -qaF '%s' %s/board/*", tag, folder);
    return system(command) == 0;
}

/* A validation that SIGUSR1 has put off, of two sets, is made when the run goes on. SIGTERM ends it, and it
 * is still owed; SIGUSR1 changes nothing, since its step is on disk. */
static void test_made_up(gyre_comm_t *world)
{
    char config[512];
    train_config_t options;
    train_run_t run;
    train_step_t step = {0};
    int stop;
    snprintf(config, sizeof config,
             "\"steps\": 3, \"eval-every\": 1, \"eval-sequences\": 200, \"valid-data\":"
             " \"odd=%s/text,even=%s/text\", \"tensorboard\": \"%s/board\", \"resume\": true",
             folder, folder, folder);
    set_up("made-up", config, &options, &run, world);
    asks_in_validation = 1;
    MP_OK(train_advance(&run, &step, &stop));
    MP_CHECK(!stop && isnan(step.val) && run.unvalidated && run.begun == 1, "%g", step.val);
    tear_down(&options, &run);

    ends_in_validation = 1;
    set_up("made-up", config, &options, &run, world);
    MP_CHECK(run.next == 1 && run.stopped == SIGTERM && run.unvalidated, "%d", run.stopped);
    MP_CHECK(validations == 1 && run.record.final_val == run.record.first_val, "%g", run.record.final_val);
    tear_down(&options, &run);

    MP_CHECK(!board_has("loss/validation"), "a validation is in the events");
    MP_OK(gyre_barrier(world));

    asks_in_validation = 1;
    set_up("made-up", config, &options, &run, world);
    MP_CHECK(validations == 2 && timed && !run.save_asked && !run.unvalidated, "%d", validations);
    MP_CHECK(run.record.final_val != run.record.first_val, "%g", run.record.final_val);
    MP_CHECK(run.record.set[1].final_val == run.record.final_val, "%g", run.record.set[1].final_val);
    MP_OK(gyre_barrier(world));
    MP_CHECK(board_has("loss/validation") && board_has("loss/validation/even"), "the events lack it");
    tear_down(&options, &run);
    if (gyre_comm_size(world) > 1) /* who is alone waits for no other */
        return;

    char wrong[1100], other[400];
    snprintf(other, sizeof other, "%s/broken", folder);
    FILE *file = fopen(other, "w");
    MP_CHECK(file && fputs("{\"config\" broken\n", file) >= 0 && fclose(file) == 0, "%s", other);
    snprintf(wrong, sizeof wrong, "%s, \"log\": \"%s\"", config, other);
    prepare("made-up", wrong, &options, &run, world);
    const gyre_status_t status = train_start(&run);
    MP_CHECK(status == GYRE_ERR_FORMAT && validations == 0, "%d, %d validations", status, validations);
    (void)train_leave(&run, status);
    train_free(&run);
    train_config_free(&options);
}

/* Without sequences to validate on nothing is owed. */
static void test_nothing_to_validate(gyre_comm_t *world)
{
    train_config_t options;
    train_run_t run;
    train_step_t step = {0};
    int stop;
    set_up("nothing", "\"steps\": 2, \"eval-every\": 1, \"valid-fraction\": 0", &options, &run, world);
    for (int i = 0; i < 2; i++) {
        MP_OK(train_advance(&run, &step, &stop));
        MP_CHECK(isnan(step.val) && !run.unvalidated, "step %llu", (unsigned long long)run.next);
    }
    tear_down(&options, &run);
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world);
    mp_make_text(world, folder, sizeof folder, 1000);
    test_while_writing(world);
    test_last_validation(world);
    test_made_up(world);
    test_nothing_to_validate(world);
    MP_OK(gyre_finalize(world));
    if (rank == 0)
        mp_remove_folder(folder);
    return 0;
}
