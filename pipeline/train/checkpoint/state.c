/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/state.c: what a checkpoint's index says of its run, written and read. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/network/hf_config.h"
#include "pipeline/train/checkpoint/checkpoint.h"

/* As text: exact, and JSON has no word for NaN. */
static json_t *real(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return json_string(text);
}

/* NULL: no memory. */
static json_t *describe_spikes(const optim_spike_t *spike)
{
    json_t *loss = json_array(), *norm = json_array();
    int bad = 0;
    for (size_t i = 0; i < spike->count; i++)
        bad |= json_array_append_new(loss, real(spike->loss[i])) != 0 ||
               json_array_append_new(norm, real(spike->norm[i])) != 0;
    if (!bad)
        return json_pack("{s:I, s:o, s:o}", "skipped", (json_int_t)spike->skipped, "loss", loss, "norm",
                         norm);
    json_decref(loss);
    json_decref(norm);
    return NULL;
}

/* What it was: 1, or 0 if it is malformed. There is none before the first step of a run with --spike-loss or
 * --spike-norm. */
static int read_spikes(const json_t *run, uint64_t steps, optim_spike_t *spike)
{
    const json_t *said = json_object_get(run, "spikes"), *loss = json_object_get(said, "loss"),
                 *norm = json_object_get(said, "norm");
    const json_int_t skipped = json_integer_value(json_object_get(said, "skipped"));
    *spike = (optim_spike_t){.skipped = (uint64_t)skipped, .count = json_array_size(loss)};
    if (!said)
        return 1;
    int good = skipped >= 0 && spike->skipped <= steps && spike->count <= OPTIM_SPIKE_MOST &&
               json_array_size(norm) == spike->count;
    for (size_t i = 0; good && i < spike->count; i++) {
        const char *a = json_string_value(json_array_get(loss, i)),
                   *b = json_string_value(json_array_get(norm, i));
        spike->loss[i] = a ? strtod(a, NULL) : (double)NAN;
        spike->norm[i] = b ? strtod(b, NULL) : (double)NAN;
        good = isfinite(spike->loss[i]) && isfinite(spike->norm[i]);
    }
    return good;
}

/* The path from the root of the model that the run began with, in which an export finds what training does
 * not change; NULL: there is none. 0: no memory. A path that is not UTF-8 is left out. */
static int record_origin(json_t *run, const char *path)
{
    char at[PATH_MAX];
    json_t *said = path ? json_string(realpath(path, at) ? at : path) : NULL;
    return !said || json_object_set_new(run, "origin", said) == 0;
}

/* Losses of validation sets that have names; NULL: no memory. */
static json_t *describe_sets(const train_set_t *set)
{
    json_t *sets = json_object();
    for (size_t s = 0; sets && s < MODEL_DATA_SETS && *set[s].name; s++)
        if (json_object_set_new(sets, set[s].name,
                                json_pack("[o, o]", real(set[s].first_val), real(set[s].final_val))) != 0) {
            json_decref(sets);
            return NULL;
        }
    return sets;
}

/* What it was; older checkpoints, and those without such sets, have none. 0: it is malformed. */
static int read_sets(const json_t *run, train_set_t *set)
{
    const char *name, *first, *final;
    json_t *sets = json_object_get(run, "val_sets"), *pair;
    size_t s = 0;
    memset(set, 0, MODEL_DATA_SETS * sizeof *set);
    json_object_foreach(sets, name, pair)
    {
        if (s == MODEL_DATA_SETS || strlen(name) >= MODEL_DATA_NAME ||
            json_unpack(pair, "[s, s]", &first, &final) != 0)
            return 0;
        snprintf(set[s].name, sizeof set[s].name, "%s", name);
        set[s].first_val = strtod(first, NULL);
        set[s++].final_val = strtod(final, NULL);
    }
    return 1;
}

json_t *train_state_describe(const train_parts_t *parts, const train_state_t *state)
{
    const char *name;
    char value[TRAIN_VALUE];
    json_t *options = json_object();
    int bad = !options;
    for (int i = 0; (i = train_config_exact(parts->options, (size_t)i, &name, value, sizeof value)) >= 0; i++)
        bad |= json_object_set_new(options, name, json_string(value));
    json_t *run = json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:I, s:o}}", "program", "gyre-train " GYRE_VERSION,
        "blas", model_matmul_kind(), "ranks", (json_int_t)state->ranks, "sequences",
        (json_int_t)state->sequences, "seconds", real(state->seconds), "progress", real(state->progress),
        "first_val", real(state->first_val), "final_val", real(state->final_val), "options", options, "data",
        "bytes", (json_int_t)parts->data->bytes, "xxh3", base_json_hex(parts->data->hash));
    json_t *model = NULL;
    bad |= !run || model_config_to_json(&parts->params->config, &model) != GYRE_OK ||
           json_object_set_new(run, "model", model) != 0;
    if (!bad && state->id != 0)
        bad = json_object_set_new(run, "id", base_json_hex(state->id)) != 0;
    if (!bad && parts->base != 0)
        bad = json_object_set_new(run, "base", base_json_hex(parts->base)) != 0;
    if (!bad)
        bad = !pipe_tokenizer_record(run, &parts->tokenizer) || !record_origin(run, parts->origin);
    const optim_scaler_t *scaler = &state->scaler;
    if (!bad && scaler->scale > 0.0)
        bad = json_object_set_new(run, "scaler",
                                  json_pack("{s:o, s:I, s:I, s:I}", "scale", real(scaler->scale), "good",
                                            (json_int_t)scaler->good, "left", (json_int_t)scaler->left,
                                            "skipped", (json_int_t)scaler->skipped)) != 0;
    if (!bad && state->spike.count > 0)
        bad = json_object_set_new(run, "spikes", describe_spikes(&state->spike)) != 0;
    if (!bad && state->unvalidated)
        bad = json_object_set_new(run, "unvalidated", json_true()) != 0;
    if (!bad && state->unlearned > 0)
        bad = json_object_set_new(run, "unlearned", json_integer((json_int_t)state->unlearned)) != 0;
    if (!bad && *state->set[0].name)
        bad = json_object_set_new(run, "val_sets", describe_sets(state->set)) != 0;
    if (run && bad) {
        json_decref(run);
        run = NULL;
    }
    return run;
}

