/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_checkpoint.c: safetensors files, as the weights of a model of their own shape and of a
 * given one. */
#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "tests/fuzz/fuzz.h"

static model_params_t *tiny;
static float *flat;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const model_config_t config = {.vocab = 3, .seq = 2, .layers = 1, .hidden = 2, .heads = 1};
    (void)argc;
    (void)argv;
    FUZZ_CHECK(model_params_create(&config, &tiny) == GYRE_OK);
    flat = calloc(tiny->total, sizeof(*flat));
    FUZZ_CHECK(flat != NULL);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    model_config_t config;
    if (model_checkpoint_config(path, &config) == GYRE_OK)
        (void)model_config_check(&config);
    (void)model_hf_load(path, tiny, flat);
    return 0;
}
