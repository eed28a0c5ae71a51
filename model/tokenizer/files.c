/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/files.c: GPT-2's merges.txt, and .tiktoken files. */
#include <jansson.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/tokenizer/internal.h"

static const char end_of_text[] = "<|endoftext|>";

static gyre_status_t add_end_of_text(model_tokenizer_t *tokenizer, const char *path, size_t id)
{
    tokenizer->eot = (int64_t)id;
    return tokenizer_add(tokenizer, path, id, end_of_text, sizeof end_of_text - 1, 1);
}

/* A line without its end; *at moves after it. 0: there is no line. */
static int next_line(const char **at, const char *end, const char **line, size_t *length)
{
    if (*at >= end)
        return 0;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *length = (size_t)((stop ? stop : end) - *at);
    *at = stop ? stop + 1 : end;
    if (*length > 0 && (*line)[*length - 1] == '\r')
        --*length;
    return 1;
}

/* ---- merges.txt: line n makes id 256 + n; ids 0 .. 255 are bytes in the order of their letters --------
 *
 * Where vocab.json lies in the same folder it has the ids instead. GPT-2's has the same ones; OPT, RoBERTa
 * and others number the same merges in another way, after their special tokens. */

typedef struct {
    char path[PATH_MAX];
    json_t *ids; /* {token in letters: id}; NULL: there is no such file */
} vocab_t;

static gyre_status_t open_vocab(const char *merges, vocab_t *vocab)
{
    const char *slash = strrchr(merges, '/');
    int folder = slash ? (int)(slash - merges) + 1 : 0;
    vocab->ids = NULL;
    if (snprintf(vocab->path, sizeof vocab->path, "%.*svocab.json", folder, merges) >=
            (int)sizeof vocab->path ||
        access(vocab->path, F_OK) != 0)
        return GYRE_OK;
    gyre_status_t status = base_json_read(vocab->path, &vocab->ids);
    if (status == GYRE_OK && !json_is_object(vocab->ids))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s is not an object of tokens and ids", vocab->path);
    return status;
}

/* The id of a word in letters. */
static gyre_status_t vocab_id(const vocab_t *vocab, const char *word, size_t *id)
{
    const json_t *value = json_object_get(vocab->ids, word);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s has no id for '%.80s', which merges.txt makes: the two files are not of one "
                         "tokenizer, or are damaged; take its tokenizer.json",
                         vocab->path, word);
    *id = (size_t)json_integer_value(value);
    return GYRE_OK;
}

/* What neither is a byte nor comes of merges is never made from text. */
static gyre_status_t add_specials_of(model_tokenizer_t *tokenizer, const vocab_t *vocab)
{
    const char *word;
    json_t *value;
    gyre_status_t status = GYRE_OK;
    json_object_foreach(vocab->ids, word, value)
    {
        size_t id = 0;
        if (status == GYRE_OK)
            status = vocab_id(vocab, word, &id);
        if (status == GYRE_OK && !(id < tokenizer->vocab && tokenizer->token[id].there))
            status = tokenizer_add(tokenizer, vocab->path, id, word, strlen(word), 1);
    }
    return status;
}

/* Letters to bytes; count, or 0. */
static size_t unletter(const char *word, size_t length, unsigned char *out, size_t room)
{
    size_t count = 0, step;
    for (size_t i = 0; i < length; i += step, count++) {
        uint32_t letter;
        step = base_utf8_decode((const unsigned char *)word + i, length - i, &letter);
        int byte = step > 0 ? tokenizer_unletter(letter) : -1;
        if (byte < 0 || count == room)
            return 0;
        out[count] = (unsigned char)byte;
    }
    return count;
}

