/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_tokens.c: token files of one file each. What opens can be read to its end, whatever it
 * says of itself. */
#include "model/data/tokens.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const model_tokens_format_t formats[] = {MODEL_TOKENS_GYRE, MODEL_TOKENS_LLMC,
                                                    MODEL_TOKENS_NANOGPT};
    const char *path = fuzz_file(data, size);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        model_tokens_t *tokens = NULL;
        model_token_t most, ids[32];
        uint64_t hash;
        if (model_tokens_open(path, formats[f], &tokens) != GYRE_OK)
            continue;
        FUZZ_CHECK(tokens->count > 0 && tokens->count <= size && tokens->bytes <= size);
        for (uint64_t at = 0; at < tokens->count; at += 31) {
            size_t n = tokens->count - at < 32 ? (size_t)(tokens->count - at) : 32;
            (void)model_tokens_read(tokens, at, n, 100, ids); /* bad ids are an error, and not returned */
            for (size_t i = 0; i < n; i++)
                FUZZ_CHECK(ids[i] >= 0 && ids[i] < 100);
        }
        (void)model_tokens_verify(tokens, tokens->vocab, &most);
        FUZZ_CHECK(model_tokens_hash(tokens, &hash) == GYRE_OK);
        model_tokens_close(tokens);
    }
    return 0;
}
