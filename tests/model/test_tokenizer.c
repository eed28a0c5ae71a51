/* Tokenizers: equal to a plain reference on text of any form, exactly reversible on any bytes, the same from every kind of
 * file, and clear about what they do not support. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <sodium.h>

#include "base/log.h"
#include "model/random.h"
#include "model/tokenizer.h"

static char folder[] = "/tmp/gyre-tokenizer-XXXXXX";

static char *at(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* ---- a vocabulary in three kinds of files ------------------------------------------------------------------------ */

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

static int is_plain(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* A byte's letter as UTF-8, appended. */
static void add_letter(char *out, unsigned byte)
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

static void add_word(char *out, const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        add_letter(out, ((const unsigned char *)bytes)[i]);
}

static char json[65536];

static void make_files(void)
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

static model_tokenizer_t *open_spec(const char *prefix, const char *name)
{
    char spec[300];
    model_tokenizer_t *tokenizer = NULL;
    snprintf(spec, sizeof spec, "%s%s", prefix, at(name));
    if (model_tokenizer_open(spec, &tokenizer) != GYRE_OK)
        fail_msg("%s: %s", spec, gyre_last_error());
    return tokenizer;
}

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    if (!mkdtemp(folder))
        return 1;
    make_files();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- the reference ------------------------------------------------------------------------------------------------- */

static int kind(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? 1
           : c >= '0' && c <= '9'                           ? 2
           : c == ' ' || (c >= 9 && c <= 13)                ? 0
                                                            : 3;
}

/* Length of the first piece of ASCII text by GPT-2's pattern. */
static size_t first_piece(const char *s, size_t n)
{
    const char *const words[] = {"'s", "'d", "'m", "'t", "'ll", "'ve", "'re"};
    for (size_t i = 0; i < 7; i++)
        if (n >= strlen(words[i]) && memcmp(s, words[i], strlen(words[i])) == 0)
            return strlen(words[i]);
    size_t from = s[0] == ' ' && n > 1 && kind(s[1]) != 0, end = from + 1;
    if (kind(s[from]) != 0) {
        while (end < n && kind(s[end]) == kind(s[from]))
            end++;
        return end;
    }
    for (end = 1; end < n && kind(s[end]) == 0;)
        end++;
    return end == n || end == 1 ? end : end - 1;
}

static int find_token(const unsigned char *bytes, size_t length)
{
    for (int id = 0; id < TOKENS; id++)
        if (token_length[id] == length && memcmp(token[id], bytes, length) == 0)
            return id;
    return -1;
}

/* Rank of the pair that begins at piece[a], meets at b and ends at c. */
static int reference_rank(const unsigned char *piece, size_t a, size_t b, size_t c, int by_rank)
{
    if (by_rank)
        return find_token(piece + a, c - a);
    for (int m = 0; m < MERGES; m++)
        if (strlen(merge[m][0]) == b - a && strlen(merge[m][1]) == c - b &&
            memcmp(merge[m][0], piece + a, b - a) == 0 && memcmp(merge[m][1], piece + b, c - b) == 0)
            return m;
    return -1;
}

static size_t reference_piece(const unsigned char *piece, size_t n, int by_rank, model_token_t *out)
{
    size_t cut[512], parts = n;
    if (by_rank && find_token(piece, n) >= 0) {
        out[0] = find_token(piece, n);
        return 1;
    }
    for (size_t i = 0; i <= n; i++)
        cut[i] = i;
    for (;;) {
        int best = -1;
        size_t where = 0;
        for (size_t i = 0; i + 1 < parts; i++) {
            int rank = reference_rank(piece, cut[i], cut[i + 1], cut[i + 2], by_rank);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                where = i;
            }
        }
        if (best < 0)
            break;
        memmove(cut + where + 1, cut + where + 2, (parts - where - 1) * sizeof *cut);
        parts--;
    }
    for (size_t i = 0; i < parts; i++)
        out[i] = find_token(piece + cut[i], cut[i + 1] - cut[i]);
    return parts;
}

static uint64_t draw(uint64_t stream, uint64_t i)
{
    return model_random_bits(11, MODEL_RANDOM_DATA, (uint32_t)stream, i);
}

