/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/blend.c: makes sequences from sources. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/data/packing.h"
#include "model/data/sources.h"
#include "model/random.h"

__extension__ typedef unsigned __int128 wide_t;

/* ---- opening ------------------------------------------------------------------------------------------- */

/* All sources that name their tokenizer must name the same one. */
static gyre_status_t agree(model_data_t *data, const model_tokens_t **teller, const model_mix_t *mix)
{
    for (size_t s = 0; s < mix->sources; s++) {
        const model_tokens_t *tokens = mix->tokens[s], *before = *teller;
        if (tokens->vocab == 0)
            continue;
        if (!before) {
            *teller = tokens;
            data->vocab = tokens->vocab;
            data->tokenizer = tokens->tokenizer;
            data->tokenizer_hash = tokens->tokenizer_hash;
        } else if (tokens->vocab != before->vocab || (tokens->tokenizer_hash && before->tokenizer_hash &&
                                                      tokens->tokenizer_hash != before->tokenizer_hash))
            return gyre_fail(
                GYRE_ERR_INVALID,
                "%s holds ids of '%s' (%zu of them), but %s those of '%s' (%zu): all data must be of one "
                "tokenizer",
                sources_path(tokens), tokens->tokenizer, tokens->vocab, sources_path(before),
                before->tokenizer, before->vocab);
        else if (!data->tokenizer_hash && tokens->tokenizer_hash) {
            *teller = tokens; /* from here on all are compared with this one */
            data->tokenizer = tokens->tokenizer;
            data->tokenizer_hash = tokens->tokenizer_hash;
        }
    }
    return GYRE_OK;
}

static void take_facts(model_data_t *data)
{
    const model_mix_t *mix = &data->train;
    data->is_text = 1;
    for (size_t s = 0; s < mix->sources; s++) {
        const model_tokens_t *tokens = mix->tokens[s];
        data->files += tokens->files;
        data->skipped += tokens->skipped;
        data->tokens += tokens->count;
        data->bytes += tokens->bytes;
        data->is_text &= tokens->format == MODEL_TOKENS_TEXT;
        data->masked |= tokens->masked;
    }
    for (size_t v = 0; data->own_valid && v < data->sets; v++)
        for (size_t s = 0; s < data->set[v].mix.sources; s++)
            data->masked |= data->set[v].mix.tokens[s]->masked;
}

gyre_status_t model_data_identify(model_data_t *data)
{
    uint64_t hash = 0;
    gyre_status_t status;
    const int alone = data->train.sources == 1 && data->is_text && !data->own_valid;
    if (alone) /* of any part that is held out: that is an option of its own */
        status = model_tokens_hash(data->train.tokens[0], &hash);
    else
        status = sources_hash(&data->train, &hash);
    for (size_t s = 0; status == GYRE_OK && !alone && s < data->sets; s++)
        status = sources_hash(&data->set[s].mix, &hash);
    if (status == GYRE_OK)
        data->hash = hash;
    return status;
}

static gyre_status_t open_all(const model_data_config_t *config, model_data_t *data)
{
    const model_tokens_t *teller = NULL;
    gyre_status_t status = sources_open(config->path, config->format, &data->train);
    if (status == GYRE_OK)
        status = data->own_valid ? sources_open_sets(config->valid_path, config->format, data)
                                 : sources_hold_out(data, config->valid_fraction);
    if (status == GYRE_OK)
        status = agree(data, &teller, &data->train);
    for (size_t s = 0; status == GYRE_OK && data->own_valid && s < data->sets; s++)
        status = agree(data, &teller, &data->set[s].mix);
    return status;
}

gyre_status_t model_data_open(const model_data_config_t *config, model_data_t **out)
{
    model_data_t *data = calloc(1, sizeof *data);
    if (!data)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", config->path);
    data->sampling = config->sampling;
    data->own_valid = config->valid_path != NULL;
    data->valid_fraction = config->valid_fraction;
    data->tokenizer = "";
    gyre_status_t status = open_all(config, data);
    if (status != GYRE_OK) {
        model_data_destroy(data);
        return status;
    }
    take_facts(data);
    *out = data;
    return GYRE_OK;
}

static void unpack(model_mix_t *mix)
{
    for (size_t s = 0; mix->packing && s < mix->sources; s++)
        model_packing_destroy(mix->packing[s]);
    free(mix->packing);
    mix->packing = NULL;
}

