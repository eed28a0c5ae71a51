/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/text.c: between text and the ids of a run: its tokenizer, the prompt, and what a sample
 * says. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "pipeline/report/record.h"
#include "pipeline/train/text.h"

int train_text_prompted(const train_config_t *options)
{
    return train_config_given(options, "prompt") && strcmp(options->prompt, "\n") != 0;
}

gyre_status_t train_text_open(const train_config_t *options, const model_data_t *data,
                              model_tokenizer_t **out)
{
    const char *spec = options->tokenizer;
    *out = NULL;
    if (pipe_tokenizer_is_none(spec) && (data->is_text || train_text_prompted(options)))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--tokenizer none says that no text is known for the ids: %s needs a tokenizer",
                         data->is_text ? options->data : "--prompt");
    if (pipe_tokenizer_is_none(spec))
        return GYRE_OK;
    if (spec && data->is_text && strcmp(spec, "bytes") != 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "text is trained on as bytes: for the tokens of %s write a token file first, gyre-tokenize "
            "--tokenizer %s --out FILE.gyt %s",
            spec, spec, options->data);
    /* weights that are loaded may have learned other ids than bytes: as text those would be garbage */
    if (!spec && strcmp(data->tokenizer, "bytes") == 0 && (!options->load || options->vocab == 256))
        spec = "bytes";
    if (!spec && train_text_prompted(options))
        return gyre_fail(GYRE_ERR_INVALID,
                         "--prompt: which tokenizer the ids of the model are from is not known: name it with "
                         "--tokenizer, and with --data tokens that gyre-tokenize has made with it");
    if (!spec)
        return GYRE_OK;
    gyre_status_t status = model_tokenizer_open(spec, out);
    if (status != GYRE_OK || !data->tokenizer_hash || data->tokenizer_hash == model_tokenizer_hash(*out))
        return status;
    status =
        gyre_fail(GYRE_ERR_INVALID,
                  "the data was written with tokenizer '%s' (%016" PRIx64 "), but --tokenizer %s is another "
                  "(%016" PRIx64 ")",
                  data->tokenizer, data->tokenizer_hash, spec, model_tokenizer_hash(*out));
    model_tokenizer_destroy(*out);
    *out = NULL;
    return status;
}

/* ---- the tokenizer of a model -------------------------------------------------------------------------- */

#define BYTES_MOST 512 /* a model of bytes may have a few more ids than 256 */

static gyre_status_t refuse_bytes(const train_config_t *options, const model_data_t *data, const char *ids,
                                  const char *tokenizer)
{
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s is %s, but the %s of the model in %s are not bytes: "
        "write a token file first, gyre-tokenize --tokenizer %s --out FILE.gyt %s, and give it with "
        "--data; --tokenizer bytes trains on bytes all the same",
        options->data, data->is_text ? "text, which is trained on as bytes" : "a file of bytes as tokens",
        ids, options->load, tokenizer, data->is_text ? options->data : "TEXT");
}

/* Bytes, of text or in a token file, for a model whose tokenizer is not there. */
static gyre_status_t check_bytes(const train_config_t *options, const model_data_t *data, size_t vocab)
{
    char ids[64];
    if (options->tokenizer || vocab == 256) /* it is "bytes" (train_text_open), or none */
        return GYRE_OK;
    if (vocab <= BYTES_MOST) {
        log_warning("the ids of %s are bytes, 0 to 255, but the model in %s has %zu ids: if those are bytes "
                    "and a few more, say so with --tokenizer bytes",
                    options->data, options->load, vocab);
        return GYRE_OK;
    }
    snprintf(ids, sizeof ids, "%zu ids", vocab);
    return refuse_bytes(options, data, ids, "TOKENIZER");
}

/* Text for a model whose tokenizer, read from `path`, is there. */
static gyre_status_t compare_bytes(const train_config_t *options, const model_data_t *data, const char *path,
                                   const model_tokenizer_t *model)
{
    model_tokenizer_t *bytes = NULL;
    gyre_status_t status = model_tokenizer_open("bytes", &bytes);
    if (status == GYRE_OK && !pipe_tokenizer_same_ids(bytes, model))
        status = refuse_bytes(options, data, "ids", path);
    model_tokenizer_destroy(bytes);
    return status;
}

/* The data's ids are not known to be the model's: an error, where --tokenizer does not name what they are. */
static gyre_status_t not_compared(const train_config_t *options, const model_data_t *data, int refuse,
                                  const char *why)
{
    if (refuse && !options->tokenizer)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "whether the ids of %s are those of the model in %s is not known: %s: if they are, name "
            "the tokenizer of the data with --tokenizer%s",
            options->data, options->load, why,
            data->is_text ? " bytes" : ", or none: --tokenizer none, and there is no sample of text");
    log_warning("whether the ids of %s are those of the model in %s is not known: %s", options->data,
                options->load, why);
    return GYRE_OK;
}

