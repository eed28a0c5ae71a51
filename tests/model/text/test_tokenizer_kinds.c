/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of characters: BPE with byte fallback, Unigram, normalizers, marks for spaces, added tokens with
 * their flags, decoders. The ids are those of Hugging Face's tokenizers 0.20.3 for the same files
 * (tokenizer_kinds_compare.py compares many more). */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/model/text/vocabulary.h"

/* As Llama 2 has it: U+2581 for spaces, unknown characters in bytes. */
#define BPE(NORMALIZER, PRE, DECODER, ADDED)                                                                 \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","    \
    "\"special\":true}" ADDED "],\"normalizer\":" NORMALIZER ",\"pre_tokenizer\":" PRE                       \
    ",\"decoder\":" DECODER                                                                                  \
    ",\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"         \
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"\\u2581\":4,\"a\":5,\"b\":6,\"\\u2581a\":" \
    "7,"                                                                                                     \
    "\"ab\":8,\"\\u2581ab\":9,\"\\u2581\\u2581\":10,\"c\":11,\".\":12},\"merges\":[[\"\\u2581\",\"a\"],"     \
    "[\"a\",\"b\"],[\"\\u2581a\",\"b\"],[\"\\u2581\",\"\\u2581\"]]}}"
#define LLAMA2_NORMALIZER                                                                     \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]}"
#define LLAMA2_DECODER                                                                                    \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},"    \
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":" \
    "\" \",\"start\":1,\"stop\":0}]}"
#define METASPACE(SCHEME, CUT) \
    "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"" SCHEME "\",\"split\":" CUT "}"

typedef struct {
    const char *text;
    int specials;
    model_token_t ids[16]; /* -1 after the last */
    const char *back;
} case_t;

static void compare(const char *content, const case_t *cases, size_t count)
{
    put("kind.json", content);
    model_tokenizer_t *tokenizer = open_spec("", "kind.json");
    model_encoder_t *encoder;
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    for (size_t i = 0; i < count; i++) {
        const model_token_t *ids;
        unsigned char *back;
        size_t n, bytes, want = 0;
        model_encoder_specials(encoder, cases[i].specials);
        assert_int_equal(model_encode(encoder, cases[i].text, strlen(cases[i].text), &ids, &n), GYRE_OK);
        while (cases[i].ids[want] >= 0)
            want++;
        if (n != want || memcmp(ids, cases[i].ids, n * sizeof *ids) != 0) {
            for (size_t k = 0; k < n; k++)
                print_error("%d ", (int)ids[k]);
            fail_msg("case %zu, '%s': %zu ids, not %zu", i, cases[i].text, n, want);
        }
        assert_int_equal(model_decode(tokenizer, ids, n, &back, &bytes), GYRE_OK);
        assert_string_equal((char *)back, cases[i].back ? cases[i].back : cases[i].text);
        free(back);
    }
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
}

static void byte_fallback(void **state)
{
    (void)state;
    static const case_t cases[] = {{"", 0, {-1}, NULL},
                                   {"ab", 0, {9, -1}, NULL},
                                   {" ab  c", 0, {4, 9, 10, 11, -1}, NULL},
                                   {"a\xc3\xa9"
                                    "b",
                                    0,
                                    {7, 2, 3, 6, -1},
                                    NULL},
                                   /* no tokens for the bytes of these: one unknown token for both */
                                   {"b\xe4\xb8\xad\xe6\x96\x87", 0, {4, 6, 0, -1}, "b<unk>"},
                                   {"<s>", 0, {4, 0, -1}, "<unk>"},
                                   {"ab<s>ab", 1, {9, 1, 9, -1}, "ab<s> ab"},
                                   /* what is not UTF-8 is U+FFFD: one for each beginning of a character */
                                   {"a\xe2\x82"
                                    "a\xff",
                                    0,
                                    {7, 0, 5, 0, -1},
                                    "a<unk>a<unk>"}};
    compare(BPE(LLAMA2_NORMALIZER, "null", LLAMA2_DECODER, ""), cases, sizeof cases / sizeof *cases);
    static const case_t first[] = {{"ab ab", 0, {9, 9, -1}, NULL}, {"<s>ab", 1, {1, 8, -1}, NULL}};
    compare(BPE("null", METASPACE("first", "false"), LLAMA2_DECODER, ""), first, 2);
    static const case_t always[] = {{"  ab", 0, {4, 9, -1}, " ab"}, {"a<s>ab", 1, {7, 1, 9, -1}, "a<s> ab"}};
    compare(BPE("null", METASPACE("always", "true"), METASPACE("always", "true"), ""), always, 2);
    static const case_t parts[] = {{"ab ab.c", 0, {5, 6, 0, 5, 6, 12, 11, -1}, "ab<unk>ab.c"}};
    compare(BPE("null",
                "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"b\"},\"behavior\":\"MergedWithNext\","
                "\"invert\":false}",
                LLAMA2_DECODER, ""),
            parts, 1);
}

