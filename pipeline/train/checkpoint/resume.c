/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/resume.c: going on from the newest good checkpoint.
 *
 * Each rank looks for checkpoints where it is, and the newest that anybody sees is taken. Where all ranks see
 * it, each checks some of its files and reads what its layout needs; where they do not share the disk, the
 * lowest of those that see it reads it for all. A damaged one is named and the next older one is taken. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "base/log.h"
#include "model/network/hf_config.h"
#include "optim/checkpoint/snapshot.h"
#include "pipeline/train/checkpoint/checkpoint.h"

#define OWNER_BITS 20 /* ranks below 2^20, steps below 2^40: together a positive int64 */
_Static_assert(OPTIM_SNAPSHOT_STEPS < (uint64_t)1 << 40, "a step and a rank share 63 bits");

/* ---- is it of this run? -------------------------------------------------------------------------------- */

/* What shapes of rows do not tell: activations, norms, masks. What the checkpoint says is read before it is
 * compared, so that a key which there was not yet stands for what the model was without it. Dropout and
 * z-losses are options, and train_resume_options has compared them. */
static gyre_status_t compare_model(const train_parts_t *parts, const json_t *run, const char *at)
{
    const json_t *said = json_object_get(run, "model");
    json_t *now = NULL, *then = NULL;
    model_config_t config;
    const char *key;
    json_t *value;
    if (!json_is_object(said))
        return gyre_fail(GYRE_ERR_FORMAT, "%s does not say what the model was", at);
    gyre_status_t status = model_config_from_json(said, at, 0, &config);
    config.dropout = parts->params->config.dropout;
    config.z_loss = parts->params->config.z_loss;
    config.router_z = parts->params->config.router_z;
    if (status == GYRE_OK)
        status = model_config_to_json(&config, &then);
    if (status == GYRE_OK)
        status = model_config_to_json(&parts->params->config, &now);
    json_object_foreach(now, key, value)
    {
        if (status == GYRE_OK && !json_equal(value, json_object_get(then, key)))
            status = gyre_fail(
                GYRE_ERR_INVALID,
                "the model differs from that in %s in \"%s\": give the --model that the run was begun "
                "with, or another --checkpoint folder for another model",
                at, key);
    }
    json_decref(now);
    json_decref(then);
    return status;
}

static gyre_status_t differs(const char *name, const char *value, const char *old, const char *at)
{
    if (train_config_is_shape(name))
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

gyre_status_t train_resume_options(const train_config_t *options, int prefix_masks, const json_t *run,
                                   const char *at)
{
    const json_t *then = json_object_get(run, "options");
    const char *name, *old;
    char value[TRAIN_VALUE], unsaid[TRAIN_VALUE], shown[TRAIN_VALUE];
    if (!json_is_object(then))
        return gyre_fail(GYRE_ERR_FORMAT, "%s does not say what the options were", at);
    for (int i = 0; (i = train_config_exact(options, (size_t)i, &name, value, sizeof value)) >= 0; i++) {
        old = json_string_value(json_object_get(then, name));
        if (!old && train_config_unsaid((size_t)i, prefix_masks, unsaid, sizeof unsaid))
            old = unsaid;
        if (!old)
            return gyre_fail(GYRE_ERR_FORMAT, "%s does not say what --%s was", at, name);
        if (!train_config_same((size_t)i, value, old, shown, sizeof shown) &&
            !train_config_may_change(options, name))
            return differs(name, value, shown, at);
    }
    return GYRE_OK;
}

/* ---- choosing one -------------------------------------------------------------------------------------- */

gyre_status_t train_all_well(const train_parts_t *parts, gyre_status_t mine, int *well)
{
    int64_t word = mine == GYRE_OK;
    gyre_status_t status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), parts->comm);
    *well = status == GYRE_OK && word == 1;
    return mine != GYRE_OK ? mine : status;
}

static void tell_unused(uint64_t step, const char *folder)
{
    log_warning("the checkpoint of step %" PRIu64 " in %s is not used: looking for an older one", step,
                folder);
}

/* A checkpoint that the ranks look at. */
typedef struct {
    uint64_t step;
    int owner;
    int shared;                 /* all ranks see it */
    optim_snapshot_t *snapshot; /* NULL: this one does not */
    json_t *run;
    char at[4096];
    char shortage[512]; /* why this rank could not look at a checkpoint that may be good */
} candidate_t;

/* A checkpoint is no worse for a process that has no memory or descriptors to look at it. */
static gyre_status_t looked(candidate_t *found, gyre_status_t status)
{
    if (status == GYRE_ERR_NO_MEMORY && !*found->shortage)
        snprintf(found->shortage, sizeof found->shortage, "%s", gyre_last_error());
    return status;
}

