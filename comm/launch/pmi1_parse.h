/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmi1_parse.h: parses one line of the PMI-1 wire protocol, "cmd=get_result rc=0 msg=success
 * value=...". Pure functions; the bytes come from outside. Words are separated by spaces. "value" is the last
 * word and takes the rest of the line, spaces included. */
#ifndef COMM_LAUNCH_PMI1_PARSE_H
#define COMM_LAUNCH_PMI1_PARSE_H

#include <stddef.h>

/* Finds the text after "key="; *value points into the line. Returns 1, or 0 if there is no such word. */
int pmi1_field(const char *line, size_t bytes, const char *key, const char **value, size_t *value_bytes);
/* 1 if the word "key=" holds exactly `text`. */
int pmi1_field_is(const char *line, size_t bytes, const char *key, const char *text);
/* Reads a decimal number, perhaps negative, of at most 9 digits. Returns 1, or 0 if the word is missing or
 * not such a number. */
int pmi1_field_int(const char *line, size_t bytes, const char *key, int *value);

#endif