static void added(void **state)
{
    (void)state;
    static const case_t cases[] = {
        {"a [M] b", 0, {7, 13, 10, 6, -1}, "a[M]  b"}, /* takes the spaces on its left */
        {"a W b", 0, {7, 4, 14, 10, 6, -1}, "a W  b"}, /* a word */
        {"aW b", 0, {7, 0, 4, 6, -1}, "a<unk> b"},     /* not a word */
        {"a W\xc3\xa9", 0, {7, 4, 2, 3, 0, -1}, "a \xc3\xa9<unk>"},
        {"a<t>  b", 1, {7, 15, 4, 6, -1}, "a<t> b"}, /* special: takes those on its right */
        {"a<t>  b", 0, {7, 0, 10, 6, -1}, "a<unk>  b"},
        {"~e\xcc\x81", 0, {16, -1}, NULL}, /* looked for after NFC, as the content is */
        {"~\xc3\xa9", 0, {16, -1}, "~e\xcc\x81"}};
    compare(
        BPE("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":"
            "\"\\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]}",
            "null", LLAMA2_DECODER,
            ",{\"id\":13,\"content\":\"[M]\",\"lstrip\":true,\"normalized\":false},{\"id\":14,\"content\":"
            "\"W\","
            "\"single_word\":true,\"normalized\":false},{\"id\":15,\"content\":\"<t>\",\"rstrip\":true,"
            "\"special\":true},{\"id\":16,\"content\":\"~e\\u0301\",\"normalized\":true}"),
        cases, sizeof cases / sizeof *cases);
}

/* A table that SentencePiece has compiled from three rules: U+FB01 is "fi", U+FF21 U+0301 is "x", U+00A0 is a
 * space. */
static const char charsmap[] =
    "AAQAAAAMAwDCjAIAoAUAAAAAAICsAAIAgQ0AAAIAAIChDAMAzAACAIENAAAFAACACgAAAA0AAAAMAAAADwAAAA4AAAARAAAA"
    "EAAAABMAAAASAAAAvMgCABQAAAAXAAAAFgAAABkAAAAYAAAAGwAAABoAAAAdAAAAHAAAAB8AAAAeAAAAIQAAACAAAAAjAAAA"
    "IgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAA7xACACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIAAAA1AAAA"
    "NAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAEQAAABHAAAA"
    "RgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAA"
    "WAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAAAGgAAABrAAAA"
    "agAAAG0AAABsAAAAbwAAAG4AAABxAAAAcAAAAHMAAAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAA"
    "fAAAAH8AAAB+AAAAgQAAAIAAAACDAAAAggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAA"
    "jgAAAJEAAACQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAA"
    "oAAAAKMAAACiAAAApQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAA"
    "sgAAALUAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAA"
    "xAAAAMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADMAAAAzwAAAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA"
    "1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAAAADjAAAA4gAAAOUAAADkAAAA5wAAAOYAAADpAAAA"
    "6AAAAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAPIAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA"
    "+gAAAP0AAAD8AAAA/wAAAP4AAAAgAGZpAHgA";

static void unigram(void **state)
{
    (void)state;
    char content[4096];
    static const case_t cases[] = {{"ab", 0, {1, 4, -1}, NULL},
                                   {" a  ba", 0, {5, 1, 3, 2, -1}, "a ba"},
                                   {"\xef\xac\x81\xc2\xa0"
                                    "a",
                                    0,
                                    {1, 6, 5, -1},
                                    "fi a"},
                                   {"\xef\xbc\xa1\xcc\x81"
                                    "b",
                                    0,
                                    {1, 0, 3, -1},
                                    "<unk>b"},
                                   {"\xe4\xb8\xad\xe6\x96\x87"
                                    "ab",
                                    0,
                                    {1, 0, 4, -1},
                                    "<unk>ab"},
                                   {"aab", 0, {5, 4, -1}, NULL},
                                   {"e\xcc\x81"
                                    "a",
                                    0,
                                    {1, 0, 2, -1},
                                    "<unk>a"}};
    snprintf(
        content, sizeof content,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],\"normalizer\":{\"type\":"
        "\"Precompiled\",\"precompiled_charsmap\":\"%s\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," METASPACE(
            "always",
            "true") "]},\"decoder\":" METASPACE("always",
                                                "true") ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
                                                        "\"vocab\":[[\"<unk>\",0],"
                                                        "[\"\\u2581\",-2],[\"a\",-3],[\"b\",-3.5],[\"ab\",-4]"
                                                        ",[\"\\u2581a\",-4.5],[\"fi\",-4],[\"\\u2581ab\",-9],"
                                                        "[\"i\",-5]]}}",
        charsmap);
    compare(content, cases, sizeof cases / sizeof *cases);
}

