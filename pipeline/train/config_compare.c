/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/config_compare.c: whether all ranks were given the same run.
 *
 * Launchers start each rank with a command line of its own, and hosts have files of their own. Ranks that
 * were given different options would wait for each other's collectives, or train on, each on another curve.
 * So before the first of those collectives every rank compares a hash per option, and of the model and data
 * that it found, with those of rank 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "model/formats/hf.h"
#include "model/network/hf_config.h"
#include "pipeline/agree/agree.h"
#include "pipeline/config/table.h"
#include "pipeline/train/run.h"

enum {
    FACTS = TRAIN_KEYS + 5, /* a row each, then: */
    FACT_MODEL = TRAIN_KEYS,
    FACT_WEIGHTS,
    FACT_ADAPTERS,
    FACT_DATA,
    FACT_VALIDATION,
    SEQUENCES = 64, /* of the first batch, at most, that stand for the content of the data */
    VALUE = 160     /* bytes of a value as text */
};

/* 0: ranks may differ. What is in a file that has other names on another host is compared as the options,
 * the model and the data that it gives. */
static uint64_t hash_row(const train_config_t *options, const train_row_t *row)
{
    const void *at = (const char *)options + row->at;
    if (row->matters == TRAIN_OWN || row->matters == TRAIN_CONTENT)
        return 0;
    if (row->matters == TRAIN_SHAPE && (options->load || options->model || options->recipe) &&
        !train_config_given(options, row->name))
        return 0; /* the file's, which FACT_MODEL names */
    if (row->kind == TRAIN_TEXT) {
        const char *text = *(const char *const *)at;
        if (!text)
            return 0;
        return row->matters == TRAIN_TOGETHER ? 1 : base_hash64(text, strlen(text), 1);
    }
    if (row->kind == TRAIN_SWITCH || row->kind == TRAIN_CHOICE)
        return base_hash64(at, sizeof(int), 0);
    return base_hash64(at, sizeof(uint64_t), 0); /* or a double */
}

/* Sizes, and the sequences that the run begins with; all content where --checkpoint has made it known. */
static gyre_status_t hash_data(const train_run_t *run, uint64_t *train, uint64_t *valid)
{
    const model_data_t *data = run->data;
    const model_data_step_t first = {.seed = run->options->seed};
    const uint64_t size[] = {data->bytes, data->tokens, data->vocab, data->hash};
    size_t seq = run->shape.seq;
    size_t batch = run->options->batch < SEQUENCES ? run->options->batch : SEQUENCES;
    model_token_t *tokens = calloc(2 * seq, sizeof *tokens);
    if (!tokens)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a sequence of %zu tokens", seq);
    const model_example_t example = {.tokens = tokens, .targets = tokens + seq};
    gyre_status_t status = GYRE_OK;
    *train = base_hash64(size, sizeof size, 0);
    *valid = 0;
    for (size_t i = 0; status == GYRE_OK && i < batch; i++)
        if ((status = model_data_train(data, &first, i, &example)) == GYRE_OK)
            *train = base_hash64(tokens, 2 * seq * sizeof *tokens, *train);
    for (size_t s = 0; status == GYRE_OK && s < data->sets; s++) {
        const size_t validation = model_data_validation_count(data, s);
        *valid = base_hash64(data->set[s].name, strlen(data->set[s].name), *valid + validation);
        for (size_t i = 0; status == GYRE_OK && i < 2 && i < validation; i++)
            if ((status = model_data_validation(data, s, i * (validation - 1), &example)) == GYRE_OK)
                *valid = base_hash64(tokens, 2 * seq * sizeof *tokens, *valid);
    }
    free(tokens);
    return status;
}

/* Of the weights that the run begins with, and of the adapters that they are merged with. */
static gyre_status_t hash_weights(const train_run_t *run, uint64_t *hash, uint64_t *adapters)
{
    model_params_t *whole = NULL;
    model_hf_t *hf = NULL;
    model_peft_t *peft = NULL;
    *hash = run->source ? pipe_source_hash(run->source) : 0;
    if (run->source || !run->options->load || gyre_comm_size(run->comm) == 1)
        return GYRE_OK;
    gyre_status_t status = model_params_create(&run->shape, &whole);
    if (status == GYRE_OK)
        status = model_hf_open(run->options->load, whole, &hf);
    if (status == GYRE_OK)
        status = model_hf_sample(hf, hash);
    if (status == GYRE_OK && run->options->load_adapters &&
        (status = model_peft_open(run->options->load_adapters, whole, &peft)) == GYRE_OK)
        status = model_peft_hash(peft, adapters);
    model_peft_close(peft);
    model_hf_close(hf);
    model_params_destroy(whole);
    return status;
}

