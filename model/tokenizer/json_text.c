/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/json_text.c: of tokenizer.json what becomes of text before it is tokens, and of tokens when
 * they become text: "normalizer", "pre_tokenizer" and "decoder". */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/tokenizer/json.h"

/* Calls read(...) for a value, or, if it is a Sequence, for each entry of its `list`. */
typedef gyre_status_t (*read_fn)(void *user, const json_t *value);
static gyre_status_t each_of(const json_t *value, const char *list, int depth, read_fn read, void *user)
{
    gyre_status_t status = GYRE_OK;
    if (tokenizer_absent(value))
        return GYRE_OK;
    if (strcmp(tokenizer_type_of(value), "Sequence") != 0 || depth == 8)
        return read(user, value);
    const json_t *entries = json_object_get(value, list);
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(entries); i++)
        status = each_of(json_array_get(entries, i), list, depth + 1, read, user);
    return status;
}

typedef struct {
    model_tokenizer_t *tokenizer;
    const char *path;
    int mapped; /* bytes have become letters, so nothing may follow that cuts */
} steps_t;

/* {"String": ...} or {"Regex": ...}; NULL: neither. */
static const char *pattern_of(const json_t *value, int *literal)
{
    const json_t *pattern = json_object_get(value, "pattern");
    const char *text = json_string_value(json_object_get(pattern, "String"));
    *literal = text != NULL;
    return text ? text : json_string_value(json_object_get(pattern, "Regex"));
}

/* ---- normalizers --------------------------------------------------------------------------------------- */

static gyre_status_t add_charsmap(steps_t *s, const json_t *value)
{
    const json_t *map = json_object_get(value, "precompiled_charsmap");
    size_t room = json_string_length(map), count = 0;
    unsigned char *bytes = malloc(room + 1);
    if (!bytes)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the normalizer of %s", s->path);
    gyre_status_t status = GYRE_OK;
    if (!json_is_string(map) || sodium_base642bin(bytes, room, json_string_value(map), room, NULL, &count,
                                                  NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s: the precompiled_charsmap of its normalizer is not base64",
                           s->path);
    if (status == GYRE_OK)
        status = tokenizer_charsmap_check(s->path, bytes, count);
    if (status == GYRE_OK)
        status = tokenizer_normalizer_add(&s->tokenizer->normalizer, s->path, NORMALIZE_CHARSMAP, NULL, 0,
                                          bytes, count);
    free(bytes);
    return status;
}

static gyre_status_t add_strip(steps_t *s, const json_t *value)
{
    gyre_status_t status = GYRE_OK;
    if (json_is_true(json_object_get(value, "strip_left")))
        status = tokenizer_normalizer_add(&s->tokenizer->normalizer, s->path, NORMALIZE_STRIP_LEFT, NULL, 0,
                                          "", 0);
    if (status == GYRE_OK && json_is_true(json_object_get(value, "strip_right")))
        status = tokenizer_normalizer_add(&s->tokenizer->normalizer, s->path, NORMALIZE_STRIP_RIGHT, NULL, 0,
                                          "", 0);
    return status;
}

/* Its parts in their order; accents go with upper case, unless it says otherwise. */
static gyre_status_t add_bert(steps_t *s, const json_t *value)
{
    const json_t *accents = json_object_get(value, "strip_accents");
    const int lower = !json_is_false(json_object_get(value, "lowercase")),
              strip = tokenizer_absent(accents) ? lower : json_is_true(accents);
    const struct {
        int wanted;
        normalize_kind_t kind;
    } parts[] = {{!json_is_false(json_object_get(value, "clean_text")), NORMALIZE_BERT_CLEAN},
                 {!json_is_false(json_object_get(value, "handle_chinese_chars")), NORMALIZE_BERT_CHINESE},
                 {strip, NORMALIZE_NFD},
                 {strip, NORMALIZE_BERT_ACCENTS},
                 {lower, NORMALIZE_LOWERCASE}};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < sizeof parts / sizeof *parts; i++)
        if (parts[i].wanted)
            status =
                tokenizer_normalizer_add(&s->tokenizer->normalizer, s->path, parts[i].kind, NULL, 0, "", 0);
    return status;
}

