/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/json.h: jansson with errors that name the file, line and column. Integers beyond json_int_t
 * are read as real numbers, and "\ud800", half of a surrogate pair, as U+FFFD: jansson refuses both. */
#ifndef BASE_TEXT_JSON_H
#define BASE_TEXT_JSON_H

#include <stdint.h>

#include <jansson.h>

#include <gyre/status.h>

/* Reads a whole JSON file, in which no object has a key twice; *out is a new reference. NOT_FOUND, IO, FORMAT
 * or NO_MEMORY. */
gyre_status_t base_json_read(const char *path, json_t **out);
/* The same with other flags than JSON_REJECT_DUPLICATES. */
gyre_status_t base_json_read_with(const char *path, size_t flags, json_t **out);
/* The value that text [bytes] spells, of any kind: a new reference. NULL: *lacks is 1: there is no memory; 0:
 * `error` says what is wrong with the text. */
json_t *base_json_text(const char *text, size_t bytes, json_error_t *error, int *lacks);
/* The same with other flags than JSON_REJECT_DUPLICATES. Any thread; they take turns. */
json_t *base_json_text_with(const char *text, size_t bytes, size_t flags, json_error_t *error, int *lacks);
/* A new string of the text [bytes], with U+FFFD for what is not UTF-8 (base_utf8_bad). NULL: no memory. */
json_t *base_json_string(const char *text, size_t bytes);
/* json_dumps. NULL: no memory; json_dumps itself may then leave out a key. The caller frees. */
char *base_json_dump(const json_t *value, size_t flags);
/* Writes as base/file.h does: a reader never sees half a file. IO, NO_MEMORY, INVALID: `value` is NULL. */
gyre_status_t base_json_write(const char *path, const json_t *value);
/* A new string of 16 hexadecimal digits: 64 bits that a double would round. NULL: no memory. */
json_t *base_json_hex(uint64_t value);
uint64_t base_json_hex_value(const json_t *value); /* of such a string; 0: of anything else */
enum { BASE_JSON_REAL = 32 };
/* `value` with so many significant digits, or null for what JSON has no number for. Returns text. */
const char *base_json_real(char text[BASE_JSON_REAL], int digits, double value);

#endif
