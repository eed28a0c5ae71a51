/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/calls.c: messages with calls of tools, as a template takes them. Data has them as OpenAI's
 * format does: "arguments" is a text of JSON, and "content" is absent or null. Most templates want an object
 * as arguments, some the text, and some a content of one kind. */
#include "base/error.h"
#include "base/text/json.h"
#include "model/chat/internal.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a conversation");
}

const json_t *chat_calls(const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    return json_is_null(calls) ? NULL : calls;
}

const char *chat_role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role ? role : "";
}

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

static gyre_status_t shape_message(json_t *message, const chat_shape_t *shape)
{
    const json_t *calls = chat_calls(message);
    const char *key;
    json_t *value;
    void *next;
    gyre_status_t status = GYRE_OK;
    json_object_foreach_safe(
        message, next, key, value) if (json_is_null(value)) /* as if absent: tables of data fill up with it */
        json_object_del(message, key);
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        function = function ? function : call; /* some data has it without that level */
        if (!json_is_string(json_object_get(function, "name")))
            return gyre_fail_quiet(GYRE_ERR_FORMAT, "a call has no \"name\" of a function");
        status = shape->texts ? GYRE_OK : read_arguments(function);
    }
    if (status == GYRE_OK && calls && !json_object_get(message, "content") && shape->bare != CHAT_ABSENT &&
        json_object_set_new(message, "content", shape->bare == CHAT_NULL ? json_null() : json_string("")) !=
            0)
        status = no_memory();
    return status;
}

gyre_status_t chat_shaped(const json_t *messages, const chat_shape_t *shape, json_t **out)
{
    json_t *made = json_deep_copy(messages);
    gyre_status_t status = made ? GYRE_OK : no_memory();
    for (size_t i = 0; status == GYRE_OK && i < json_array_size(made); i++) {
        status = shape_message(json_array_get(made, i), shape);
        if (status == GYRE_ERR_FORMAT)
            status = gyre_fail_quiet(status, "message %zu: %s", i + 1, gyre_last_error());
    }
    if (status == GYRE_OK)
        *out = made;
    else
        json_decref(made);
    return status;
}
