/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize/lines.c: a line of JSON becomes a document: a text, a prompt with its completion, or a
 * conversation. Errors are not logged: the main thread does. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/text/json.h"
#include "tools/gyre-tokenize/tokenize.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the tokens of a batch");
}

/* An error of a line: where it is, and the last error's text. */
static gyre_status_t at_line(const tokenize_line_t *line, gyre_status_t status)
{
    char why[400];
    snprintf(why, sizeof why, "%s", gyre_last_error());
    return gyre_fail_quiet(status, "%s:%" PRIu64 ": %s", line->path, line->number, why);
}

static gyre_status_t add_eot(tokenize_coder_t *coder, int learned, tokenize_documents_t *out)
{
    int64_t eot = model_tokenizer_eot(coder->tokenizer);
    const model_token_t id = (model_token_t)eot;
    return eot < 0 ? GYRE_OK : model_ids_add(&out->ids, &id, 1, learned);
}

/* The ids since `first` are a document. */
static gyre_status_t end_document(tokenize_documents_t *out)
{
    if (!base_grow(&out->end, &out->room, out->count, 1, sizeof *out->end))
        return no_memory();
    out->end[out->count++] = out->ids.count;
    return GYRE_OK;
}

gyre_status_t tokenize_text(tokenize_coder_t *coder, const char *text, size_t bytes,
                            tokenize_documents_t *out)
{
    gyre_status_t status = model_ids_encode(coder->encoder, MODEL_AFTER_NOTHING, text, bytes, 0, &out->ids);
    if (status == GYRE_OK && coder->options->eot)
        status = add_eot(coder, 1, out);
    return status == GYRE_OK ? end_document(out) : status;
}

/* What is learned of a prompt is its completion, and that it ends there. */
static gyre_status_t add_pair(tokenize_coder_t *coder, const json_t *prompt, const json_t *completion,
                              tokenize_documents_t *out)
{
    if (!json_is_string(prompt) || !json_is_string(completion))
        return gyre_fail_quiet(GYRE_ERR_FORMAT,
                               "\"prompt\" and \"completion\" must be texts; a conversation stands under "
                               "\"messages\"");
    const size_t begin = json_string_length(prompt), bytes = begin + json_string_length(completion);
    char *text = malloc(bytes + 1);
    if (!text)
        return no_memory();
    memcpy(text, json_string_value(prompt), begin);
    memcpy(text + begin, json_string_value(completion), bytes - begin);
    gyre_status_t status =
        model_ids_encode(coder->encoder, MODEL_AFTER_NOTHING, text, bytes, begin, &out->ids);
    free(text);
    return status == GYRE_OK ? add_eot(coder, 1, out) : status;
}

/* NULL: the key is absent, or null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* `tools`: NULL, or what the conversation may call. */
static gyre_status_t add_conversation(tokenize_coder_t *coder, const json_t *list, const json_t *tools,
                                      tokenize_documents_t *out)
{
    for (size_t i = 0; i < json_array_size(tools) || (tools && !json_is_array(tools)); i++)
        if (!json_is_object(json_array_get(tools, i)))
            return gyre_fail_quiet(GYRE_ERR_FORMAT, "\"tools\" is not a list of objects");
    if (json_array_size(list) == 0)
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "\"messages\" is not a list of one message or more");
    const model_chat_t *chat = NULL;
    gyre_status_t status = tokenize_coder_chat(coder, &chat);
    if (status == GYRE_OK)
        status = model_chat_encode(chat, coder->encoder, list, tools, &out->ids);
    return status == GYRE_OK && coder->options->eot ? add_eot(coder, 0, out) : status;
}

/* The ids since `first` become a document, or are left out and counted. */
static gyre_status_t keep_or_drop(const tokenize_coder_t *coder, size_t first, tokenize_documents_t *out)
{
    size_t count = out->ids.count - first;
    int unlearned = coder->options->learn == TOKENIZE_LEARN_ANSWERS &&
                    (count < 2 || !memchr(out->ids.learned + first + 1, 1, count - 1));
    int longer = count > coder->options->context;
    if (coder->options->learn == TOKENIZE_LEARN_ALL)
        memset(out->ids.learned + first, 1, count);
    if (!unlearned && !longer)
        return end_document(out);
    out->unlearned += (uint64_t)unlearned;
    out->longer += (uint64_t)(longer && !unlearned);
    out->ids.count = first;
    return GYRE_OK;
}

/* What the object has at the place of its text. */
static gyre_status_t no_text(const tokenize_options_t *options, const json_t *value)
{
    const char *key = options->key ? options->key : "text";
    char *there = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    gyre_status_t status =
        there ? gyre_fail_quiet(GYRE_ERR_FORMAT, "\"%s\" is %.60s, not a text: --key names another key", key,
                                there)
        : options->key
            ? gyre_fail_quiet(GYRE_ERR_FORMAT,
                              "the object has no text under the key '%s': name it with --key", options->key)
            : gyre_fail_quiet(GYRE_ERR_FORMAT,
                              "the object has neither \"messages\", nor \"prompt\" and \"completion\", nor a "
                              "\"text\": name the key of its text with --key");
    free(there);
    return status;
}

static gyre_status_t add_object(tokenize_coder_t *coder, const json_t *object, tokenize_documents_t *out)
{
    const tokenize_options_t *options = coder->options;
    const json_t *messages = member(object, "messages"), *prompt = member(object, "prompt"),
                 *completion = member(object, "completion");
    const json_t *text = json_object_get(object, options->key ? options->key : "text");
    size_t first = out->ids.count;
    gyre_status_t status;
    if (!options->key && messages)
        status = add_conversation(coder, messages, member(object, "tools"), out);
    else if (!options->key && prompt && completion)
        status = add_pair(coder, prompt, completion, out);
    else if (json_is_string(text))
        status = tokenize_text(coder, json_string_value(text), json_string_length(text), out);
    else
        return no_text(options, text);
    int talks = !options->key && (messages || (prompt && completion));
    return status == GYRE_OK && talks ? keep_or_drop(coder, first, out) : status;
}

gyre_status_t tokenize_line(tokenize_coder_t *coder, const tokenize_line_t *line, tokenize_documents_t *out)
{
    json_error_t error;
    int lacks;
    json_t *object = base_json_text_with(line->text, line->length, JSON_ALLOW_NUL, &error, &lacks);
    const size_t blank = strspn(line->text, " \t"); /* it is not all of the line */
    const char *list = blank < line->length && line->text[blank] == '['
                           ? ": a list has to be written with one object in each line, as jq -c '.[]' does"
                           : "";
    gyre_status_t status =
        lacks                    ? gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for its JSON")
        : !object                ? gyre_fail_quiet(GYRE_ERR_FORMAT, "not valid JSON: %s%s", error.text, list)
        : json_is_object(object) ? add_object(coder, object, out)
                                 : gyre_fail_quiet(GYRE_ERR_FORMAT, "the line is not an object%s", list);
    json_decref(object);
    return status == GYRE_OK ? GYRE_OK : at_line(line, status);
}