static gyre_status_t add_normalizer(void *user, const json_t *value)
{
    static const struct {
        const char *type;
        normalize_kind_t kind;
    } plain[] = {{"NFC", NORMALIZE_NFC},
                 {"NFD", NORMALIZE_NFD},
                 {"NFKC", NORMALIZE_NFKC},
                 {"NFKD", NORMALIZE_NFKD},
                 {"Nmt", NORMALIZE_NMT},
                 {"Lowercase", NORMALIZE_LOWERCASE},
                 {"StripAccents", NORMALIZE_STRIP_ACCENTS}};
    steps_t *s = user;
    const char *type = tokenizer_type_of(value);
    tokenizer_normalizer_t **to = &s->tokenizer->normalizer;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(type, plain[i].type) == 0)
            return tokenizer_normalizer_add(to, s->path, plain[i].kind, NULL, 0, "", 0);
    if (strcmp(type, "Strip") == 0)
        return add_strip(s, value);
    if (strcmp(type, "Precompiled") == 0)
        return add_charsmap(s, value);
    const json_t *prepend = json_object_get(value, "prepend"), *content = json_object_get(value, "content");
    if (strcmp(type, "Prepend") == 0 && json_is_string(prepend))
        return tokenizer_normalizer_add(to, s->path, NORMALIZE_PREPEND, NULL, 0, json_string_value(prepend),
                                        json_string_length(prepend));
    if (strcmp(type, "BertNormalizer") == 0)
        return add_bert(s, value);
    int literal;
    const char *pattern = pattern_of(value, &literal);
    if (strcmp(type, "Replace") == 0 && pattern && json_is_string(content))
        return *pattern ? tokenizer_normalizer_add(to, s->path, NORMALIZE_REPLACE, pattern, literal,
                                                   json_string_value(content), json_string_length(content))
                        : GYRE_OK;
    return tokenizer_unsupported(s->path, "normalizer", value,
                                 "NFC, NFD, NFKC, NFKD, Prepend, Replace, Precompiled, Strip, StripAccents, "
                                 "Lowercase, Nmt, BertNormalizer and Sequence are");
}

gyre_status_t tokenizer_json_normalizer(model_tokenizer_t *tokenizer, const char *path, const json_t *value)
{
    steps_t s = {.tokenizer = tokenizer, .path = path};
    return each_of(value, "normalizers", 0, add_normalizer, &s);
}

/* ---- pre-tokenizers ------------------------------------------------------------------------------------ */

static int behavior_of(const json_t *value, split_behavior_t *behavior)
{
    static const char *const names[] = {[SPLIT_ISOLATED] = "Isolated",
                                        [SPLIT_REMOVED] = "Removed",
                                        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [SPLIT_CONTIGUOUS] = "Contiguous"};
    const char *name = json_string_value(json_object_get(value, "behavior"));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *behavior = (split_behavior_t)i;
            return 1;
        }
    return 0;
}

static gyre_status_t add_split(const steps_t *s, const json_t *step)
{
    int literal;
    split_behavior_t behavior;
    const char *pattern = pattern_of(step, &literal);
    if (!pattern || !*pattern)
        return tokenizer_unsupported(s->path, "pre_tokenizer's pattern", json_object_get(step, "pattern"),
                                     "{\"Regex\": ...} and {\"String\": ...} are");
    if (!behavior_of(step, &behavior))
        return tokenizer_unsupported(
            s->path, "pre_tokenizer's behavior", json_object_get(step, "behavior"),
            "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are");
    return tokenizer_split_add(&s->tokenizer->split, s->path, pattern, literal, behavior,
                               json_is_true(json_object_get(step, "invert")));
}

