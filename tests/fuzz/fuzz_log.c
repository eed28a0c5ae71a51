/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_log.c: the log of a training run that --resume goes on with. */
#include "tests/fuzz/fuzz.h"
#include "pipeline/report/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    train_record_t record = {.tokens_per_step = 384};
    const uint64_t last = 8;
    off_t keep = 0, begin = 0;
    if (size == 0)
        return 0; /* fmemopen takes no empty file */
    FILE *in = fmemopen((void *)(uintptr_t)data, size, "r");
    FUZZ_CHECK(in != NULL);
    gyre_status_t status = train_record_read(&record, in, "fuzz", last, &keep, &begin);
    fclose(in);
    /* the log is cut there: after a whole line, and never after its end */
    FUZZ_CHECK(keep >= 0 && (size_t)keep <= size &&
               (keep == 0 || status != GYRE_OK || data[keep - 1] == '\n'));
    FUZZ_CHECK(begin >= 0 && begin <= keep && (begin == 0 || data[begin - 1] == '\n'));
    uint64_t before = 0;
    for (size_t i = 0; i < record.steps; i++) {
        FUZZ_CHECK(record.step[i].step > before && record.step[i].step <= last);
        before = record.step[i].step;
    }
    train_record_free(&record);
    return 0;
}