void model_data_destroy(model_data_t *data)
{
    if (!data)
        return;
    for (size_t s = 0; s < data->sets; s++) {
        unpack(&data->set[s].mix);
        sources_close(&data->set[s].mix, data->own_valid);
        free(data->set[s].share);
    }
    unpack(&data->train);
    sources_close(&data->train, 1);
    free(data->set);
    free(data);
}

static const char *mix_mapped(const model_mix_t *mix, const void *at)
{
    const char *path = NULL;
    for (size_t s = 0; !path && s < mix->sources; s++)
        path = model_tokens_mapped(mix->tokens[s], at);
    return path;
}

const char *model_data_mapped(const model_data_t *data, const void *at)
{
    const char *path = mix_mapped(&data->train, at);
    for (size_t v = 0; !path && v < data->sets; v++)
        path = mix_mapped(&data->set[v].mix, at);
    return path;
}

/* ---- for one shape ------------------------------------------------------------------------------------- */

/* "--valid-data NAME: ", or nothing, before the path of a set's source. */
static const char *set_label(const model_valid_t *set, char text[64])
{
    snprintf(text, 64, *set->name ? "--valid-data %s: " : "%s", set->name);
    return text;
}

/* A source whose last part is for validation. Either part may be too short. */
static gyre_status_t refuse_held_out(const model_data_t *data, size_t source, size_t seq)
{
    const model_tokens_t *tokens = data->train.tokens[source];
    const uint64_t train = data->train.count[source], held = data->set[0].mix.count[source];
    const double fraction = data->valid_fraction, least = fraction < 0.5 ? fraction : 1.0 - fraction;
    const uint64_t shorter = held < train ? held : train;
    const char *unit = data->is_text ? "bytes" : "tokens";
    char fewer[48] = "";
    if (shorter > 1)
        snprintf(fewer, sizeof fewer, ", take --seq %" PRIu64 " or less", shorter - 1);
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s holds %" PRIu64 " %s, of which the last %.6g (%" PRIu64
                     ") are for validation: too short for one sequence of %zu tokens; name at least %.0f %s "
                     "with --data%s, or another --valid-fraction",
                     sources_path(tokens), tokens->count, unit, fraction, held, seq,
                     ceil((double)(seq + 1) / least), unit, fewer);
}

/* A part must hold a sequence and its last target. */
static gyre_status_t check_length(const model_data_t *data, size_t seq)
{
    const char *unit = data->is_text ? "bytes" : "tokens";
    const int held_out = !data->own_valid && data->sets > 0;
    char label[64];
    for (size_t s = 0; s < data->train.sources; s++) {
        const model_tokens_t *tokens = data->train.tokens[s];
        if (held_out && (data->train.count[s] <= seq || data->set[0].mix.count[s] <= seq))
            return refuse_held_out(data, s, seq);
        if (data->train.count[s] <= seq)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s holds %" PRIu64
                             " %s: too short for one sequence of %zu; name more with --data, or "
                             "take --seq %" PRIu64 " or less",
                             sources_path(tokens), tokens->count, unit, seq, tokens->count - 1);
    }
    for (size_t v = 0; data->own_valid && v < data->sets; v++)
        for (size_t s = 0; s < data->set[v].mix.sources; s++) {
            const model_mix_t *mix = &data->set[v].mix;
            if (mix->count[s] <= seq)
                return gyre_fail(GYRE_ERR_INVALID,
                                 "%s%s holds %" PRIu64
                                 " tokens: too short for one sequence of %zu; name more with "
                                 "--valid-data, or take --seq %" PRIu64 " or less",
                                 set_label(&data->set[v], label), sources_path(mix->tokens[s]), mix->count[s],
                                 seq, mix->count[s] - 1);
        }
    return GYRE_OK;
}

/* A part must hold a token that is learned. Nearly always the first ones tell. */
static gyre_status_t check_learned(const model_mix_t *mix, const char *label, const char *what)
{
    for (size_t s = 0; s < mix->sources; s++) {
        uint64_t first = mix->first[s] + 1, end = mix->first[s] + mix->count[s]; /* the first is no target */
        if (model_tokens_next_learned(mix->tokens[s], first, end) < end)
            return GYRE_OK;
    }
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s%s: no token of the data for %s is learned: its mask hides them all; write it again with "
        "gyre-tokenize --learn all, or name other data",
        label, sources_path(mix->tokens[0]), what);
}