static split_prepend_t prepend_of(const json_t *value)
{
    const json_t *scheme = json_object_get(value, "prepend_scheme");
    if (!json_is_string(scheme)) /* files of before there were schemes */
        return json_is_false(json_object_get(value, "add_prefix_space")) ? PREPEND_NEVER : PREPEND_ALWAYS;
    return strcmp(json_string_value(scheme), "never") == 0   ? PREPEND_NEVER
           : strcmp(json_string_value(scheme), "first") == 0 ? PREPEND_FIRST
                                                             : PREPEND_ALWAYS;
}

static gyre_status_t add_metaspace(const steps_t *s, const json_t *step)
{
    const char *mark = json_string_value(json_object_get(step, "replacement"));
    return tokenizer_split_add_mark(&s->tokenizer->split, s->path, mark ? mark : "", prepend_of(step), 1,
                                    !json_is_false(json_object_get(step, "split")));
}

/* Cuts, bytes to letters last. */
static gyre_status_t add_byte_level(steps_t *s, const json_t *step)
{
    gyre_status_t status = GYRE_OK;
    s->mapped = 1;
    if (json_is_true(json_object_get(step, "add_prefix_space")))
        status = tokenizer_split_add_mark(&s->tokenizer->split, s->path, " ", PREPEND_ALWAYS, 0, 0);
    if (status == GYRE_OK && !json_is_false(json_object_get(step, "use_regex")))
        status = tokenizer_split_add(&s->tokenizer->split, s->path, tokenizer_pattern("gpt2"), 0,
                                     SPLIT_ISOLATED, 0);
    return status;
}

/* \w of Rust's engine: letters, marks, digits, connectors, joiners. */
#define WORD                                                                                                 \
    "\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-" \
    "\\x{1f169}\\x{1f170}-\\x{1f189}"

#define PUNCTUATION "[\\p{P}\\x{21}-\\x{2f}\\x{3a}-\\x{40}\\x{5b}-\\x{60}\\x{7b}-\\x{7e}]"

static gyre_status_t add_step(void *user, const json_t *step)
{
    steps_t *s = user;
    const char *type = tokenizer_type_of(step);
    tokenizer_split_t **split = &s->tokenizer->split;
    split_behavior_t behavior = SPLIT_ISOLATED;
    if (s->mapped)
        return tokenizer_unsupported(s->path, "pre_tokenizer", step, "nothing may follow ByteLevel");
    if (strcmp(type, "Split") == 0)
        return add_split(s, step);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(s, step);
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(s, step);
    if (strcmp(type, "Digits") == 0)
        return tokenizer_split_add(
            split, s->path, "\\p{N}", 0,
            json_is_true(json_object_get(step, "individual_digits")) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, 0);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return tokenizer_split_add(split, s->path, "\\s", 0, SPLIT_REMOVED, 0);
    if (strcmp(type, "Whitespace") == 0)
        return tokenizer_split_add(split, s->path, "[" WORD "]+|[^\\s" WORD "]+", 0, SPLIT_REMOVED, 1);
    if (strcmp(type, "Punctuation") == 0 &&
        (!json_object_get(step, "behavior") || behavior_of(step, &behavior)))
        return tokenizer_split_add(split, s->path, PUNCTUATION, 0, behavior, 0);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        const gyre_status_t status = tokenizer_split_add(split, s->path, "\\s", 0, SPLIT_REMOVED, 0);
        return status == GYRE_OK ? tokenizer_split_add(split, s->path, PUNCTUATION, 0, SPLIT_ISOLATED, 0)
                                 : status;
    }
    const char *delimiter = json_string_value(json_object_get(step, "delimiter"));
    if (strcmp(type, "CharDelimiterSplit") == 0 && delimiter && *delimiter)
        return tokenizer_split_add(split, s->path, delimiter, 1, SPLIT_REMOVED, 0);
    return tokenizer_unsupported(
        s->path, "pre_tokenizer", step,
        "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
        "CharDelimiterSplit, BertPreTokenizer and Sequence are");
}

