/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/objective.c: what a run learns of each sequence of its data. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "model/data/packing.h"
#include "model/random.h"
#include "pipeline/train/run.h"

static gyre_status_t parse_ids(const char *text, model_infill_ids_t *ids)
{
    int end = -1;
    if (sscanf(text, "%9d,%9d,%9d,%9d%n", &ids->mask, &ids->gmask, &ids->sop, &ids->eop, &end) !=
            MODEL_INFILL_IDS ||
        end < 0 || text[end] != '\0')
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--infill-ids %s: it must be four ids, [MASK],[gMASK],[sop],[eop], such as 256,257,258,259",
            text);
    return GYRE_OK;
}

/* Ids of the data's own vocabulary may be some that no text of it has: only reading all of it could tell. */
static void tell_inside(const train_run_t *run, const model_infill_ids_t *ids)
{
    const model_token_t id[] = {ids->mask, ids->gmask, ids->sop, ids->eop};
    for (size_t i = 0; i < MODEL_INFILL_IDS; i++)
        if (id[i] >= 0 && (size_t)id[i] < run->data->vocab) {
            log_warning(
                "--infill-ids %s: %d is one of the data's %zu ids: training ends where a text holds it",
                run->options->infill_ids, id[i], run->data->vocab);
            return;
        }
}

/* The ids that no text has; options say them from now on, for log and checkpoints. */
static gyre_status_t choose_ids(train_run_t *run)
{
    char text[64];
    size_t vocab = run->shape.vocab;
    model_infill_ids_t *ids = &run->infill_ids;
    if (run->options->infill_ids) {
        gyre_status_t status = parse_ids(run->options->infill_ids, ids);
        if (status == GYRE_OK)
            tell_inside(run, ids);
        return status;
    }
    if (run->data->vocab + MODEL_INFILL_IDS > vocab)
        return gyre_fail(GYRE_ERR_INVALID,
                         "blank infilling needs %d ids in addition to the data's %zu, but the model has %zu "
                         "in all: give it "
                         "%zu, or train it with --objective prefix",
                         MODEL_INFILL_IDS, run->data->vocab, vocab, run->data->vocab + MODEL_INFILL_IDS);
    *ids = model_infill_ids_last(vocab);
    snprintf(text, sizeof text, "%d,%d,%d,%d", ids->mask, ids->gmask, ids->sop, ids->eop);
    return (run->options->infill_ids = strdup(text))
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", text);
}

/* Masks, and documents that do not see one another. */
static gyre_status_t check_documents(const train_run_t *run)
{
    const train_config_t *options = run->options;
    const model_config_t *shape = &run->shape;
    int documents = model_data_has_documents(run->data), masked = run->data->masked || documents;
    const char *what = documents ? "--sampling packed and padded" : "data with a mask of what is learned";
    if (masked && run->objective != MODEL_OBJECTIVE_CAUSAL)
        return gyre_fail(GYRE_ERR_INVALID, "%s: only --objective causal heeds documents and masks", what);
    if (masked && options->device)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: a GPU heeds neither documents nor masks yet: train with --device cpu", what);
    if (documents && (shape->prefix || shape->experts > 0 || shape->top_query))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s: not for models with experts, prefix masks or a layer of queries on top, in which "
            "documents of a sequence would see one another: take --sampling epoch",
            what);
    return GYRE_OK;
}

gyre_status_t train_objective_choose(train_run_t *run)
{
    train_config_t *options = run->options;
    const model_config_t *shape = &run->shape;
    if (options->objective == TRAIN_OBJECTIVE_AUTO)
        options->objective = 1 + (shape->prefix ? MODEL_OBJECTIVE_INFILL : MODEL_OBJECTIVE_CAUSAL);
    run->objective = (model_objective_t)(options->objective - 1);
    gyre_status_t fits = check_documents(run);
    if (fits != GYRE_OK)
        return fits;
    if (run->objective != MODEL_OBJECTIVE_CAUSAL && !shape->prefix)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--objective %s needs a model with prefix masks (\"model_type\": \"glm\"): this one's are causal",
            run->objective == MODEL_OBJECTIVE_INFILL ? "infill" : "prefix");
    if (run->objective != MODEL_OBJECTIVE_INFILL)
        return options->infill_ids
                   ? gyre_fail(GYRE_ERR_INVALID, "--infill-ids is for --objective infill only")
                   : GYRE_OK;
    if (shape->pos != MODEL_POS_ROPE)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--objective infill needs rotary positions, as GLM has them: train this model with "
                         "--objective prefix");
    gyre_status_t status = choose_ids(run);
    return status == GYRE_OK ? model_infill_create(&run->infill_ids, shape->vocab, shape->seq, &run->infill)
                             : status;
}

