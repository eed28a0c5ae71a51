/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_megatron.c: Megatron's pairs. The first two bytes say how long the index is, the rest is
 * the ids. */
#include "model/data/tokens.h"
#include "tests/fuzz/pair.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return pair_make("x.idx", "x.bin");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    model_tokens_t *tokens = NULL;
    model_token_t most, ids[32];
    uint64_t hash;
    pair_write(&in);
    if (model_tokens_open(pair_path[0], MODEL_TOKENS_MEGATRON, &tokens) != GYRE_OK)
        return 0;
    for (uint64_t at = 0; at < tokens->count && at < 10000; at += 31) {
        size_t n = tokens->count - at < 32 ? (size_t)(tokens->count - at) : 32;
        (void)model_tokens_read(tokens, at, n, 100, ids);
        for (size_t i = 0; i < n; i++)
            FUZZ_CHECK(ids[i] >= 0 && ids[i] < 100);
    }
    (void)model_tokens_verify(tokens, 0, &most);
    FUZZ_CHECK(model_tokens_hash(tokens, &hash) == GYRE_OK);
    model_tokens_close(tokens);
    return 0;
}
