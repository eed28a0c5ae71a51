/* tools/gyre-train/resume.c: going on from a checkpoint.
 *
 * Each rank looks for checkpoints where it is; the newest that anybody sees is read by one rank, checked, and
 * broadcast. So only that rank's file is read, and ranks need not see the same disk. A damaged one is named and the
 * next older one is taken. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "model/snapshot.h"
#include "optim/saver.h"
#include "tools/gyre-train/train.h"

#define OWNER_BITS 20 /* ranks below 2^20, steps below 2^40: together a positive int64 */
_Static_assert(MODEL_SNAPSHOT_STEPS < (uint64_t)1 << 40, "a step and a rank share 63 bits");

/* ---- what the index says of the run ------------------------------------------------------------------------- */

static json_t *hex(uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

/* As text: exact, and JSON has no word for NaN. */
static json_t *real(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return json_string(text);
}

static uint64_t array_hash(const train_parts_t *parts, const float *array)
{
    return base_hash64(array, parts->params->total * sizeof *array, 0);
}

json_t *train_resume_describe(const train_parts_t *parts, const train_state_t *state)
{
    const char *name;
    char value[64];
    json_t *options = json_object();
    int bad = !options;
    for (int i = 0; (i = train_options_exact(parts->options, (size_t)i, &name, value, sizeof value)) >= 0;
         i++)
        bad |= json_object_set_new(options, name, json_string(value));
    json_t *run =
        json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:I, s:o}}", "program",
                  "gyre-train " GYRE_VERSION, "blas", model_matmul_kind(), "ranks", (json_int_t)state->ranks,
                  "seconds", real(state->seconds), "progress", real(state->progress), "first_val",
                  real(state->first_val), "final_val", real(state->final_val), "options", options, "data",
                  "bytes", (json_int_t)parts->data->bytes, "xxh3", hex(parts->data->hash));
    if (run && bad) {
        json_decref(run);
        run = NULL;
    }
    return run;
}

/* The first option that differs from the checkpoint's. */
static gyre_status_t compare_options(const train_parts_t *parts, const json_t *run, const char *at)
{
    const json_t *then = json_object_get(run, "options");
    const char *name, *old;
    char value[64];
    for (int i = 0; (i = train_options_exact(parts->options, (size_t)i, &name, value, sizeof value)) >= 0;
         i++) {
        if (!(old = json_string_value(json_object_get(then, name))))
            return gyre_fail(GYRE_ERR_FORMAT, "%s does not say what --%s was", at, name);
        if (strcmp(old, value) == 0 || train_options_may_change(parts->options, name))
            continue;
        if (train_options_is_shape(name))
            return gyre_fail(
                GYRE_ERR_INVALID,
                "--%s is %s, but the model in %s has %s: give --%s %s, or another --checkpoint folder "
                "for another model",
                name, value, at, old, name, old);
        return gyre_fail(GYRE_ERR_INVALID,
                         "--%s is %s, but the run in %s was begun with %s: give --%s %s to go on with it, "
                         "--may-change %s to go on otherwise, or another --checkpoint folder for another run",
                         name, value, at, old, name, old, name);
    }
    return GYRE_OK;
}

static gyre_status_t get_real(const json_t *run, const char *name, const char *at, double *out)
{
    const char *text = json_string_value(json_object_get(run, name));
    char *end = NULL;
    double value = text ? strtod(text, &end) : 0.0;
    if (!text || end == text || *end)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s is no number", at, name);
    *out = value;
    return GYRE_OK;
}

static gyre_status_t get_state(const json_t *run, const char *at, train_state_t *state)
{
    const char *const name[] = {"seconds", "progress", "first_val", "final_val"};
    double *const field[] = {&state->seconds, &state->progress, &state->first_val, &state->final_val};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < 4; i++)
        status = get_real(run, name[i], at, field[i]);
    json_int_t ranks = json_integer_value(json_object_get(run, "ranks"));
    if (status == GYRE_OK && (ranks < 1 || !(state->seconds >= 0.0) || !isfinite(state->seconds)))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: ranks or seconds cannot be", at);
    state->ranks = (uint64_t)ranks;
    return status;
}