/* What it was: 1, or 0 if it is malformed. A run that never was one of fp16 has none: scale 0. */
static int read_scaler(const json_t *run, optim_scaler_t *scaler)
{
    const char *scale;
    json_int_t good, left, skipped;
    *scaler = (optim_scaler_t){0};
    if (!json_object_get(run, "scaler"))
        return 1;
    if (json_unpack((json_t *)run, "{s:{s:s, s:I, s:I, s:I}}", "scaler", "scale", &scale, "good", &good,
                    "left", &left, "skipped", &skipped) != 0)
        return 0;
    *scaler = (optim_scaler_t){.scale = strtod(scale, NULL),
                               .good = (uint64_t)good,
                               .left = (uint64_t)left,
                               .skipped = (uint64_t)skipped};
    return optim_scaler_valid(scaler) && good >= 0 && left >= 0 && skipped >= 0;
}

static gyre_status_t get_real(const json_t *run, const char *name, const char *at, double *out)
{
    const char *text = json_string_value(json_object_get(run, name));
    char *end = NULL;
    double value = text ? strtod(text, &end) : 0.0;
    if (!text || end == text || *end)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %s is not a number", at, name);
    *out = value;
    return GYRE_OK;
}

gyre_status_t train_state_sequences(const json_t *run, uint64_t step, const char *at, uint64_t *sequences)
{
    const json_t *said = json_object_get(run, "sequences"), *then = json_object_get(run, "options");
    const char *batch = json_string_value(json_object_get(then, "batch"));
    const train_config_t options = {.batch = batch ? strtoull(batch, NULL, 10) : 0,
                                    .batch_rampup =
                                        (char *)json_string_value(json_object_get(then, "batch-rampup"))};
    optim_ramp_t ramp;
    *sequences = (uint64_t)json_integer_value(said);
    if (json_is_integer(said) && json_integer_value(said) >= 0)
        return GYRE_OK;
    if (said || options.batch < 1)
        return gyre_fail(GYRE_ERR_FORMAT, "%s does not say how many sequences its steps had", at);
    gyre_status_t status = train_ramp_read(&options, &ramp);
    if (status == GYRE_OK)
        (void)optim_ramp_at(&ramp, NULL, step, sequences);
    return status;
}

gyre_status_t train_state_read(const json_t *run, const char *at, train_state_t *state)
{
    const char *const name[] = {"seconds", "progress", "first_val", "final_val"};
    double *const field[] = {&state->seconds, &state->progress, &state->first_val, &state->final_val};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < 4; i++)
        status = get_real(run, name[i], at, field[i]);
    if (status == GYRE_OK)
        status = train_state_sequences(run, state->step, at, &state->sequences);
    json_int_t ranks = json_integer_value(json_object_get(run, "ranks"));
    if (status == GYRE_OK && (ranks < 1 || !(state->seconds >= 0.0) || !isfinite(state->seconds)))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: ranks or seconds are out of range", at);
    if (status == GYRE_OK && !read_spikes(run, state->step, &state->spike))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: spikes are malformed", at);
    if (status == GYRE_OK && !read_scaler(run, &state->scaler))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: the loss scale is malformed", at);
    if (status == GYRE_OK && state->scaler.skipped + state->spike.skipped > state->step)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: more updates were skipped than there were steps", at);
    if (status == GYRE_OK && !read_sets(run, state->set))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: val_sets is malformed", at);
    const json_int_t unlearned = json_integer_value(json_object_get(run, "unlearned"));
    state->unlearned = (uint64_t)unlearned;
    if (status == GYRE_OK && (unlearned < 0 || state->unlearned > state->step))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: unlearned is out of range", at);
    state->unvalidated = json_is_true(json_object_get(run, "unvalidated"));
    state->ranks = (uint64_t)ranks;
    state->id = base_json_hex_value(json_object_get(run, "id")); /* older checkpoints have none */
    return status;
}
