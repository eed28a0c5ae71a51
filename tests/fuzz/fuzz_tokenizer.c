/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_tokenizer.c: merges.txt, .tiktoken and tokenizer.json. What opens gives ids that decode,
 * and gives back every text, unless it is a tokenizer.json, which may change text.
 * The first byte says under which pattern the rest is opened; its bit 2, that it is {u16 bytes, vocab.json,
 * merges.txt}, two files of one folder. */
#include "model/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static char folder[] = "/tmp/gyre-fuzz-XXXXXX";
static char vocab_path[64], merges_path[64];

static void clear_up(void)
{
    unlink(vocab_path);
    unlink(merges_path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    snprintf(vocab_path, sizeof(vocab_path), "%s/vocab.json", folder);
    snprintf(merges_path, sizeof(merges_path), "%s/merges.txt", folder);
    return atexit(clear_up);
}

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static const char *two_files(fuzz_input_t *in)
{
    size_t bytes = fuzz_byte(in);
    bytes |= (size_t)fuzz_byte(in) << 8;
    const uint8_t *vocab = fuzz_bytes(in, &bytes);
    put(vocab_path, vocab, bytes);
    put(merges_path, in->at, in->left);
    return merges_path;
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
    const char *path = kind & 4 ? two_files(&in) : fuzz_file(in.at, in.left);
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