static void refuse(const char *content, const char *word)
{
    model_tokenizer_t *tokenizer = NULL;
    put("kind.json", content);
    if (model_tokenizer_open(at("kind.json"), &tokenizer) == GYRE_OK || !strstr(gyre_last_error(), word))
        fail_msg("'%s' is not in '%s'", word, gyre_last_error());
}

#define WORDS(KIND, NORMALIZER, DECODER, MORE)                                                              \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"[UNK]\",\"special\":true},{\"id\":1,\"content\":\"[CLS]\"," \
    "\"special\":true}],\"normalizer\":" NORMALIZER ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"   \
    "\"decoder\":" DECODER ",\"model\":{\"type\":\"" KIND "\",\"unk_token\":\"[UNK]\"" MORE ",\"vocab\":"   \
    "{\"[UNK]\":0,\"[CLS]\":1,\"un\":2,\"##a\":3,\"##aff\":4,\"##able\":5,\"e\":6,\".\":7,\"\\u4e2d\":8,"   \
    "\"cafe\":9,\"[\":10,\"do\":11,\"not\":12}}}"
#define BERT                                                                          \
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true," \
    "\"strip_accents\":null,\"lowercase\":true}"

static void words(void **state)
{
    (void)state;
    static const case_t pieces[] = {
        {"unaffable.", 0, {2, 4, 5, 7, -1}, NULL},
        {"un affe unx.", 0, {2, 0, 0, 7, -1}, "un [UNK] [UNK]."}, /* a part without a token: the whole word */
        {"Caf\u00c9\u4e2d\x07"
         "e",
         0,
         {9, 8, 6, -1},
         "cafe \u4e2d e"},
        {"\tune\u00ad \u200b", 0, {0, -1}, "[UNK]"},
        {"[CLS]un", 1, {1, 2, -1}, "[CLS] un"},
        {"[CLS", 0, {10, 0, -1}, "[ [UNK]"}};
    compare(WORDS("WordPiece", BERT, "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", ""),
            pieces, sizeof pieces / sizeof *pieces);
    static const case_t shorter[] = {{"una unaff", 0, {2, 3, 0, -1}, "un ##a [UNK]"}};
    compare(WORDS("WordPiece", "null", "null", ",\"max_input_chars_per_word\":3"), shorter, 1);
    static const case_t level[] = {{"do not.un", 0, {11, 12, 7, 2, -1}, "do not . un"},
                                   {"una [CLS]", 1, {0, 1, -1}, "[UNK] [CLS]"}};
    compare(WORDS("WordLevel", "null", "null", ""), level, 2);
}

static void refused(void **state)
{
    (void)state;
    refuse(BPE("null", "null", "null", ""), "decoder");
    refuse(BPE("null", "null", "{\"type\":\"ByteLevel\"}", ""), "Metaspace");
    refuse(BPE("null", METASPACE("always", "true"), "{\"type\":\"Strip\",\"content\":\" \",\"start\":1}", ""),
           "Fuse");
    refuse(BPE("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", "null", LLAMA2_DECODER, ""),
           "cut short");
    refuse(BPE("{\"type\":\"Precompiled\",\"precompiled_charsmap\":3}", "null", LLAMA2_DECODER, ""),
           "base64");
    refuse(BPE("null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Other\"}",
               LLAMA2_DECODER, ""),
           "MergedWithNext");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}}", "unk_id");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]],\"unk_id\":0}}", "entry 0");
    refuse("{\"model\":{\"type\":\"Lattice\",\"vocab\":{}}}", "BPE, Unigram, WordPiece and WordLevel are");
    refuse("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}",
           "model.unk_token is not in the vocabulary");
    refuse(
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}",
        "a WordLevel model of ByteLevel's letters");
    refuse(WORDS("WordPiece", "null", "null", ",\"continuing_subword_prefix\":\"0123456789abcdef\""),
           "fewer letters");
    refuse(WORDS("WordPiece", "null", "{\"type\":\"CTC\"}", ""), "and WordPiece alone");
    put("t.model", "not a model");
    model_tokenizer_t *tokenizer = NULL;
    assert_int_not_equal(model_tokenizer_open(at("t.model"), &tokenizer), GYRE_OK);
    assert_non_null(strstr(gyre_last_error(), "SentencePiece"));
}