/* ids 0 .. 255: printable letters first, as they are, then the others. Or those of vocab.json. */
static gyre_status_t add_letters(model_tokenizer_t *tokenizer, const char *path, const vocab_t *vocab)
{
    gyre_status_t status = GYRE_OK;
    size_t id = 0;
    for (int other = 0; other < 2; other++)
        for (unsigned b = 0; status == GYRE_OK && b < 256; b++) {
            unsigned char byte = (unsigned char)b;
            uint32_t letter = tokenizer_letter(b);
            if ((letter >= 256) != other)
                continue;
            size_t place = id++;
            /* UTF-8 */
            const char two[] = {(char)(0xc0 | letter >> 6), (char)(0x80 | (letter & 63)), 0},
                       one[] = {(char)letter, 0};
            if (vocab->ids)
                status = vocab_id(vocab, letter < 0x80 ? one : two, &place);
            if (status == GYRE_OK)
                status = tokenizer_add(tokenizer, path, place, &byte, 1, 0);
        }
    return status;
}

typedef struct {
    unsigned char bytes[1024]; /* of both words */
    size_t left, all;
    char word[2 * 1024 + 1]; /* the same in letters */
} merge_line_t;

/* 0: the line is not a merge. */
static int parse_merge(const char *line, size_t length, merge_line_t *out)
{
    const char *space = memchr(line, ' ', length);
    if (!space)
        return 0;
    size_t left = (size_t)(space - line);
    out->left = unletter(line, left, out->bytes, sizeof out->bytes);
    size_t right =
        unletter(space + 1, length - left - 1, out->bytes + out->left, sizeof out->bytes - out->left);
    out->all = out->left + right;
    snprintf(out->word, sizeof out->word, "%.*s%.*s", (int)left, line, (int)(length - left - 1), space + 1);
    return out->left > 0 && right > 0;
}

/* Calls each line's merge: first to add its token, then, when all are there, to add its rank. */
static gyre_status_t each_merge(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                size_t bytes, const vocab_t *vocab, int ranks, size_t *count)
{
    const char *at = text, *line;
    size_t length, number = 0;
    merge_line_t merge;
    gyre_status_t status = GYRE_OK;
    *count = 0;
    while (status == GYRE_OK && next_line(&at, text + bytes, &line, &length)) {
        number++;
        if (length == 0 || (number == 1 && *line == '#'))
            continue;
        if (!parse_merge(line, length, &merge))
            return gyre_fail(
                GYRE_ERR_FORMAT,
                "%s: line %zu is not a merge of two tokens in GPT-2's letters ('%.*s'): is it a merges.txt?",
                path, number, (int)(length < 40 ? length : 40), line);
        if (!ranks) {
            size_t id = 256 + *count;
            if (vocab->ids)
                status = vocab_id(vocab, merge.word, &id);
            if (status == GYRE_OK)
                status = tokenizer_add(tokenizer, path, id, merge.bytes, merge.all, 0);
        } else {
            uint32_t left = tokenizer_lookup(tokenizer, merge.bytes, merge.left),
                     right = tokenizer_lookup(tokenizer, merge.bytes + merge.left, merge.all - merge.left);
            if (left == TOKENIZER_NONE || right == TOKENIZER_NONE)
                return gyre_fail(GYRE_ERR_FORMAT, "%s: line %zu merges a token that no line makes", path,
                                 number);
            status = tokenizer_merge(tokenizer, path, left, right);
        }
        ++*count;
    }
    return status;
}

gyre_status_t tokenizer_read_merges(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                    size_t bytes)
{
    size_t count;
    vocab_t vocab;
    gyre_status_t status = open_vocab(path, &vocab);
    if (status == GYRE_OK)
        status = add_letters(tokenizer, path, &vocab);
    if (status == GYRE_OK)
        status = each_merge(tokenizer, path, text, bytes, &vocab, 0, &count);
    if (status == GYRE_OK && count == 0)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s holds no merges: is it a merges.txt?", path);
    if (status == GYRE_OK)
        status =
            vocab.ids ? add_specials_of(tokenizer, &vocab) : add_end_of_text(tokenizer, path, 256 + count);
    if (status == GYRE_OK)
        status = tokenizer_index(tokenizer, path);
    if (status == GYRE_OK)
        status = tokenizer_merges(tokenizer, count);
    if (status == GYRE_OK)
        status = each_merge(tokenizer, path, text, bytes, &vocab, 1, &count);
    if (status == GYRE_OK)
        tokenizer_find_eot(tokenizer);
    json_decref(vocab.ids);
    return status == GYRE_OK
               ? tokenizer_split_add(&tokenizer->split, path, tokenizer_pattern("gpt2"), 0, SPLIT_ISOLATED, 0)
               : status;
}

