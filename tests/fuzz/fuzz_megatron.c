/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_megatron.c: Megatron's pairs. The first two bytes say how long the index is, the rest is
 * the ids. */
#include "model/data/tokens.h"
#include "tests/fuzz/fuzz.h"

static char folder[] = "/tmp/gyre-fuzz-XXXXXX";
static char index_path[64], bin_path[64];

static void clear_up(void)
{
    unlink(index_path);
    unlink(bin_path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    snprintf(index_path, sizeof(index_path), "%s/x.idx", folder);
    snprintf(bin_path, sizeof(bin_path), "%s/x.bin", folder);
    return atexit(clear_up);
}

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    model_tokens_t *tokens = NULL;
    model_token_t most, ids[32];
    uint64_t hash;
    size_t head = fuzz_byte(&in);
    head |= (size_t)fuzz_byte(&in) << 8;
    const uint8_t *index = fuzz_bytes(&in, &head);
    put(index_path, index, head);
    put(bin_path, in.at, in.left);
    if (model_tokens_open(index_path, MODEL_TOKENS_MEGATRON, &tokens) != GYRE_OK)
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