/* What changes ids changes the hash. */
static void hashes(void **state)
{
    (void)state;
    static const char *const content[] = {
        BPE(LLAMA2_NORMALIZER, "null", LLAMA2_DECODER, ""),
        BPE("{\"type\":\"NFC\"}", "null", LLAMA2_DECODER, ""),
        BPE("null", METASPACE("first", "true"), LLAMA2_DECODER, ""),
        BPE("null", METASPACE("always", "true"), LLAMA2_DECODER, ""),
        BPE("null", "null", LLAMA2_DECODER, ""),
        BPE("null", "null", LLAMA2_DECODER, ",{\"id\":13,\"content\":\"q\",\"lstrip\":true}"),
        BPE("null", "null", LLAMA2_DECODER, ",{\"id\":13,\"content\":\"q\"}"),
        WORDS("WordPiece", "null", "null", ""),
        WORDS("WordPiece", "null", "null", ",\"max_input_chars_per_word\":9"),
        WORDS("WordPiece", "null", "null", ",\"continuing_subword_prefix\":\"@\""),
        WORDS("WordPiece", BERT, "null", ""),
        WORDS("WordLevel", "null", "null", "")};
    enum { KINDS = sizeof content / sizeof *content };
    uint64_t hash[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        put("kind.json", content[i]);
        model_tokenizer_t *tokenizer = open_spec("", "kind.json");
        hash[i] = model_tokenizer_hash(tokenizer);
        model_tokenizer_destroy(tokenizer);
        for (size_t j = 0; j < i; j++)
            assert_true(hash[i] != hash[j]);
    }
}

/* The space in front of a text: by what stands before. */
static void after(void **state)
{
    (void)state;
    static const char *const content[] = {
        BPE(LLAMA2_NORMALIZER, "null", LLAMA2_DECODER, ""),
        BPE("null", METASPACE("first", "false"), LLAMA2_DECODER, ""),
        BPE("null", METASPACE("always", "true"), LLAMA2_DECODER, ""),
        BPE("null",
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," METASPACE(
                "always", "true") "]}",
            LLAMA2_DECODER, "")};
    static const struct {
        int kind;
        model_after_t after;
        const char *text;
        model_token_t ids[8];
    } cases[] = {{0, MODEL_AFTER_NOTHING, "ab", {9, -1}},     {0, MODEL_AFTER_TOKEN, "ab", {9, -1}},
                 {0, MODEL_AFTER_TEXT, "ab", {8, -1}},        {0, MODEL_AFTER_TEXT, " ab", {9, -1}},
                 {0, MODEL_AFTER_TEXT, "<s>ab", {1, 9, -1}},  {1, MODEL_AFTER_NOTHING, "ab", {9, -1}},
                 {1, MODEL_AFTER_TOKEN, "ab", {8, -1}},       {1, MODEL_AFTER_TEXT, "ab<s>ab", {8, 1, 8, -1}},
                 {2, MODEL_AFTER_TOKEN, "ab ab", {9, 9, -1}}, {2, MODEL_AFTER_TEXT, "ab ab", {8, 9, -1}},
                 {2, MODEL_AFTER_TEXT, " ab", {9, -1}},       {2, MODEL_AFTER_TEXT, "ab<s>ab", {8, 1, 9, -1}},
                 {3, MODEL_AFTER_TEXT, "ab ab", {8, 9, -1}},  {3, MODEL_AFTER_TEXT, " ab", {9, -1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const model_token_t *ids;
        size_t n, want = 0;
        put("kind.json", content[cases[i].kind]);
        model_tokenizer_t *tokenizer = open_spec("", "kind.json");
        model_encoder_t *encoder;
        assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
        model_encoder_specials(encoder, 1);
        assert_int_equal(
            model_encode_after(encoder, cases[i].after, cases[i].text, strlen(cases[i].text), &ids, &n),
            GYRE_OK);
        while (cases[i].ids[want] >= 0)
            want++;
        if (n != want || memcmp(ids, cases[i].ids, n * sizeof *ids) != 0)
            fail_msg("case %zu, '%s': %zu ids, first %d", i, cases[i].text, n, n ? (int)ids[0] : -1);
        model_encoder_destroy(encoder);
        model_tokenizer_destroy(tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(byte_fallback), cmocka_unit_test(added),
                                       cmocka_unit_test(unigram),       cmocka_unit_test(refused),
                                       cmocka_unit_test(hashes),        cmocka_unit_test(after),
                                       cmocka_unit_test(words)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
