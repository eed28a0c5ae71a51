/* comm/launch/pmi1_parse.h: one line of the PMI-1 wire protocol, "cmd=get_result rc=0 msg=success value=...": pure functions over bytes that
 * came from outside. Words are separated by spaces; "value" is the last one and takes the rest of the line, spaces included. */
#ifndef COMM_LAUNCH_PMI1_PARSE_H
#define COMM_LAUNCH_PMI1_PARSE_H

#include <stddef.h>

/* The text after "key=": *value points into the line. 1, or 0 if there is no such word. */
int pmi1_field(const char *line, size_t bytes, const char *key, const char **value, size_t *value_bytes);
/* 1 if the word "key=" holds exactly `text`. */
int pmi1_field_is(const char *line, size_t bytes, const char *key, const char *text);
/* A decimal number, perhaps negative, of at most 9 digits. 1, or 0 if the word is missing or is none. */
int pmi1_field_int(const char *line, size_t bytes, const char *key, int *value);

#endif
