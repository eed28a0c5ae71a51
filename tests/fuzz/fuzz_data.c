/* tests/fuzz/fuzz_data.c: training text: any bytes are tokens, of any length. */
#include "model/data.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SEQ_MOST = 32 };
    model_data_t *text = NULL;
    model_token_t tokens[SEQ_MOST], targets[SEQ_MOST];
    const char *path = fuzz_file(data, size);
    if (model_data_open(path, &text) != GYRE_OK)
        return 0;
    FUZZ_CHECK(text->bytes == size && text->train <= size);
    for (size_t seq = 1; seq <= SEQ_MOST; seq *= 2) {
        if (model_data_check(text, path, seq) != GYRE_OK)
            break;
        for (uint64_t step = 0; step < 4; step++)
            model_data_train(text, 5, step, step, seq, tokens, targets);
        size_t n = model_data_validation_count(text, seq);
        if (n > 0)
            model_data_validation(text, n - 1, seq, tokens, targets);
    }
    model_data_destroy(text);
    return 0;
}
