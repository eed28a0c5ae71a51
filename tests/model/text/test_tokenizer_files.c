/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers' files: the same vocabulary is the same from every kind of file, what differs has another hash,
 * and what is not supported is refused by name. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>

#include "tests/model/text/vocabulary.h"

static void one_identity(void **state)
{
    (void)state;
    model_tokenizer_t *a = open_spec("", "merges.txt"), *b = open_spec("gpt2:", "t.tiktoken"),
                      *c = open_spec("", "tokenizer.json"), *d = open_spec("cl100k:", "t.tiktoken");
    assert_int_equal(model_tokenizer_vocab(a), TOKENS + 1);
    assert_int_equal(model_tokenizer_eot(a), TOKENS);
    assert_int_equal(model_tokenizer_eot(b), TOKENS);
    assert_int_equal(model_tokenizer_eot(c), TOKENS);
    assert_string_equal(model_tokenizer_name(a), "gpt2");
    assert_string_equal(model_tokenizer_name(c), "tokenizer.json");
    assert_true(model_tokenizer_hash(a) == model_tokenizer_hash(c));
    assert_true(model_tokenizer_hash(a) != model_tokenizer_hash(b)); /* whole pieces first, merges by ids */
    assert_true(model_tokenizer_hash(a) != model_tokenizer_hash(d)); /* another pattern */
    for (model_token_t id = 0; id < TOKENS; id++) {
        size_t count;
        const unsigned char *bytes = model_tokenizer_bytes(a, id, &count);
        assert_int_equal(count, token_length[id]);
        assert_memory_equal(bytes, token[id], count);
    }
    size_t count;
    unsigned char *text;
    assert_null(model_tokenizer_bytes(a, TOKENS + 1, &count));
    assert_null(model_tokenizer_bytes(a, -1, &count));
    assert_int_equal(model_decode(a, (model_token_t[]){3, TOKENS + 1}, 2, &text, &count), GYRE_ERR_FORMAT);
    assert_int_equal(model_decode(a, (model_token_t[]){TOKENS}, 1, &text, &count), GYRE_OK);
    assert_string_equal((char *)text, "<|endoftext|>");
    free(text);
    assert_int_equal(model_tokenizer_find(a, "<|endoftext|>", 13), TOKENS);
    model_tokenizer_destroy(a);
    model_tokenizer_destroy(b);
    model_tokenizer_destroy(c);
    model_tokenizer_destroy(d);
}

/* tokenizer.json with one place replaced. */
static void change_json(const char *from, const char *to)
{
    static char changed[70000];
    const char *place = strstr(json, from);
    assert_non_null(place);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - json), json, to, place + strlen(from));
    put("other.json", changed);
}

/* OPT's way: the same merges, other ids, which vocab.json has; special tokens are in front. */
static void numbered_by_vocab(void **state)
{
    (void)state;
    char command[600];
    model_tokenizer_t *plain = open_spec("", "merges.txt"), *own;
    /* the vocabulary of tokenizer.json, with ids that are 4 larger */
    snprintf(command, sizeof command,
             "mkdir %s/opt && cp %s/merges.txt %s/opt && python3 -c '"
             "import json, sys\n"
             "v = json.load(open(sys.argv[1] + \"/tokenizer.json\"))[\"model\"][\"vocab\"]\n"
             "v = {k: i + 4 for k, i in v.items() if k != \"<|endoftext|>\"}\n"
             "v.update({\"<s>\": 0, \"<pad>\": 1, \"</s>\": 2, \"<unk>\": 3})\n"
             "json.dump(v, open(sys.argv[1] + \"/opt/vocab.json\", \"w\"))\n"
             "del v[\"he\"]\n"
             "json.dump(v, open(sys.argv[1] + \"/wrong.json\", \"w\"))' %s",
             folder, folder, folder, folder);
    assert_int_equal(system(command), 0);
    own = open_spec("", "opt/merges.txt");
    assert_int_equal(model_tokenizer_vocab(own), TOKENS + 4);
    assert_int_equal(model_tokenizer_eot(own), 2);
    assert_true(model_tokenizer_hash(own) != model_tokenizer_hash(plain));
    assert_int_equal(model_tokenizer_find(own, "<pad>", 5), 1);
    model_encoder_t *a, *b;
    const char text[] = "the thing, <s> there";
    const model_token_t *x, *y;
    size_t n, m;
    assert_int_equal(model_encoder_create(plain, &a), GYRE_OK);
    assert_int_equal(model_encoder_create(own, &b), GYRE_OK);
    assert_int_equal(model_encode(a, text, strlen(text), &x, &n), GYRE_OK);
    assert_int_equal(model_encode(b, text, strlen(text), &y, &m), GYRE_OK);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(y[i], x[i] + 4); /* <s> in a text is three characters */
    model_encoder_destroy(a);
    model_encoder_destroy(b);
    model_tokenizer_destroy(own);
    model_tokenizer_destroy(plain);

    snprintf(command, sizeof command, "mv %s/wrong.json %s/opt/vocab.json", folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_tokenizer_open(at("opt/merges.txt"), &own), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "no id for 'he'"));
    snprintf(command, sizeof command, "rm -r %s/opt", folder);
    assert_int_equal(system(command), 0);
}

