/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/blend.c: makes sequences from sources. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "model/data/data.h"
#include "model/data/packing.h"
#include "model/random.h"

__extension__ typedef unsigned __int128 wide_t;

/* ---- WEIGHT:PATH,WEIGHT:PATH --------------------------------------------------------------------------- */

/* Bytes of a weight and its colon at the beginning of the text; 0: no weight. */
static size_t weight_length(const char *text)
{
    size_t digits = strspn(text, "0123456789.");
    return digits > 0 && text[digits] == ':' ? digits + 1 : 0;
}

/* A comma ends an entry where a weight follows, so other commas may stand in a path. */
static char *entry_end(char *entry)
{
    char *at = entry;
    while ((at = strchr(at, ',')) != NULL && weight_length(at + 1) == 0)
        at++;
    return at;
}

typedef struct {
    char *text; /* owned: the list, cut up */
    size_t count;
    const char *weight[MODEL_BLEND_SOURCES], *path[MODEL_BLEND_SOURCES];
} list_t;

static gyre_status_t parse_list(const char *text, list_t *list)
{
    struct stat info;
    if (!(list->text = strdup(text)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of sources");
    if (weight_length(text) == 0 || stat(text, &info) == 0) { /* a file of that name comes first */
        list->count = 1;
        list->weight[0] = "1";
        list->path[0] = list->text;
        return GYRE_OK;
    }
    for (char *entry = list->text, *end; entry; entry = end) {
        if ((end = entry_end(entry)) != NULL)
            *end++ = 0;
        if (list->count == MODEL_BLEND_SOURCES)
            return gyre_fail(GYRE_ERR_INVALID, "a blend has at most %d sources", MODEL_BLEND_SOURCES);
        size_t length = weight_length(entry);
        entry[length - 1] = 0;
        list->weight[list->count] = entry;
        list->path[list->count++] = entry + length;
    }
    return GYRE_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static gyre_status_t mix_room(model_mix_t *mix, size_t sources)
{
    mix->tokens = calloc(sources, sizeof *mix->tokens);
    mix->first = calloc(sources, sizeof *mix->first);
    mix->count = calloc(sources, sizeof *mix->count);
    return mix->tokens && mix->first && mix->count
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sources", sources);
}

static gyre_status_t mix_open(const char *path, model_tokens_format_t format, model_mix_t *mix)
{
    list_t list = {0};
    gyre_status_t status = parse_list(path, &list);
    if (status == GYRE_OK)
        status = mix_room(mix, list.count);
    if (status == GYRE_OK && list.count > 1)
        status = model_blend_create(list.weight, list.count, &mix->blend);
    for (size_t s = 0; status == GYRE_OK && s < list.count; s++) {
        status = model_tokens_open(list.path[s], format, &mix->tokens[s]);
        mix->sources += status == GYRE_OK;
        if (status == GYRE_OK)
            mix->count[s] = mix->tokens[s]->count;
    }
    free(list.text);
    return status;
}

static void mix_close(model_mix_t *mix, int own)
{
    for (size_t s = 0; own && s < mix->sources; s++)
        model_tokens_close(mix->tokens[s]);
    free(mix->tokens);
    free(mix->first);
    free(mix->count);
}

/* Every source ends with a tenth for validation. */
static gyre_status_t split(model_mix_t *train, model_mix_t *valid)
{
    gyre_status_t status = mix_room(valid, train->sources);
    for (size_t s = 0; status == GYRE_OK && s < train->sources; s++) {
        uint64_t tenth = train->count[s] / 10;
        valid->tokens[s] = train->tokens[s];
        train->count[s] -= tenth;
        valid->first[s] = train->count[s];
        valid->count[s] = tenth;
    }
    valid->sources = status == GYRE_OK ? train->sources : 0;
    valid->blend = train->blend;
    return status;
}

static const char *path_of(const model_tokens_t *tokens)
{
    return tokens->format == MODEL_TOKENS_TEXT ? tokens->path : tokens->file[0].path;
}

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
                path_of(tokens), tokens->tokenizer, tokens->vocab, path_of(before), before->tokenizer,
                before->vocab);
        else if (!data->tokenizer_hash)
            data->tokenizer_hash = tokens->tokenizer_hash;
    }
    return GYRE_OK;
}

static gyre_status_t mix_hash(const model_mix_t *mix, uint64_t *hash)
{
    gyre_status_t status = GYRE_OK;
    for (size_t s = 0; s < mix->sources && status == GYRE_OK; s++) {
        uint64_t told[] = {0, mix->first[s], mix->count[s], mix->blend ? mix->blend->share[s] : 1};
        status = model_tokens_hash(mix->tokens[s], &told[0]);
        *hash = base_hash64(told, sizeof told, *hash);
    }
    return status;
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
}

gyre_status_t model_data_identify(model_data_t *data)
{
    uint64_t hash = 0;
    gyre_status_t status;
    if (data->train.sources == 1 && data->is_text && !data->own_valid)
        status = model_tokens_hash(data->train.tokens[0], &hash);
    else if ((status = mix_hash(&data->train, &hash)) == GYRE_OK)
        status = mix_hash(&data->valid, &hash);
    if (status == GYRE_OK)
        data->hash = hash;
    return status;
}

