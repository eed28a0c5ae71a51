/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_config.c: gyre-train's configuration file. */
#include "tests/fuzz/fuzz.h"
#include "tools/gyre-train/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    train_config_t options;
    char path[64];
    snprintf(path, sizeof(path), "%s", fuzz_file(data, size));
    char *argv[] = {"gyre-train", "--config", path, NULL};
    (void)train_options_parse(3, argv, &options, &(export_options_t){0}, 0);
    train_config_free(&options);
    return 0;
}
