/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers: equal to a plain reference on text of any form, and exactly reversible on any bytes. What files
 * say and what is refused: test_tokenizer_files.c. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/random.h"
#include "tests/model/text/vocabulary.h"

/* ---- the reference ------------------------------------------------------------------------------------- */

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

/* ---- back and forth ------------------------------------------------------------------------------------ */

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

/* A piece of a megabyte, in no time that anyone would notice: a merge that looks at all of it each time
 * takes hours. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_reference),
        cmocka_unit_test(decodes_to_itself),
        cmocka_unit_test(not_utf8),
        cmocka_unit_test(long_piece),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
