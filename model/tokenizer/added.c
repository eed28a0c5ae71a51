/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/added.c: the lists by which added tokens are found in text, when all else of a tokenizer is
 * there; the same for chats. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/tokenizer/internal.h"

/* The texts that are looked for after normalizers, which change them, too. */
static gyre_status_t normalize_added(model_tokenizer_t *tokenizer)
{
    tokenizer_normal_t *normal = NULL;
    gyre_status_t status = tokenizer_normal_create(tokenizer->normalizer, &normal);
    for (size_t i = 0; status == GYRE_OK && i < tokenizer->added_count; i++) {
        tokenizer_added_t *added = &tokenizer->added[i];
        const unsigned char *text;
        size_t count;
        if (!added->normalized)
            continue;
        status =
            tokenizer_normalize(normal, MODEL_AFTER_NOTHING, added->content, added->count, &text, &count);
        unsigned char *copy = status == GYRE_OK ? malloc(count + 1) : NULL;
        if (status == GYRE_OK && !copy)
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for an added token");
        if (status != GYRE_OK)
            break;
        if (count > 0)
            memcpy(copy, text, count);
        free(added->content);
        added->content = copy;
        added->count = count;
    }
    tokenizer_normal_destroy(normal);
    return status;
}

static gyre_status_t list_added(const model_tokenizer_t *tokenizer, int normalized, tokenizer_words_t *words)
{
    size_t listed = 0;
    tokenizer_word_t *word = malloc((tokenizer->added_count + 1) * sizeof *word);
    if (!word)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the added tokens");
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const tokenizer_added_t *added = &tokenizer->added[i];
        if (added->normalized == normalized && added->count > 0)
            word[listed++] = (tokenizer_word_t){added->content, (uint32_t)added->count, (uint32_t)i};
    }
    tokenizer_words_sort(words, word, listed);
    return GYRE_OK;
}

gyre_status_t tokenizer_finish_added(model_tokenizer_t *tokenizer)
{
    gyre_status_t status = tokenizer->normalizer ? normalize_added(tokenizer) : GYRE_OK;
    if (status == GYRE_OK)
        status = list_added(tokenizer, 0, &tokenizer->raw);
    return status == GYRE_OK ? list_added(tokenizer, 1, &tokenizer->normal) : status;
}

/* ---- for chats ----------------------------------------------------------------------------------------- */

/* A token that no added one stands for. */
static int is_symbol(const model_tokenizer_t *tokenizer, const tokenizer_token_t *token)
{
    const unsigned char *bytes = tokenizer->blob + token->at;
    if (!token->there || token->count == 0)
        return 0;
    return token->special ||
           (tokenizer->kind == TOKENIZER_MODEL && token->count > 2 && bytes[0] == '<' &&
            bytes[token->count - 1] == '>' && tokenizer_fallback_byte(bytes, token->count) < 0);
}

gyre_status_t model_tokenizer_symbols(const model_tokenizer_t *tokenizer, model_symbol_t **out, size_t *count)
{
    size_t most = tokenizer->added_count, n = 0;
    for (size_t id = 0; id < tokenizer->vocab && tokenizer->added_count == 0; id++)
        most += (size_t)is_symbol(tokenizer, &tokenizer->token[id]);
    model_symbol_t *made = calloc(most + 1, sizeof *made);
    if (!made)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the added tokens");
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const tokenizer_added_t *added = &tokenizer->added[i];
        const tokenizer_token_t *token = &tokenizer->token[added->id];
        if (token->count > 0)
            made[n++] = (model_symbol_t){(model_token_t)added->id, tokenizer->blob + token->at, token->count,
                                         added->lstrip, added->rstrip};
    }
    for (size_t id = 0; id < tokenizer->vocab && tokenizer->added_count == 0; id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        if (is_symbol(tokenizer, token))
            made[n++] = (model_symbol_t){(model_token_t)id, tokenizer->blob + token->at, token->count, 0, 0};
    }
    *out = made;
    *count = n;
    return GYRE_OK;
}