static gyre_status_t check_all_learned(const model_data_t *data)
{
    char label[64];
    gyre_status_t status = check_learned(&data->train, "", "training");
    for (size_t v = 0; status == GYRE_OK && v < data->sets; v++)
        status = check_learned(&data->set[v].mix, set_label(&data->set[v], label), "validation");
    return status;
}

#define ENTROPY_TOKENS ((uint64_t)4 << 20)
#define ENTROPY_PIECE  16384

/* Counts of ids, in pieces spread evenly over large sources. */
static gyre_status_t count_ids(const model_data_t *data, uint64_t *count, uint64_t *all)
{
    model_token_t piece[1024];
    unsigned char learned[1024];
    gyre_status_t status = GYRE_OK;
    for (size_t s = 0; s < data->train.sources; s++) {
        const model_tokens_t *tokens = data->train.tokens[s];
        uint64_t pieces = ENTROPY_TOKENS / ENTROPY_PIECE, length = ENTROPY_PIECE;
        if (tokens->count <= ENTROPY_TOKENS) {
            pieces = 1;
            length = tokens->count;
        }
        for (uint64_t p = 0; p < pieces; p++) {
            uint64_t from = pieces > 1 ? (tokens->count - length) / (pieces - 1) * p : 0, end = from + length;
            for (uint64_t at = from; status == GYRE_OK && at < end; at += 1024) {
                size_t n = end - at < 1024 ? (size_t)(end - at) : 1024;
                status = model_tokens_read(tokens, at, n, data->limit, piece);
                model_tokens_learned(tokens, at, n, learned);
                for (size_t i = 0; status == GYRE_OK && i < n; i++) {
                    count[piece[i]] += learned[i];
                    *all += learned[i];
                }
            }
        }
    }
    return status;
}

static gyre_status_t find_entropy(model_data_t *data)
{
    uint64_t all = 0, *count = calloc(data->limit, sizeof *count);
    if (!count)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to count %zu ids", data->limit);
    gyre_status_t status = count_ids(data, count, &all);
    double sum = 0.0;
    for (size_t id = 0; id < data->limit; id++)
        if (count[id]) {
            double p = (double)count[id] / (double)all;
            sum -= p * log(p);
        }
    data->unigram_entropy = sum;
    free(count);
    return status;
}

/* Sequences of a source, each once. */
static uint64_t windows(const model_data_t *data, const model_mix_t *mix, size_t source)
{
    uint64_t count = mix->count[source];
    if (mix->packing)
        return mix->packing[source]->sequences;
    return count > data->seq ? (count - 1) / data->seq : 0;
}

