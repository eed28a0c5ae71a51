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
#include "base/utf8.h"
#include "tools/gyre-tokenize/tokenize.h"

#define PREFERENCES                                                                             \
    "preferences are not learned: write what is learned as \"messages\", or as \"prompt\" and " \
    "\"completion\" "                                                                           \
    "alone"

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

/* NULL: the key is absent, or null. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* ---- conversations ------------------------------------------------------------------------------------- */

/* A message of ShareGPT's form, {"from": "human", "value": "..."}, gets a role and a content. */
static gyre_status_t rename_members(json_t *message)
{
    static const char *const roles[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    json_t *from = member(message, "from"), *value = member(message, "value");
    if (!json_is_string(from) || member(message, "role"))
        return GYRE_OK;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(json_string_value(from), roles[i][0]) == 0 && json_string_set(from, roles[i][1]) != 0)
            return no_memory();
    return json_object_set(message, "role", from) == 0 &&
                   (!value || json_object_set(message, "content", value) == 0)
               ? GYRE_OK
               : no_memory();
}

/* What others read next to messages, and templates would not get. */
static gyre_status_t check_neighbours(const json_t *object, const json_t *list)
{
    static const struct {
        const char *key, *instead;
    } unread[] = {{"functions", "write \"tools\", as docs/fine-tuning.md says"},
                  {"chat_template_kwargs", "set in the template what it names"},
                  {"system", "write it as the first message, of the role system"}};
    const char *first = json_string_value(json_object_get(json_array_get(list, 0), "role"));
    const size_t count = sizeof unread / sizeof *unread - (first && strcmp(first, "system") == 0);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = member(object, unread[i].key);
        if (value && (json_array_size(value) || json_object_size(value) || json_string_length(value)))
            return gyre_fail_quiet(GYRE_ERR_INVALID, "\"%s\" next to messages is not read: %s", unread[i].key,
                                   unread[i].instead);
    }
    return GYRE_OK;
}

/* *tools, which the caller releases: NULL, or what the conversation may call: a list, or the JSON text of
 * one. */
static gyre_status_t read_tools(const json_t *object, json_t **tools)
{
    json_t *given = member(object, "tools");
    json_error_t error;
    int lacks = 0;
    if (!given || (json_is_string(given) && json_string_length(given) == 0))
        return GYRE_OK;
    *tools = json_is_string(given) ? base_json_text_with(json_string_value(given), json_string_length(given),
                                                         JSON_ALLOW_NUL, &error, &lacks)
                                   : json_incref(given);
    if (lacks)
        return no_memory();
    int fine = json_is_array(*tools);
    for (size_t i = 0; i < json_array_size(*tools); i++)
        fine &= json_is_object(json_array_get(*tools, i));
    return fine ? GYRE_OK : gyre_fail_quiet(GYRE_ERR_FORMAT, "\"tools\" is not a list of objects");
}

/* Changes the list. */
static gyre_status_t add_conversation(tokenize_coder_t *coder, const json_t *object, json_t *list,
                                      tokenize_documents_t *out)
{
    if (json_array_size(list) == 0)
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "\"messages\" is not a list of one message or more");
    const model_chat_t *chat = NULL;
    json_t *tools = NULL;
    gyre_status_t status = tokenize_coder_chat(coder, &chat);
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(list); i++)
        status = rename_members(json_array_get(list, i));
    if (status == GYRE_OK)
        status = check_neighbours(object, list);
    if (status == GYRE_OK)
        status = read_tools(object, &tools);
    if (status == GYRE_OK)
        status = model_chat_encode(chat, coder->encoder, list, tools, &out->ids);
    json_decref(tools);
    return status == GYRE_OK && coder->options->eot ? add_eot(coder, 0, out) : status;
}

/* ---- prompts and completions --------------------------------------------------------------------------- */

/* What is learned of a prompt is its completion, and that it ends there. */
static gyre_status_t add_pair(tokenize_coder_t *coder, const json_t *prompt, const json_t *completion,
                              tokenize_documents_t *out)
{
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

/* A prompt and a completion that are messages, as TRL has them: answers of the prompt are not learned. */
static gyre_status_t add_two_lists(tokenize_coder_t *coder, const json_t *object, json_t *prompt,
                                   json_t *completion, tokenize_documents_t *out)
{
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        json_t *message = json_array_get(prompt, i);
        const gyre_status_t status = rename_members(message);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (status != GYRE_OK)
            return status;
        if (role && strcmp(role, "assistant") == 0 &&
            json_object_set_new(message, "weight", json_integer(0)) != 0)
            return no_memory();
    }
    return json_array_extend(prompt, completion) == 0 ? add_conversation(coder, object, prompt, out)
                                                      : no_memory();
}

