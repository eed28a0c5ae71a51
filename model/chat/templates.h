/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/templates.h: the templates that there are, as data (model/chat/conversation.c). */
#ifndef MODEL_CHAT_TEMPLATES_H
#define MODEL_CHAT_TEMPLATES_H

#include <stddef.h>
#include <stdint.h>

#include "model/chat/conversation.h"

enum { CHAT_TOKENS = 4 };

typedef struct {
    const char *name;
    const char *token[CHAT_TOKENS]; /* tokens of the template, wherever they stand in the texts below */
    const char *begin;              /* before the first message */
    /* before and after a message of each role; NULL: there is no such role. What is after an answer begins
     * with a token */
    const char *before[MODEL_ROLES], *after[MODEL_ROLES];
    const char *system; /* the system's message where the conversation has none; NULL: none */
    int trim;           /* 1: white space (Unicode's) at both ends of a message is left out */
    int alternate;      /* 1: user and assistant take turns, and the user begins */
    /* 1: the system's message is the beginning of the user's first one, as it is, and what stands before that
     * is left out */
    int joined;
    /* Ends the thoughts of an answer, which are left out, up to the last of these; with `last` such answers
     * are refused, since the program writes some thoughts and leaves out others. NULL: an answer is whole */
    const char *thought;
    /* Stands before an answer that ends a conversation and has a question, whose first line ends are left
     * out. NULL: nothing does */
    const char *last;
} chat_template_t;

/* In a text of a template: the tokenizer's end of a text. */
#define CHAT_EOT "{eot}"

extern const chat_template_t chat_templates[];
extern const size_t chat_templates_count;

/* The template that writes what the Jinja program `text` writes; NULL: the program is unknown. */
const chat_template_t *chat_template_of(const char *text);

#endif