/* ---- one rank reads ------------------------------------------------------------------------------------------- */

/* What the reading rank tells the others. */
typedef struct {
    uint64_t status;
    train_state_t state;
    uint64_t data_bytes, data_hash;
    uint64_t hash[OPTIM_SAVER_PARTS]; /* of the arrays that follow */
} told_t;
_Static_assert(sizeof(told_t) % sizeof(uint64_t) == 0, "it travels as words");

static void arrays(const train_parts_t *parts, model_snapshot_part_t part[OPTIM_SAVER_PARTS])
{
    optim_saver_parts(parts->flat, optim_adamw_exp_avg(parts->adamw), optim_adamw_exp_avg_sq(parts->adamw),
                      part);
}

static gyre_status_t read_one(const train_parts_t *parts, uint64_t step, told_t *told)
{
    char at[4096];
    json_t *run = NULL;
    model_snapshot_part_t part[OPTIM_SAVER_PARTS];
    const char *folder = parts->options->checkpoint;
    if (!model_snapshot_path(folder, step, at, sizeof at))
        return gyre_fail(GYRE_ERR_INVALID, "the name of the checkpoint folder is too long: %.80s...", folder);
    /* options first: another model's arrays would not fit */
    told->state.step = step;
    gyre_status_t status = model_snapshot_check(folder, step, &run);
    if (status == GYRE_OK)
        status = compare_options(parts, run, at);
    if (status == GYRE_OK)
        status = get_state(run, at, &told->state);
    if (status == GYRE_OK) {
        const json_t *data = json_object_get(run, "data");
        const char *hash = json_string_value(json_object_get(data, "xxh3")),
                   *blas = json_string_value(json_object_get(run, "blas"));
        told->data_bytes = (uint64_t)json_integer_value(json_object_get(data, "bytes"));
        told->data_hash = hash ? strtoull(hash, NULL, 16) : 0;
        if (blas && strcmp(blas, model_matmul_kind()) != 0)
            log_warning("%s was written on a processor of another kind (%s; this is %s): from here on the "
                        "curve is not "
                        "to the bit what it would have been there",
                        at, blas, model_matmul_kind());
        arrays(parts, part);
        status = model_snapshot_load(folder, step, parts->params, part, OPTIM_SAVER_PARTS, NULL);
    }
    json_decref(run);
    for (size_t p = 0; status == GYRE_OK && p < OPTIM_SAVER_PARTS; p++)
        told->hash[p] = array_hash(parts, part[p].flat);
    return status;
}

/* A checkpoint that cannot be used, where an older one may be. */
static int is_damaged(gyre_status_t status)
{
    return status == GYRE_ERR_FORMAT || status == GYRE_ERR_NOT_FOUND || status == GYRE_ERR_IO;
}

/* The newest step below `below` that a quick look finds whole, plus one; 0: none. */
static uint64_t newest(const char *folder, uint64_t below)
{
    uint64_t *steps = NULL, found = 0;
    size_t count = 0;
    if (model_snapshot_list(folder, &steps, &count) != GYRE_OK)
        return 0; /* another rank may see one */
    for (size_t i = 0; found == 0 && i < count; i++) {
        if (steps[i] >= below)
            continue;
        if (model_snapshot_check(folder, steps[i], NULL) == GYRE_OK)
            found = steps[i] + 1;
        else
            log_warning("the checkpoint of step %" PRIu64 " in %s is not used: looking for an older one",
                        steps[i], folder);
    }
    free(steps);
    return found;
}

