/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/json.h: jansson with errors that name the file, line and column. */
#ifndef BASE_TEXT_JSON_H
#define BASE_TEXT_JSON_H

#include <stdint.h>

#include <jansson.h>

#include <gyre/status.h>

/* Reads a whole JSON file; *out is a new reference. NOT_FOUND, IO or FORMAT. */
gyre_status_t base_json_read(const char *path, json_t **out);
/* Writes as base/file.h does: a reader never sees half a file. IO, INVALID: `value` is not JSON. */
gyre_status_t base_json_write(const char *path, const json_t *value);
/* A new string of 16 hexadecimal digits: 64 bits that a double would round. NULL: no memory. */
json_t *base_json_hex(uint64_t value);

#endif
