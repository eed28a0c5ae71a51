/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/charsmap.c: SentencePiece's table of replacements (precompiled_charsmap), which T5 and
 * others have for NFKC and more.
 *
 * Keys stand in a double-array trie of darts-clone: a unit of 32 bits has a label (bits 0 to 7, and 31), the
 * offset of its children (bits 10 to 30, 8 bits more if bit 9 says so) and whether a key ends there (bit 8);
 * the unit of such an end is the place of the replacement. Hugging Face's tokenizers, whose ids these are,
 * look up a grapheme of less than six bytes whole, then each character by itself, and take the shortest key
 * that begins it. Graphemes are utf8proc's. */
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "model/tokenizer/internal.h"

static uint32_t u32_at(const unsigned char *map, size_t at)
{
    return (uint32_t)map[at] | (uint32_t)map[at + 1] << 8 | (uint32_t)map[at + 2] << 16 |
           (uint32_t)map[at + 3] << 24;
}

gyre_status_t tokenizer_charsmap_check(const char *path, const unsigned char *map, size_t bytes)
{
    size_t trie = bytes < 4 ? 0 : u32_at(map, 0);
    /* the last replacement must end */
    if (bytes < 4 || trie % 4 != 0 || trie < 4 || trie >= bytes - 4 || map[bytes - 1] != 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the precompiled_charsmap of its normalizer is cut short",
                         path);
    return GYRE_OK;
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement of the shortest key that begins `text`; NULL: there is no such key. */
static const char *look_up(const unsigned char *map, size_t map_bytes, const unsigned char *text,
                           size_t bytes)
{
    const size_t trie = u32_at(map, 0), units = trie / 4;
    size_t at = offset_of(u32_at(map, 4));
    for (size_t i = 0; i < bytes && text[i] != 0; i++) {
        at ^= text[i];
        uint32_t unit = at < units ? u32_at(map, 4 + 4 * at) : 0;
        if (at >= units || (unit & (1u << 31 | 0xFF)) != text[i])
            return NULL;
        at ^= offset_of(unit);
        if (unit >> 8 & 1) {
            uint32_t place = at < units ? u32_at(map, 4 + 4 * at) & 0x7FFFFFFFu : UINT32_MAX;
            return place < map_bytes - 4 - trie ? (const char *)map + 4 + trie + place : NULL;
        }
    }
    return NULL;
}

/* Appends one grapheme. */
static gyre_status_t replace(const unsigned char *map, size_t map_bytes, const unsigned char *text,
                             size_t bytes, tokenizer_buffer_t *out)
{
    const char *to = bytes < 6 ? look_up(map, map_bytes, text, bytes) : NULL;
    gyre_status_t status = GYRE_OK;
    if (to)
        return tokenizer_append(out, to, strlen(to));
    uint32_t c;
    for (size_t at = 0, n; status == GYRE_OK && at < bytes; at += n) {
        n = base_utf8_decode(text + at, bytes - at, &c);
        to = look_up(map, map_bytes, text + at, n);
        status = to ? tokenizer_append(out, to, strlen(to)) : tokenizer_append(out, text + at, n);
    }
    return status;
}

gyre_status_t tokenizer_charsmap_apply(const unsigned char *map, size_t map_bytes, const unsigned char *text,
                                       size_t bytes, tokenizer_buffer_t *out)
{
    gyre_status_t status = GYRE_OK;
    utf8proc_int32_t state = 0;
    uint32_t before = 0, c = 0;
    size_t begin = 0;
    for (size_t at = 0; status == GYRE_OK && at < bytes;) {
        size_t n = base_utf8_decode(text + at, bytes - at, &c);
        if (at > 0 &&
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state)) {
            status = replace(map, map_bytes, text + begin, at - begin, out);
            begin = at;
        }
        before = c;
        at += n;
    }
    return status == GYRE_OK ? replace(map, map_bytes, text + begin, bytes - begin, out) : status;
}
