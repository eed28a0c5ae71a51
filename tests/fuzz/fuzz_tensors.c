/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_tensors.c: gyre-perf's files of tensor sizes (--model FILE); no bytes: no file. */
#include "tests/fuzz/fuzz.h"
#include "tools/gyre-perf/bucket/bucket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    perf_tensors_t tensors;
    char why[512];
    if (perf_tensors_load(size > 0 ? fuzz_file(data, size) : "/proc/none", &tensors, why, sizeof(why)) == 0) {
        FUZZ_CHECK(tensors.count > 0);
        perf_tensors_free(&tensors);
    }
    return 0;
}