gyre_status_t tokenizer_json_steps(model_tokenizer_t *tokenizer, const char *path, const json_t *value,
                                   int *bytes)
{
    steps_t s = {.tokenizer = tokenizer, .path = path};
    gyre_status_t status = each_of(value, "pretokenizers", 0, add_step, &s);
    *bytes = s.mapped;
    return status;
}

/* ---- decoders ------------------------------------------------------------------------------------------ */

typedef struct {
    model_tokenizer_t *tokenizer;
    const char *path;
    int bytes, fused; /* ByteFallback, Fuse have come */
} decoder_t;

/* Of what decoding writes for each token, `from` becomes `to`. */
static gyre_status_t replace_in_texts(model_tokenizer_t *t, const char *path, const char *from,
                                      const char *to)
{
    const size_t width = strlen(from), to_width = strlen(to);
    gyre_status_t status = GYRE_OK;
    tokenizer_buffer_t text = {0};
    for (size_t id = 0; status == GYRE_OK && width > 0 && id < t->vocab; id++) {
        const unsigned char *at = t->blob + t->token[id].text_at, *end = at + t->token[id].text_count, *next;
        if (!t->token[id].there || !memmem(at, (size_t)(end - at), from, width))
            continue;
        for (text.count = 0; status == GYRE_OK && at < end; at = next + width) {
            next = memmem(at, (size_t)(end - at), from, width);
            status = tokenizer_append(&text, at, (size_t)((next ? next : end) - at));
            if (!next)
                break;
            if (status == GYRE_OK)
                status = tokenizer_append(&text, to, to_width);
        }
        if (status == GYRE_OK && text.count > UINT32_MAX / 4)
            status = gyre_fail(GYRE_ERR_FORMAT, "%s: its decoder makes a token too long", path);
        if (status == GYRE_OK)
            status = tokenizer_set_text(t, id, text.bytes, text.count);
    }
    free(text.bytes);
    return status;
}

static gyre_status_t write_bytes(model_tokenizer_t *t)
{
    gyre_status_t status = GYRE_OK;
    for (size_t id = 0; status == GYRE_OK && id < t->vocab; id++) {
        const tokenizer_token_t *token = &t->token[id];
        int byte = token->there ? tokenizer_fallback_byte(t->blob + token->at, token->count) : -1;
        unsigned char one = (unsigned char)byte;
        if (byte >= 0)
            status = tokenizer_set_text(t, id, &one, 1);
    }
    return status;
}

/* Strip of the whole text: `start` characters at its beginning. */
static gyre_status_t add_strip_decoder(const decoder_t *d, const json_t *step)
{
    const char *content = json_string_value(json_object_get(step, "content"));
    json_int_t start = json_integer_value(json_object_get(step, "start"));
    if (!d->fused || !content || !*content || strlen(content) >= sizeof d->tokenizer->stripped || start < 0 ||
        start > 64 || json_integer_value(json_object_get(step, "stop")) != 0)
        return tokenizer_unsupported(d->path, "decoder", step,
                                     "Strip after Fuse, at the start of a text, is");
    d->tokenizer->strip = (size_t)start;
    d->tokenizer->stripped_bytes = strlen(content);
    memcpy(d->tokenizer->stripped, content, strlen(content));
    return GYRE_OK;
}

/* Replaces in a text, in place: `to` is not longer than `from`. */
static void shorten(tokenizer_buffer_t *text, const char *from, const char *to)
{
    const size_t width = strlen(from), less = width - strlen(to);
    unsigned char *at = text->bytes, *next;
    while ((next = memmem(at, text->count - (size_t)(at - text->bytes), from, width))) {
        memcpy(next, to, width - less);
        at = next + width - less;
        memmove(at, at + less, text->count - (size_t)(at - text->bytes) - less);
        text->count -= less;
    }
}

/* WordPiece's decoder, or none: after the first, tokens have a space in front, or the prefix, which goes.
 * `cleanup` takes spaces before punctuation and English endings away. */
