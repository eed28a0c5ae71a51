/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/hf_values.h: values of config.json, and the errors that name them; for hf_config.c. `where`
 * names the file. */
#ifndef MODEL_NETWORK_HF_VALUES_H
#define MODEL_NETWORK_HF_VALUES_H

#include <jansson.h>

#include "base/error.h"

/* `where` of a reading that asks whether a family can say something: a failure is an answer, and is not
 * logged. */
extern const char model_hf_unheard[];
#define MODEL_HF_COMPLAIN(where, ...) \
    ((where) == model_hf_unheard ? gyre_fail_quiet(__VA_ARGS__) : gyre_fail(__VA_ARGS__))

/* Fails with `status` and a text that names file, key, value, and what is wrong. */
gyre_status_t model_hf_bad_value(gyre_status_t status, const char *where, const char *key,
                                 const json_t *value, const char *what);
/* A word for a value of an enumeration; the last one has no text. */
typedef struct {
    const char *text;
    int value;
} model_hf_word_t;
/* *out: the value of one of `words`. FORMAT: no text; UNSUPPORTED: another word, with a list of them. */
gyre_status_t model_hf_word(const json_t *value, const model_hf_word_t *words, const char *where,
                            const char *key, int *out);
/* The first word for `value`; NULL: none. */
const char *model_hf_word_of(const model_hf_word_t *words, int value);

/* A number, not below 0: *out; absent or null: as it is. FORMAT: anything else. */
gyre_status_t model_hf_number(const json_t *object, const char *key, const char *where, double *out);
/* true, false: *out; null: false, as to transformers; absent: as it is. FORMAT: anything else. */
gyre_status_t model_hf_flag(const json_t *object, const char *key, const char *where, int *out);

/* UNSUPPORTED: the key is there, with another value than `only`, which is JSON; null is false or an
 * empty list, too. NO_MEMORY. */
gyre_status_t model_hf_only(const json_t *object, const char *key, const char *where, const char *only);

#endif