/* Agrees on a checkpoint below `below` and has one rank read it. *owner -1: there is none. */
static gyre_status_t choose(const train_parts_t *parts, uint64_t below, int *owner, told_t *told)
{
    int rank = gyre_comm_rank(parts->comm);
    int64_t mask = ((int64_t)1 << OWNER_BITS) - 1;
    uint64_t mine = newest(parts->options->checkpoint, below);
    int64_t word = mine > 0 ? (int64_t)(mine << OWNER_BITS) | (mask - rank) : 0;
    gyre_status_t status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MAX), parts->comm);
    *owner = -1;
    memset(told, 0, sizeof *told);
    if (status != GYRE_OK || word == 0)
        return status;
    *owner = (int)(mask - (word & mask));
    uint64_t step = (uint64_t)(word >> OWNER_BITS) - 1;
    if (rank == *owner) {
        gyre_status_t mine_read = read_one(parts, step, told);
        told->status = (uint64_t)mine_read;
        if (is_damaged(mine_read))
            log_warning("the checkpoint of step %" PRIu64 " in %s is not used: looking for an older one",
                        step, parts->options->checkpoint);
    }
    return gyre_broadcast(told, told, sizeof *told / sizeof(uint64_t), GYRE_UINT64, *owner, parts->comm);
}

static gyre_status_t check_data(const train_parts_t *parts, const told_t *told)
{
    const model_data_t *data = parts->data;
    if ((data->bytes == told->data_bytes && data->hash == told->data_hash) ||
        train_options_may_change(parts->options, "data"))
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s holds %" PRIu64 " bytes with hash %016" PRIx64
                     ", but the run in %s was begun on %" PRIu64 " bytes with hash %016" PRIx64
                     ": give the same text with --data, or --may-change data to go on with another",
                     parts->options->data, data->bytes, data->hash, parts->options->checkpoint,
                     told->data_bytes, told->data_hash);
}

gyre_status_t train_resume(const train_parts_t *parts, train_state_t *state, int *found)
{
    told_t told;
    uint64_t below = UINT64_MAX;
    int owner;
    gyre_status_t status;
    *found = 0;
    do {
        status = choose(parts, below, &owner, &told);
        below = told.state.step;
    } while (status == GYRE_OK && owner >= 0 && is_damaged((gyre_status_t)told.status));
    if (status != GYRE_OK || owner < 0)
        return status;
    if (told.status != GYRE_OK) /* the owner has said why */
        return gyre_comm_rank(parts->comm) == owner ? (gyre_status_t)told.status : GYRE_OK;
    model_snapshot_part_t part[OPTIM_SAVER_PARTS];
    arrays(parts, part);
    for (size_t p = 0; status == GYRE_OK && p < OPTIM_SAVER_PARTS; p++)
        status = gyre_broadcast(part[p].flat, part[p].flat, parts->params->total, GYRE_FLOAT32, owner,
                                parts->comm);
    for (size_t p = 0; status == GYRE_OK && p < OPTIM_SAVER_PARTS; p++)
        if (array_hash(parts, part[p].flat) != told.hash[p])
            status = gyre_fail(GYRE_ERR_INTERNAL, "%s of step %" PRIu64 " is not here what rank %d has read",
                               part[p].name, told.state.step, owner);
    if (status == GYRE_OK)
        status = check_data(parts, &told);
    if (status != GYRE_OK)
        return status;
    optim_adamw_set_steps(parts->adamw, told.state.step);
    *state = told.state;
    *found = 1;
    return GYRE_OK;
}

/* ---- whose checkpoints these are -------------------------------------------------------------------------------- */

/* A launcher that starts a job anew means it to go on, but only with what that job itself has left: the folder may hold
 * another run, which the first start was refused. So the folder says which launches wrote there. */
