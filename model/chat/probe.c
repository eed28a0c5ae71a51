/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/probe.c: runs small conversations to find what a template's program does: what it begins an
 * answer with, how it ends one, and whether and how it takes tools and calls of them. */
#include <string.h>

#include "base/error.h"
#include "model/chat/internal.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a chat template");
}

static int set_flag(model_chat_t *chat, const char *name, json_t *value)
{
    return json_object_set_new(chat->variables, name, value) == 0;
}

/* ---- small conversations ------------------------------------------------------------------------------- */

/* In arguments of a call: what the output must have. */
static const char mark[] = "zqvalue";

static json_t *tool_list(void)
{
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:s}},s:[s]}}}]", "type", "function", "function",
                     "name", "zqname", "description", "x", "parameters", "type", "object", "properties",
                     "zqkey", "type", "string", "description", "x", "required", "zqkey");
}

/* An answer that is a call. Mistral wants an identifier of nine characters. */
static json_t *call_message(void)
{
    return json_pack("{s:s,s:[{s:s,s:s,s:{s:s,s:s}}]}", "role", "assistant", "tool_calls", "id", "call00001",
                     "type", "function", "function", "name", "zqname", "arguments",
                     "{\"zqkey\": \"zqvalue\"}");
}

/* Of a letter: s, u, a: a role; a capital letter: with a content of parts; c: an answer that is a call. */
static json_t *message_of(char letter)
{
    const char *role = letter == 's' ? "system" : letter == 'u' || letter == 'U' ? "user" : "assistant";
    if (letter == 'c')
        return call_message();
    return letter == 'U' || letter == 'A'
               ? json_pack("{s:s,s:[{s:s,s:s}]}", "role", role, "content", "type", "text", "text", "x")
               : json_pack("{s:s,s:s}", "role", role, "content", "x");
}

/* Runs a conversation of these letters, in the chat's shape. Some programs refuse some conversations: then
 * *out is empty. */
static gyre_status_t probe(model_chat_t *chat, const char *roles, const json_t *tools, jinja_output_t *out)
{
    json_t *messages = json_array(), *shaped = NULL;
    int fine = messages != NULL;
    for (; fine && *roles; roles++)
        fine = json_array_append_new(messages, message_of(*roles)) == 0;
    *out = (jinja_output_t){0};
    gyre_status_t status = fine ? chat_shaped(messages, &chat->shape, &shaped) : no_memory();
    if (status == GYRE_OK)
        status = chat_render(chat, shaped, tools, out);
    json_decref(shaped);
    json_decref(messages);
    if (status == GYRE_ERR_INVALID)
        status = GYRE_OK;
    return status == GYRE_OK ? chat_own_of_output(chat, out) : status;
}

/* It takes parts if it writes their texts, and nothing else of them. Some write nothing of a list, or all. */
static gyre_status_t find_parts(model_chat_t *chat)
{
    jinja_output_t out;
    chat->shape.parts = 1;
    const gyre_status_t status = probe(chat, "UA", NULL, &out);
    size_t texts = 0, others = 0;
    for (size_t at = 0; at < out.bytes; at++) {
        texts += out.from[at] > 0 && out.text[at] == 'x';
        others += out.from[at] > 0 && out.text[at] != 'x';
    }
    chat->shape.parts = texts == 2 && others == 0;
    jinja_output_free(&out);
    return status;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

/* What a question is followed by more with add_generation_prompt than without. */
static gyre_status_t find_prompt(model_chat_t *chat, char **prompt)
{
    jinja_output_t with = {0}, without = {0};
    if (!set_flag(chat, "add_generation_prompt", json_true()))
        return no_memory();
    gyre_status_t status = probe(chat, "u", NULL, &with);
    if (!set_flag(chat, "add_generation_prompt", json_false()))
        status = no_memory();
    if (status == GYRE_OK)
        status = probe(chat, "u", NULL, &without);
    size_t same = 0;
    while (same < with.bytes && same < without.bytes && with.text[same] == without.text[same])
        same++;
    if (status == GYRE_OK && without.bytes > 0 && same < with.bytes &&
        !(*prompt = strndup(with.text + same, with.bytes - same)))
        status = no_memory();
    jinja_output_free(&with);
    jinja_output_free(&without);
    return status;
}

/* What the program writes in the turn of an answer around it. */
static gyre_status_t find_turn(model_chat_t *chat)
{
    enum { ANSWER = 2 };
    jinja_output_t out;
    gyre_status_t status = probe(chat, "ua", NULL, &out);
    size_t first = 0, at = 0;
    chat->ends = 1;
    while (first < out.bytes && out.from[first] != ANSWER)
        first++;
    if (status == GYRE_OK && first < out.bytes && out.turn[first] == ANSWER) {
        for (at = first; at > 0 && out.from[at - 1] == 0 && out.turn[at - 1] == ANSWER;)
            at--;
        if (!(chat->header = strndup(out.text + at, first - at)))
            status = no_memory();
        chat->ends = 0;
        for (at = first + 1; at < out.bytes && out.turn[at] == ANSWER; at++)
            chat->ends |= chat_symbol_at(chat, out.text + at, out.bytes - at, out.from + at) != NULL;
    }
    jinja_output_free(&out);
    return status;
}

/* ---- tools --------------------------------------------------------------------------------------------- */

static int same_text(const jinja_output_t *a, const jinja_output_t *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->text, b->text, a->bytes) == 0);
}

