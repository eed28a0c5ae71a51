/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/patterns.c: what the user says of rows by their names: which training leaves as they are,
 * and rates and weight decay of others. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/network/params.h"

/* An option whose value is a list of patterns. */
typedef struct {
    const char *name;
    double high; /* of the X of PATTERN=X, from 0 on; 0: patterns alone */
    void (*set)(model_param_t *row, double value);
} option_t;

static void set_frozen(model_param_t *row, double value)
{
    (void)value;
    row->frozen = 1;
}

static void set_rate(model_param_t *row, double value)
{
    row->rate = value;
}

static void set_decay(model_param_t *row, double value)
{
    row->own_decay = value;
}

static const option_t freeze = {"freeze", 0.0, set_frozen};
static const option_t rates = {"lr-scale", 1000.0, set_rate};
static const option_t decays = {"decay-on", 100.0, set_decay};

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

/* Cuts "=X" off a pattern. 0: it is malformed. */
static int take_value(const option_t *option, char *pattern, double *value)
{
    char *equals = strrchr(pattern, '='), *end;
    *value = 0.0;
    if (option->high <= 0.0)
        return 1;
    if (!equals)
        return 0;
    *value = strtod(equals + 1, &end);
    *equals = 0;
    return end > equals + 1 && !*end && *value >= 0.0 && *value <= option->high;
}

/* How many rows the pattern fits. A tied head and its embedding are one weight. */
static size_t apply(const option_t *option, model_params_t *params, const char *pattern, double value)
{
    size_t matches = 0;
    int twin = 0;
    for (size_t r = 0; r < params->rows; r++)
        if (fnmatch(pattern, params->row[r].name, 0) == 0) {
            option->set(&params->row[r], value);
            twin |= params->row[r].twin;
            matches++;
        }
    for (size_t r = 0; twin && r < params->rows; r++)
        if (params->row[r].twin)
            option->set(&params->row[r], value);
    return matches;
}

static gyre_status_t apply_all(const option_t *option, model_params_t *params, char *list)
{
    char names[900], *rest = NULL;
    double value;
    for (char *pattern = strtok_r(list, ",", &rest); pattern; pattern = strtok_r(NULL, ",", &rest)) {
        if (!take_value(option, pattern, &value))
            return gyre_fail(GYRE_ERR_INVALID, "--%s %s: wants PATTERN=X,... with X from 0 to %g",
                             option->name, pattern, option->high);
        if (apply(option, params, pattern, value) == 0) {
            list_names(params, names, sizeof names);
            return gyre_fail(GYRE_ERR_INVALID, "--%s %s: no weight is named so; names are %s", option->name,
                             pattern, names);
        }
    }
    return GYRE_OK;
}

static gyre_status_t read_list(const option_t *option, model_params_t *params, const char *patterns)
{
    char *list = strdup(patterns);
    if (!list)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for --%s", option->name);
    gyre_status_t status = apply_all(option, params, list);
    free(list);
    return status;
}

gyre_status_t model_params_freeze(model_params_t *params, const char *patterns)
{
    size_t left = 0;
    gyre_status_t status = read_list(&freeze, params, patterns);
    for (size_t r = 0; r < params->rows; r++)
        left += !params->row[r].frozen;
    return status != GYRE_OK || left > 0
               ? status
               : gyre_fail(GYRE_ERR_INVALID, "--freeze: every weight is frozen: none is left to train");
}

gyre_status_t model_params_rates(model_params_t *params, const char *patterns)
{
    return read_list(&rates, params, patterns);
}

gyre_status_t model_params_decays(model_params_t *params, const char *patterns)
{
    return read_list(&decays, params, patterns);
}

size_t model_params_frozen(const model_params_t *params)
{
    size_t count = 0;
    for (size_t r = 0; r < params->rows; r++)
        count += params->row[r].frozen && params->row[r].alias == MODEL_NONE ? params->row[r].count : 0;
    return count;
}
