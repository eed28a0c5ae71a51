/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/utf8.c: buffers of text and facts about characters. Categories are utf8proc's. */
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/grow.h"
#include "model/tokenizer/internal.h"

gyre_status_t tokenizer_append(tokenizer_buffer_t *buffer, const void *bytes, size_t count)
{
    if (!base_grow(&buffer->bytes, &buffer->room, buffer->count, count, 1))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a text of %zu bytes", buffer->count + count);
    if (count > 0)
        memcpy(buffer->bytes + buffer->count, bytes, count);
    buffer->count += count;
    return GYRE_OK;
}

size_t tokenizer_valid_run(const unsigned char *text, size_t bytes, size_t *bad)
{
    size_t run = 0, length;
    uint32_t c;
    while (run < bytes && (length = text[run] < 0x80 ? 1 : base_utf8_decode(text + run, bytes - run, &c)) > 0)
        run += length;
    *bad = 0;
    while (run == 0 && *bad < bytes && base_utf8_decode(text + *bad, bytes - *bad, &c) == 0)
        ++*bad;
    return run;
}

gyre_status_t tokenizer_replace_bad(tokenizer_buffer_t *out, const unsigned char *text, size_t bytes)
{
    gyre_status_t status = GYRE_OK;
    for (size_t done = 0, bad; status == GYRE_OK && done < bytes;) {
        size_t run = tokenizer_valid_run(text + done, bytes - done, &bad);
        if (run > 0)
            status = tokenizer_append(out, text + done, run);
        else {
            status = tokenizer_append(out, "\xef\xbf\xbd", 3);
            run = base_utf8_bad(text + done, bytes - done);
        }
        done += run;
    }
    return status;
}

int tokenizer_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return 1;
    default: /* Join_Control, and letters in circles and squares, which are Alphabetic */
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
               (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    }
}

size_t tokenizer_before(const unsigned char *text, size_t at, uint32_t *c)
{
    size_t from = at - 1;
    while (from > 0 && (text[from] & 0xC0) == 0x80)
        from--;
    *c = 0;
    (void)base_utf8_decode(text + from, at - from, c);
    return at - from;
}

size_t tokenizer_put_utf8(unsigned char *out, uint32_t c)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, out);
}