/* A program that does not write them writes the same without. One that refuses this list may take others, and
 * some write them in the message of the system, if there is one. */
static gyre_status_t find_tools(model_chat_t *chat, const json_t *tools)
{
    static const char *const roles[] = {"u", "su"};
    gyre_status_t status = GYRE_OK;
    int same = 0;
    for (size_t i = 0; status == GYRE_OK && i < sizeof roles / sizeof *roles; i++) {
        jinja_output_t with, without = {0};
        status = probe(chat, roles[i], tools, &with);
        if (status == GYRE_OK)
            status = probe(chat, roles[i], NULL, &without);
        chat->takes_tools |= !same_text(&with, &without);
        same |= without.bytes > 0;
        jinja_output_free(&with);
        jinja_output_free(&without);
    }
    chat->takes_tools |= !same; /* it refuses these conversations */
    return status;
}

static int writes_mark(const jinja_output_t *out)
{
    const size_t n = sizeof mark - 1;
    for (size_t at = 0; at + n <= out->bytes; at++)
        if (out->from[at] > 0 && memcmp(out->text + at, mark, n) == 0)
            return 1;
    return 0;
}

/* The first shape of calls that the program writes. */
static gyre_status_t find_calls(model_chat_t *chat, const json_t *tools)
{
    gyre_status_t status = GYRE_OK;
    for (int i = 0; status == GYRE_OK && !chat->takes_calls && i < 6; i++) {
        jinja_output_t out;
        chat->shape.texts = i / 3;
        chat->shape.bare = i % 3;
        status = probe(chat, "uc", tools, &out);
        chat->takes_calls = writes_mark(&out);
        if (status == GYRE_OK && !out.text && !chat->why && !(chat->why = strdup(gyre_last_error())))
            status = no_memory();
        jinja_output_free(&out);
    }
    if (status == GYRE_OK && chat->takes_calls) {
        jinja_output_t out;
        const chat_shape_t shape = chat->shape;
        chat->shape.bare = CHAT_EMPTY;
        status = probe(chat, "uc", tools, &out);
        chat->shape = shape;
        chat->shape.empty = writes_mark(&out);
        jinja_output_free(&out);
    }
    return status;
}

gyre_status_t chat_probe(model_chat_t *chat)
{
    jinja_output_t out;
    if (!set_flag(chat, "tools", json_null()) || !set_flag(chat, "documents", json_null()) ||
        !set_flag(chat, "enable_thinking", json_false()))
        return no_memory();
    gyre_status_t status = find_prompt(chat, &chat->prompt[0]);
    json_object_del(chat->variables, "enable_thinking");
    if (status == GYRE_OK)
        status = find_prompt(chat, &chat->prompt[1]);
    if (status == GYRE_OK) {
        status = probe(chat, "sua", NULL, &out);
        jinja_output_free(&out);
    }
    if (status == GYRE_OK)
        status = find_parts(chat);
    if (status == GYRE_OK)
        status = find_turn(chat);
    if (status != GYRE_OK || chat->named)
        return status; /* those with a name are for plain conversations */
    json_t *tools = tool_list();
    status = tools ? find_tools(chat, tools) : no_memory();
    if (status == GYRE_OK)
        status = find_calls(chat, tools);
    json_decref(tools);
    return status;
}