/* ---- .tiktoken: base64 of a token's bytes, a space, its rank, which is its id -------------------------- */

static gyre_status_t parse_token(model_tokenizer_t *tokenizer, const char *path, size_t number,
                                 const char *line, size_t length)
{
    unsigned char token[1024];
    size_t count = 0, id = 0;
    const char *space = memchr(line, ' ', length), *stop = NULL;
    size_t digits = space ? (size_t)(line + length - space - 1) : 0;
    int fine = space && digits > 0 && digits < 9 &&
               sodium_base642bin(token, sizeof token, line, (size_t)(space - line), NULL, &count, &stop,
                                 sodium_base64_VARIANT_ORIGINAL) == 0 &&
               stop == space && count > 0;
    for (size_t i = 0; fine && i < digits; i++) {
        fine = space[1 + i] >= '0' && space[1 + i] <= '9';
        id = 10 * id + (size_t)(space[1 + i] - '0');
    }
    if (!fine)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: line %zu is not base64 and a rank ('%.*s')", path, number,
                         (int)(length < 40 ? length : 40), line);
    return tokenizer_add(tokenizer, path, id, token, count, 0);
}

/* Special tokens of the published vocabularies, known by their size. */
static gyre_status_t add_specials(model_tokenizer_t *tokenizer, const char *path, const char *pattern)
{
    static const struct {
        const char *pattern;
        size_t ranks, id;
        const char *text;
    } special[] = {{"cl100k", 100256, 100258, "<|fim_prefix|>"},
                   {"cl100k", 100256, 100259, "<|fim_middle|>"},
                   {"cl100k", 100256, 100260, "<|fim_suffix|>"},
                   {"cl100k", 100256, 100276, "<|endofprompt|>"},
                   {"o200k", 199998, 200018, "<|endofprompt|>"}};
    size_t ranks = tokenizer->vocab, end = ranks;
    if (strcmp(pattern, "gpt2") == 0 && ranks > 50256 && !tokenizer->token[50256].there) /* p50k */
        end = 50256;
    else if (strcmp(pattern, "cl100k") == 0 && ranks == 100256)
        end = 100257;
    else if (strcmp(pattern, "o200k") == 0 && ranks == 199998)
        end = 199999;
    gyre_status_t status = add_end_of_text(tokenizer, path, end);
    for (size_t i = 0; status == GYRE_OK && i < sizeof special / sizeof *special; i++)
        if (strcmp(special[i].pattern, pattern) == 0 && special[i].ranks == ranks)
            status =
                tokenizer_add(tokenizer, path, special[i].id, special[i].text, strlen(special[i].text), 1);
    return status;
}

gyre_status_t tokenizer_read_tiktoken(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                      size_t bytes, const char *pattern)
{
    const char *at = text, *line;
    size_t length, number = 0;
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && next_line(&at, text + bytes, &line, &length)) {
        number++;
        if (length > 0)
            status = parse_token(tokenizer, path, number, line, length);
    }
    if (status == GYRE_OK)
        status = add_specials(tokenizer, path, pattern);
    if (status == GYRE_OK)
        status = tokenizer_index(tokenizer, path);
    tokenizer->whole_first = 1;
    return status == GYRE_OK ? tokenizer_split_add(&tokenizer->split, path, tokenizer_pattern(pattern), 0,
                                                   SPLIT_ISOLATED, 0)
                             : status;
}