/* What the ids of the data stand for is known by its hash, or by `own`, which --tokenizer names. */
static gyre_status_t compare(const train_config_t *options, const model_data_t *data, const char *path,
                             const model_tokenizer_t *own, const model_tokenizer_t *model)
{
    const uint64_t learned = model_tokenizer_hash(model);
    if (data->tokenizer_hash == learned || (own && pipe_tokenizer_same_ids(own, model)))
        return GYRE_OK;
    if (data->tokenizer_hash)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the data was written with tokenizer '%s' (%016" PRIx64
                         "), but the model's is %s (%016" PRIx64
                         "): write the data again with gyre-tokenize --tokenizer %s; if only the kind of "
                         "file differs, and the ids are the same, give the data's with --tokenizer",
                         data->tokenizer, data->tokenizer_hash, path, learned, path);
    if (own)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--tokenizer %s, of the data, has other ids than the model's, which is %s: write the "
            "data again with gyre-tokenize --tokenizer %s",
            options->tokenizer ? options->tokenizer : "bytes", path, path);
    return not_compared(options, data, 0, "the data does not say its tokenizer, which --tokenizer names");
}

gyre_status_t train_text_check(const train_config_t *options, const model_data_t *data,
                               const model_config_t *shape, const model_tokenizer_t *own)
{
    char path[PATH_MAX], why[512];
    model_tokenizer_t *model = NULL;
    if (!options->load || (data->is_text && options->tokenizer)) /* which is "bytes" (train_text_open) */
        return GYRE_OK;
    if (pipe_tokenizer_find(options->load, shape, path, &model, why, sizeof why) != GYRE_OK)
        return not_compared(options, data, 1, why);
    if (!model)
        return strcmp(data->tokenizer, "bytes") == 0
                   ? check_bytes(options, data, shape->vocab)
                   : not_compared(options, data, 0, "the model has no tokenizer there");
    gyre_status_t status =
        data->is_text ? compare_bytes(options, data, path, model) : compare(options, data, path, own, model);
    model_tokenizer_destroy(model);
    return status;
}

gyre_status_t train_text_identify(const model_data_t *data, const model_tokenizer_t *own,
                                  pipe_tokenizer_t *out)
{
    model_tokenizer_t *bytes = NULL;
    gyre_status_t status = GYRE_OK;
    if (data->tokenizer_hash)
        *out = pipe_tokenizer_named(data->tokenizer, data->tokenizer_hash);
    else if (own)
        *out = pipe_tokenizer_of(own);
    else if (strcmp(data->tokenizer, "bytes") == 0 &&
             (status = model_tokenizer_open("bytes", &bytes)) == GYRE_OK)
        *out = pipe_tokenizer_of(bytes);
    model_tokenizer_destroy(bytes);
    return status;
}

gyre_status_t train_text_compare(const train_config_t *options, const model_data_t *data, size_t vocab,
                                 const pipe_tokenizer_t *known, const pipe_tokenizer_t *learned)
{
    if (learned->hash == 0 && strcmp(data->tokenizer, "bytes") == 0)
        return check_bytes(options, data, vocab);
    if (learned->hash == 0)
        return not_compared(options, data, 0, "the checkpoint does not say its tokenizer");
    if (known->hash == 0)
        return not_compared(options, data, 0, "the data does not say its tokenizer, which --tokenizer names");
    return pipe_tokenizer_compare(learned, options->load, options->data, known);
}

/* ---- prompt and sample --------------------------------------------------------------------------------- */

gyre_status_t train_text_prompt(const model_tokenizer_t *tokenizer, const char *prompt, size_t vocab,
                                size_t more, model_token_t **tokens, size_t *count)
{
    model_encoder_t *encoder;
    const model_token_t *ids;
    model_token_t *made = NULL;
    gyre_status_t status = model_encoder_create(tokenizer, &encoder);
    if (status != GYRE_OK)
        return status;
    status = model_encode(encoder, prompt, strlen(prompt), &ids, count);
    if (status == GYRE_OK && !(made = calloc(*count + more + 1, sizeof *made)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens of text", more);
    for (size_t i = 0; status == GYRE_OK && i < *count; i++) {
        made[i] = ids[i];
        if ((size_t)ids[i] >= vocab)
            status = gyre_fail(GYRE_ERR_INVALID,
                               "the prompt holds id %d of tokenizer '%s', but the model has %zu ids: the "
                               "tokenizer is not the model's",
                               (int)ids[i], model_tokenizer_name(tokenizer), vocab);
    }
    model_encoder_destroy(encoder);
    if (status != GYRE_OK) {
        free(made);
        return status;
    }
    *tokens = made;
    return GYRE_OK;
}

unsigned char *train_text_bytes(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count,
                                size_t *bytes)
{
    size_t room = 0, one;
    *bytes = 0;
    for (size_t i = 0; i < count; i++)
        room += model_tokenizer_bytes(tokenizer, tokens[i], &one) ? one : 1;
    unsigned char *text = malloc(room + 1);
    for (size_t i = 0; text && i < count; i++) {
        const void *piece = model_tokenizer_bytes(tokenizer, tokens[i], &one);
        memcpy(text + *bytes, piece ? piece : "\xff", one = piece ? one : 1);
        *bytes += one;
    }
    return text;
}

char *train_text_of(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count)
{
    size_t bytes;
    unsigned char *text = train_text_bytes(tokenizer, tokens, count, &bytes);
    char *readable = text ? train_readable(text, bytes) : NULL;
    free(text);
    return readable;
}
