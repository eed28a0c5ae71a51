/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/decode.c: ids to text: the bytes of each token, joined, without the space that encoding
 * puts in front. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/tokenizer/internal.h"
#include "model/tokenizer/sentencepiece.h"

int tokenizer_fallback_byte(const unsigned char *bytes, size_t count)
{
    int value = 0;
    if (count != 6 || memcmp(bytes, "<0x", 3) != 0 || bytes[5] != '>')
        return -1;
    for (size_t i = 3; i < 5; i++) {
        int digit = bytes[i] >= '0' && bytes[i] <= '9'   ? bytes[i] - '0'
                    : bytes[i] >= 'A' && bytes[i] <= 'F' ? bytes[i] - 'A' + 10
                                                         : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Writes the first token without its marks. */
static size_t put_without_marks(const model_tokenizer_t *t, const tokenizer_token_t *token,
                                unsigned char *out)
{
    const unsigned char *at = t->blob + token->at, *end = at + token->count;
    size_t used = 0;
    while (at < end)
        if ((size_t)(end - at) >= t->mark_bytes && memcmp(at, t->mark, t->mark_bytes) == 0)
            at += t->mark_bytes;
        else
            out[used++] = *at++;
    return used;
}

/* Takes away what encoding has put in front. */
static size_t strip(const model_tokenizer_t *t, unsigned char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < t->strip; i++)
        if (bytes - at >= t->stripped_bytes && memcmp(text + at, t->stripped, t->stripped_bytes) == 0)
            at += t->stripped_bytes;
    memmove(text, text + at, bytes - at);
    return bytes - at;
}

gyre_status_t model_decode(const model_tokenizer_t *tokenizer, const model_token_t *ids, size_t count,
                           unsigned char **bytes, size_t *length)
{
    size_t all = 0, one = 0;
    for (size_t i = 0; i < count; i++) {
        if (!model_tokenizer_bytes(tokenizer, ids[i], &one))
            return gyre_fail(GYRE_ERR_FORMAT, "token %zu is %d, which tokenizer '%s' does not have", i,
                             (int)ids[i], tokenizer->name);
        if (!base_add(all, base_max_size(one, tokenizer->token[ids[i]].count), &all))
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", count);
    }
    if (tokenizer->kind == TOKENIZER_MODEL)
        return tokenizer_library_decode(tokenizer->library, ids, count, bytes, length);
    unsigned char *text = malloc(all + 1);
    if (!text)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the text of %zu tokens", count);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const tokenizer_token_t *token = &tokenizer->token[ids[i]];
        if (i == 0 && tokenizer->drop_marks) {
            used += put_without_marks(tokenizer, token, text);
            continue;
        }
        const int raw = i == 0 && tokenizer->raw_first;
        const size_t n = raw ? token->count : token->text_count;
        memcpy(text + used, tokenizer->blob + (raw ? token->at : token->text_at), n);
        used += n;
    }
    used = strip(tokenizer, text, used);
    text[used] = 0;
    *bytes = text;
    *length = used;
    return GYRE_OK;
}