static gyre_status_t put_spaces(model_tokenizer_t *t, const char *prefix, int cleanup)
{
    static const char *const cleaned[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    const size_t width = prefix ? strlen(prefix) : 0;
    gyre_status_t status = GYRE_OK;
    tokenizer_buffer_t text = {0};
    t->raw_first = 1;
    for (size_t id = 0; status == GYRE_OK && id < t->vocab; id++) {
        const tokenizer_token_t *token = &t->token[id];
        if (!token->there)
            continue;
        const int goes_on =
            prefix && token->count >= width && memcmp(t->blob + token->at, prefix, width) == 0;
        const size_t skip = goes_on ? width : 0;
        text.count = 0;
        status = tokenizer_append(&text, " ", !goes_on);
        if (status == GYRE_OK)
            status = tokenizer_append(&text, t->blob + token->at + skip, token->count - skip);
        for (size_t i = 0; status == GYRE_OK && cleanup && i < sizeof cleaned / sizeof *cleaned; i++)
            shorten(&text, cleaned[i][0], cleaned[i][1]);
        if (status == GYRE_OK)
            status = tokenizer_set_text(t, id, text.bytes, text.count);
    }
    free(text.bytes);
    return status;
}

static gyre_status_t add_decoder(void *user, const json_t *step)
{
    decoder_t *d = user;
    model_tokenizer_t *t = d->tokenizer;
    const char *type = tokenizer_type_of(step);
    int literal;
    if (strcmp(type, "Replace") == 0) {
        const char *from = pattern_of(step, &literal),
                   *to = json_string_value(json_object_get(step, "content"));
        if (from && literal && to && !d->bytes && !d->fused)
            return replace_in_texts(t, d->path, from, to);
    } else if (strcmp(type, "Metaspace") == 0) {
        const char *mark = json_string_value(json_object_get(step, "replacement"));
        if (mark && *mark && strlen(mark) < sizeof t->mark && !d->bytes && !d->fused) {
            t->mark_bytes = strlen(mark);
            memcpy(t->mark, mark, t->mark_bytes);
            t->drop_marks = prepend_of(step) != PREPEND_NEVER;
            return replace_in_texts(t, d->path, mark, " ");
        }
    } else if (strcmp(type, "ByteFallback") == 0 && !d->fused) {
        d->bytes = 1;
        return write_bytes(t);
    } else if (strcmp(type, "Fuse") == 0) {
        d->fused = 1;
        return GYRE_OK;
    } else if (strcmp(type, "Strip") == 0)
        return add_strip_decoder(d, step);
    else if (strcmp(type, "WordPiece") == 0 && !d->bytes && !d->fused) {
        const char *prefix = json_string_value(json_object_get(step, "prefix"));
        d->fused = 1; /* nothing may follow */
        return put_spaces(t, prefix ? prefix : "##", !json_is_false(json_object_get(step, "cleanup")));
    }
    return tokenizer_unsupported(
        d->path, "decoder", step,
        "of a vocabulary of characters Replace of a text, Metaspace, ByteFallback, Fuse "
        "and Strip are, in this order, and WordPiece alone");
}

gyre_status_t tokenizer_json_decoder(model_tokenizer_t *tokenizer, const char *path, const json_t *value)
{
    decoder_t d = {.tokenizer = tokenizer, .path = path};
    const int words = tokenizer->kind == TOKENIZER_PIECES || tokenizer->kind == TOKENIZER_WORDS;
    if (words && tokenizer_absent(value))
        return put_spaces(tokenizer, NULL, 0);
    if (tokenizer->kind != TOKENIZER_BYTES)
        return tokenizer_absent(value)
                   ? tokenizer_unsupported(path, "decoder", value, "ByteFallback, Metaspace and the like are")
                   : each_of(value, "decoders", 0, add_decoder, &d);
    return tokenizer_absent(value) || strcmp(tokenizer_type_of(value), "ByteLevel") == 0
               ? GYRE_OK
               : tokenizer_unsupported(path, "decoder", value, "ByteLevel is");
}