static void like_the_reference(void **state)
{
    (void)state;
    const char *const words[] = {
        "the",  " the", "aaaaaaa",   "abc",          "ing", " and", "'s", "'ll", "  ", " ",    "\n",
        "\n\n", "12",   "!!",        "babab",        "x",   "1",    "\t", "'",   "\r", "reer", "aab",
        "Z",    "~",    "         ", "aaaaaaaaaaaaa"};
    const struct {
        const char *prefix, *name;
        int by_rank;
    } file[] = {{"", "merges.txt", 0}, {"gpt2:", "t.tiktoken", 1}, {"", "tokenizer.json", 0}};
    for (size_t f = 0; f < 3; f++) {
        model_tokenizer_t *tokenizer = open_spec(file[f].prefix, file[f].name);
        model_encoder_t *encoder = NULL;
        assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
        for (uint64_t t = 0; t < 2000; t++) {
            char text[512] = "";
            size_t parts = draw(t, 0) % 20, wanted = 0, count;
            model_token_t want[512];
            const model_token_t *got;
            for (size_t i = 0; i < parts; i++)
                strcat(text, words[draw(t, 1 + i) % (sizeof words / sizeof *words)]);
            size_t n = strlen(text);
            for (size_t i = 0, length; i < n; i += length) {
                length = first_piece(text + i, n - i);
                wanted +=
                    reference_piece((const unsigned char *)text + i, length, file[f].by_rank, want + wanted);
            }
            assert_int_equal(model_encode(encoder, text, n, &got, &count), GYRE_OK);
            if (count != wanted || (count > 0 && memcmp(got, want, count * sizeof *want) != 0))
                fail_msg("%s encodes '%s' otherwise than the reference", file[f].name, text);
        }
        model_encoder_destroy(encoder);
        model_tokenizer_destroy(tokenizer);
    }
}

/* ---- back and forth --------------------------------------------------------------------------------------------------- */

static void round_trip(const model_tokenizer_t *tokenizer, model_encoder_t *encoder,
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

static size_t put_utf8(unsigned char *out, uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1)
        out[0] = (unsigned char)c;
    else
        for (size_t i = n; i-- > 0; c >>= 6)
            out[i] = (unsigned char)(i > 0 ? 0x80 | (c & 63) : c | 0xF00u >> n);
    return n;
}

static void decodes_to_itself(void **state)
{
    (void)state;
    const struct {
        const char *prefix, *name;
    } file[] = {{"", "merges.txt"},
                {"gpt2:", "t.tiktoken"},
                {"cl100k:", "t.tiktoken"},
                {"o200k:", "t.tiktoken"},
                {"", "tokenizer.json"}};
    for (size_t f = 0; f <= 5; f++) {
        model_tokenizer_t *tokenizer = NULL;
        model_encoder_t *encoder = NULL;
        if (f == 5)
            assert_int_equal(model_tokenizer_open("bytes", &tokenizer), GYRE_OK);
        else
            tokenizer = open_spec(file[f].prefix, file[f].name);
        assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
        for (uint64_t t = 0; t < 1500; t++) {
            unsigned char text[1024];
            size_t n = 0, most = draw(t, 0) % 200;
            for (uint64_t i = 1; n < most; i++) {
                uint64_t r = draw(t, i);
                if (t % 3 == 0) /* any bytes */
                    text[n++] = (unsigned char)r;
                else if (t % 3 == 1 || r % 16 > 0) { /* any code points, of all sizes */
                    uint32_t c = (uint32_t)(r >> 8) >> (11 + r % 14);
                    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
                        continue;
                    n += put_utf8(text + n, c);
                } else /* with stray bytes among them */
                    text[n++] = (unsigned char)(r >> 8);
            }
            round_trip(tokenizer, encoder, text, n);
        }
        /* every byte, and every pair of a byte with some others */
        for (unsigned b = 0; b < 256; b++) {
            const unsigned char text[] = {(unsigned char)b, 'a', (unsigned char)b, 0x80, 0xC3,
                                          (unsigned char)b};
            round_trip(tokenizer, encoder, text, 1);
            round_trip(tokenizer, encoder, text, sizeof text);
        }
        round_trip(tokenizer, encoder, (const unsigned char *)"<|endoftext|>", 13);
        model_encoder_destroy(encoder);
        model_tokenizer_destroy(tokenizer);
    }
}

