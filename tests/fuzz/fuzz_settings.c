/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_settings.c: the texts of settings: as every row of the table, and as a name that is not
 * known. */
#include "base/settings/parse.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), accepts[256];
    base_setting_value_t value;
    for (int i = 0; i < SET_COUNT; i++) {
        base_setting_row_t row = base_setting_row((base_setting_t)i);
        if (base_setting_parse(row.kind, row.unit, text, &value) && row.kind == BASE_SETTING_SECONDS)
            FUZZ_CHECK(value.seconds >= 0);
        base_setting_accepts(row.kind, row.unit, accepts, sizeof(accepts));
    }
    base_setting_t nearest = base_setting_nearest(text);
    FUZZ_CHECK((int)nearest >= 0 && nearest < SET_COUNT);
    free(text);
    return 0;
}