static gyre_status_t add_prompt(tokenize_coder_t *coder, const json_t *object, json_t *prompt,
                                json_t *completion, tokenize_documents_t *out)
{
    if (json_is_boolean(json_object_get(object, "label")))
        return gyre_fail_quiet(GYRE_ERR_INVALID, "\"label\" next to \"completion\": " PREFERENCES);
    if (json_is_array(prompt) && json_is_array(completion) &&
        json_array_size(prompt) + json_array_size(completion) > 0)
        return add_two_lists(coder, object, prompt, completion, out);
    if (json_is_string(prompt) && json_is_string(completion))
        return add_pair(coder, prompt, completion, out);
    return gyre_fail_quiet(GYRE_ERR_FORMAT,
                           "\"prompt\" and \"completion\" must be texts, or both lists of messages");
}

/* ---- lines --------------------------------------------------------------------------------------------- */

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

/* An object in which nothing is read: the reason, where its keys say one. text: what is at its text's key. */
static gyre_status_t refuse(const json_t *object, const char *key, const json_t *text)
{
    static const struct {
        const char *key, *why;
    } others[] = {{"chosen", PREFERENCES},
                  {"rejected", PREFERENCES},
                  {"preferred_output", PREFERENCES},
                  {"instruction", "write a conversation of it, as docs/fine-tuning.md says"},
                  {"conversations", "it is not a list of one message or more"}};
    for (size_t i = 0; !key && i < sizeof others / sizeof *others; i++)
        if (member(object, others[i].key))
            return gyre_fail_quiet(GYRE_ERR_INVALID, "\"%s\" is not read: %s", others[i].key, others[i].why);
    if (text) {
        enum { MOST = 60 };
        char *there = json_dumps(text, JSON_ENCODE_ANY | JSON_COMPACT);
        const char *shown = there ? there : "another value";
        const size_t all = strlen(shown),
                     bytes = all > MOST ? base_utf8_span((const unsigned char *)shown, MOST) : all;
        const gyre_status_t status =
            gyre_fail_quiet(GYRE_ERR_FORMAT, "\"%s\" is %.*s%s, not a text: --key names another key",
                            key ? key : "text", (int)bytes, shown, bytes < all ? "..." : "");
        free(there);
        return status;
    }
    if (key)
        return gyre_fail_quiet(GYRE_ERR_FORMAT,
                               "the object has no text under the key '%s': name it with --key", key);
    return gyre_fail_quiet(GYRE_ERR_FORMAT,
                           "the object has neither \"messages\", nor \"prompt\" and \"completion\", nor a "
                           "\"text\": name the key of its text with --key");
}

static gyre_status_t add_object(tokenize_coder_t *coder, const json_t *object, tokenize_documents_t *out)
{
    const char *key = coder->options->key;
    json_t *messages = member(object, "messages"), *prompt = member(object, "prompt"),
           *completion = member(object, "completion");
    const json_t *text = json_object_get(object, key ? key : "text");
    const size_t first = out->ids.count;
    gyre_status_t status;
    if (!messages && json_array_size(json_object_get(object, "conversations")) > 0)
        messages = json_object_get(object, "conversations");
    if (!key && messages)
        status = add_conversation(coder, object, messages, out);
    else if (!key && prompt && completion)
        status = add_prompt(coder, object, prompt, completion, out);
    else if (json_is_string(text))
        return tokenize_text(coder, json_string_value(text), json_string_length(text), out);
    else
        return refuse(object, key, text);
    return status == GYRE_OK ? keep_or_drop(coder, first, out) : status;
}

gyre_status_t tokenize_line(tokenize_coder_t *coder, const tokenize_line_t *line, tokenize_documents_t *out)
{
    json_error_t error;
    int lacks;
    json_t *object = base_json_text_with(line->text, line->length, JSON_ALLOW_NUL, &error, &lacks);
    const size_t blank = strspn(line->text, " \t"); /* it is not all of the line */
    const int list = json_is_array(object) || (!object && blank < line->length && line->text[blank] == '[');
    gyre_status_t status =
        lacks     ? gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for its JSON")
        : list    ? gyre_fail_quiet(GYRE_ERR_FORMAT, "a list, but each line is an object of its own: "
                                                        "jq -c '.[]' makes lines of a list")
        : !object ? gyre_fail_quiet(GYRE_ERR_FORMAT, "not valid JSON: %s", error.text)
        : json_is_object(object) ? add_object(coder, object, out)
                                 : gyre_fail_quiet(GYRE_ERR_FORMAT, "the line is not an object");
    json_decref(object);
    return status == GYRE_OK ? GYRE_OK : at_line(line, status);
}
