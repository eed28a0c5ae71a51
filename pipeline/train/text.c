/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/text.c: between text and the ids of a run: its tokenizer, the prompt, and what a sample
 * says. */
#include <inttypes.h>
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

char *train_text_of(const model_tokenizer_t *tokenizer, const model_token_t *tokens, size_t count)
{
    const unsigned char *piece, odd = 0xff; /* an id that stands for nothing, which a padded vocabulary has */
    size_t bytes = 0, used = 0, one;
    for (size_t i = 0; i < count; i++)
        bytes += model_tokenizer_bytes(tokenizer, tokens[i], &one) ? one : 1;
    unsigned char *text = malloc(bytes + 1);
    for (size_t i = 0; text && i < count; i++) {
        if (!(piece = model_tokenizer_bytes(tokenizer, tokens[i], &one))) {
            piece = &odd;
            one = 1;
        }
        memcpy(text + used, piece, one);
        used += one;
    }
    char *readable = text ? train_readable(text, bytes) : NULL;
    free(text);
    return readable;
}
