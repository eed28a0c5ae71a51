/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/split.c: text to pieces, by patterns.
 *
 * Patterns are PCRE2's, in UTF and UCP mode, compiled to machine code where it can. In them \s means
 * Unicode's White_Space, as it does in the libraries that other tokenizers use: PCRE2's own takes U+180E
 * for a space, too. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "model/tokenizer/internal.h"

#define MOST_STEPS 8

struct tokenizer_split {
    size_t steps;
    pcre2_code *code[MOST_STEPS];
    char *pattern[MOST_STEPS]; /* as given, for the hash */
};

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

/* Why the group or anchor that begins here is refused. */
static const char *refuse_outside(const char *p)
{
    if (*p == '^' || *p == '$')
        return "^ and $ are not supported: they mean lines to one engine and texts to another";
    if (p[0] == '(' && p[1] == '?')
        for (p += 2; (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '-'; p++)
            if (*p != 'i' && *p != '-')
                return "of the flags only (?i) is supported";
    return NULL;
}

static const char no_memory[] = "no memory";

/* The pattern in PCRE2's syntax; caller frees. Patterns of tokenizer.json are Oniguruma's: \s and \S are
 * spelt out, sets within sets, which are their union, are joined, and constructs with another meaning in
 * PCRE2 are refused. NULL: *why. */
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

gyre_status_t tokenizer_split_add(tokenizer_split_t **split, const char *path, const char *pattern)
{
    if (!*split && !(*split = calloc(1, sizeof **split)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
    if ((*split)->steps == MOST_STEPS)
        return gyre_fail(GYRE_ERR_INVALID, "%s cuts text in more than %d steps", path, MOST_STEPS);
    const char *why;
    char *spelled = spell_out(pattern, &why), *copy = strdup(pattern);
    if (!spelled || !copy) {
        free(copy);
        free(spelled);
        if (!why || why == no_memory)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
        return gyre_fail(GYRE_ERR_INVALID, "%s: its pattern '%.200s': %s", path, pattern, why);
    }
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    free(spelled);
    if (!code) {
        unsigned char text[200] = "";
        pcre2_get_error_message(error, text, sizeof text);
        free(copy);
        if (error == PCRE2_ERROR_HEAP_FAILED)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pattern of %s", path);
        return gyre_fail(GYRE_ERR_FORMAT, "%s: its pattern '%.200s' is invalid: %s", path, pattern,
                         (char *)text);
    }
    (void)pcre2_jit_compile(code,
                            PCRE2_JIT_COMPLETE); /* without it the matcher interprets: slower, but the same */
    (*split)->code[(*split)->steps] = code;
    (*split)->pattern[(*split)->steps++] = copy;
    return GYRE_OK;
}

void tokenizer_split_destroy(tokenizer_split_t *split)
{
    if (!split)
        return;
    for (size_t i = 0; i < split->steps; i++) {
        pcre2_code_free(split->code[i]);
        free(split->pattern[i]);
    }
    free(split);
}

uint64_t tokenizer_split_hash(const tokenizer_split_t *split, uint64_t hash)
{
    for (size_t i = 0; split && i < split->steps; i++)
        hash = base_hash64(split->pattern[i], strlen(split->pattern[i]), hash);
    return hash;
}

/* ---- cutting ------------------------------------------------------------------------------------------- */

struct tokenizer_cutter {
    const tokenizer_split_t *split; /* borrowed; NULL: a text is one piece */
    pcre2_match_data *match[MOST_STEPS];
};

gyre_status_t tokenizer_cutter_create(const tokenizer_split_t *split, tokenizer_cutter_t **out)
{
    tokenizer_cutter_t *cutter = calloc(1, sizeof *cutter);
    if (!cutter)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to cut text");
    cutter->split = split;
    for (size_t i = 0; split && i < split->steps; i++)
        if (!(cutter->match[i] = pcre2_match_data_create(1, NULL))) {
            tokenizer_cutter_destroy(cutter);
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to cut text");
        }
    *out = cutter;
    return GYRE_OK;
}

void tokenizer_cutter_destroy(tokenizer_cutter_t *cutter)
{
    if (!cutter)
        return;
    for (size_t i = 0; i < MOST_STEPS; i++)
        pcre2_match_data_free(cutter->match[i]);
    free(cutter);
}

/* The next match at or after `from` that is not empty: from *begin to *end. 0: there is no match; below: the
 * matcher gave up. */
static int next_match(tokenizer_cutter_t *cutter, size_t step, const unsigned char *text, size_t bytes,
                      size_t from, size_t *begin, size_t *end)
{
    while (from < bytes) {
        int n = pcre2_match(cutter->split->code[step], text, bytes, from, PCRE2_NO_UTF_CHECK,
                            cutter->match[step], NULL);
        if (n == PCRE2_ERROR_NOMATCH)
            return 0;
        if (n < 0)
            return n;
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(cutter->match[step]);
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

/* `text` is valid UTF-8. */
static gyre_status_t cut_from_step(tokenizer_cutter_t *cutter, size_t step, const unsigned char *text,
                                   size_t bytes, tokenizer_take_fn take, void *user)
{
    if (!cutter->split || step == cutter->split->steps)
        return take(user, text, bytes);
    gyre_status_t status = GYRE_OK;
    for (size_t done = 0, begin = 0, end = 0; status == GYRE_OK && done < bytes; done = end) {
        int found = next_match(cutter, step, text, bytes, done, &begin, &end);
        if (found < 0)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "the pattern '%.100s' gives up on a text of %zu bytes (PCRE2's error %d): it needs too "
                "many steps or too much memory",
                cutter->split->pattern[step], bytes, found);
        if (!found)
            begin = end = bytes;
        if (begin > done)
            status = cut_from_step(cutter, step + 1, text + done, begin - done, take, user);
        if (status == GYRE_OK && end > begin)
            status = cut_from_step(cutter, step + 1, text + begin, end - begin, take, user);
    }
    return status;
}

/* Length of the run of UTF-8 that begins the text, or, if there is none, *bad of bytes that are not. */
static size_t valid_run(const unsigned char *text, size_t bytes, size_t *bad)
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

gyre_status_t tokenizer_cut(tokenizer_cutter_t *cutter, const unsigned char *text, size_t bytes,
                            tokenizer_take_fn take, void *user)
{
    gyre_status_t status = GYRE_OK;
    for (size_t done = 0; status == GYRE_OK && done < bytes;) {
        size_t bad, run = valid_run(text + done, bytes - done, &bad);
        if (run > 0)
            status = cut_from_step(cutter, 0, text + done, run, take, user);
        else
            status = take(user, text + done, run = bad);
        done += run;
    }
    return status;
}
