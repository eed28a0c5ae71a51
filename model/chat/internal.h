/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/internal.h: what the parts of chats share (this folder only). */
#ifndef MODEL_CHAT_INTERNAL_H
#define MODEL_CHAT_INTERNAL_H

#include "model/chat/conversation.h"
#include "model/jinja/jinja.h"

/* Bytes [begin, end) of a text that are learned. */
typedef struct {
    size_t begin, end;
} chat_part_t;

/* Appends a text of which parts [parts], in their order, are learned; changes them. As model_ids_encode
 * where a token reaches over a part's beginning. One that reaches over its end is learned. NO_MEMORY. */
gyre_status_t chat_encode_parts(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                                chat_part_t *part, size_t parts, model_ids_t *out);

/* How a template takes messages. */
typedef struct {
    int parts; /* 1: contents of users and answers that are lists of parts, 0: it wants one text */
    /* those with calls of tools */
    int texts;                                        /* 1: arguments as data has them, 0: as an object */
    enum { CHAT_ABSENT, CHAT_NULL, CHAT_EMPTY } bare; /* the content, where data has none */
    int empty; /* 1: it writes calls next to a content of no characters; 0: that is as none */
} chat_shape_t;

enum { CHAT_PROMPTS = 2 };

/* The place of a message's own characters in the output. */
typedef struct {
    size_t begin, end;
    int own;    /* 1: in its turn; 0: others alone, such as the name of a call that its answer repeats */
    int shared; /* 1: its turn has characters of others, too */
    int calls;  /* 1: some are of its calls, in its turn or in none */
} chat_place_t;

struct model_chat {
    jinja_program_t *program;
    json_t *variables;
    const char *date;
    char *name;             /* for messages: a file, or --template NAME */
    int named;              /* 1: --template NAME */
    model_symbol_t *symbol; /* [symbols], of the tokenizer */
    size_t symbols;
    unsigned char begins[256]; /* 1: a symbol begins with this byte */
    size_t longest;            /* bytes of the longest symbol */
    model_token_t *own;        /* [owns]: symbols of the template, which messages do not give */
    size_t owns, own_room;

    /* What it does, as probe.c found. */

    /* what it adds for add_generation_prompt: without thoughts, where it knows these, and as it is */
    char *prompt[CHAT_PROMPTS];
    char *header; /* what it writes for an answer before its text; NULL: it is not known */
    int ends;     /* 1: it ends an answer with a token of its own; 0: the next turn does */
    int takes_tools, takes_calls;
    chat_shape_t shape;
    char *why; /* the program's error for calls; NULL: it has none */

    model_chat_t *with_tools; /* the folder's other program, for conversations with tools; NULL: this one */
    char *refused;            /* why that is missing; NULL: there is none */
};

/* conversation.c: the longest symbol at text[0 .. bytes), all of which is the program's own; NULL: there is
 * none. */
const model_symbol_t *chat_symbol_at(const model_chat_t *chat, const char *text, size_t bytes,
                                     const uint32_t *from);
/* Adds the symbols that the program wrote to its own. NO_MEMORY. */
gyre_status_t chat_own_of_output(model_chat_t *chat, const jinja_output_t *out);
/* As jinja_run. */
gyre_status_t chat_render(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                          jinja_output_t *out);

/* probe.c: runs small conversations to find what the program does. NO_MEMORY. */
gyre_status_t chat_probe(model_chat_t *chat);

/* learned.c: fills `place` [messages + 2], zeros: of the program, of each message, of the tools. Takes
 * JINJA_CALL away. */
void chat_find_places(jinja_output_t *out, chat_place_t *place);
/* Marks in out->generated what is learned. INVALID: where calls end is not known; NO_MEMORY. */
gyre_status_t chat_mark_answers(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                                chat_place_t *place, jinja_output_t *out);
/* Takes the turns of messages with a weight of 0 from blocks that say themselves what is learned. */
void chat_unmark(const json_t *messages, jinja_output_t *out);

/* messages.c: FORMAT, INVALID: one of them is no message, or has what is not read. */
gyre_status_t chat_check(const json_t *messages);
/* "tool_calls" of a message; NULL: it has none. */
const json_t *chat_calls(const json_t *message);
/* Message i's role; "": it has none. */
const char *chat_role_of(const json_t *messages, size_t i);
/* A copy of messages in that shape, without keys that are null. FORMAT: a call is none; NO_MEMORY. */
gyre_status_t chat_shaped(const json_t *messages, const chat_shape_t *shape, json_t **out);

/* folder.c: the program of a template that the folder of the tokenizer `spec` has, and its variables: names
 * of special tokens. *program is NUL-terminated, and the caller frees it; *path [PATH_MAX] is its file.
 * `tools`: the one that folders have for conversations with tools, where it is another one; NOT_FOUND. */
gyre_status_t chat_program_of_folder(const char *spec, int tools, char **program, char *path);
/* Adds variables of the folder to an object. FORMAT, IO, NO_MEMORY. */
gyre_status_t chat_variables_of_folder(const char *spec, json_t *variables);

#endif
