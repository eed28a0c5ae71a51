/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_tune.c: tuning files; what is read and written again reads the same. */
#include <math.h>

#include "collectives/choose/tune.h"
#include "tests/fuzz/fuzz.h"

static int parse(const void *text, size_t size, coll_tune_t *tune)
{
    char boot[64] = "";
    FILE *in = size > 0 ? fmemopen((void *)text, size, "r") : NULL;
    if (in == NULL)
        return 0;
    coll_tune_builtin(tune);
    int ok = coll_tune_parse(in, "fuzz", 1, tune, boot) == GYRE_OK;
    fclose(in);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static coll_tune_t tune, again;
    char *text = NULL;
    size_t bytes = 0;
    if (!parse(data, size, &tune))
        return 0;
    FILE *out = open_memstream(&text, &bytes);
    FUZZ_CHECK(out != NULL);
    coll_tune_print(out, &tune, "");
    fclose(out);
    FUZZ_CHECK(parse(text, bytes, &again) && again.nlines == tune.nlines &&
               again.signature == tune.signature);
    for (int i = 0; i < coll_cost_field_count; i++) {
        double before = coll_cost_get(&tune.cost, &coll_cost_fields[i]);
        double after = coll_cost_get(&again.cost, &coll_cost_fields[i]);
        FUZZ_CHECK(fabs(after - before) <= 0.51 * (before < 1 ? 1e-6 : 0.01));
    }
    free(text);
    return 0;
}
