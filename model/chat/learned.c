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

void chat_find_places(jinja_output_t *out, chat_place_t *place)
{
    for (size_t at = 0; at < out->bytes; at++) {
        const uint32_t call = out->from[at] & JINJA_CALL, turn = out->turn[at];
        chat_place_t *of = &place[out->from[at] ^= call];
        const int own = turn == out->from[at];
        of->calls |= call && (own || turn == 0);
        place[turn].shared |= out->from[at] > 0 && !own;
        if (own > of->own)
            *of = (chat_place_t){.own = 1, .shared = of->shared, .calls = of->calls};
        if (own < of->own)
            continue;
        of->begin = of->end ? of->begin : at;
        of->end = at + 1;
    }
}

/* The conversation without the results that follow a call, or without all that follows. NULL: no memory. */
static json_t *without_results(const json_t *messages, uint32_t message, int all)
{
    json_t *list = json_array();
    int results = 1;
    for (uint32_t i = 0; list && i < json_array_size(messages); i++) {
        results &= i < message || strcmp(chat_role_of(messages, i), "tool") == 0;
        if (i >= message && (all || results))
            continue;
        if (json_array_append(list, json_array_get(messages, i)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static size_t next_of_turn(const jinja_output_t *out, uint32_t message, size_t at)
{
    while (at < out->bytes && out->turn[at] != message)
        at++;
    return at;
}

/* How far the turn of a message is the same in `out` and in `other`, of a shorter conversation. 0: the
 * message goes on there. */
static size_t same_turn(const jinja_output_t *out, const jinja_output_t *other, uint32_t message)
{
    size_t most = 0, at = next_of_turn(out, message, 0), there = next_of_turn(other, message, 0);
    while (at < out->bytes && there < other->bytes && out->text[at] == other->text[there]) {
        most = at + 1;
        at = next_of_turn(out, message, at + 1);
        there = next_of_turn(other, message, there + 1);
    }
    for (; there < other->bytes; there++)
        if (other->turn[there] == message && (other->from[there] & ~JINJA_CALL) == message)
            return 0;
    return most;
}

/* A turn that goes on with the results of its calls, as Gemma 4's does, ends where it ends without these.
 * Programs look at the rest of the conversation for what they write of thoughts, so it stays. If they refuse
 * that, it goes, too. *most: bytes of the output up to there; 0: it is not known. */
static gyre_status_t find_end(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                              uint32_t message, const jinja_output_t *out, size_t *most)
{
    *most = 0;
    for (int all = 0; *most == 0 && all < 2; all++) {
        jinja_output_t other = {0};
        json_t *fewer = without_results(messages, message, all);
        const gyre_status_t status = fewer ? chat_render(chat, fewer, tools, &other) : no_memory();
        if (status == GYRE_OK)
            *most = same_turn(out, &other, message);
        json_decref(fewer);
        jinja_output_free(&other);
        if (status == GYRE_ERR_NO_MEMORY)
            return status;
    }
    return GYRE_OK;
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

/* Where an answer with calls ends. *most: what follows of its turn ends there. INVALID: it is not known. */
static gyre_status_t end_calls(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                               uint32_t message, const jinja_output_t *out, chat_place_t *place, size_t *most)
{
    *most = out->bytes;
    if (!place->own)
        return gyre_fail_quiet(GYRE_ERR_INVALID,
                               "message %u: %s writes \"tool_calls\" outside of a loop over messages, so "
                               "where they end is not known",
                               message, chat->name);
    if (!place->shared)
        return GYRE_OK;
    const gyre_status_t status = find_end(chat, messages, tools, message, out, most);
    for (place->end = *most; place->end > place->begin && out->from[place->end - 1] != message;)
        place->end--;
    return status != GYRE_OK || place->end > place->begin
               ? status
               : gyre_fail_quiet(GYRE_ERR_INVALID,
                                 "message %u: where its \"tool_calls\" end is not known: %s writes their "
                                 "results in its turn, and another turn without them",
                                 message, chat->name);
}

gyre_status_t chat_mark_answers(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                                chat_place_t *place, jinja_output_t *out)
{
    for (uint32_t i = 1; i <= json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i - 1);
        if (strcmp(chat_role_of(messages, i - 1), "assistant") != 0 || !place[i].end ||
            is_weightless(message))
            continue;
        const int calls = chat_calls(message) != NULL;
        size_t most = 0;
        const gyre_status_t status =
            calls ? end_calls(chat, messages, tools, i, out, &place[i], &most) : GYRE_OK;
        if (status != GYRE_OK)
            return status;
        size_t begin = after_prompt(chat, out, place[i].begin);
        if (begin == SIZE_MAX)
            begin = calls ? turn_begin(chat, out, i, place[i].begin) : place[i].begin;
        const size_t end =
            calls ? turn_end(chat, out, i, place[i].end, most) : answer_end(chat, out, place[i].end);
        memset(out->generated + begin, 1, end - begin);
    }
    return GYRE_OK;
}
