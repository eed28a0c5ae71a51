/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/freeze.c: which rows training leaves as they are. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/network/params.h"

/* Names for messages: of the first layer, and of what is outside of layers. */
static void list_names(const model_params_t *params, char *text, size_t bytes)
{
    size_t n = 0;
    *text = 0;
    for (size_t r = params->rows; r-- > 0 && n + 1 < bytes;) {
        const model_param_t *row = &params->row[r];
        if (row->layer <= 0 || (size_t)row->layer == params->config.layers)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", n > 0 ? ", " : "", row->name);
    }
}

/* How many rows the pattern freezes. */
static size_t freeze(model_params_t *params, const char *pattern)
{
    size_t matches = 0;
    for (size_t r = 0; r < params->rows; r++)
        if (fnmatch(pattern, params->row[r].name, 0) == 0) {
            params->row[r].frozen = 1;
            matches++;
        }
    return matches;
}

static gyre_status_t freeze_all(model_params_t *params, char *list)
{
    char names[900], *rest = NULL;
    int twin = 0;
    size_t left = 0;
    for (char *pattern = strtok_r(list, ",", &rest); pattern; pattern = strtok_r(NULL, ",", &rest))
        if (freeze(params, pattern) == 0) {
            list_names(params, names, sizeof names);
            return gyre_fail(GYRE_ERR_INVALID, "--freeze %s: no weight is named so; names are %s", pattern,
                             names);
        }
    for (size_t r = 0; r < params->rows; r++)
        twin |= params->row[r].twin && params->row[r].frozen;
    for (size_t r = 0; r < params->rows; r++) { /* embedding and tied head are one weight */
        params->row[r].frozen |= params->row[r].twin && twin;
        left += !params->row[r].frozen;
    }
    return left > 0 ? GYRE_OK
                    : gyre_fail(GYRE_ERR_INVALID, "--freeze: every weight is frozen: none is left to train");
}

gyre_status_t model_params_freeze(model_params_t *params, const char *patterns)
{
    char *list = strdup(patterns);
    if (!list)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for --freeze");
    gyre_status_t status = freeze_all(params, list);
    free(list);
    return status;
}

size_t model_params_frozen(const model_params_t *params)
{
    size_t count = 0;
    for (size_t r = 0; r < params->rows; r++)
        count += params->row[r].frozen && params->row[r].alias == MODEL_NONE ? params->row[r].count : 0;
    return count;
}
