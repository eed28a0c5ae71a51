/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_tokenizer.c: merges.txt, .tiktoken and tokenizer.json. What opens gives ids that decode,
 * and gives back every text, unless it is a tokenizer.json, which may change text.
 * The first byte says under which pattern the rest is opened; its bit 2, that it is {u16 bytes, vocab.json,
 * merges.txt}, two files of one folder. */
#include "model/tokenizer/tokenizer.h"
#include "tests/fuzz/pair.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return pair_make("vocab.json", "merges.txt");
}

static void round_trip(const model_tokenizer_t *tokenizer, model_encoder_t *encoder, const uint8_t *text,
                       size_t size, int same)
{
    const model_token_t *ids;
    unsigned char *back;
    size_t count, length;
    if (model_encode(encoder, text, size, &ids, &count) != GYRE_OK)
        return; /* a pattern may give up */
    FUZZ_CHECK(count <= size || !same);
    FUZZ_CHECK(model_decode(tokenizer, ids, count, &back, &length) == GYRE_OK);
    FUZZ_CHECK(!same || (length == size && (size == 0 || memcmp(back, text, size) == 0)));
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const prefix[] = {"", "gpt2:", "cl100k:", "o200k:"};
    static const char probe[] = "It's <s> 12345 \xe4\xb8\xad\xff\xc3\n\n  don't \t THE end.";
    fuzz_input_t in = {data, size};
    model_tokenizer_t *tokenizer = NULL;
    model_encoder_t *encoder = NULL;
    char spec[96];
    const uint8_t kind = fuzz_byte(&in);
    if (in.left > 0 && in.at[0] == 0x0A)
        return 0; /* a model, which SentencePiece's library reads */
    if (kind & 4)
        pair_write(&in);
    const char *path = kind & 4 ? pair_path[1] : fuzz_file(in.at, in.left);
    snprintf(spec, sizeof(spec), "%s%s", prefix[kind % 4], path);
    if (model_tokenizer_open(spec, &tokenizer) != GYRE_OK)
        return 0;
    const int same = kind & 4 || in.left == 0 || memchr(in.at, '{', in.left) == NULL;
    FUZZ_CHECK(model_encoder_create(tokenizer, &encoder) == GYRE_OK);
    for (int specials = 0; specials < 2; specials++) {
        model_encoder_specials(encoder, specials);
        round_trip(tokenizer, encoder, (const uint8_t *)probe, sizeof(probe) - 1, same);
        round_trip(tokenizer, encoder, in.at, in.left < 4096 ? in.left : 4096, same);
    }
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
    return 0;
}
