/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_values.c: values of config.json, and the errors that name them. */
#include "model/network/hf_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "base/text/shortest.h"

const char model_hf_unheard[] = "";

/* Value as text for a message: cut off when long. */
static void text_of(const json_t *value, char *text, size_t bytes)
{
    char number[BASE_SHORTEST];
    if (json_is_real(value)) {
        snprintf(text, bytes, "%s", base_shortest(json_real_value(value), number));
        return;
    }
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    snprintf(text, bytes, "%s", all ? all : "(no memory to print it)");
    free(all);
}

gyre_status_t model_hf_bad_value(gyre_status_t status, const char *where, const char *key,
                                 const json_t *value, const char *what)
{
    char text[80];
    text_of(value, text, sizeof text);
    return MODEL_HF_COMPLAIN(where, status, "%s: %s is %s: %s", where, key, text, what);
}

gyre_status_t model_hf_word(const json_t *value, const model_hf_word_t *words, const char *where,
                            const char *key, int *out)
{
    if (!json_is_string(value))
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be text");
    char known[200] = "supported are";
    for (const model_hf_word_t *w = words; w->text; w++) {
        if (strcmp(w->text, json_string_value(value)) == 0) {
            *out = w->value;
            return GYRE_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s %s", w > words ? "," : "", w->text);
    }
    return model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, key, value, known);
}

const char *model_hf_word_of(const model_hf_word_t *words, int value)
{
    while (words->text && words->value != value)
        words++;
    return words->text;
}

gyre_status_t model_hf_number(const json_t *object, const char *key, const char *where, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return GYRE_OK;
    if (!json_is_number(value) || json_number_value(value) < 0.0)
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be a number, not below 0");
    *out = json_number_value(value);
    return GYRE_OK;
}

gyre_status_t model_hf_flag(const json_t *object, const char *key, const char *where, int *out)
{
    const json_t *value = json_object_get(object, key);
    if (value && !json_is_boolean(value) && !json_is_null(value))
        return model_hf_bad_value(GYRE_ERR_FORMAT, where, key, value, "it must be true or false");
    *out = value ? json_is_true(value) : *out;
    return GYRE_OK;
}

gyre_status_t model_hf_only(const json_t *object, const char *key, const char *where, const char *only)
{
    const json_t *value = json_object_get(object, key);
    json_error_t error;
    int lacks = 0;
    if (!value)
        return GYRE_OK;
    json_t *want = base_json_text(only, strlen(only), &error, &lacks);
    if (lacks)
        return MODEL_HF_COMPLAIN(where, GYRE_ERR_NO_MEMORY, "%s: no memory to check %s", where, key);
    int same = json_is_number(want) && json_is_number(value)
                   ? json_number_value(want) == json_number_value(value)
                   : json_equal(want, value) ||
                         (json_is_null(value) && (json_is_false(want) || json_is_array(want)));
    json_decref(want);
    char what[80];
    snprintf(what, sizeof what, "Gyre has %s only", only);
    return same ? GYRE_OK : model_hf_bad_value(GYRE_ERR_UNSUPPORTED, where, key, value, what);
}