/* Bytes that are no UTF-8 divide the text; what is between them is cut as a text of its own. */
static void not_utf8(void **state)
{
    (void)state;
    model_tokenizer_t *tokenizer = open_spec("", "merges.txt");
    model_encoder_t *encoder = NULL;
    const model_token_t *ids;
    model_token_t keep[16];
    size_t count, kept;
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    const char *const bad[] = {"\xff",     "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                               "\xe2\x82", "\x80\xbf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[32];
        snprintf(text, sizeof text, " the%s the", bad[i]);
        assert_int_equal(model_encode(encoder, " the", 4, &ids, &count), GYRE_OK);
        assert_int_equal(count, 1);
        keep[0] = ids[0];
        assert_int_equal(model_encode(encoder, bad[i], strlen(bad[i]), &ids, &kept), GYRE_OK);
        memcpy(keep + 1, ids, kept * sizeof *ids);
        keep[1 + kept] = keep[0];
        assert_int_equal(model_encode(encoder, text, strlen(text), &ids, &count), GYRE_OK);
        assert_int_equal(count, kept + 2);
        assert_memory_equal(ids, keep, count * sizeof *ids);
    }
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
}

/* A piece of a megabyte, in no time that anyone would notice: a merge that looks at all of it each time takes hours. */
static void long_piece(void **state)
{
    (void)state;
    enum { LONG = 1 << 20 };
    model_tokenizer_t *tokenizer = open_spec("", "merges.txt");
    model_encoder_t *encoder = NULL;
    unsigned char *text = malloc(LONG);
    assert_non_null(text);
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    memset(text, 'a', LONG);
    const model_token_t *ids;
    size_t count;
    assert_int_equal(model_encode(encoder, text, LONG, &ids, &count), GYRE_OK);
    assert_int_equal(count, LONG / 8); /* "aaaaaaaa" is the longest of them */
    for (size_t i = 0; i < LONG; i++)
        text[i] = (unsigned char)"abcxy"[draw(9, i) % 5];
    round_trip(tokenizer, encoder, text, LONG);
    free(text);
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
}

/* ---- facts, and refusals ------------------------------------------------------------------------------------------------- */

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
    refuse_json("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", GYRE_ERR_INVALID, "normalizer");
    refuse_json("\"type\":\"BPE\"", "\"type\":\"Unigram\"", GYRE_ERR_INVALID, "Unigram");
    refuse_json("\"dropout\":null", "\"dropout\":0.1", GYRE_ERR_INVALID, "dropout");
    refuse_json("\"dropout\":null", "\"byte_fallback\":true", GYRE_ERR_INVALID, "byte_fallback");
    refuse_json("\"dropout\":null", "\"end_of_word_suffix\":\"</w>\"", GYRE_ERR_INVALID,
                "end_of_word_suffix");
    refuse_json("\"add_prefix_space\":false", "\"add_prefix_space\":true", GYRE_ERR_INVALID,
                "add_prefix_space");
    refuse_json("\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Metaspace\"",
                GYRE_ERR_INVALID, "Metaspace");
    refuse_json("\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}",
                GYRE_ERR_INVALID, "decoder");
    refuse_json("\"special\":true", "\"special\":false,\"lstrip\":true", GYRE_ERR_INVALID, "lstrip");
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
                {"a b\n", "cl100k:%s", "no .tiktoken", GYRE_ERR_FORMAT}};
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
                   {"^a", "^ and $"},
                   {"a$", "^ and $"},
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
        cmocka_unit_test(like_the_reference),
        cmocka_unit_test(decodes_to_itself),
        cmocka_unit_test(not_utf8),
        cmocka_unit_test(long_piece),
        cmocka_unit_test(one_identity),
        cmocka_unit_test(other_identity),
        cmocka_unit_test(refused),
        cmocka_unit_test(json_features),
        cmocka_unit_test(patterns),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
