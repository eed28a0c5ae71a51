/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/conversation.h: conversations as token ids, and which of these are learned.
 *
 * A chat template says what stands before and after each message: a program, which the folders of published
 * models have in chat_template.jinja or tokenizer_config.json, and model/jinja runs. Some have names here
 * (templates.c).
 *
 * The tokens of a template are its own: a message that holds "<|im_end|>" has ten characters there, not a
 * token, so nobody ends a turn from within. What stands between two tokens of the template is encoded as one
 * text (model_ids_encode), as transformers does.
 *
 * An answer begins where text is generated: after what the template adds for add_generation_prompt, if that
 * stands before it, else with its own first character. It ends with its last character, or the token that
 * stands after it, white space apart. An answer with calls of tools is all that the template writes for the
 * message, up to its last token. A template with {% generation %} blocks says itself what is learned. */
#ifndef MODEL_CHAT_CONVERSATION_H
#define MODEL_CHAT_CONVERSATION_H

#include <jansson.h>

#include "model/tokenizer/tokenizer.h"

/* Ids that grow; zeros to begin with, and the caller frees both arrays. */
typedef struct {
    model_token_t *id;
    unsigned char *learned; /* 1: a target of training */
    size_t count, room;
} model_ids_t;

/* Appends ids [count], all learned or none. NO_MEMORY. */
gyre_status_t model_ids_add(model_ids_t *ids, const model_token_t *id, size_t count, int learned);

/* Errors below are not logged: the caller knows in which line of which file they are. */

/* "chatml, llama3, ...": for messages and helps. */
const char *model_chat_names(void);
/* 1 if `name` is one of them. */
int model_chat_known(const char *name);

typedef struct model_chat model_chat_t;

/* The template `name` on a tokenizer, which must outlive it. NULL: that of chat_template.jinja or
 * tokenizer_config.json in the folder of the tokenizer's file, which `spec` (model_tokenizer_open) names.
 * `date` (YYYY-MM-DD, must outlive it) is what templates get that ask for the day; NULL: they get none.
 * NOT_FOUND: there is no template; INVALID: it does what model/jinja does not, or the tokenizer lacks one of
 * its tokens; FORMAT, IO, NO_MEMORY. */
gyre_status_t model_chat_open(const model_tokenizer_t *tokenizer, const char *spec, const char *name,
                              const char *date, model_chat_t **out);
void model_chat_destroy(model_chat_t *chat);

/* Appends a conversation: a list of objects with "role" and "content", and what else the template looks at;
 * keys that are null are absent. A content is a text, or a list of parts that are texts. An answer may have
 * "tool_calls", as OpenAI's format or `transformers` have them, and no content. `tools`: what may be called,
 * a list; NULL: nothing. Learned are the answers, each with the token that ends it, but those with a "weight"
 * of 0. INVALID: the template refuses it, or does not write its roles, tools or calls, or where these end is
 * not known, or a message has what is not read. FORMAT: a message or a call is none. NO_MEMORY. Threads may
 * share a chat, not an encoder. */
gyre_status_t model_chat_encode(const model_chat_t *chat, model_encoder_t *encoder, const json_t *messages,
                                const json_t *tools, model_ids_t *out);

/* Appends a text. Learned is what begins at byte `begin` (from `bytes` on: nothing is). The text is encoded
 * as one, if the ids then begin with those of text [begin] alone, which a prompt has. Else a token reaches
 * over that place: text [begin] is encoded alone, and what follows as its continuation. NO_MEMORY. */
gyre_status_t model_ids_encode(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                               size_t begin, model_ids_t *out);

#endif