static const struct launcher {
    const char *name, *count,
        *id; /* variables: how often the job was started before; what stays the same then */
} launchers[] = {{"ucx-run", "GYRE_RESTART", "GYRE_LAUNCH"},
                 {"torchrun", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"},
                 {"slurm", "SLURM_RESTART_COUNT", "SLURM_JOB_ID"}};
#define LAUNCHERS (sizeof launchers / sizeof *launchers)
#define NOTE      "launch" /* a line "NAME ID" for each launcher around the run */

/* "NAME ID" of this launch; 0: there is no such launcher here, or it does not say (torchrun's default is "none"). */
static int launch_line(const struct launcher *launcher, char *line, size_t bytes)
{
    const char *id = base_env(launcher->id);
    int known = id && *id && strcmp(id, "none") != 0 && !strpbrk(id, "\r\n");
    int n = known ? snprintf(line, bytes, "%s %s", launcher->name, id) : 0;
    return n > 0 && (size_t)n < bytes;
}

static int note_has(const char *folder, const char *line)
{
    char path[4096], text[600];
    int found = 0, n = snprintf(path, sizeof path, "%s/" NOTE, folder);
    FILE *in = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    while (in && !found && fgets(text, sizeof text, in)) {
        text[strcspn(text, "\n")] = 0;
        found = strcmp(text, line) == 0;
    }
    if (in)
        fclose(in);
    return found;
}

/* What cannot be noted stops nothing but the launcher's next start. */
static void write_note(const char *folder)
{
    char path[4096], lines[LAUNCHERS * 512] = "";
    size_t used = 0;
    base_file_t file;
    int n = snprintf(path, sizeof path, "%s/" NOTE, folder);
    if (n <= 0 || (size_t)n >= sizeof path)
        return; /* nor has a checkpoint a name then, which is an error */
    for (size_t i = 0; i < LAUNCHERS; i++)
        if (launch_line(&launchers[i], lines + used, 511)) {
            used += strlen(lines + used);
            lines[used++] = '\n';
            lines[used] = 0;
        } else
            lines[used] = 0;
    if (used == 0) {
        (void)unlink(path); /* the launch before is not the last that wrote */
        return;
    }
    gyre_status_t status = base_file_begin(path, &file);
    if (status == GYRE_OK) {
        fputs(lines, file.out);
        status = base_file_commit(&file);
    }
    if (status != GYRE_OK)
        log_warning("%s is not written: a launcher that starts this run anew must be given --resume", path);
}

/* 1: a launcher has started anew what wrote to the folder. *counted: one has started something anew. */
static int started_anew(const char *folder, int *counted)
{
    char line[512];
    for (size_t i = 0; i < LAUNCHERS; i++) {
        const char *count = base_env(launchers[i].count);
        if (!count || strtol(count, NULL, 10) <= 0)
            continue;
        *counted = 1;
        if (launch_line(&launchers[i], line, sizeof line) && note_has(folder, line))
            return 1;
    }
    return 0;
}

static gyre_status_t refuse(const char *folder, int anew)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    gyre_status_t status = model_snapshot_list(folder, &steps, &count);
    if (status == GYRE_OK && count > 0)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "%s holds the checkpoints of a run (the newest of step %" PRIu64
                           ")%s: give --resume to go on with it, or another folder with --checkpoint",
                           folder, steps[0], anew ? ", and this launch has not written them" : "");
    free(steps);
    return status;
}

gyre_status_t train_resume_open(const train_options_t *options, int *resuming)
{
    const char *folder = options->checkpoint;
    int anew = 0;
    *resuming = options->resume || started_anew(folder, &anew);
    gyre_status_t status = *resuming ? GYRE_OK : refuse(folder, anew); /* before anything in it is touched */
    if (status == GYRE_OK)
        status = model_snapshot_prepare(folder);
    if (status == GYRE_OK && !*resuming)
        status = refuse(folder, anew); /* that may have brought one back */
    if (status == GYRE_OK && anew)
        *resuming = 1; /* nothing is here: perhaps others see what a lost rank 0 has written elsewhere */
    if (status == GYRE_OK)
        write_note(folder);
    return status;
}
