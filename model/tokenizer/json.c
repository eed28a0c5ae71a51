/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/json.c: Hugging Face's tokenizer.json, as far as it is byte-level BPE. Normalizers, which
 * could make text lose bytes, and tokens of another kind are refused. Post-processors, which only add special
 * tokens around a whole text, are not applied. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/tokenizer/internal.h"

/* What is refused: KEY is VALUE, and why. */
static gyre_status_t unsupported(const char *path, const char *key, const json_t *value, const char *why)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    gyre_status_t status = gyre_fail(GYRE_ERR_INVALID, "%s: %s is %.100s, which is not supported: %s", path,
                                     key, text ? text : "?", why);
    free(text);
    return status;
}

static int absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static const char *type_of(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type ? type : "";
}

/* ---- what is supported --------------------------------------------------------------------------------- */

static gyre_status_t check_model(const char *path, const json_t *model)
{
    const char *const type = type_of(model);
    const json_t *value;
    /* old files have no type, and are BPE if they have merges */
    if (*type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: the model is %s: byte-level BPE is supported, and no other kind of tokenizer",
                         path, *type ? type : "of no type");
    if (!absent(value = json_object_get(model, "dropout")) && json_number_value(value) != 0.0)
        return unsupported(path, "model.dropout", value, "tokens would be random");
    if (json_is_true(value = json_object_get(model, "byte_fallback")))
        return unsupported(path, "model.byte_fallback", value,
                           "the vocabulary is of characters, not of bytes");
    const char *const words[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (!absent(value = json_object_get(model, words[i])) &&
            (json_string_length(value) > 0 || !json_is_string(value)))
            return unsupported(path, words[i], value, "tokens are bytes here");
    return GYRE_OK;
}

static gyre_status_t check_byte_level(const char *path, const json_t *step)
{
    const json_t *value = json_object_get(step, "add_prefix_space");
    return json_is_true(value)
               ? unsupported(path, "add_prefix_space", value, "decoding would not give back the text")
               : GYRE_OK;
}

static gyre_status_t add_split(model_tokenizer_t *tokenizer, const char *path, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern"), *behavior = json_object_get(step, "behavior"),
                 *invert = json_object_get(step, "invert");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (!regex)
        return unsupported(path, "pre_tokenizer's pattern", pattern, "{\"Regex\": ...} is");
    if (!json_is_string(behavior) || strcmp(json_string_value(behavior), "Isolated") != 0)
        return unsupported(path, "pre_tokenizer's behavior", behavior, "\"Isolated\" is");
    if (json_is_true(invert))
        return unsupported(path, "pre_tokenizer's invert", invert, "false is");
    return tokenizer_split_add(&tokenizer->split, path, regex);
}

/* One step. *mapped: bytes have become letters, so it was the last that cuts. */
static gyre_status_t add_step(model_tokenizer_t *tokenizer, const char *path, const json_t *step, int *mapped)
{
    const char *type = type_of(step);
    gyre_status_t status;
    if (*mapped)
        return unsupported(path, "pre_tokenizer", step, "nothing may follow ByteLevel");
    if (strcmp(type, "Split") == 0)
        return add_split(tokenizer, path, step);
    if (strcmp(type, "ByteLevel") != 0)
        return unsupported(path, "pre_tokenizer", step, "ByteLevel, and Split before it, are");
    *mapped = 1;
    if ((status = check_byte_level(path, step)) != GYRE_OK)
        return status;
    const json_t *use = json_object_get(step, "use_regex");
    return json_is_false(use) ? GYRE_OK
                              : tokenizer_split_add(&tokenizer->split, path, tokenizer_pattern("gpt2"));
}

static gyre_status_t read_steps(model_tokenizer_t *tokenizer, const char *path, const json_t *pre)
{
    int mapped = 0;
    gyre_status_t status = GYRE_OK;
    if (strcmp(type_of(pre), "Sequence") == 0) {
        const json_t *list = json_object_get(pre, "pretokenizers");
        for (size_t i = 0; status == GYRE_OK && i < json_array_size(list); i++)
            status = add_step(tokenizer, path, json_array_get(list, i), &mapped);
    } else if (!absent(pre))
        status = add_step(tokenizer, path, pre, &mapped);
    if (status == GYRE_OK && !mapped)
        status = gyre_fail(
            GYRE_ERR_INVALID,
            "%s: its pre_tokenizer has no ByteLevel: byte-level BPE is supported, and no other kind", path);
    return status;
}

static gyre_status_t check_rest(const char *path, const json_t *all)
{
    const json_t *normalizer = json_object_get(all, "normalizer"), *decoder = json_object_get(all, "decoder");
    if (!absent(normalizer))
        return unsupported(path, "normalizer", normalizer,
                           "it changes text, so decoding would not give it back");
    if (!absent(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0)
        return unsupported(path, "decoder", decoder, "ByteLevel is");
    return GYRE_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

/* A word in GPT-2's letters as bytes; 0: not such a word. */
static int to_bytes(const char *word, size_t length, unsigned char *out, size_t room, size_t *count)
{
    *count = 0;
    for (size_t i = 0, step; i < length; i += step) {
        uint32_t letter;
        step = base_utf8_decode((const unsigned char *)word + i, length - i, &letter);
        int byte = step > 0 ? tokenizer_unletter(letter) : -1;
        if (byte < 0 || *count == room)
            return 0;
        out[(*count)++] = (unsigned char)byte;
    }
    return 1;
}

static int is_id(const json_t *value, size_t *id)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return 0;
    *id = (size_t)json_integer_value(value);
    return 1;
}

static int longer(const void *a, const void *b)
{
    uint32_t x = ((const tokenizer_added_t *)a)->count, y = ((const tokenizer_added_t *)b)->count;
    return (x < y) - (x > y);
}

static gyre_status_t add_one_added(model_tokenizer_t *tokenizer, const char *path, const json_t *item,
                                   const json_t *vocab)
{
    const json_t *content = json_object_get(item, "content");
    const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    int special = json_is_true(json_object_get(item, "special"));
    size_t id;
    if (!json_is_string(content) || !is_id(json_object_get(item, "id"), &id))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: an entry of added_tokens has no id and content", path);
    for (size_t i = 0; !special && i < 3; i++)
        if (json_is_true(json_object_get(item, flags[i])))
            return unsupported(path, flags[i], item,
                               "an added token that comes of text must stand for itself");
    const json_t *known = json_object_get(vocab, json_string_value(content));
    size_t known_id;
    if (known && (!is_id(known, &known_id) || known_id != id))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: added token '%.80s' has id %zu, but another in the vocabulary",
                         path, json_string_value(content), id);
    if (!special && json_string_length(content) > 0)
        tokenizer->added[tokenizer->added_count++] =
            (tokenizer_added_t){.id = (uint32_t)id, .count = (uint32_t)json_string_length(content)};
    return tokenizer_add(tokenizer, path, id, json_string_value(content), json_string_length(content), 1);
}

static gyre_status_t read_added(model_tokenizer_t *tokenizer, const char *path, const json_t *list,
                                const json_t *vocab)
{
    gyre_status_t status = GYRE_OK;
    if (!(tokenizer->added = calloc(json_array_size(list) + 1, sizeof *tokenizer->added)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the added tokens of %s", path);
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(list); i++)
        status = add_one_added(tokenizer, path, json_array_get(list, i), vocab);
    return status;
}

static gyre_status_t read_vocab(model_tokenizer_t *tokenizer, const char *path, json_t *vocab)
{
    const char *word;
    json_t *value;
    gyre_status_t status = GYRE_OK;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: model.vocab is not an object of tokens and ids", path);
    json_object_foreach(vocab, word, value)
    {
        unsigned char bytes[4096];
        size_t id, count;
        if (!is_id(value, &id))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: token '%.80s' has no valid id", path, word);
        if (id < tokenizer->vocab && tokenizer->token[id].there && tokenizer->token[id].special)
            continue; /* an added one: its content is text, not letters */
        if (!to_bytes(word, strlen(word), bytes, sizeof bytes, &count))
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s: token '%.80s' is not written in the letters of byte-level BPE, and is not "
                             "an added token: no other kind of vocabulary is supported",
                             path, word);
        if ((status = tokenizer_add(tokenizer, path, id, bytes, count, 0)) != GYRE_OK)
            return status;
    }
    return status;
}

/* "a b" or ["a", "b"]. */
static gyre_status_t read_merge(model_tokenizer_t *tokenizer, const char *path, size_t number,
                                const json_t *item)
{
    const char *left = json_string_value(json_is_array(item) ? json_array_get(item, 0) : item), *right;
    size_t left_length, right_length, count;
    if (json_is_array(item)) {
        right = json_string_value(json_array_get(item, 1));
        left_length = left ? strlen(left) : 0;
    } else {
        right = left ? strchr(left, ' ') : NULL;
        left_length = right ? (size_t)(right++ - left) : 0;
    }
    right_length = right ? strlen(right) : 0;
    unsigned char bytes[1024];
    uint32_t id[2] = {TOKENIZER_NONE, TOKENIZER_NONE};
    if (left && right && to_bytes(left, left_length, bytes, sizeof bytes, &count))
        id[0] = tokenizer_lookup(tokenizer, bytes, count);
    if (left && right && to_bytes(right, right_length, bytes, sizeof bytes, &count))
        id[1] = tokenizer_lookup(tokenizer, bytes, count);
    if (id[0] == TOKENIZER_NONE || id[1] == TOKENIZER_NONE)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: merge %zu is not of two tokens of the vocabulary", path,
                         number + 1);
    return tokenizer_merge(tokenizer, path, id[0], id[1]);
}

