/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/wordpiece.c: pieces to tokens where the vocabulary lists words, or words and their
 * parts. */

#include "base/checked.h"
#include "model/tokenizer/internal.h"

/* The token of these bytes, if text may give it. */
static uint32_t token_of(const model_tokenizer_t *t, const unsigned char *bytes, size_t count)
{
    const uint32_t id = tokenizer_lookup(t, bytes, count);
    return id != TOKENIZER_NONE && !t->token[id].special ? id : TOKENIZER_NONE;
}

static size_t characters(const unsigned char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += (text[i] & 0xC0) != 0x80;
    return count;
}

/* From the left the longest token each (Song et al., "Fast WordPiece Tokenization", EMNLP 2021, section 2),
 * after the first one with the prefix; 0: some part has none. */
static gyre_status_t longest_first(tokenizer_buffer_t *buffer, const model_tokenizer_t *t,
                                   const unsigned char *piece, size_t bytes, model_token_t *id, size_t *count)
{
    *count = 0;
    for (size_t from = 0, taken; from < bytes; from += taken) {
        const size_t prefix = from > 0 ? t->prefix_bytes : 0;
        uint32_t found = TOKENIZER_NONE;
        buffer->count = 0;
        gyre_status_t status = tokenizer_append(buffer, t->prefix, prefix);
        if (status == GYRE_OK)
            status = tokenizer_append(buffer, piece + from, base_min_size(bytes - from, t->longest));
        if (status != GYRE_OK)
            return status;
        for (taken = buffer->count - prefix; taken > 0; taken--)
            if ((from + taken == bytes || (piece[from + taken] & 0xC0) != 0x80) &&
                (found = token_of(t, buffer->bytes, prefix + taken)) != TOKENIZER_NONE)
                break;
        if (found == TOKENIZER_NONE) {
            *count = 0;
            return GYRE_OK;
        }
        id[(*count)++] = (model_token_t)found;
    }
    return GYRE_OK;
}

gyre_status_t tokenizer_word_piece(tokenizer_buffer_t *buffer, const model_tokenizer_t *t,
                                   const unsigned char *piece, size_t bytes, model_token_t *id, size_t *count)
{
    gyre_status_t status = GYRE_OK;
    *count = 0;
    if (t->kind == TOKENIZER_WORDS) {
        const uint32_t found = token_of(t, piece, bytes);
        if (found != TOKENIZER_NONE)
            id[(*count)++] = (model_token_t)found;
    } else if (characters(piece, bytes) <= t->most_characters)
        status = longest_first(buffer, t, piece, bytes, id, count);
    if (*count == 0 && bytes > 0)
        id[(*count)++] = (model_token_t)t->unknown;
    return status;
}
