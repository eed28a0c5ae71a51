/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_recorder.c: files that claim to be flight recorders. */
#include "comm/recorder/file.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    comm_recorder_head_t head;
    comm_recorder_slot_t *slots = NULL;
    if (comm_recorder_parse(data, size, &head, &slots) != GYRE_OK)
        return 0;
    FUZZ_CHECK(head.slots >= 1 && COMM_RECORDER_HEAD + (size_t)head.slots * sizeof(*slots) <= size);
    FUZZ_CHECK(strlen(head.job) < sizeof(head.job) && strlen(head.host) < sizeof(head.host));
    for (int i = 0; i < head.slots; i++)
        FUZZ_CHECK(slots[i].state <= 4 && strlen(slots[i].error) < sizeof(slots[i].error));
    free(slots);
    return 0;
}
