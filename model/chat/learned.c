/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/learned.c: which bytes of what a template wrote are learned: the answers, and with calls their
 * frame. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "model/chat/internal.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a conversation");
}

/* Where the answer whose first character is at `at` begins: after the template's beginning of an answer, if
 * that stands between the message before and it. SIZE_MAX: it does not. */
static size_t after_prompt(const model_chat_t *chat, const jinja_output_t *out, size_t at)
{
    size_t from = at;
    while (from > 0 && out->from[from - 1] == 0)
        from--;
    for (int i = 0; i < CHAT_PROMPTS; i++) {
        const size_t n = chat->prompt[i] ? strlen(chat->prompt[i]) : 0;
        for (size_t end = at; n > 0 && end >= from + n; end--)
            if (memcmp(out->text + end - n, chat->prompt[i], n) == 0)
                return end;
    }
    return SIZE_MAX;
}

/* The end of the answer that has its last character before `at`: after the token that follows. */
static size_t answer_end(const model_chat_t *chat, const jinja_output_t *out, size_t at)
{
    size_t end = at;
    uint32_t c;
    for (size_t n; end < out->bytes && out->from[end] == 0; end += n) {
        n = base_utf8_decode((const unsigned char *)out->text + end, out->bytes - end, &c);
        if (n == 0 || !base_utf8_is_space(c))
            break;
    }
    const model_symbol_t *one = chat_symbol_at(chat, out->text + end, out->bytes - end, out->from + end);
    return one ? end + one->count : at;
}

/* What the template writes in the turn of a message before its first character, and after its last one: in
 * an answer with calls it belongs to these. */
static size_t turn_begin(const model_chat_t *chat, const jinja_output_t *out, uint32_t message, size_t at)
{
    const size_t header = chat->header ? strlen(chat->header) : 0;
    size_t from = at;
    while (from > 0 && out->from[from - 1] == 0 && out->turn[from - 1] == message)
        from--;
    return at - from >= header && memcmp(out->text + from, chat->header ? chat->header : "", header) == 0
               ? from + header
               : from;
}

static size_t turn_end(const model_chat_t *chat, const jinja_output_t *out, uint32_t message, size_t at,
                       size_t most)
{
    size_t end = at, last = at;
    while (end < most && out->from[end] == 0 && out->turn[end] == message)
        end++;
    for (size_t i = at; i < end;) {
        const model_symbol_t *one = chat_symbol_at(chat, out->text + i, end - i, out->from + i);
        i += one ? one->count : 1;
        last = one ? i : last;
    }
    return chat->ends && last > at ? last : answer_end(chat, out, end);
}

void chat_find_places(const jinja_output_t *out, chat_place_t *place)
{
    for (size_t at = 0; at < out->bytes; at++) {
        chat_place_t *of = &place[out->from[at]];
        const int own = out->turn[at] == out->from[at];
        place[out->turn[at]].shared |= out->from[at] > 0 && !own;
        if (own > of->own)
            *of = (chat_place_t){.own = 1, .shared = of->shared};
        if (own < of->own)
            continue;
        of->begin = of->end ? of->begin : at;
        of->end = at + 1;
    }
}

/* A turn that goes on with the results of its calls, as Gemma 4's does, ends where the conversation up to it
 * ends, too. *most: bytes of the output that are the same then. */
static gyre_status_t find_end(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                              uint32_t message, const jinja_output_t *out, size_t *most)
{
    jinja_output_t until = {0};
    json_t *first = json_array();
    gyre_status_t status = first ? GYRE_OK : no_memory();
    for (uint32_t i = 0; status == GYRE_OK && i < message; i++)
        if (json_array_append(first, json_array_get(messages, i)) != 0)
            status = no_memory();
    if (status == GYRE_OK)
        status = chat_render(chat, first, tools, &until);
    for (*most = 0; *most < until.bytes && *most < out->bytes && until.text[*most] == out->text[*most];)
        ++*most;
    *most = status == GYRE_OK ? *most : out->bytes;
    json_decref(first);
    jinja_output_free(&until);
    return status == GYRE_ERR_INVALID ? GYRE_OK : status;
}

/* 1: data says that the message is not learned, as OpenAI's format does. */
static int is_weightless(const json_t *message)
{
    const json_t *weight = json_object_get(message, "weight");
    return json_is_number(weight) && !(json_number_value(weight) > 0);
}

void chat_unmark(const json_t *messages, jinja_output_t *out)
{
    for (size_t at = 0; at < out->bytes; at++) {
        const uint32_t of = out->from[at] > 0 ? out->from[at] : out->turn[at];
        if (of > 0 && is_weightless(json_array_get(messages, of - 1)))
            out->generated[at] = 0;
    }
}

gyre_status_t chat_mark_answers(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                                chat_place_t *place, jinja_output_t *out)
{
    gyre_status_t status = GYRE_OK;
    for (uint32_t i = 1; status == GYRE_OK && i <= json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i - 1);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "assistant") != 0 || !place[i].end || is_weightless(message))
            continue;
        const int calls = chat_calls(message) != NULL;
        size_t most = out->bytes;
        if (calls && place[i].shared) {
            status = find_end(chat, messages, tools, i, out, &most);
            for (place[i].end = most; place[i].end > place[i].begin && out->from[place[i].end - 1] != i;)
                place[i].end--;
        }
        size_t begin = after_prompt(chat, out, place[i].begin);
        if (begin == SIZE_MAX)
            begin = calls ? turn_begin(chat, out, i, place[i].begin) : place[i].begin;
        const size_t end =
            calls ? turn_end(chat, out, i, place[i].end, most) : answer_end(chat, out, place[i].end);
        memset(out->generated + begin, 1, end - begin);
    }
    return status;
}
