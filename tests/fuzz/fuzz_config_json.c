/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_config_json.c: a model's config.json of any family. What is taken keeps the rules, and is
 * written so that it is read back as the same. */
#include <jansson.h>

#include "model/network/hf_config.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    model_config_t config, again;
    json_t *object = json_loadb((const char *)data, size, 0, NULL), *written = NULL, *twice = NULL;
    if (object && model_config_from_json(object, "fuzz", 0, &config) == GYRE_OK) {
        FUZZ_CHECK(model_config_check(&config) == GYRE_OK);
        FUZZ_CHECK(model_config_capacity(&config) <= config.seq);
        FUZZ_CHECK(model_config_to_json(&config, &written) == GYRE_OK);
        FUZZ_CHECK(model_config_from_json(written, "fuzz", 0, &again) == GYRE_OK);
        FUZZ_CHECK(model_config_to_json(&again, &twice) == GYRE_OK);
        FUZZ_CHECK(json_equal(written, twice));
    }
    json_decref(twice);
    json_decref(written);
    json_decref(object);
    return 0;
}