/* The newest step below `below` that a quick look finds whole, plus one; 0: none. */
static uint64_t newest(const char *folder, uint64_t below, candidate_t *looks)
{
    uint64_t *steps = NULL, found = 0;
    size_t count = 0;
    if (looked(looks, optim_snapshot_list(folder, &steps, &count)) != GYRE_OK)
        return 0; /* another rank may see one */
    for (size_t i = 0; found == 0 && i < count; i++) {
        if (steps[i] >= below)
            continue;
        if (looked(looks, optim_snapshot_check(folder, steps[i])) == GYRE_OK)
            found = steps[i] + 1;
        else
            tell_unused(steps[i], folder);
    }
    free(steps);
    return found;
}

/* The newest below `below` that anybody sees. found->owner: the lowest rank that does; -1: there is none.
 * An error where a rank could not look: what the others see may be too old. */
static gyre_status_t choose(const train_parts_t *parts, uint64_t below, candidate_t *found)
{
    const int64_t mask = ((int64_t)1 << OWNER_BITS) - 1, could_not = INT64_MAX - mask;
    uint64_t mine = newest(parts->folder, below, found);
    int64_t word = *found->shortage ? INT64_MAX - gyre_comm_rank(parts->comm)
                   : mine > 0       ? (int64_t)(mine << OWNER_BITS) | (mask - gyre_comm_rank(parts->comm))
                                    : 0;
    gyre_status_t status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MAX), parts->comm);
    if (status == GYRE_OK && *found->shortage)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "the checkpoints in %s could not be looked at: %s",
                           parts->folder, found->shortage);
    else if (status == GYRE_OK && word >= could_not)
        status = gyre_fail(GYRE_ERR_ABORTED, "rank %d could not look at the checkpoints in %s: see its log",
                           (int)(INT64_MAX - word), parts->folder);
    found->owner = word > 0 ? (int)(mask - (word & mask)) : -1;
    found->step = word > 0 ? (uint64_t)(word >> OWNER_BITS) - 1 : 0;
    return status;
}

static void drop(candidate_t *found)
{
    optim_snapshot_close(found->snapshot);
    json_decref(found->run);
    found->snapshot = NULL;
    found->run = NULL;
}

/* The owner's object of the run reaches all. *kept: NO_MEMORY where it could not be kept, on that rank alone:
 * it has taken part all the same. */
static gyre_status_t pass_run(const train_parts_t *parts, candidate_t *found, uint64_t *hash,
                              gyre_status_t *kept)
{
    char piece[4096];
    json_error_t error;
    int lacks;
    int mine = gyre_comm_rank(parts->comm) == found->owner;
    char *text =
        mine && found->snapshot ? base_json_dump(optim_snapshot_run(found->snapshot), JSON_COMPACT) : NULL;
    if (mine && found->snapshot && !text)
        *kept = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to pass on what %s says of its run", found->at);
    uint64_t word[2] = {mine && found->snapshot ? optim_snapshot_hash(found->snapshot) : 0,
                        text ? strlen(text) + 1 : 0};
    gyre_status_t status = gyre_broadcast(word, word, 2, GYRE_UINT64, found->owner, parts->comm);
    if (status == GYRE_OK && !mine && word[1] > 0)
        text = malloc(word[1]);
    for (size_t at = 0, n; status == GYRE_OK && at < word[1]; at += n) {
        n = word[1] - at < sizeof piece ? word[1] - at : sizeof piece;
        if (mine)
            memcpy(piece, text + at, n);
        status = gyre_broadcast(piece, piece, n, GYRE_UINT8, found->owner, parts->comm);
        if (text && !mine)
            memcpy(text + at, piece, n);
    }
    if (status == GYRE_OK && word[1] > 0 &&
        (!text || !(found->run = base_json_text(text, strlen(text), &error, &lacks))))
        *kept =
            gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for what the checkpoint %s says of its run", found->at);
    *hash = word[0];
    free(text);
    return status;
}

/* Opens it wherever it can be seen. found->run is NULL where its owner cannot open it any more. *well: no
 * rank failed alone; an error of one is its answer, and that of others is GYRE_OK. */