static gyre_status_t read_merges(model_tokenizer_t *tokenizer, const char *path, const json_t *merges)
{
    if (!json_is_array(merges) || json_array_size(merges) > TOKENIZER_MERGES)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: model.merges is not a list of pairs", path);
    gyre_status_t status = tokenizer_merges(tokenizer, json_array_size(merges));
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(merges); i++)
        status = read_merge(tokenizer, path, i, json_array_get(merges, i));
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* Now that the blob does not move any more. */
static void finish_added(model_tokenizer_t *tokenizer)
{
    for (size_t i = 0; i < tokenizer->added_count; i++)
        tokenizer->added[i].bytes = tokenizer->blob + tokenizer->token[tokenizer->added[i].id].at;
    if (tokenizer->added_count > 1)
        qsort(tokenizer->added, tokenizer->added_count, sizeof *tokenizer->added, longer);
    tokenizer_find_eot(tokenizer);
}

static gyre_status_t read_all(model_tokenizer_t *tokenizer, const char *path, const json_t *all)
{
    const json_t *model = json_object_get(all, "model");
    json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(model))
        return gyre_fail(GYRE_ERR_FORMAT, "%s has no model: it is not a tokenizer.json", path);
    gyre_status_t status = check_model(path, model);
    if (status == GYRE_OK)
        status = check_rest(path, all);
    if (status == GYRE_OK)
        status = read_steps(tokenizer, path, json_object_get(all, "pre_tokenizer"));
    if (status == GYRE_OK)
        status = read_added(tokenizer, path, json_object_get(all, "added_tokens"), vocab);
    if (status == GYRE_OK)
        status = read_vocab(tokenizer, path, vocab);
    if (status == GYRE_OK)
        status = tokenizer_index(tokenizer, path);
    if (status == GYRE_OK)
        status = read_merges(tokenizer, path, json_object_get(model, "merges"));
    tokenizer->whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    if (status == GYRE_OK)
        finish_added(tokenizer);
    return status;
}

gyre_status_t tokenizer_read_json(model_tokenizer_t *tokenizer, const char *path)
{
    json_t *all = NULL;
    gyre_status_t status = base_json_read(path, &all);
    if (status != GYRE_OK)
        return status;
    status = json_is_object(all)
                 ? read_all(tokenizer, path, all)
                 : gyre_fail(GYRE_ERR_FORMAT, "%s is not a tokenizer.json: it is not an object", path);
    json_decref(all);
    return status;
}
