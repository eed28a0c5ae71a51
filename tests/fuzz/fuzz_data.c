/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_data.c: training text: any bytes are tokens, of any length. Bytes that begin like a token
 * file are one, or are refused. */
#include "model/data/data.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SEQ_MOST = 32 };
    model_data_t *text = NULL;
    model_token_t tokens[SEQ_MOST], targets[SEQ_MOST];
    const model_data_config_t config = {
        .path = fuzz_file(data, size), .valid_fraction = 0.1, .sampling = size % 2};
    if (model_data_open(&config, &text) != GYRE_OK)
        return 0;
    FUZZ_CHECK(!text->is_text || text->bytes == size);
    for (size_t seq = 1; seq <= SEQ_MOST; seq *= 2) {
        if (model_data_prepare(text, 65536, seq) != GYRE_OK)
            break;
        for (uint64_t step = 0; step < 4; step++) {
            const model_data_step_t at = {.seed = 5, .step = step, .samples = 3 * step};
            model_data_train(text, &at, step, &(const model_example_t){.tokens = tokens, .targets = targets});
        }
        size_t n = model_data_validation_count(text, 0);
        if (n > 0)
            model_data_validation(text, 0, n - 1,
                                  &(const model_example_t){.tokens = tokens, .targets = targets});
    }
    model_data_destroy(text);
    return 0;
}
