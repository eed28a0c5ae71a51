/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/templates.h: the templates that have names, as programs (model/chat/conversation.c). */
#ifndef MODEL_CHAT_TEMPLATES_H
#define MODEL_CHAT_TEMPLATES_H

#include <stddef.h>

enum { CHAT_TOKENS = 4 };

typedef struct {
    const char *name, *program;
    const char *token[CHAT_TOKENS]; /* that the tokenizer must have */
} chat_template_t;

/* In a list of tokens: the tokenizer's end of a text, which the program has as the variable end_of_text. */
#define CHAT_EOT "{eot}"

extern const chat_template_t chat_templates[];
extern const size_t chat_templates_count;

#endif
