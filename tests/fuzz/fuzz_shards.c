/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_shards.c: which file holds which range, as an index without a checksum says it; reading
 * by it. */
#include "optim/checkpoint/shards.h"
#include "tests/fuzz/fuzz.h"

static model_params_t *tiny;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const model_config_t config = {.vocab = 4, .seq = 2, .layers = 1, .hidden = 2, .heads = 2, .leaves = 2};
    (void)argc;
    (void)argv;
    FUZZ_CHECK(model_params_create(&config, &tiny) == GYRE_OK);
    return 0;
}

/* Each element is in one range, counted from what the text says. */
static void check_cover(const json_t *index)
{
    const json_t *rows = json_object_get(index, "rows"), *files = json_object_get(index, "files");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *shape = json_object_get(json_array_get(rows, r), "shape");
        json_int_t count = 1, covered = 0;
        for (size_t d = 0; d < json_array_size(shape); d++)
            count *= json_integer_value(json_array_get(shape, d));
        for (size_t f = 0; f < json_array_size(files); f++) {
            const json_t *ranges = json_object_get(json_array_get(files, f), "ranges");
            for (size_t i = 0; i < json_array_size(ranges); i++)
                if (json_integer_value(json_array_get(json_array_get(ranges, i), 0)) == (json_int_t)r)
                    covered += json_integer_value(json_array_get(json_array_get(ranges, i), 2));
        }
        FUZZ_CHECK(covered == count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float memory[8];
    optim_shards_t *shards = NULL;
    json_t *index = json_loadb((const char *)data, size, 0, NULL);
    if (optim_shards_parse(index, "fuzz", &shards) == GYRE_OK) {
        check_cover(index);
        (void)optim_shards_sizes(shards, "/proc/self/fdinfo");
        if (optim_shards_fit(shards, tiny, "fuzz") == GYRE_OK) {
            const optim_range_t range = {
                .row = tiny->rows - 1, .first = 1, .count = 4, .part = {memory, NULL, memory + 4}};
            FUZZ_CHECK(optim_shards_read(shards, "/proc/self/fdinfo", tiny, &range, 1) != GYRE_OK);
        }
    }
    optim_shards_destroy(shards);
    json_decref(index);
    return 0;
}
