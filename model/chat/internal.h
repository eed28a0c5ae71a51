/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/internal.h: what the parts of chats share (this folder only). */
#ifndef MODEL_CHAT_INTERNAL_H
#define MODEL_CHAT_INTERNAL_H

#include "model/chat/conversation.h"

/* Bytes [begin, end) of a text that are learned. */
typedef struct {
    size_t begin, end;
} chat_part_t;

/* Appends a text of which parts [parts], in their order, are learned; changes them. As model_ids_encode
 * where a token reaches over a part's beginning. One that reaches over its end is learned. NO_MEMORY. */
gyre_status_t chat_encode_parts(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                                chat_part_t *part, size_t parts, model_ids_t *out);

/* folder.c: the program of a template that the folder of the tokenizer `spec` has, and its variables: names
 * of special tokens. *program is NUL-terminated, and the caller frees it; *path [PATH_MAX] is its file. */
gyre_status_t chat_program_of_folder(const char *spec, char **program, char *path);
/* Adds variables of the folder to an object. FORMAT, IO, NO_MEMORY. */
gyre_status_t chat_variables_of_folder(const char *spec, json_t *variables);

#endif
