/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/pattern.c: regular expressions of tokenizers, in words of one engine.
 *
 * Patterns are PCRE2's, in UTF and UCP mode, compiled to machine code where it can. In them \s means
 * Unicode's White_Space, as it does in the libraries that other tokenizers use: PCRE2's own takes U+180E
 * for a space, too. */
#include "model/tokenizer/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The published patterns, in words of one engine. */
static const struct {
    const char *name, *pattern;
} patterns[] = {
    {"gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s+(?!\\S)|\\s+"},
    {"cl100k",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|"
     "\\s++(?!\\p{Any})|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"},
    {"o200k", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
              "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
              "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}};

const char *tokenizer_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(patterns[i].name, name) == 0)
            return patterns[i].pattern;
    return NULL;
}

#define SPACES                                                                                           \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"

/* The reason to refuse the escape \c, whose meaning differs between engines; NULL: it is accepted. */
static const char *refuse_escape(char c, int depth)
{
    if (!c)
        return "it ends with \\";
    if (c == 'S' && depth > 0)
        return "\\S within [] is not supported";
    if (c == 'b' && depth > 0) /* backspace, in every engine */
        return NULL;
    return strchr("wWbBhHvVRXZGKNOyYQE", c)
               ? "\\w, \\b, \\h and what else differs between engines is not supported"
               : NULL;
}

/* Why the group that begins here is refused. */
static const char *refuse_outside(const char *p)
{
    if (p[0] == '(' && p[1] == '?')
        for (p += 2; (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '-'; p++)
            if (*p != 'i' && *p != '-')
                return "of the flags only (?i) is supported";
    return NULL;
}

static const char no_memory[] = "no memory";

/* The pattern in PCRE2's syntax; caller frees. Patterns of tokenizer.json are Oniguruma's: \s and \S are
 * spelt out, ^ and $ are those of lines, sets within sets, which are their union, are joined, and constructs
 * with another meaning in PCRE2 are refused. NULL: *why. */
static char *spell_out(const char *pattern, const char **why)
{
    size_t room = strlen(pattern) * (sizeof SPACES + 4) + 1, used = 0;
    char *out = malloc(room);
    int depth = 0; /* of sets */
    *why = out ? NULL : no_memory;
    for (const char *p = pattern; !*why && *p; p++) {
        if (*p == '\\' && !(*why = refuse_escape(p[1], depth))) {
            p++;
            if (*p == 's' || *p == 'S')
                used += (size_t)snprintf(out + used, room - used, depth > 0 ? "%s%s" : "[%s%s]",
                                         *p == 'S' ? "^" : "", SPACES);
            else {
                out[used++] = '\\';
                out[used++] = *p;
            }
        } else if (*p == '[' && depth++ == 0) {
            out[used++] = '[';
            if (p[1] == '^')
                out[used++] = *++p;
            if (p[1] == ']') { /* one of the set */
                out[used++] = '\\';
                out[used++] = *++p;
            }
        } else if (*p == '[') {
            if (p[1] == ':' || p[1] == '^')
                *why = "[^...] and [:...:] within a set are not supported";
        } else if (*p == ']' && depth > 0) {
            if (--depth == 0)
                out[used++] = ']';
        } else if (depth > 0 && p[0] == '&' && p[1] == '&') {
            *why = "&& within a set is not supported";
        } else if (depth == 0 && (*p == '^' || *p == '$')) {
            used += (size_t)snprintf(out + used, room - used, "%s",
                                     *p == '^' ? "(?:\\A|(?<=\\n)(?!\\z))" : "(?:(?=\\n)|\\z)");
        } else if (!*why && (depth > 0 || !(*why = refuse_outside(p))))
            out[used++] = *p;
    }
    if (*why) {
        free(out);
        return NULL;
    }
    out[used] = 0;
    return out;
}

gyre_status_t tokenizer_pattern_compile(const char *path, const char *pattern, int literal, pcre2_code **out)
{
    const char *why = no_memory;
    char *spelled = literal ? strdup(pattern) : spell_out(pattern, &why);
    if (!spelled && why == no_memory)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
    if (!spelled)
        return gyre_fail(GYRE_ERR_INVALID, "%s: its pattern '%.200s': %s", path, pattern, why);
    int error;
    PCRE2_SIZE at;
    *out =
        pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED,
                      literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                      &error, &at, NULL);
    free(spelled);
    if (!*out) {
        unsigned char text[200] = "";
        pcre2_get_error_message(error, text, sizeof text);
        if (error == PCRE2_ERROR_HEAP_FAILED)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
        return gyre_fail(GYRE_ERR_FORMAT, "%s: its pattern '%.200s' is invalid: %s", path, pattern,
                         (char *)text);
    }
    /* without it the matcher interprets: slower, but the same */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return GYRE_OK;
}

int tokenizer_pattern_next(const pcre2_code *code, pcre2_match_data *match, const unsigned char *text,
                           size_t bytes, size_t from, size_t *begin, size_t *end)
{
    while (from < bytes) {
        int n = pcre2_match(code, text, bytes, from, PCRE2_NO_UTF_CHECK, match, NULL);
        if (n == PCRE2_ERROR_NOMATCH)
            return 0;
        if (n < 0)
            return n;
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        if (found[1] > found[0]) {
            *begin = found[0];
            *end = found[1];
            return 1;
        }
        from = found[0] + 1; /* an empty match: on with the next code point */
        while (from < bytes && (text[from] & 0xC0) == 0x80)
            from++;
    }
    return 0;
}

gyre_status_t tokenizer_pattern_gave_up(const char *pattern, size_t bytes, int error)
{
    return gyre_fail(GYRE_ERR_INVALID,
                     "the pattern '%.100s' gives up on a text of %zu bytes (PCRE2's error %d): it needs too "
                     "many steps or too much memory",
                     pattern, bytes, error);
}