gyre_status_t model_data_open(const model_data_config_t *config, model_data_t **out)
{
    const model_tokens_t *teller = NULL;
    model_data_t *data = calloc(1, sizeof *data);
    if (!data)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", config->path);
    data->sampling = config->sampling;
    data->own_valid = config->valid_path != NULL;
    data->tokenizer = "";
    gyre_status_t status = mix_open(config->path, config->format, &data->train);
    if (status == GYRE_OK)
        status = data->own_valid ? mix_open(config->valid_path, config->format, &data->valid)
                                 : split(&data->train, &data->valid);
    if (status == GYRE_OK && (status = agree(data, &teller, &data->train)) == GYRE_OK && data->own_valid)
        status = agree(data, &teller, &data->valid);
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
    unpack(&data->train);
    unpack(&data->valid);
    if (data->own_valid)
        model_blend_destroy(data->valid.blend);
    mix_close(&data->valid, data->own_valid);
    model_blend_destroy(data->train.blend);
    mix_close(&data->train, 1);
    free(data->valid_share);
    free(data);
}

/* ---- for one shape ------------------------------------------------------------------------------------- */

/* A part must hold a sequence and its last target. */
static gyre_status_t check_length(const model_data_t *data, size_t seq)
{
    const char *unit = data->is_text ? "bytes" : "tokens";
    for (size_t s = 0; s < data->train.sources; s++) {
        const model_tokens_t *tokens = data->train.tokens[s];
        uint64_t validation = data->own_valid ? UINT64_MAX : data->valid.count[s];
        if (data->train.count[s] > seq && validation > seq)
            continue;
        if (data->own_valid)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s holds %" PRIu64
                             " %s: too short for one sequence of %zu; name more with --data, or "
                             "take --seq %" PRIu64 " or less",
                             path_of(tokens), tokens->count, unit, seq, tokens->count - 1);
        if (validation < 2)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s holds %" PRIu64 " %s: too little to train on; name more with --data",
                             path_of(tokens), tokens->count, unit);
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s holds %" PRIu64 " %s, of which the last tenth (%" PRIu64
            ") is for validation: too short for one "
            "sequence of %zu tokens; name at least %zu %s with --data, or take --seq %" PRIu64 " or less",
            path_of(tokens), tokens->count, unit, validation, seq, (seq + 1) * 10, unit, validation - 1);
    }
    for (size_t s = 0; data->own_valid && s < data->valid.sources; s++)
        if (data->valid.count[s] <= seq)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s holds %" PRIu64 " tokens: too short for one sequence of %zu; name more with "
                             "--valid-data, or take --seq %" PRIu64 " or less",
                             path_of(data->valid.tokens[s]), data->valid.count[s], seq,
                             data->valid.count[s] - 1);
    return GYRE_OK;
}

/* A part must hold a token that is learned. Nearly always the first ones tell. */
static gyre_status_t check_learned(const model_mix_t *mix, const char *what)
{
    for (size_t s = 0; s < mix->sources; s++) {
        uint64_t first = mix->first[s] + 1, end = mix->first[s] + mix->count[s]; /* the first is no target */
        if (model_tokens_next_learned(mix->tokens[s], first, end) < end)
            return GYRE_OK;
    }
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s: no token of the data for %s is learned: its mask hides them all; write it again with "
        "gyre-tokenize --learn all, or name other data",
        path_of(mix->tokens[0]), what);
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
static void share_validation(model_data_t *data)
{
    const model_mix_t *mix = &data->valid;
    const model_blend_t *blend = mix->blend;
    if (!blend) {
        data->sequences = data->valid_share[0] = windows(data, mix, 0);
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
    data->sequences = most;
    for (size_t s = 0; s < mix->sources; s++)
        data->valid_share[s] = most / blend->period * blend->share[s];
    for (uint32_t at = 0; at < most % blend->period; at++)
        data->valid_share[blend->owner[at]]++;
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
        status = check_learned(&data->train, "training");
    if (status == GYRE_OK && data->masked)
        status = check_learned(&data->valid, "validation");
    if (status != GYRE_OK)
        return status;
    if (!data->valid_share && !(data->valid_share = calloc(data->valid.sources, sizeof *data->valid_share)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sources", data->valid.sources);
    data->limit = vocab;
    data->seq = seq;
    if (model_data_has_documents(data) &&
        ((status = pack(data, &data->train)) != GYRE_OK || (status = pack(data, &data->valid)) != GYRE_OK))
        return status;
    share_validation(data);
    return find_entropy(data);
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

size_t model_data_validation_count(const model_data_t *data)
{
    return (size_t)data->sequences;
}

gyre_status_t model_data_validation(const model_data_t *data, size_t index, const model_example_t *out)
{
    const model_mix_t *mix = &data->valid;
    size_t source = 0;
    uint64_t number = index;
    if (mix->blend) { /* spread over the source */
        model_blend_find(mix->blend, index, &source, &number);
        number = (uint64_t)((wide_t)number * windows(data, mix, source) / data->valid_share[source]);
    }
    return cut(data, mix, source, mix->packing ? number : number * data->seq, out);
}
