/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/normalize.c: what text becomes before it is cut: Unicode's normal forms (utf8proc), and
 * the other normalizers of tokenizer.json. Each step reads one buffer and writes the other. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "model/tokenizer/pattern.h"

#define MOST_STEPS 16

typedef struct {
    normalize_kind_t kind;
    char *pattern; /* for messages */
    pcre2_code *code;
    unsigned char *content; /* [bytes] */
    size_t bytes;
} step_t;

struct tokenizer_normalizer {
    size_t steps;
    step_t step[MOST_STEPS];
};

struct tokenizer_normal {
    const tokenizer_normalizer_t *normalizer; /* borrowed */
    model_after_t after;                      /* of the text in hand */
    tokenizer_buffer_t buffer[2];
    pcre2_match_data *match;
};

gyre_status_t tokenizer_normalizer_add(tokenizer_normalizer_t **normalizer, const char *path,
                                       normalize_kind_t kind, const char *pattern, int literal,
                                       const void *content, size_t bytes)
{
    if (!*normalizer && !(*normalizer = calloc(1, sizeof **normalizer)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the normalizer of %s", path);
    if ((*normalizer)->steps == MOST_STEPS)
        return gyre_fail(GYRE_ERR_INVALID, "%s normalizes text in more than %d steps", path, MOST_STEPS);
    step_t *step = &(*normalizer)->step[(*normalizer)->steps++]; /* destroy frees what it has got by then */
    step->kind = kind;
    step->bytes = bytes;
    step->content = malloc(bytes + 1);
    step->pattern = strdup(pattern ? pattern : "");
    if (!step->content || !step->pattern)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the normalizer of %s", path);
    if (bytes > 0)
        memcpy(step->content, content, bytes);
    return pattern ? tokenizer_pattern_compile(path, pattern, literal, &step->code) : GYRE_OK;
}

void tokenizer_normalizer_destroy(tokenizer_normalizer_t *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->steps; i++) {
        pcre2_code_free(normalizer->step[i].code);
        free(normalizer->step[i].pattern);
        free(normalizer->step[i].content);
    }
    free(normalizer);
}

gyre_status_t tokenizer_normal_create(const tokenizer_normalizer_t *normalizer, tokenizer_normal_t **out)
{
    tokenizer_normal_t *normal = calloc(1, sizeof *normal);
    if (!normal || !(normal->match = pcre2_match_data_create(1, NULL))) {
        free(normal);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to normalize text");
    }
    normal->normalizer = normalizer;
    *out = normal;
    return GYRE_OK;
}

void tokenizer_normal_destroy(tokenizer_normal_t *normal)
{
    if (!normal)
        return;
    pcre2_match_data_free(normal->match);
    free(normal->buffer[0].bytes);
    free(normal->buffer[1].bytes);
    free(normal);
}

/* ---- normal forms -------------------------------------------------------------------------------------- */

/* 1: the text is in the form already. ASCII is in all; below U+0300 nothing composes or is reordered, so that
 * is in NFC. */
static int in_form(normalize_kind_t kind, const unsigned char *text, size_t bytes)
{
    const unsigned char most = kind == NORMALIZE_NFC ? 0xCB : 0x7F; /* U+02FF is CB BF */
    for (size_t i = 0; i < bytes; i++)
        if (text[i] > most)
            return 0;
    return 1;
}

static gyre_status_t to_form(normalize_kind_t kind, const unsigned char *text, size_t bytes,
                             tokenizer_buffer_t *out)
{
    if (in_form(kind, text, bytes))
        return tokenizer_append(out, text, bytes);
    int how = UTF8PROC_STABLE |
              (kind == NORMALIZE_NFC || kind == NORMALIZE_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
              (kind == NORMALIZE_NFKC || kind == NORMALIZE_NFKD ? UTF8PROC_COMPAT : 0);
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t n = utf8proc_map(text, (utf8proc_ssize_t)bytes, &made, (utf8proc_option_t)how);
    if (n < 0)
        return gyre_fail(n == UTF8PROC_ERROR_NOMEM ? GYRE_ERR_NO_MEMORY : GYRE_ERR_INVALID,
                         "cannot normalize a text of %zu bytes: %s", bytes, utf8proc_errmsg(n));
    gyre_status_t status = tokenizer_append(out, made, (size_t)n);
    free(made);
    return status;
}

/* ---- character by character ---------------------------------------------------------------------------- */

static int is_mark(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

/* The rules of Google's NMT: 0 for what goes, a space for what is taken for one. */
static uint32_t nmt(uint32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
        return 0;
    if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
        return ' ';
    return c;
}

/* As BertNormalizer's clean_text; 0 for what goes. */
static uint32_t clean(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (c == '\t' || c == '\n' || c == '\r')
        return ' ';
    if (c == 0xFFFD || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
        category == UTF8PROC_CATEGORY_CO)
        return 0;
    return base_utf8_is_space(c) ? ' ' : c;
}

static int is_chinese(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return 1;
    return 0;
}

static gyre_status_t each_character(normalize_kind_t kind, const unsigned char *text, size_t bytes,
                                    tokenizer_buffer_t *out)
{
    gyre_status_t status = GYRE_OK;
    uint32_t c = 0;
    for (size_t at = 0, n; status == GYRE_OK && at < bytes; at += n) {
        unsigned char made[8];
        n = base_utf8_decode(text + at, bytes - at, &c);
        uint32_t to = c;
        if (kind == NORMALIZE_STRIP_ACCENTS && is_mark(c))
            continue;
        if (kind == NORMALIZE_NMT && (to = nmt(c)) == 0 && c != 0)
            continue;
        if (kind == NORMALIZE_BERT_CLEAN && (to = clean(c)) == 0)
            continue;
        if (kind == NORMALIZE_BERT_ACCENTS && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN)
            continue;
        if (kind == NORMALIZE_BERT_CHINESE && is_chinese(c)) {
            made[0] = ' ';
            memcpy(made + 1, text + at, n);
            made[n + 1] = ' ';
            status = tokenizer_append(out, made, n + 2);
            continue;
        }
        if (kind == NORMALIZE_LOWERCASE && c == 0x130) { /* the one that becomes two */
            status = tokenizer_append(out, "i\xcc\x87", 3);
            continue;
        }
        if (kind == NORMALIZE_LOWERCASE)
            to = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
        status = to == c ? tokenizer_append(out, text + at, n)
                         : tokenizer_append(out, made, tokenizer_put_utf8(made, to));
    }
    return status;
}

static gyre_status_t strip(normalize_kind_t kind, const unsigned char *text, size_t bytes,
                           tokenizer_buffer_t *out)
{
    uint32_t c = 0;
    size_t n;
    if (kind == NORMALIZE_STRIP_LEFT)
        for (; bytes > 0 && (n = base_utf8_decode(text, bytes, &c)) > 0 && base_utf8_is_space(c); bytes -= n)
            text += n;
    else
        for (; bytes > 0 && (n = tokenizer_before(text, bytes, &c)) > 0 && base_utf8_is_space(c);)
            bytes -= n;
    return tokenizer_append(out, text, bytes);
}

static gyre_status_t replace(const tokenizer_normal_t *normal, const step_t *step, const unsigned char *text,
                             size_t bytes, tokenizer_buffer_t *out)
{
    gyre_status_t status = GYRE_OK;
    size_t done = 0, begin = 0, end = 0;
    int found;
    while ((found = tokenizer_pattern_next(step->code, normal->match, text, bytes, done, &begin, &end)) > 0) {
        if ((status = tokenizer_append(out, text + done, begin - done)) != GYRE_OK ||
            (status = tokenizer_append(out, step->content, step->bytes)) != GYRE_OK)
            return status;
        done = end;
    }
    return found < 0 ? tokenizer_pattern_gave_up(step->pattern, bytes, found)
                     : tokenizer_append(out, text + done, bytes - done);
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static gyre_status_t apply(const tokenizer_normal_t *normal, const step_t *step, const unsigned char *text,
                           size_t bytes, tokenizer_buffer_t *out)
{
    gyre_status_t status = GYRE_OK;
    switch (step->kind) {
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD:
        return to_form(step->kind, text, bytes, out);
    case NORMALIZE_PREPEND:
        if (bytes > 0 && normal->after != MODEL_AFTER_TEXT)
            status = tokenizer_append(out, step->content, step->bytes);
        return status == GYRE_OK ? tokenizer_append(out, text, bytes) : status;
    case NORMALIZE_REPLACE:
        return replace(normal, step, text, bytes, out);
    case NORMALIZE_STRIP_LEFT:
    case NORMALIZE_STRIP_RIGHT:
        return strip(step->kind, text, bytes, out);
    case NORMALIZE_CHARSMAP:
        return tokenizer_charsmap_apply(step->content, step->bytes, text, bytes, out);
    case NORMALIZE_LOWERCASE:
    case NORMALIZE_STRIP_ACCENTS:
    case NORMALIZE_NMT:
    case NORMALIZE_BERT_CLEAN:
    case NORMALIZE_BERT_CHINESE:
    case NORMALIZE_BERT_ACCENTS:
        break;
    }
    return each_character(step->kind, text, bytes, out);
}

gyre_status_t tokenizer_normalize(tokenizer_normal_t *normal, model_after_t after, const unsigned char *text,
                                  size_t bytes, const unsigned char **out, size_t *out_bytes)
{
    normal->after = after;
    for (size_t i = 0; normal->normalizer && i < normal->normalizer->steps; i++) {
        tokenizer_buffer_t *buffer = &normal->buffer[i % 2];
        buffer->count = 0;
        gyre_status_t status = apply(normal, &normal->normalizer->step[i], text, bytes, buffer);
        if (status == GYRE_OK) /* so that its bytes are there */
            status = tokenizer_append(buffer, "", 1);
        if (status != GYRE_OK)
            return status;
        text = buffer->bytes;
        bytes = buffer->count - 1;
    }
    *out = text;
    *out_bytes = bytes;
    return GYRE_OK;
}