static gyre_status_t look_at(const train_parts_t *parts, candidate_t *found, int *well)
{
    const char *folder = parts->folder;
    uint64_t hash;
    gyre_status_t mine = GYRE_OK;
    if (!optim_snapshot_path(folder, found->step, found->at, sizeof found->at))
        mine = gyre_fail(GYRE_ERR_INVALID, "the name of the checkpoint folder is too long: %.80s...", folder);
    int muted =
        base_log_mute(gyre_comm_rank(parts->comm) != found->owner); /* a rank need not see the folder */
    if (mine == GYRE_OK)
        (void)looked(found, optim_snapshot_open(folder, found->step, &found->snapshot));
    base_log_mute(muted);
    gyre_status_t status = pass_run(parts, found, &hash, &mine);
    if (status != GYRE_OK)
        return status;
    enum { FAILED, SEES_NOT, SEES };
    int64_t least = mine != GYRE_OK                                                   ? FAILED
                    : found->snapshot && optim_snapshot_hash(found->snapshot) == hash ? SEES
                                                                                      : SEES_NOT;
    status = gyre_all_reduce(&least, &least, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), parts->comm);
    found->shared = least == SEES;
    *well = status == GYRE_OK && least != FAILED;
    if (!found->shared && gyre_comm_rank(parts->comm) != found->owner) {
        optim_snapshot_close(found->snapshot);
        found->snapshot = NULL;
    }
    return mine != GYRE_OK ? mine : status;
}

/* ---- checking and reading it --------------------------------------------------------------------------- */

static gyre_status_t check_data(const train_parts_t *parts, const candidate_t *found)
{
    const model_data_t *data = parts->data;
    const json_t *then = json_object_get(found->run, "data");
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(then, "bytes"));
    uint64_t hash = base_json_hex_value(json_object_get(then, "xxh3"));
    const pipe_tokenizer_t learned = pipe_tokenizer_recorded(found->run);
    if (data->bytes == bytes && data->hash == hash)
        return GYRE_OK;
    if (train_config_may_change(parts->options, "data"))
        return pipe_tokenizer_compare(&learned, parts->folder, parts->options->data, &parts->tokenizer);
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s holds %zu bytes with hash %016" PRIx64 ", but the run in %s was begun on %" PRIu64
                     " bytes with hash %016" PRIx64
                     ": give the same text with --data%s, or --may-change data to go on with another",
                     parts->options->data, data->bytes, data->hash, parts->folder, bytes, hash,
                     parts->options->valid_data ? " and --valid-data" : "");
}

/* Adapters are for the weights that they were trained on. */
static gyre_status_t check_base(const train_parts_t *parts, const candidate_t *found)
{
    const json_t *then = json_object_get(found->run, "base");
    if (!json_is_string(then) || parts->base == 0 || base_json_hex_value(then) == parts->base)
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_INVALID,
        "the adapters in %s were trained on other weights than those in %s: give the --load that "
        "the run was begun with",
        found->at, parts->options->load);
}

/* It is of this run, as far as bits depend on it. */
static gyre_status_t check_run(const train_parts_t *parts, const candidate_t *found, train_state_t *state)
{
    state->step = found->step;
    gyre_status_t status =
        train_resume_options(parts->options, parts->params->config.prefix, found->run, found->at);
    if (status == GYRE_OK)
        status = compare_model(parts, found->run, found->at);
    if (status == GYRE_OK)
        status = train_state_read(found->run, found->at, state);
    if (status == GYRE_OK)
        status = check_data(parts, found);
    if (status == GYRE_OK)
        status = check_base(parts, found);
    const char *blas = json_string_value(json_object_get(found->run, "blas"));
    if (status == GYRE_OK && blas && strcmp(blas, model_matmul_kind()) != 0)
        log_warning("%s was written on a processor of another kind (%s; this is %s): from here on the curve "
                    "is not to "
                    "the bit what it would have been there",
                    found->at, blas, model_matmul_kind());
    return status == GYRE_OK && found->snapshot ? optim_snapshot_fit(found->snapshot, parts->params) : status;
}

/* Every file's checksum, each by one rank. *good: all are right, for all ranks; rank 0 logs what is
 * wrong. */
static gyre_status_t check_files(const train_parts_t *parts, candidate_t *found, int *good)
{
    enum { TEXT = 512 };
    char text[TEXT] = "";
    int rank = gyre_comm_rank(parts->comm), ranks = gyre_comm_size(parts->comm);
    gyre_status_t mine = GYRE_OK;
    int muted = base_log_mute(1);
    if (found->snapshot)
        mine = looked(found, optim_snapshot_verify(found->snapshot, found->shared ? (size_t)rank : 0,
                                                   found->shared ? (size_t)ranks : 1));
    base_log_mute(muted);
    if (mine != GYRE_OK)
        snprintf(text, sizeof text, "%s", gyre_last_error());
    int64_t lowest = mine == GYRE_OK ? INT64_MAX : rank;
    gyre_status_t status = gyre_all_reduce(&lowest, &lowest, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), parts->comm);
    *good = lowest == INT64_MAX;
    if (status != GYRE_OK || *good)
        return status;
    status = gyre_broadcast(text, text, TEXT, GYRE_UINT8, (int)lowest, parts->comm);
    if (status == GYRE_OK && rank == 0) {
        log_error("%s", text);
        tell_unused(found->step, parts->folder);
    }
    return status;
}

