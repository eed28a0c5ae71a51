/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/added.c: the lists by which added tokens are found in text, when all else of a tokenizer is
 * there. */
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
