/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_snapshot.c: the index of a training checkpoint. */
#include "optim/checkpoint/snapshot.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *index = NULL;
    optim_shards_t *shards = NULL;
    if (optim_snapshot_parse((const char *)data, size, "fuzz", &index) == GYRE_OK) {
        FUZZ_CHECK(json_is_object(index) && json_is_object(json_object_get(index, "run")));
        (void)optim_shards_parse(index, "fuzz", &shards);
    }
    optim_shards_destroy(shards);
    json_decref(index);
    return 0;
}