void train_documents_tell(const train_run_t *run)
{
    const model_mix_t *mix = &run->data->train;
    uint64_t documents = 0, cut = 0, unlearned = 0, sequences = 0, positions = 0;
    for (size_t s = 0; mix->packing && s < mix->sources; s++) {
        documents += mix->packing[s]->documents;
        cut += mix->packing[s]->cut;
        unlearned += mix->packing[s]->unlearned;
        sequences += mix->packing[s]->sequences;
        positions += mix->packing[s]->positions;
    }
    if (documents > 0)
        log_info("%" PRIu64 " documents in %" PRIu64 " sequences, of which %.1f %% are not padding",
                 documents, sequences,
                 100.0 * (double)positions / ((double)sequences * (double)run->shape.seq));
    if (cut > 0)
        log_warning("%" PRIu64 " of %" PRIu64
                    " documents are longer than a sequence of %zu tokens: their ends are "
                    "not trained on; a longer --seq takes them",
                    cut, documents, run->shape.seq);
    if (unlearned > 0)
        log_warning("%" PRIu64 " documents are left out: none of their first %zu tokens is learned",
                    unlearned, run->shape.seq + 1);
}

/* ---- sequences ----------------------------------------------------------------------------------------- */

/* A part of each sequence, drawn anew, is seen as a whole. `place`: its number in the run, or in the
 * validation set, whose prefixes are thus those of the first sequences of training. With --sampling epoch the
 * first source takes some of the same random numbers: number 0 for the key of its order (model/data/order.c),
 * number e + 1 for the beginning of epoch e (model/data/blend.c). They serve different ends there, so that
 * nothing depends on it; other numbers would change the bits of runs with prefixes. */
static size_t draw_prefix(const train_run_t *run, uint64_t place)
{
    double part = model_random_uniform(run->options->seed, MODEL_RANDOM_DATA, UINT32_MAX, place);
    return (size_t)(part * (double)run->shape.seq);
}

static gyre_status_t pose(train_run_t *run, model_random_use_t use, uint64_t number, model_example_t *out)
{
    if (run->objective == MODEL_OBJECTIVE_INFILL)
        return model_infill_make(run->infill, run->options->seed, use, number, out);
    for (size_t t = 0; out->positions && t < run->shape.seq; t++)
        out->positions[t] = (int32_t)t;
    if (run->objective == MODEL_OBJECTIVE_PREFIX)
        out->prefix = draw_prefix(run, number);
    return GYRE_OK;
}

gyre_status_t train_fetch(void *user, size_t index, model_example_t *out)
{
    train_run_t *run = user;
    const model_data_step_t step = {
        .seed = run->options->seed, .step = run->next, .samples = run->before_next};
    gyre_status_t status = model_data_train(run->data, &step, index, out);
    return status == GYRE_OK ? pose(run, MODEL_RANDOM_INFILL, step.samples + index, out) : status;
}

gyre_status_t train_fetch_validation(void *user, size_t index, model_example_t *out)
{
    train_run_t *run = user;
    size_t set = run->val_set, all = model_data_validation_count(run->data, set);
    size_t place = (size_t)((double)index * (double)all / (double)run->val_count[set]); /* spread evenly */
    gyre_status_t status = model_data_validation(run->data, set, place < all ? place : all - 1, out);
    return status == GYRE_OK ? pose(run, MODEL_RANDOM_INFILL_VALIDATION, index, out) : status;
}

/* *found: some target of the set's sequences in use is learned. Nearly always one of the first one is. */
static gyre_status_t find_learned(train_run_t *run, model_example_t *example, int *found)
{
    gyre_status_t status = GYRE_OK;
    *found = 0;
    for (size_t i = 0; status == GYRE_OK && !*found && i < run->val_count[run->val_set]; i++) {
        status = train_fetch_validation(run, i, example);
        for (size_t t = 0; status == GYRE_OK && !*found && t < run->shape.seq; t++)
            *found = example->targets[t] != MODEL_IGNORED;
    }
    return status;
}

static gyre_status_t refuse_unlearned(const train_run_t *run)
{
    const model_valid_t *set = &run->data->set[run->val_set];
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s%s%s: none of the %zu sequences of %zu tokens for validation has a token that is learned: "
        "take %s--sampling packed (whole documents), a longer --seq, or other data for "
        "validation",
        run->options->valid_data ? "--valid-data" : run->options->data, *set->name ? " " : "", set->name,
        run->val_count[run->val_set], run->shape.seq,
        run->val_count[run->val_set] < set->sequences ? "more --eval-sequences, " : "");
}

gyre_status_t train_count_validation(train_run_t *run)
{
    const model_data_t *data = run->data;
    const size_t seq = run->shape.seq, most = run->options->eval_sequences;
    model_token_t *tokens = calloc(2 * seq, sizeof *tokens);
    model_example_t example = {.tokens = tokens, .targets = tokens + seq};
    gyre_status_t status =
        tokens ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a sequence of %zu tokens", seq);
    for (size_t s = 0; status == GYRE_OK && s < data->sets; s++) {
        const size_t all = model_data_validation_count(data, s);
        int found = 1;
        run->val_count[s] = all < most ? all : most;
        run->val_set = s;
        if (data->masked) /* with prefixes nothing is */
            status = find_learned(run, &example, &found);
        if (status == GYRE_OK && !found)
            status = refuse_unlearned(run);
    }
    free(tokens);
    return status;
}
