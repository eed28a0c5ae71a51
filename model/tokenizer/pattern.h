/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/pattern.h: regular expressions of tokenizers (this folder only). */
#ifndef MODEL_TOKENIZER_PATTERN_H
#define MODEL_TOKENIZER_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/tokenizer/internal.h"

/* Compiles a pattern in Oniguruma's syntax, or, if `literal`, text that stands for itself; the caller frees
 * *out. INVALID: it has what the two engines take otherwise; FORMAT: it is not a pattern. `path` is for the
 * message. */
gyre_status_t tokenizer_pattern_compile(const char *path, const char *pattern, int literal, pcre2_code **out);
/* The next match at or after `from` that is not empty: from *begin to *end. `text` is valid UTF-8. 0: there
 * is no match; below: the matcher gave up. */
int tokenizer_pattern_next(const pcre2_code *code, pcre2_match_data *match, const unsigned char *text,
                           size_t bytes, size_t from, size_t *begin, size_t *end);
gyre_status_t tokenizer_pattern_gave_up(const char *pattern, size_t bytes, int error);

#endif