typedef struct {
    const train_parts_t *parts;
    const optim_snapshot_t *snapshot;
} reader_t;

static gyre_status_t read_range(void *user, const optim_range_t *range)
{
    const reader_t *reader = user;
    return optim_snapshot_read(reader->snapshot, reader->parts->params, range, 1);
}

static gyre_status_t read_all(const train_parts_t *parts, const candidate_t *found)
{
    reader_t reader = {parts, found->snapshot};
    return found->shared ? optim_checkpoint_visit(parts->zero, OPTIM_STATE_LOAD, read_range, &reader)
                         : train_resume_from_owner(parts, found->snapshot, found->owner);
}

/* Finds one whose files are right. *well: it is of this run, for all ranks. */
static gyre_status_t find(const train_parts_t *parts, candidate_t *found, train_state_t *state, int *well)
{
    uint64_t below = UINT64_MAX;
    for (int good = 0; !good; below = found->step) {
        drop(found);
        *well = 0;
        gyre_status_t status = choose(parts, below, found);
        if (status == GYRE_OK && found->owner >= 0)
            status = look_at(parts, found, well);
        if (status != GYRE_OK || !*well) /* the latter also where there is none */
            return status;
        if (!found->run) /* its owner cannot open it any more */
            continue;
        status = train_all_well(parts, check_run(parts, found, state), well);
        if (status == GYRE_OK && *well)
            status = check_files(parts, found, &good);
        if (status != GYRE_OK || !*well)
            return status;
    }
    return GYRE_OK;
}

/* The owner looks whether an older checkpoint is of another run. Which of the two this one was cannot be
 * known, and going on as the other would take its checkpoints away. */
static gyre_status_t check_alone(const train_parts_t *parts, const candidate_t *found)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (gyre_comm_rank(parts->comm) != found->owner)
        return GYRE_OK;
    gyre_status_t status = optim_snapshot_list(parts->folder, &steps, &count);
    for (size_t i = 0; status == GYRE_OK && i < count; i++)
        if (steps[i] < found->step && optim_snapshot_is_other(parts->folder, steps[i], found->run))
            status = gyre_fail(GYRE_ERR_INVALID,
                               "%s holds checkpoints of two runs, such as those of steps %" PRIu64
                               " and %" PRIu64 ": end the other run, and move the checkpoints of one of them "
                               "to another folder",
                               parts->folder, steps[i], found->step);
    free(steps);
    return status;
}

/* 1: the options of `run` have another number for this one. */
static int differs_from(const json_t *run, const char *option, double now)
{
    const char *then = json_string_value(json_object_get(json_object_get(run, "options"), option));
    return then && strtod(then, NULL) != now;
}

/* The loss scale of a run that was not of fp16 before, or that --may-change lets go on otherwise. The
 * interval needs nothing: optim_scaler_update looks at it in each step. */
static void change_scaler(const train_config_t *options, const json_t *run, optim_scaler_t *scaler)
{
    const int anew = scaler->scale == 0.0 || differs_from(run, "loss-scale", options->loss_scale);
    if (anew) {
        scaler->scale = options->loss_scale;
        scaler->good = 0;
    }
    if (anew || differs_from(run, "loss-scale-hysteresis", (double)options->loss_scale_hysteresis))
        scaler->left = options->loss_scale_hysteresis;
    scaler->scale = fmax(scaler->scale, options->loss_scale_min);
}

/* All of parts->zero was filled with this state. */
static gyre_status_t loaded(const train_parts_t *parts, const train_state_t *state, const json_t *run)
{
    optim_scaler_t scaler = state->scaler;
    if (optim_zero_scaler(parts->zero))
        change_scaler(parts->options, run, &scaler);
    /* AdamW counts the updates that were made */
    return optim_zero_loaded(parts->zero, state->step - state->spike.skipped - scaler.skipped, &scaler);
}

gyre_status_t train_resume(const train_parts_t *parts, train_state_t *state, int *found)
{
    candidate_t candidate = {0};
    int well = 0;
    gyre_status_t status = find(parts, &candidate, state, &well);
    if (status == GYRE_OK && well)
        status = train_all_well(parts, check_alone(parts, &candidate), &well);
    if (status == GYRE_OK && well)
        status = train_all_well(parts, read_all(parts, &candidate), &well);
    if (status == GYRE_OK && well)
        status = loaded(parts, state, candidate.run);
    drop(&candidate);
    *found = status == GYRE_OK && well;
    return status;
}
