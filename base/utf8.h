/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.h: UTF-8 (RFC 3629), a code point at a time, and white space. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the sequence at text[0 .. bytes). Returns its length, 1 to 4; 0: there is none (overlong forms,
 * surrogates and values above 0x10FFFF are none). */
static inline size_t base_utf8_decode(const unsigned char *text, size_t bytes, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (bytes == 0)
        return 0;
    uint32_t c = text[0];
    size_t length = c < 0x80                ? 1
                    : c >= 0xC2 && c < 0xE0 ? 2
                    : c >= 0xE0 && c < 0xF0 ? 3
                    : c >= 0xF0 && c < 0xF5 ? 4
                                            : 0;
    if (length == 0 || length > bytes)
        return 0;
    if (length > 1)
        c &= 0x7Fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (text[i] & 0x3Fu);
    }
    if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *out = c;
    return length;
}

/* Bytes of the longest beginning of text [bytes] that is UTF-8. */
static inline size_t base_utf8_span(const unsigned char *text, size_t bytes)
{
    uint32_t letter;
    size_t at = 0;
    for (size_t n; at < bytes && (n = base_utf8_decode(text + at, bytes - at, &letter)) > 0; at += n)
        ;
    return at;
}

/* Puts '?' for each byte of text that belongs to no UTF-8. text: ends with 0. */
static inline void base_utf8_mend(char *text)
{
    unsigned char *at = (unsigned char *)text;
    size_t bytes = 0, good;
    while (text[bytes])
        bytes++;
    for (; (good = base_utf8_span(at, bytes)) < bytes; at += good, bytes -= good)
        at[good] = '?';
}

/* Where base_utf8_decode finds nothing at text[0 .. bytes): how many bytes one U+FFFD stands for. That is the
 * longest beginning of a character (Unicode 15, table 3-8), at least 1, as Python's errors="replace" has
 * it. */
static inline size_t base_utf8_bad(const unsigned char *text, size_t bytes)
{
    const unsigned c = text[0];
    size_t most = c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
    unsigned low = c == 0xE0   ? 0xA0
                   : c == 0xF0 ? 0x90
                               : 0x80,
             high = c == 0xED   ? 0x9F
                    : c == 0xF4 ? 0x8F
                                : 0xBF;
    size_t n = 1;
    for (; n <= most && n < bytes && text[n] >= low && text[n] <= high; n++) {
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

/* White_Space of Unicode 15. */
static inline int base_utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

#endif
