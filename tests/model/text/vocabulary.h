/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/text/vocabulary.h: a small vocabulary of bytes and merges in three kinds of files, in a folder
 * of the test's own: for the tests of tokenizers. Include after cmocka.h; setup and teardown are the
 * group's. */
#ifndef TESTS_MODEL_VOCABULARY_H
#define TESTS_MODEL_VOCABULARY_H

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "model/tokenizer/tokenizer.h"

static char folder[] = "/tmp/gyre-tokenizer-XXXXXX";
#include "tests/support/files.h"

static inline void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* ---- a vocabulary in three kinds of files -------------------------------------------------------------- */

/* Words as text; in the files a space is U+0120, a line's end U+010A. */
static const char *const merge[][2] = {
    {" ", "t"},          {"h", "e"},  {" t", "he"}, {"i", "n"},       {"in", "g"},      {" ", "a"},
    {"e", "r"},          {"r", "e"},  {"a", "a"},   {"aa", "aa"},     {"\n", "\n"},     {" ", " "},
    {"  ", "  "},        {"1", "2"},  {"'", "s"},   {"\xc3", "\xa4"}, {"t", "h"},       {"th", "e"},
    {"a", "b"},          {"ab", "c"}, {"b", "c"},   {"bc", "c"},      {"!", "!"},       {"aaaa", "aaaa"},
    {"b", "a"},          {"ba", "b"}, {" a", "n"},  {" an", "d"},     {"\xe2", "\x82"}, {"x", "y"},
    {"\xe2\x82", "\xac"}};
enum { MERGES = sizeof merge / sizeof *merge, TOKENS = 256 + MERGES };

static unsigned char token[TOKENS][16]; /* bytes of each id */
static size_t token_length[TOKENS];

static inline int is_plain(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* A byte's letter as UTF-8, appended. */
static inline void add_letter(char *out, unsigned byte)
{
    unsigned letter = byte, n = 256;
    for (unsigned b = 0; !is_plain(byte) && b < byte; b++)
        n += !is_plain(b);
    if (!is_plain(byte))
        letter = n;
    size_t length = strlen(out);
    if (letter < 128) {
        out[length++] = (char)letter;
    } else {
        out[length++] = (char)(0xC0 | letter >> 6);
        out[length++] = (char)(0x80 | (letter & 63));
    }
    out[length] = 0;
}

static inline void add_word(char *out, const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        add_letter(out, ((const unsigned char *)bytes)[i]);
}

static char json[65536];

static inline void make_files(void)
{
    char merges[8192] = "#version: 0.2\n", tiktoken[32768] = "", pairs[8192] = "", vocab[16384] = "";
    size_t id = 0;
    for (int other = 0; other < 2; other++)
        for (unsigned b = 0; b < 256; b++)
            if (is_plain(b) != other) {
                token[id][0] = (unsigned char)b;
                token_length[id++] = 1;
            }
    for (size_t m = 0; m < MERGES; m++, id++) {
        size_t left = strlen(merge[m][0]), right = strlen(merge[m][1]);
        memcpy(token[id], merge[m][0], left);
        memcpy(token[id] + left, merge[m][1], right);
        token_length[id] = left + right;
        add_word(merges, merge[m][0], left);
        strcat(merges, " ");
        add_word(merges, merge[m][1], right);
        strcat(merges, "\n");
    }
    put("merges.txt", merges);
    for (id = 0; id < TOKENS; id++) {
        char line[128], word[64] = "";
        sodium_bin2base64(line, sizeof line, token[id], token_length[id], sodium_base64_VARIANT_ORIGINAL);
        snprintf(line + strlen(line), sizeof line - strlen(line), " %zu\n", id);
        strcat(tiktoken, line);
        add_word(word, token[id], token_length[id]);
        snprintf(line, sizeof line, "\"%s%s\":%zu,", *word == '"' || *word == '\\' ? "\\" : "", word, id);
        strcat(vocab, line);
    }
    put("t.tiktoken", tiktoken);
    for (size_t m = 0; m < MERGES; m++) {
        strcat(pairs, m == 0 ? "[\"" : ",[\"");
        add_word(pairs, merge[m][0], strlen(merge[m][0]));
        strcat(pairs, "\",\"");
        add_word(pairs, merge[m][1], strlen(merge[m][1]));
        strcat(pairs, "\"]");
    }
    snprintf(
        json, sizeof json,
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":%d,\"content\":\"<|endoftext|>\",\"special\":true}],"
        "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"dropout\":"
        "null,"
        "\"vocab\":{%s\"<|endoftext|>\":%d},\"merges\":[%s]}}",
        TOKENS, vocab, TOKENS, pairs);
    put("tokenizer.json", json);
}

static inline model_tokenizer_t *open_spec(const char *prefix, const char *name)
{
    char spec[300];
    model_tokenizer_t *tokenizer = NULL;
    snprintf(spec, sizeof spec, "%s%s", prefix, at(name));
    if (model_tokenizer_open(spec, &tokenizer) != GYRE_OK)
        fail_msg("%s: %s", spec, gyre_last_error());
    return tokenizer;
}

static inline int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    if (!mkdtemp(folder))
        return 1;
    make_files();
    return 0;
}

static inline int find_token(const unsigned char *bytes, size_t length)
{
    for (int id = 0; id < TOKENS; id++)
        if (token_length[id] == length && memcmp(token[id], bytes, length) == 0)
            return id;
    return -1;
}

static inline void round_trip(const model_tokenizer_t *tokenizer, model_encoder_t *encoder,
                              const unsigned char *text, size_t n)
{
    const model_token_t *ids;
    unsigned char *back = NULL;
    size_t count, length;
    assert_int_equal(model_encode(encoder, text, n, &ids, &count), GYRE_OK);
    assert_int_equal(model_decode(tokenizer, ids, count, &back, &length), GYRE_OK);
    assert_int_equal(length, n);
    if (n > 0)
        assert_memory_equal(back, text, n);
    free(back);
}

#endif