static gyre_status_t look(const train_run_t *run, uint64_t *fact)
{
    memset(fact, 0, FACTS * sizeof *fact);
    for (size_t i = 0; i < train_rows_count; i++)
        fact[i] = hash_row(run->options, &train_rows[i]);
    gyre_status_t status = model_config_hash(&run->shape, &fact[FACT_MODEL]);
    if (status == GYRE_OK)
        status = hash_weights(run, &fact[FACT_WEIGHTS], &fact[FACT_ADAPTERS]);
    return status == GYRE_OK ? hash_data(run, &fact[FACT_DATA], &fact[FACT_VALIDATION]) : status;
}

static const char *name_of(const train_run_t *run, size_t i)
{
    if (i == FACT_MODEL)
        return run->options->recipe ? "recipe" : run->options->load ? "load" : "model";
    if (i == FACT_WEIGHTS)
        return "load";
    if (i == FACT_ADAPTERS)
        return "load-adapters";
    if (i == FACT_DATA || (i == FACT_VALIDATION && !run->options->valid_data))
        return "data";
    return i == FACT_VALIDATION ? "valid-data" : train_rows[i].name;
}

/* What this rank has, for the message. */
static void print_value(const train_run_t *run, size_t i, uint64_t hash, char *text)
{
    const train_config_t *options = run->options;
    const char *name, *path;
    char value[VALUE];
    if (i < TRAIN_KEYS) {
        (void)train_config_row(options, i, &name, value, sizeof value);
        snprintf(text, VALUE, "%.150s", *value ? value : "not given");
        return;
    }
    if (i == FACT_WEIGHTS && run->source) {
        snprintf(text, VALUE, "%.100s (step %llu)", options->load,
                 (unsigned long long)pipe_source_step(run->source));
        return;
    }
    path = i == FACT_WEIGHTS                        ? options->load
           : i == FACT_ADAPTERS                     ? options->load_adapters
           : i == FACT_MODEL                        ? (options->recipe  ? options->recipe
                                                       : options->model ? options->model
                                                                        : options->load)
           : i == FACT_DATA || !options->valid_data ? options->data
                                                    : options->valid_data;
    if (i == FACT_DATA)
        snprintf(text, VALUE, "%.80s (%llu bytes, %016llx)", path, (unsigned long long)run->data->bytes,
                 (unsigned long long)hash);
    else
        snprintf(text, VALUE, "%.100s (%016llx)", path ? path : "as the flags say", (unsigned long long)hash);
}

gyre_status_t train_compare_ranks(train_run_t *run)
{
    uint64_t mine[FACTS], first[FACTS];
    char why[512];
    gyre_status_t looked = look(run, mine);
    size_t i = 0;
    snprintf(why, sizeof why, "%s", gyre_last_error()); /* the calls below may change it */
    memcpy(first, mine, sizeof first);
    gyre_status_t status = gyre_broadcast(first, first, FACTS, GYRE_UINT64, 0, run->comm);
    if (status != GYRE_OK)
        return status;
    while (looked == GYRE_OK && i < FACTS && mine[i] == first[i])
        i++;
    /* the first option, of it the lowest rank; the lowest that could not look and has logged why is first */
    const int64_t blind = INT64_MIN / 2;
    int64_t word = looked != GYRE_OK ? blind + ((int64_t)run->rank << 16 | (int64_t)looked)
                   : i == FACTS      ? INT64_MAX
                                     : (int64_t)i << 32 | run->rank;
    status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), run->comm);
    if (status != GYRE_OK && looked != GYRE_OK)
        return gyre_fail_quiet(looked, "%s", why); /* what failed here came first */
    if (status != GYRE_OK || word == INT64_MAX)
        return status;
    run->agreed = 1;
    if (word < 0)
        return pipe_agree_failed(run->comm, (int)((word - blind) >> 16),
                                 (gyre_status_t)((word - blind) & 0xffff), looked, why);
    size_t which = (size_t)(word >> 32);
    int other = (int)(word & 0xffffffff);
    char here[VALUE], there[VALUE] = "";
    print_value(run, which, mine[which], here);
    memcpy(there, here, sizeof there);
    status = gyre_broadcast(there, there, VALUE, GYRE_UINT8, other, run->comm);
    if (status != GYRE_OK)
        return status;
    if (run->rank != 0)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "--%s differs between rank 0 and rank %d",
                               name_of(run, which), other);
    return gyre_fail(
        GYRE_ERR_INVALID,
        "--%s is %s on rank 0, but %s on rank %d: start all ranks with the same options and data",
        name_of(run, which), here, there, other);
}
