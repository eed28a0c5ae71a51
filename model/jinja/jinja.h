/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/jinja.h: runs chat templates, which are programs in the language of Jinja 3.1 with the settings
 * of `transformers` (trim_blocks, lstrip_blocks, loop controls, generation blocks).
 *
 * It is the part of the language that chat templates use. What is left out is refused by name: statements
 * when the program is read, the rest when it is reached. A program reaches nothing but its input: no files,
 * no clock. Its steps, its memory and the depth of its calls are bounded.
 *
 * Each byte of the output says which message it came from: texts keep that through every operation. */
#ifndef MODEL_JINJA_JINJA_H
#define MODEL_JINJA_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <gyre/status.h>

typedef struct jinja_program jinja_program_t;

/* Errors are not logged: the caller knows which file it is. Their texts begin with the line. */

/* Reads a program, text [bytes] of UTF-8. INVALID: the text of the error names the place and the construct;
 * NO_MEMORY. */
gyre_status_t jinja_compile(const char *text, size_t bytes, jinja_program_t **out);
void jinja_destroy(jinja_program_t *program);
/* 1: the program marks what is learned: it has {% generation %} blocks. */
int jinja_marks(const jinja_program_t *program);

typedef struct {
    const json_t *variables; /* an object */
    const json_t *messages;  /* the variable of that name: a list of objects */
    const json_t *tools;     /* the variable of that name: a list; NULL: `variables` has what it is */
    const char *date;        /* of strftime_now, YYYY-MM-DD; NULL: the function does not exist */
} jinja_input_t;

/* In `from` below: the byte is of the message's "tool_calls". */
#define JINJA_CALL (UINT32_C(1) << 31)

typedef struct {
    char *text;     /* [bytes] */
    uint32_t *from; /* [bytes]: the number of the message, from 1, and JINJA_CALL; one more than messages:
                       the tools; 0: the program's own, a role, or a number */
    uint32_t *turn; /* [bytes]: the number of the message in whose loop it was written; 0: in none */
    unsigned char *generated; /* [bytes]: 1: inside a {% generation %} block */
    size_t bytes;
} jinja_output_t; /* the caller frees the arrays */

/* Threads may run one program at the same time. INVALID: the program raised an exception, or does what is not
 * supported; NO_MEMORY. */
gyre_status_t jinja_run(const jinja_program_t *program, const jinja_input_t *input, jinja_output_t *out);
void jinja_output_free(jinja_output_t *output);

#endif