static gyre_status_t pack(const model_data_t *data, model_mix_t *mix)
{
    gyre_status_t status = GYRE_OK;
    unpack(mix);
    if (!(mix->packing = calloc(mix->sources, sizeof *mix->packing)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sources", mix->sources);
    for (size_t s = 0; status == GYRE_OK && s < mix->sources; s++)
        status = model_packing_create(mix->tokens[s], mix->first[s], mix->count[s], data->seq,
                                      data->sampling == MODEL_SAMPLING_PACKED, &mix->packing[s]);
    return status;
}

/* How many sequences the blend can take for validation before a source has no more, and how many of each
 * that is. */
static void share_set(const model_data_t *data, model_valid_t *set)
{
    const model_mix_t *mix = &set->mix;
    const model_blend_t *blend = mix->blend;
    if (!blend) {
        set->sequences = set->share[0] = windows(data, mix, 0);
        return;
    }
    uint64_t most = UINT64_MAX;
    for (size_t s = 0; s < mix->sources; s++) {
        uint64_t have = windows(data, mix, s);
        uint32_t at = 0;
        while (blend->owner[at] != s || blend->rank[at] != have % blend->share[s])
            at++;
        uint64_t turns = have / blend->share[s], until;
        if (!__builtin_mul_overflow(turns, (uint64_t)blend->period, &until) && until + at < most)
            most = until + at;
    }
    set->sequences = most;
    for (size_t s = 0; s < mix->sources; s++)
        set->share[s] = most / blend->period * blend->share[s];
    for (uint32_t at = 0; at < most % blend->period; at++)
        set->share[blend->owner[at]]++;
}

static gyre_status_t prepare_set(const model_data_t *data, model_valid_t *set)
{
    if (!set->share && !(set->share = calloc(set->mix.sources, sizeof *set->share)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sources", set->mix.sources);
    gyre_status_t status = model_data_has_documents(data) ? pack(data, &set->mix) : GYRE_OK;
    if (status == GYRE_OK)
        share_set(data, set);
    return status;
}

gyre_status_t model_data_prepare(model_data_t *data, size_t vocab, size_t seq)
{
    if (vocab < data->vocab)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "the data's vocabulary has %zu ids, the model's %zu: a model of %zu or more is needed",
            data->vocab, vocab, data->vocab);
    gyre_status_t status = model_data_has_documents(data) ? GYRE_OK : check_length(data, seq);
    if (status == GYRE_OK && data->masked)
        status = check_all_learned(data);
    if (status != GYRE_OK)
        return status;
    data->limit = vocab;
    data->seq = seq;
    if (model_data_has_documents(data))
        status = pack(data, &data->train);
    for (size_t v = 0; status == GYRE_OK && v < data->sets; v++)
        status = prepare_set(data, &data->set[v]);
    return status == GYRE_OK ? find_entropy(data) : status;
}

/* ---- sequences ----------------------------------------------------------------------------------------- */

uint64_t model_data_epoch(const model_data_t *data, size_t source)
{
    return windows(data, &data->train, source);
}

int model_data_has_documents(const model_data_t *data)
{
    return data->sampling == MODEL_SAMPLING_PACKED || data->sampling == MODEL_SAMPLING_PADDED;
}

/* Sequence `number` of a source: a window from token `number` of its part on, or packed documents. */
static gyre_status_t cut(const model_data_t *data, const model_mix_t *mix, size_t source, uint64_t number,
                         const model_example_t *out)
{
    const model_tokens_t *from = mix->tokens[source];
    if (mix->packing)
        return model_packing_read(mix->packing[source], from, number, data->limit, out->tokens, out->targets,
                                  out->documents);
    return model_window_read(from, mix->first[source] + number, data->seq, data->limit, out->tokens,
                             out->targets);
}

/* First token of window `number` of the source's endless series of epochs. Windows do not fill the part. The
 * first window's beginning is drawn for each epoch, so every token is in some epoch. */
static uint64_t epoch_place(const model_data_t *data, size_t source, uint64_t seed, uint64_t number)
{
    uint64_t each = model_data_epoch(data, source), epoch = number / each;
    uint64_t rest = (data->train.count[source] - 1) % data->seq;
    uint64_t begin =
        model_random_bits(seed, MODEL_RANDOM_DATA, UINT32_MAX - (uint32_t)source, epoch + 1) % (rest + 1);
    return begin + data->seq * model_order_place(seed, (uint32_t)source, epoch, each, number % each);
}

gyre_status_t model_data_train(const model_data_t *data, const model_data_step_t *step, size_t index,
                               const model_example_t *out)
{
    size_t source = 0;
    uint64_t number = step->samples + index, first;
    if (data->train.blend)
        model_blend_find(data->train.blend, number, &source, &number);
    if (data->sampling == MODEL_SAMPLING_EPOCH)
        first = epoch_place(data, source, step->seed, number);
    else if (data->train.packing) {
        uint64_t each = model_data_epoch(data, source);
        first = model_order_place(step->seed, (uint32_t)source, number / each, each, number % each);
    } else { /* the last target must lie in the part */
        uint64_t bits = model_random_bits(step->seed, MODEL_RANDOM_DATA, (uint32_t)index, step->step);
        first = bits % (data->train.count[source] - data->seq);
    }
    return cut(data, &data->train, source, first, out);
}

size_t model_data_validation_count(const model_data_t *data, size_t set)
{
    return (size_t)data->set[set].sequences;
}

gyre_status_t model_data_validation(const model_data_t *data, size_t set, size_t index,
                                    const model_example_t *out)
{
    const model_valid_t *valid = &data->set[set];
    const model_mix_t *mix = &valid->mix;
    size_t source = 0;
    uint64_t number = index;
    if (mix->blend) { /* spread over the source */
        model_blend_find(mix->blend, index, &source, &number);
        number = (uint64_t)((wide_t)number * windows(data, mix, source) / valid->share[source]);
    }
    return cut(data, mix, source, mix->packing ? number : number * data->seq, out);
}
