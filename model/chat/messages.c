/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/messages.c: whether messages are such, and messages as a template takes them. Data has them as
 * OpenAI's format does: the "arguments" of a call are a text of JSON, "content" next to calls is absent, null
 * or empty, and a content may be a list of parts. Most templates want an object as arguments, some the text;
 * most want a text as content, and next to calls some want it of one kind. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/chat/internal.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a conversation");
}

/* NULL: the key is absent, or null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const json_t *chat_calls(const json_t *message)
{
    const json_t *calls = member(message, "tool_calls");
    return json_is_array(calls) && json_array_size(calls) == 0 ? NULL : calls;
}

const char *chat_role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role ? role : "";
}

/* ---- what is a message --------------------------------------------------------------------------------- */

static int is_role(const char *name)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i], name) == 0)
            return 1;
    return 0;
}

/* A content that is no text. */
static gyre_status_t check_parts(const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && strcmp(type, "text") != 0)
            return gyre_fail_quiet(GYRE_ERR_INVALID,
                                   "a part of its \"content\" has the type '%.60s': only 'text' is read",
                                   type);
        if (!type || !json_is_string(json_object_get(part, "text")))
            return gyre_fail_quiet(GYRE_ERR_FORMAT,
                                   "a part of its \"content\" is not {\"type\": \"text\", \"text\": "
                                   "\"...\"}");
    }
    return json_is_array(parts) ? GYRE_OK : gyre_fail_quiet(GYRE_ERR_FORMAT, "its \"content\" is not a text");
}

static gyre_status_t check_message(const json_t *message)
{
    const json_t *content = member(message, "content"), *calls = chat_calls(message),
                 *weight = member(message, "weight");
    const json_int_t times = json_is_integer(weight) ? json_integer_value(weight) : -1;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role)
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "it has no \"role\"");
    if (member(message, "function_call") || strcmp(role, "function") == 0)
        return gyre_fail_quiet(GYRE_ERR_INVALID,
                               "\"function_call\" and the role 'function' are not read: write "
                               "\"tool_calls\" and 'tool', as docs/fine-tuning.md says");
    if (!is_role(role))
        return gyre_fail_quiet(
            GYRE_ERR_INVALID,
            "the role '%.60s' is unknown: there are system, developer, user, assistant and tool", role);
    if (calls && (strcmp(role, "assistant") != 0 || !json_is_array(calls)))
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "\"tool_calls\" are a list, and the assistant's");
    if (weight && times != 0 && (strcmp(role, "assistant") != 0 || times != 1))
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "\"weight\" is 0 or 1, and 1 is the assistant's alone");
    return json_is_string(content) || (!content && calls) ? GYRE_OK : check_parts(content);
}

/* An error of message i, from 0. */
static gyre_status_t of_message(size_t i, gyre_status_t status)
{
    return status == GYRE_OK || status == GYRE_ERR_NO_MEMORY
               ? status
               : gyre_fail_quiet(status, "message %zu: %s", i + 1, gyre_last_error());
}

gyre_status_t chat_check(const json_t *messages)
{
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(messages); i++)
        status = of_message(i, check_message(json_array_get(messages, i)));
    return status;
}

/* ---- what a template takes ----------------------------------------------------------------------------- */

/* Arguments that are a text become the object that it spells; none at all are an empty object. */
static gyre_status_t read_arguments(json_t *function)
{
    const json_t *given = json_object_get(function, "arguments");
    const size_t bytes = json_string_length(given);
    json_error_t error;
    int lacks = 0;
    json_t *made = NULL;
    if (json_is_object(given))
        return GYRE_OK;
    if (!given || json_is_null(given) || (json_is_string(given) && bytes == 0))
        lacks = !(made = json_object());
    else if (json_is_string(given))
        made = base_json_text_with(json_string_value(given), bytes, JSON_ALLOW_NUL, &error, &lacks);
    if (json_is_object(made))
        return json_object_set_new(function, "arguments", made) == 0 ? GYRE_OK : no_memory();
    json_decref(made);
    return lacks ? no_memory()
                 : gyre_fail_quiet(GYRE_ERR_FORMAT, "the \"arguments\" of a call are neither an object nor "
                                                    "the JSON text of one");
}

/* A list of parts becomes a text, a line feed between them, as servers (vLLM, llama.cpp) make it. */
static gyre_status_t join_parts(json_t *message, const json_t *parts)
{
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < json_array_size(parts); i++)
        bytes += 1 + json_string_length(json_object_get(json_array_get(parts, i), "text"));
    char *text = malloc(bytes + 1);
    for (size_t i = 0; text && i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (i > 0)
            text[at++] = '\n';
        memcpy(text + at, json_string_value(part), json_string_length(part));
        at += json_string_length(part);
    }
    json_t *made = text ? json_stringn(text, at) : NULL;
    free(text);
    return json_object_set_new(message, "content", made) == 0 ? GYRE_OK : no_memory();
}

/* As if absent: tables of data fill up with these. */
static void delete_nulls(json_t *object)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(object, key);
    }
}

/* Data and templates have three names for thoughts. As with transformers 5, those of any name are there for
 * templates that ask for the first or the second. */
static gyre_status_t name_thoughts(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *thoughts = NULL;
    for (size_t i = 0; !thoughts && i < sizeof names / sizeof *names; i++)
        thoughts = json_object_get(message, names[i]);
    for (size_t i = 0; thoughts && i < 2; i++)
        if (!json_object_get(message, names[i]) && json_object_set(message, names[i], thoughts) != 0)
            return no_memory();
    return GYRE_OK;
}

static gyre_status_t shape_content(json_t *message, const chat_shape_t *shape)
{
    const json_t *parts = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; i < json_array_size(parts); i++)
        delete_nulls(json_array_get(parts, i));
    if (json_is_array(parts) &&
        (!shape->parts || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)))
        return join_parts(message, parts);
    return GYRE_OK;
}

static gyre_status_t shape_message(json_t *message, const chat_shape_t *shape)
{
    const json_t *calls = chat_calls(message);
    delete_nulls(message);
    gyre_status_t status = name_thoughts(message);
    if (status == GYRE_OK)
        status = shape_content(message, shape);
    if (!calls) {
        json_object_del(message, "tool_calls");
        return status;
    }
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        function = function ? function : call; /* some data has it without that level */
        if (!json_is_string(json_object_get(function, "name")))
            return gyre_fail_quiet(GYRE_ERR_FORMAT, "a call has no \"name\" of a function");
        status = shape->texts ? GYRE_OK : read_arguments(function);
    }
    const json_t *content = json_object_get(message, "content");
    if (status != GYRE_OK ||
        (content && (shape->empty || !json_is_string(content) || json_string_length(content) > 0)))
        return status;
    if (shape->bare == CHAT_ABSENT)
        json_object_del(message, "content");
    else if (json_object_set_new(message, "content",
                                 shape->bare == CHAT_NULL ? json_null() : json_string("")) != 0)
        status = no_memory();
    return status;
}

gyre_status_t chat_shaped(const json_t *messages, const chat_shape_t *shape, json_t **out)
{
    json_t *made = json_deep_copy(messages);
    gyre_status_t status = made ? GYRE_OK : no_memory();
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(made); i++)
        status = of_message(i, shape_message(json_array_get(made, i), shape));
    if (status == GYRE_OK)
        *out = made;
    else
        json_decref(made);
    return status;
}
