/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/json.c: Hugging Face's tokenizer.json: its model, vocabulary and added tokens.
 * Of post-processors, which only add special tokens around a whole text, folder.c reads those in front. */
#include "model/tokenizer/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

gyre_status_t tokenizer_unsupported(const char *path, const char *key, const json_t *value, const char *why)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    gyre_status_t status = gyre_fail(GYRE_ERR_INVALID, "%s: %s is %.100s, which is not supported: %s", path,
                                     key, text ? text : "absent", why);
    free(text);
    return status;
}

const char *tokenizer_type_of(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type ? type : "";
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static gyre_status_t check_model(const char *path, const json_t *model, tokenizer_kind_t *kind)
{
    static const struct {
        const char *type;
        tokenizer_kind_t kind;
    } others[] = {
        {"Unigram", TOKENIZER_UNIGRAM}, {"WordPiece", TOKENIZER_PIECES}, {"WordLevel", TOKENIZER_WORDS}};
    const char *const type = tokenizer_type_of(model);
    const json_t *value;
    *kind = TOKENIZER_CHARS;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(type, others[i].type) == 0)
            *kind = others[i].kind;
    if (*kind != TOKENIZER_CHARS)
        return GYRE_OK;
    /* old files have no type, and are BPE if they have merges */
    if (*type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s: the model is %s, which is not supported: BPE, Unigram, WordPiece and WordLevel are", path,
            *type ? type : "of no type");
    if (!tokenizer_absent(value = json_object_get(model, "dropout")) && json_number_value(value) != 0.0)
        return tokenizer_unsupported(path, "model.dropout", value, "tokens would be random");
    const char *const words[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (!tokenizer_absent(value = json_object_get(model, words[i])) &&
            (json_string_length(value) > 0 || !json_is_string(value)))
            return tokenizer_unsupported(path, words[i], value, "tokens without prefix and suffix are");
    return GYRE_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

/* A word in GPT-2's letters as bytes; 0: not such a word. Of a vocabulary of characters it is itself. */
static int to_surface(const model_tokenizer_t *tokenizer, const char *word, size_t length, unsigned char *out,
                      size_t room, size_t *count)
{
    if (tokenizer->kind != TOKENIZER_BYTES) {
        if (length > room)
            return 0;
        memcpy(out, word, length);
        *count = length;
        return 1;
    }
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

static gyre_status_t add_one_added(model_tokenizer_t *tokenizer, const char *path, const json_t *item,
                                   const json_t *vocab)
{
    const json_t *content = json_object_get(item, "content"), *known = NULL;
    size_t id, known_id;
    if (!json_is_string(content) || !is_id(json_object_get(item, "id"), &id))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: an entry of added_tokens has no id and content", path);
    const json_t *normalized = json_object_get(item, "normalized");
    tokenizer_added_t added = {.id = (uint32_t)id,
                               .special = json_is_true(json_object_get(item, "special")),
                               .lstrip = json_is_true(json_object_get(item, "lstrip")),
                               .rstrip = json_is_true(json_object_get(item, "rstrip")),
                               .single_word = json_is_true(json_object_get(item, "single_word")),
                               .count = json_string_length(content)};
    added.normalized = normalized ? json_is_true(normalized) : !added.special;
    if (json_is_object(vocab))
        known = json_object_get(vocab, json_string_value(content));
    if (known && (!is_id(known, &known_id) || known_id != id))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: added token '%.80s' has id %zu, but another in the vocabulary",
                         path, json_string_value(content), id);
    if (added.count > 0) {
        if (!(added.content = malloc(added.count)))
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the added tokens of %s", path);
        memcpy(added.content, json_string_value(content), added.count);
        tokenizer->added[tokenizer->added_count++] = added;
    }
    /* of bytes its content is text, not letters; else it is made of pieces only if the vocabulary lists it */
    const int listed = tokenizer->kind != TOKENIZER_BYTES &&
                       (json_is_array(vocab) ? id < json_array_size(vocab) : known != NULL);
    return tokenizer_add(tokenizer, path, id, json_string_value(content), json_string_length(content),
                         added.special || !listed);
}

/* Files say ids, but the library itself numbers added tokens that are not in the vocabulary: in their order,
 * from its number of entries on. This is the rule of tokenizers 0.23.3; 0.20.3 goes on after the greatest id
 * of an added token. */
static void warn_of_numbers(const char *path, const json_t *list, const json_t *vocab)
{
    json_t *seen = json_object();
    size_t next = json_object_size(vocab);
    for (size_t i = 0; json_is_object(vocab) && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *content = json_string_value(json_object_get(item, "content"));
        size_t id;
        if (!content || !*content || !is_id(json_object_get(item, "id"), &id) ||
            json_object_get(vocab, content) || json_object_get(seen, content))
            continue;
        if (id != next) {
            log_warning(
                "%s: the added token '%.80s' has id %zu, but the library tokenizers gives it %zu, which "
                "a model may have learned: number added tokens without gaps",
                path, content, id, next);
            break;
        }
        json_object_set_new(seen, content, json_true());
        next++;
    }
    json_decref(seen);
}

static gyre_status_t read_added(model_tokenizer_t *tokenizer, const char *path, const json_t *list,
                                const json_t *vocab)
{
    gyre_status_t status = GYRE_OK;
    if (!(tokenizer->added = calloc(json_array_size(list) + 1, sizeof *tokenizer->added)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the added tokens of %s", path);
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(list); i++)
        status = add_one_added(tokenizer, path, json_array_get(list, i), vocab);
    if (status == GYRE_OK)
        warn_of_numbers(path, list, vocab);
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
        if (tokenizer->kind == TOKENIZER_BYTES && id < tokenizer->vocab && tokenizer->token[id].there &&
            tokenizer->token[id].special)
            continue; /* an added one: its content is text, not letters */
        if (!to_surface(tokenizer, word, strlen(word), bytes, sizeof bytes, &count))
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s: token '%.80s' is not written in the letters of byte-level BPE, and is not "
                             "an added token",
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
    if (left && right && to_surface(tokenizer, left, left_length, bytes, sizeof bytes, &count))
        id[0] = tokenizer_lookup(tokenizer, bytes, count);
    if (left && right && to_surface(tokenizer, right, right_length, bytes, sizeof bytes, &count))
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

/* ---- Unigram: [[piece, score], ...], where the place is the id ----------------------------------------- */

static gyre_status_t read_pieces(model_tokenizer_t *tokenizer, const char *path, const json_t *vocab)
{
    const size_t count = json_array_size(vocab);
    gyre_status_t status = GYRE_OK;
    if (count == 0 || count > TOKENIZER_IDS)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: model.vocab is not a list of pieces and scores", path);
    for (size_t id = 0; status == GYRE_OK && id < count; id++) {
        const json_t *item = json_array_get(vocab, id), *piece = json_array_get(item, 0),
                     *score = json_array_get(item, 1);
        if (!json_is_string(piece) || !json_is_number(score))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: entry %zu of model.vocab is not a piece and a score", path,
                             id);
        status = tokenizer_add(tokenizer, path, id, json_string_value(piece), json_string_length(piece), 0);
    }
    return status;
}

/* The list of pieces, when the blob does not move any more. */
static gyre_status_t list_pieces(model_tokenizer_t *tokenizer, const char *path, const json_t *vocab)
{
    size_t listed = 0;
    tokenizer_word_t *word = malloc((tokenizer->vocab + 1) * sizeof *word);
    tokenizer->score = calloc(tokenizer->vocab + 1, sizeof *tokenizer->score);
    if (!word || !tokenizer->score) {
        free(word);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the pieces of %s", path);
    }
    double least = 0;
    for (size_t id = 0; id < json_array_size(vocab); id++) {
        const tokenizer_token_t *token = &tokenizer->token[id];
        tokenizer->score[id] = json_number_value(json_array_get(json_array_get(vocab, id), 1));
        if (id == 0 || tokenizer->score[id] < least)
            least = tokenizer->score[id];
        if (token->count > 0 && !token->special)
            word[listed++] = (tokenizer_word_t){tokenizer->blob + token->at, token->count, (uint32_t)id};
    }
    tokenizer->unknown_score = least - 10; /* the penalty that SentencePiece has, too */
    tokenizer_words_sort(&tokenizer->pieces, word, listed);
    return GYRE_OK;
}

/* ---- unknown characters -------------------------------------------------------------------------------- */

static gyre_status_t read_unknown(model_tokenizer_t *tokenizer, const char *path, const json_t *model)
{
    const json_t *word = json_object_get(model, "unk_token"), *number = json_object_get(model, "unk_id");
    size_t id;
    tokenizer->fuse_unknown =
        tokenizer->kind == TOKENIZER_UNIGRAM || json_is_true(json_object_get(model, "fuse_unk"));
    if (json_is_true(json_object_get(model, "byte_fallback")))
        for (unsigned b = 0; b < 256; b++) {
            unsigned char text[8];
            snprintf((char *)text, sizeof text, "<0x%02X>", b);
            tokenizer->byte_id[b] = tokenizer_lookup(tokenizer, text, 6);
        }
    if (tokenizer->kind == TOKENIZER_UNIGRAM) {
        if (!is_id(number, &id) || id >= json_array_size(json_object_get(model, "vocab")))
            return gyre_fail(GYRE_ERR_FORMAT, "%s: model.unk_id is not a place in model.vocab", path);
        tokenizer->unknown = (uint32_t)id;
    } else if (!tokenizer_absent(word)) {
        tokenizer->unknown = tokenizer_lookup(tokenizer, (const unsigned char *)json_string_value(word),
                                              json_string_length(word));
        if (tokenizer->unknown == TOKENIZER_NONE)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: model.unk_token is not in the vocabulary", path);
    }
    return GYRE_OK;
}

static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    *hash = base_hash64(data, bytes, *hash + 1);
}

/* ---- WordPiece and WordLevel --------------------------------------------------------------------------- */

static gyre_status_t read_words(model_tokenizer_t *t, const char *path, const json_t *model)
{
    const json_t *word = json_object_get(model, "unk_token"),
                 *prefix = json_object_get(model, "continuing_subword_prefix"),
                 *most = json_object_get(model, "max_input_chars_per_word");
    const char *unknown = json_is_string(word) ? json_string_value(word) : "[UNK]",
               *before = json_is_string(prefix) ? json_string_value(prefix) : "##";
    t->unknown = tokenizer_lookup(t, (const unsigned char *)unknown, strlen(unknown));
    if (t->unknown == TOKENIZER_NONE)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: model.unk_token is not in the vocabulary", path);
    if (t->kind == TOKENIZER_WORDS)
        return GYRE_OK;
    if (strlen(before) >= sizeof t->prefix)
        return tokenizer_unsupported(path, "model.continuing_subword_prefix", prefix, "fewer letters are");
    t->prefix_bytes = strlen(before);
    memcpy(t->prefix, before, t->prefix_bytes);
    t->most_characters =
        json_is_integer(most) && json_integer_value(most) >= 0 ? (size_t)json_integer_value(most) : 100;
    mix(&t->more, t->prefix, t->prefix_bytes);
    mix(&t->more, &t->most_characters, sizeof t->most_characters);
    return GYRE_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* Whether the mark of spaces only begins tokens, or follows itself. */
static int marks_lead(const model_tokenizer_t *t)
{
    for (size_t id = 0; id < t->vocab; id++) {
        const unsigned char *at = t->blob + t->token[id].at, *end = at + t->token[id].count;
        if (!t->token[id].there)
            continue;
        while ((size_t)(end - at) >= t->mark_bytes && memcmp(at, t->mark, t->mark_bytes) == 0)
            at += t->mark_bytes;
        if (at < end && memmem(at, (size_t)(end - at), t->mark, t->mark_bytes))
            return 0;
    }
    return 1;
}

/* Text of a vocabulary of characters may be one long piece: it is cut where no token can reach over. */
static void find_marks(model_tokenizer_t *t)
{
    if (t->mark_bytes == 0) {
        memcpy(t->mark, "\xe2\x96\x81", 3);
        t->mark_bytes = 3;
    }
    t->cut_marks = t->kind == TOKENIZER_CHARS && !t->whole_first &&
                   tokenizer_lookup(t, t->mark, t->mark_bytes) != TOKENIZER_NONE && marks_lead(t);
}

/* What decides ids and is not in the hash of byte-level BPE. */
static gyre_status_t hash_more(model_tokenizer_t *t, const char *path, const json_t *normalizer)
{
    for (size_t i = 0; i < t->added_count; i++) {
        const tokenizer_added_t *added = &t->added[i];
        const int flags[] = {added->lstrip, added->rstrip, added->single_word, added->normalized};
        if (!added->special && (flags[0] || flags[1] || flags[2] || (flags[3] && t->normalizer))) {
            mix(&t->more, &added->id, sizeof added->id);
            mix(&t->more, flags, sizeof flags);
        }
    }
    if (t->kind != TOKENIZER_BYTES) {
        const uint32_t facts[] = {(uint32_t)t->kind, t->unknown, (uint32_t)t->fuse_unknown};
        mix(&t->more, facts, sizeof facts);
        mix(&t->more, t->byte_id, sizeof t->byte_id);
        if (t->score)
            mix(&t->more, t->score, t->vocab * sizeof *t->score);
    }
    if (t->normalizer) {
        char *text = base_json_dump(normalizer, JSON_COMPACT | JSON_SORT_KEYS);
        if (!text)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the normalizer of %s", path);
        mix(&t->more, text, strlen(text));
        free(text);
    }
    return GYRE_OK;
}

static gyre_status_t read_tokens(model_tokenizer_t *t, const char *path, const json_t *all, json_t *vocab)
{
    const json_t *model = json_object_get(all, "model");
    const int unigram = t->kind == TOKENIZER_UNIGRAM,
              words = t->kind == TOKENIZER_PIECES || t->kind == TOKENIZER_WORDS;
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    gyre_status_t status = read_added(t, path, json_object_get(all, "added_tokens"), vocab);
    if (status == GYRE_OK)
        status = unigram ? read_pieces(t, path, vocab) : read_vocab(t, path, vocab);
    if (status == GYRE_OK)
        status = tokenizer_index(t, path);
    if (status == GYRE_OK && !unigram && !words)
        status = read_merges(t, path, json_object_get(model, "merges"));
    if (status == GYRE_OK && t->kind != TOKENIZER_BYTES)
        status = words ? read_words(t, path, model) : read_unknown(t, path, model);
    if (status == GYRE_OK)
        status = tokenizer_json_decoder(t, path, json_object_get(all, "decoder"));
    return status == GYRE_OK && unigram ? list_pieces(t, path, vocab) : status;
}

static gyre_status_t read_all(model_tokenizer_t *tokenizer, const char *path, const json_t *all)
{
    const json_t *model = json_object_get(all, "model"), *normalizer = json_object_get(all, "normalizer");
    tokenizer_kind_t kind;
    int bytes = 0;
    if (!json_is_object(model))
        return gyre_fail(GYRE_ERR_FORMAT, "%s has no model: it is not a tokenizer.json", path);
    gyre_status_t status = check_model(path, model, &kind);
    if (status == GYRE_OK)
        status = tokenizer_json_normalizer(tokenizer, path, normalizer);
    if (status == GYRE_OK)
        status = tokenizer_json_steps(tokenizer, path, json_object_get(all, "pre_tokenizer"), &bytes);
    if (status == GYRE_OK && bytes && kind != TOKENIZER_CHARS)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: a %s model of ByteLevel's letters is not supported: one of characters is", path,
                         tokenizer_type_of(model));
    tokenizer->kind = bytes ? TOKENIZER_BYTES : kind;
    if (status == GYRE_OK)
        status = read_tokens(tokenizer, path, all, json_object_get(model, "vocab"));
    tokenizer->whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    if (status == GYRE_OK)
        status = tokenizer_finish_added(tokenizer);
    if (status == GYRE_OK)
        status = hash_more(tokenizer, path, normalizer);
    if (status == GYRE_OK) {
        tokenizer_json_begin(tokenizer, json_object_get(all, "post_processor"));
        find_marks(tokenizer);
        tokenizer_find_eot(tokenizer);
    }
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