/* merges.txt of a model's folder is GPT-2's only where transformers takes it for that: others, such as
 * Qwen2's, cut text by other patterns. */
static void merges_of_a_model(void **state)
{
    (void)state;
    static const struct {
        const char *config, *tokenizer, *added; /* config.json, tokenizer_config.json, added_tokens.json */
        int want;
    } cases[] = {
        {"{\"model_type\":\"gpt2\"}", NULL, NULL, 1},
        {"{\"model_type\":\"opt\"}", "{\"model_max_length\":1000000000000000019884624838656}", NULL, 1},
        {"{\"model_type\":\"gyre\"}", NULL, NULL, 1},
        {"{\"model_type\":\"llama\"}", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", NULL, 1},
        {"{\"model_type\":\"llama\"}", "{\"tokenizer_class\":\"RobertaTokenizerFast\"}", NULL, 1},
        {"{\"model_type\":\"llama\",\"tokenizer_class\":\"GPT2Tokenizer\"}", NULL, NULL, 1},
        {"{\"model_type\":\"gpt2\"}", "{\"tokenizer_class\":\"Qwen2Tokenizer\"}", NULL, -1},
        {"{\"model_type\":\"gpt2\",\"tokenizer_class\":\"Qwen2Tokenizer\"}", "{}", NULL, -1},
        {"{\"model_type\":\"qwen2\"}", NULL, NULL, -1},
        {"{\"model_type\":\"gpt_neox\"}", "{\"tokenizer_class\":\"GPTNeoXTokenizerFast\"}", NULL, -1},
        {"{\"model_type\":\"gpt2\"}", "{\"add_prefix_space\":true}", NULL, -1},
        {"{\"model_type\":\"gpt2\"}", NULL, "{\"<pad>\":300}", -1},
    };
    char command[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[PATH_MAX];
        snprintf(command, sizeof command, "mkdir %s/model && cp %s/merges.txt %s/model", folder, folder,
                 folder);
        assert_int_equal(system(command), 0);
        put("model/config.json", cases[i].config);
        if (cases[i].tokenizer)
            put("model/tokenizer_config.json", cases[i].tokenizer);
        if (cases[i].added)
            put("model/added_tokens.json", cases[i].added);
        const int got = model_tokenizer_file(at("model"), path);
        if (got != cases[i].want)
            fail_msg("case %zu: %d, not %d", i, got, cases[i].want);
        assert_string_equal(path, at("model/merges.txt"));
        snprintf(command, sizeof command, "rm -r %s/model", folder);
        assert_int_equal(system(command), 0);
    }
}

/* What encodes text otherwise has another hash, though ids and pattern are the same. */
static void other_identity(void **state)
{
    (void)state;
    const char *const change[][2] = {
        {"[\"a\",\"b\"],[\"ab\",\"c\"],[\"b\",\"c\"]", "[\"b\",\"c\"],[\"a\",\"b\"],[\"ab\",\"c\"]"},
        {"[\"ab\",\"c\"],", ""},
        {"\"dropout\":null", "\"ignore_merges\":true"},
        {"\"special\":true", "\"special\":false"}};
    enum { CHANGES = sizeof change / sizeof *change };
    uint64_t hash[CHANGES + 1];
    model_tokenizer_t *tokenizer = open_spec("", "tokenizer.json");
    hash[CHANGES] = model_tokenizer_hash(tokenizer);
    model_tokenizer_destroy(tokenizer);
    for (size_t i = 0; i < CHANGES; i++) {
        change_json(change[i][0], change[i][1]);
        tokenizer = open_spec("", "other.json");
        hash[i] = model_tokenizer_hash(tokenizer);
        model_tokenizer_destroy(tokenizer);
    }
    for (size_t i = 0; i <= CHANGES; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(hash[i] != hash[j]);
}

static void refuse_json(const char *from, const char *to, gyre_status_t status, const char *word)
{
    model_tokenizer_t *tokenizer = NULL;
    change_json(from, to);
    gyre_status_t got = model_tokenizer_open(at("other.json"), &tokenizer);
    if (got != status || !strstr(gyre_last_error(), word) || tokenizer)
        fail_msg("'%s' for '%s': %d, '%s'", to, from, (int)got, gyre_last_error());
}

static void refused(void **state)
{
    (void)state;
    refuse_json("\"normalizer\":null", "\"normalizer\":{\"type\":\"ByteLevel\"}", GYRE_ERR_INVALID, "NFKC");
    refuse_json("\"type\":\"BPE\"", "\"type\":\"Unigram\"", GYRE_ERR_INVALID, "Unigram");
    refuse_json("\"dropout\":null", "\"dropout\":0.1", GYRE_ERR_INVALID, "dropout");
    refuse_json("\"dropout\":null", "\"end_of_word_suffix\":\"</w>\"", GYRE_ERR_INVALID,
                "end_of_word_suffix");
    refuse_json("\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"",
                GYRE_ERR_INVALID, "UnicodeScripts");
    refuse_json("\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}",
                GYRE_ERR_INVALID, "decoder");
    refuse_json("\"special\":true}", "\"special\":true},{\"id\":3}", GYRE_ERR_FORMAT, "added_tokens");
    refuse_json("\"a\":", "\"\xe4\xb8\xad\":", GYRE_ERR_INVALID, "letters");
    refuse_json("\"a\":", "\"ax\":", GYRE_ERR_FORMAT, "byte 0x61");
    refuse_json("\"a\":64", "\"a\":65", GYRE_ERR_FORMAT, "65");
    refuse_json("\"a\":64", "\"a\":99999999999", GYRE_ERR_FORMAT, "99999999999");
    refuse_json("\"merges\":[[\"", "\"merges\":[[\"qq", GYRE_ERR_FORMAT, "merge 1");
    refuse_json("{\"version\"", "{\"version\":1}{", GYRE_ERR_FORMAT, "JSON");
    refuse_json("\"model\":", "\"mode\":", GYRE_ERR_FORMAT, "no model");
    refuse_json("\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
                "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                "{\"Regex\":\"(\"},"
                "\"behavior\":\"Isolated\"}]",
                GYRE_ERR_FORMAT, "'('");
    const struct {
        const char *text, *spec, *word;
        gyre_status_t status;
    } file[] = {{"", "%s", "no merges", GYRE_ERR_FORMAT},
                {"#version\na b c\n", "%s", "line 2", GYRE_ERR_FORMAT},
                {"a b\nab\n", "%s", "line 2", GYRE_ERR_FORMAT},
                {"a \xe4\xb8\xad\n", "%s", "line 1", GYRE_ERR_FORMAT},
                {"ab c\n", "%s", "line 1 merges", GYRE_ERR_FORMAT},
                {"a b\na b\n", "%s", "same bytes", GYRE_ERR_FORMAT},
                {"YQ== 0\nYg== 1\n", "%s", "by which pattern", GYRE_ERR_INVALID},
                {"YQ== 0\nYg== 1\n", "cl100k:%s", "byte 0x00", GYRE_ERR_FORMAT},
                {"YQ== 0\n*** 1\n", "gpt2:%s", "line 2", GYRE_ERR_FORMAT},
                {"YQ== 0\nYg== 0\n", "gpt2:%s", "two tokens", GYRE_ERR_FORMAT},
                {"a b\n", "cl100k:%s", "not a .tiktoken", GYRE_ERR_FORMAT}};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char spec[300];
        model_tokenizer_t *tokenizer = NULL;
        put("odd", file[i].text);
        snprintf(spec, sizeof spec,
                 file[i].spec[0] == '%'   ? "%s"
                 : file[i].spec[0] == 'c' ? "cl100k:%s"
                                          : "gpt2:%s",
                 at("odd"));
        gyre_status_t got = model_tokenizer_open(spec, &tokenizer);
        if (got != file[i].status || !strstr(gyre_last_error(), file[i].word))
            fail_msg("case %zu: %d, '%s'", i, (int)got, gyre_last_error());
    }
    model_tokenizer_t *tokenizer = NULL;
    assert_int_equal(model_tokenizer_open(at("nothing"), &tokenizer), GYRE_ERR_NOT_FOUND);
    assert_int_equal(model_tokenizer_open(folder, &tokenizer), GYRE_ERR_INVALID);
}

/* Patterns are written for another engine: what the two take otherwise is refused or translated. */
static void patterns(void **state)
{
    (void)state;
    const struct {
        const char *regex, *word; /* as in JSON; NULL: accepted */
    } pattern[] = {{"a\\\\b", "differs between engines"},
                   {"[\\\\w]", "differs between engines"},
                   {"^a", NULL},
                   {"a$", NULL},
                   {"(?m:a)", "only (?i)"},
                   {"(?i:a)(?-i:b)(?=c)(?!d)(?<=e)", NULL},
                   {"[a[^b]]", "within a set"},
                   {"[[:alpha:]]", "within a set"},
                   {"[a&&b]", "within a set"},
                   {"[^\\\\S]", "within []"},
                   {"a\\\\", "ends with"},
                   {"[$^&]", NULL},
                   {"[]x]", NULL},
                   {"[x", "pattern"}};
    static char changed[70000];
    const char *from =
                   "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}",
               *place = strstr(json, from);
    assert_non_null(place);
    for (size_t i = 0; i <= sizeof pattern / sizeof *pattern; i++) {
        int last = i == sizeof pattern / sizeof *pattern; /* a set within a set, as BLOOM has it */
        snprintf(
            changed, sizeof changed,
            "%.*s\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
            "{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]}%s",
            (int)(place - json), json, last ? " ?[^(\\\\s|[.,])]+" : pattern[i].regex, place + strlen(from));
        put("pattern.json", changed);
        model_tokenizer_t *tokenizer = NULL;
        gyre_status_t status = model_tokenizer_open(at("pattern.json"), &tokenizer);
        if (!last && pattern[i].word) {
            if (status == GYRE_OK || !strstr(gyre_last_error(), pattern[i].word))
                fail_msg("'%s': %d, '%s'", pattern[i].regex, (int)status, gyre_last_error());
            continue;
        }
        assert_int_equal(status, GYRE_OK);
        model_encoder_t *encoder = NULL;
        const model_token_t *ids;
        size_t count;
        assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
        if (last) { /* "ab" "." "c" "|" "ab" ")" "ab": nowhere "abc" */
            assert_int_equal(model_encode(encoder, "ab.c|ab)ab", 10, &ids, &count), GYRE_OK);
            assert_int_equal(count, 7);
        }
        model_encoder_destroy(encoder);
        model_tokenizer_destroy(tokenizer);
    }
}

/* Steps of Split, whole pieces first, and added tokens that come of text. */
static void json_features(void **state)
{
    (void)state;
    static char changed[70000];
    const char *at_pre = strstr(json, "\"pre_tokenizer\""), *at_decoder = strstr(json, "\"decoder\"");
    snprintf(changed, sizeof changed,
             "%.*s\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
             "\"pattern\":{\"Regex\":\"[\\\\d]+\"},"
             "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
             "\"use_regex\":false}]},%s",
             (int)(at_pre - json), json, at_decoder);
    char *added = strstr(changed, "\"special\":true}");
    assert_non_null(added);
    char rest[70000];
    snprintf(rest, sizeof rest, "%s", added + 15);
    snprintf(added, sizeof changed - (size_t)(added - changed),
             "\"special\":true},{\"id\":%d,\"content\":\"th\",\"special\":false},{\"id\":%d,\"content\":"
             "\"the x\",\"special\":false}%s",
             TOKENS + 2, TOKENS + 3, rest);
    put("split.json", changed);
    /* "th" is also a token of the vocabulary, under another id: that is refused */
    model_tokenizer_t *tokenizer = NULL;
    assert_int_equal(model_tokenizer_open(at("split.json"), &tokenizer), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "'th'"));
    added = strstr(changed, "\"content\":\"th\"");
    memcpy(added, "\"content\":\"!a\"", 14);
    put("split.json", changed);
    tokenizer = open_spec("", "split.json");
    model_encoder_t *encoder = NULL;
    const model_token_t *ids;
    size_t count;
    assert_int_equal(model_tokenizer_vocab(tokenizer), TOKENS + 4);
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    assert_int_equal(model_encode(encoder, "!athe xthe a12", 14, &ids, &count), GYRE_OK);
    assert_int_equal(ids[0], TOKENS + 2);
    assert_int_equal(ids[1], TOKENS + 3);
    assert_int_equal(ids[count - 1], find_token((const unsigned char *)"12", 2));
    assert_int_equal(model_encode(encoder, "1 2", 3, &ids, &count), GYRE_OK);
    assert_int_equal(count, 3);
    round_trip(tokenizer, encoder, (const unsigned char *)"!athe xthe a12 \xff!a", 18);
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_identity),      cmocka_unit_test(other_identity),
        cmocka_unit_test(refused),           cmocka_unit_test(json_features),
        cmocka_unit_test(patterns),          cmocka_unit_test(numbered_by_vocab),
        cmocka_unit_test(merges_of_a_model),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
