/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/conversation.c: a template's program writes a conversation; what it wrote becomes ids, around
 * the tokens of the template; which of these are learned. */
#include "model/chat/conversation.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "model/chat/internal.h"
#include "model/chat/templates.h"

/* ---- names --------------------------------------------------------------------------------------------- */

const char *model_chat_names(void)
{
    /* test_chat.c compares */
    return "chatml, qwen2, qwen2.5, smollm2, llama3, llama3.1, qwen3, "
           "gemma, gemma3, deepseek, mistral, zephyr, plain";
}

static const chat_template_t *find_template(const char *name)
{
    for (size_t i = 0; i < chat_templates_count; i++)
        if (strcmp(chat_templates[i].name, name) == 0)
            return &chat_templates[i];
    return NULL;
}

int model_chat_known(const char *name)
{
    return find_template(name) != NULL;
}

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a chat template");
}

/* ---- tokens of a template ------------------------------------------------------------------------------ */

const model_symbol_t *chat_symbol_at(const model_chat_t *chat, const char *text, size_t bytes,
                                     const uint32_t *from)
{
    const model_symbol_t *longest = NULL;
    size_t own = 0;
    if (bytes == 0 || !chat->begins[(unsigned char)*text])
        return NULL;
    while (own < bytes && own < chat->longest && from[own] == 0)
        own++;
    for (const model_symbol_t *one = chat->symbol; one < chat->symbol + chat->symbols; one++)
        if (one->count <= own && (!longest || one->count > longest->count) &&
            memcmp(text, one->bytes, one->count) == 0)
            longest = one;
    return longest;
}

static gyre_status_t add_own(model_chat_t *chat, model_token_t id)
{
    for (size_t i = 0; i < chat->owns; i++)
        if (chat->own[i] == id)
            return GYRE_OK;
    if (!base_grow(&chat->own, &chat->own_room, chat->owns, 1, sizeof *chat->own))
        return no_memory();
    chat->own[chat->owns++] = id;
    return GYRE_OK;
}

/* Symbols that the program's text holds. */
static gyre_status_t own_of_text(model_chat_t *chat, const char *program)
{
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < chat->symbols; i++) {
        const model_symbol_t *one = &chat->symbol[i];
        chat->begins[one->bytes[0]] = 1;
        chat->longest = one->count > chat->longest ? one->count : chat->longest;
        if (memmem(program, strlen(program), one->bytes, one->count))
            status = add_own(chat, one->id);
    }
    return status;
}

gyre_status_t chat_own_of_output(model_chat_t *chat, const jinja_output_t *out)
{
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < out->bytes;) {
        const model_symbol_t *one = chat_symbol_at(chat, out->text + at, out->bytes - at, out->from + at);
        if (one)
            status = add_own(chat, one->id);
        at += one ? one->count : 1;
    }
    return status;
}

/* A tokenizer must have the tokens of a template that has a name. */
static gyre_status_t check_tokens(const model_tokenizer_t *tokenizer, const chat_template_t *template,
                                  model_chat_t *chat)
{
    for (size_t i = 0; i < CHAT_TOKENS && template->token[i]; i++) {
        const char *token = template->token[i];
        const int end = strcmp(token, CHAT_EOT) == 0;
        const int64_t id =
            end ? model_tokenizer_eot(tokenizer) : model_tokenizer_find(tokenizer, token, strlen(token));
        if (id < 0)
            return gyre_fail_quiet(
                GYRE_ERR_INVALID,
                "--template %s needs the token %s, which the tokenizer %s lacks: take another "
                "template (%s) or the model's own tokenizer",
                template->name, end ? "for the end of a text" : token, model_tokenizer_name(tokenizer),
                model_chat_names());
        size_t count;
        const unsigned char *bytes = model_tokenizer_piece(tokenizer, (model_token_t)id, &count);
        model_symbol_t *grown = realloc(chat->symbol, (chat->symbols + 1) * sizeof *grown);
        if (!grown)
            return no_memory();
        chat->symbol = grown;
        chat->symbol[chat->symbols++] = (model_symbol_t){(model_token_t)id, bytes, count, 0, 0};
        if (end && json_object_set_new(chat->variables, "end_of_text",
                                       json_stringn((const char *)bytes, count)) != 0)
            return no_memory();
        const gyre_status_t status = add_own(chat, (model_token_t)id);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

gyre_status_t chat_render(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                          jinja_output_t *out)
{
    const jinja_input_t input = {
        .variables = chat->variables, .messages = messages, .tools = tools, .date = chat->date};
    return jinja_run(chat->program, &input, out);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* An error of the program: which it is, and, where the program and not the conversation is wrong, what else
 * there is. */
static gyre_status_t of_template(const char *name, gyre_status_t status)
{
    char why[400];
    snprintf(why, sizeof why, "%s", gyre_last_error());
    if (status != GYRE_ERR_INVALID)
        return status;
    if (strstr(why, "refuses the conversation"))
        return gyre_fail_quiet(status, "%s: %s", name, why);
    return gyre_fail_quiet(status,
                           "%s: %s: change the program, or name a template that writes the same with "
                           "--template: %s",
                           name, why, model_chat_names());
}

/* `tools`: the folder's program for conversations with tools. */
static gyre_status_t open_program(const model_tokenizer_t *tokenizer, const char *spec,
                                  const chat_template_t *template, int tools, model_chat_t *chat)
{
    char path[PATH_MAX], *text = NULL;
    gyre_status_t status = model_tokenizer_symbols(tokenizer, &chat->symbol, &chat->symbols);
    if (status == GYRE_OK && template) {
        snprintf(path, sizeof path, "--template %s", template->name);
        chat->named = 1;
        if (!(text = strdup(template->program)))
            status = no_memory();
        if (status == GYRE_OK)
            status = check_tokens(tokenizer, template, chat);
    } else if (status == GYRE_OK) {
        if ((status = chat_program_of_folder(spec, tools, &text, path)) == GYRE_OK)
            status = chat_variables_of_folder(spec, chat->variables);
    }
    if (status == GYRE_OK && !(chat->name = strdup(path)))
        status = no_memory();
    if (status == GYRE_OK && (status = jinja_compile(text, strlen(text), &chat->program)) != GYRE_OK)
        status = of_template(path, status);
    if (status == GYRE_OK)
        status = own_of_text(chat, text);
    free(text);
    return status == GYRE_OK ? chat_probe(chat) : status;
}

static gyre_status_t open_chat(const model_tokenizer_t *tokenizer, const char *spec,
                               const chat_template_t *template, int tools, const char *date,
                               model_chat_t **out)
{
    model_chat_t *chat = calloc(1, sizeof *chat);
    if (!chat)
        return no_memory();
    chat->date = date;
    chat->variables = json_object();
    gyre_status_t status =
        chat->variables ? open_program(tokenizer, spec, template, tools, chat) : no_memory();
    if (status != GYRE_OK) {
        model_chat_destroy(chat);
        return status;
    }
    *out = chat;
    return GYRE_OK;
}

gyre_status_t model_chat_open(const model_tokenizer_t *tokenizer, const char *spec, const char *name,
                              const char *date, model_chat_t **out)
{
    const chat_template_t *template = name ? find_template(name) : NULL;
    if (name && !template)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "there is no chat template '%s': there are %s", name,
                               model_chat_names());
    model_chat_t *chat = NULL;
    gyre_status_t status = open_chat(tokenizer, spec, template, 0, date, &chat);
    if (status != GYRE_OK)
        return status;
    if (!template)
        status = open_chat(tokenizer, spec, NULL, 1, date, &chat->with_tools);
    /* what is wrong with it matters to conversations with tools alone */
    if (status != GYRE_OK && status != GYRE_ERR_NOT_FOUND && status != GYRE_ERR_NO_MEMORY)
        status = (chat->refused = strdup(gyre_last_error())) ? GYRE_OK : no_memory();
    if (status == GYRE_ERR_NO_MEMORY) {
        model_chat_destroy(chat);
        return status;
    }
    *out = chat;
    return GYRE_OK;
}

void model_chat_destroy(model_chat_t *chat)
{
    if (!chat)
        return;
    jinja_destroy(chat->program);
    json_decref(chat->variables);
    for (int i = 0; i < CHAT_PROMPTS; i++)
        free(chat->prompt[i]);
    free(chat->header);
    free(chat->refused);
    free(chat->why);
    model_chat_destroy(chat->with_tools);
    free(chat->name);
    free(chat->symbol);
    free(chat->own);
    free(chat);
}

/* ---- what is learned ----------------------------------------------------------------------------------- */

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

/* Of a message's own characters. */
typedef struct {
    size_t begin, end;
    int own;    /* 1: in its turn; 0: others alone, such as the name of a call that its answer repeats */
    int shared; /* 1: its turn has characters of others, too */
} place_t;

/* `place` [messages + 2], zeros: of the program, of each message, of the tools. */
static void find_places(const jinja_output_t *out, place_t *place)
{
    for (size_t at = 0; at < out->bytes; at++) {
        place_t *of = &place[out->from[at]];
        const int own = out->turn[at] == out->from[at];
        place[out->turn[at]].shared |= out->from[at] > 0 && !own;
        if (own > of->own)
            *of = (place_t){.own = 1, .shared = of->shared};
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

/* Takes from blocks that say themselves what is learned the turns of such messages. */
static void unmark(const json_t *messages, jinja_output_t *out)
{
    for (size_t at = 0; at < out->bytes; at++) {
        const uint32_t of = out->from[at] > 0 ? out->from[at] : out->turn[at];
        if (of > 0 && is_weightless(json_array_get(messages, of - 1)))
            out->generated[at] = 0;
    }
}

/* Marks in out->generated what is learned. */
static gyre_status_t mark_answers(const model_chat_t *chat, const json_t *messages, const json_t *tools,
                                  place_t *place, jinja_output_t *out)
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

/* ---- ids ----------------------------------------------------------------------------------------------- */

typedef struct {
    model_encoder_t *encoder;
    model_ids_t *out;
    size_t first; /* where the conversation begins there */
} run_t;

/* Text between two tokens of the template, which is encoded as one. */
static gyre_status_t add_text(run_t *run, const jinja_output_t *text, size_t begin, size_t end)
{
    const unsigned char *learned = text->generated;
    chat_part_t *part = malloc((end - begin + 1) * sizeof *part);
    size_t parts = 0;
    if (!part)
        return no_memory();
    for (size_t i = begin; i < end; i++) {
        if (learned[i] && (i == begin || !learned[i - 1]))
            part[parts++].begin = i - begin;
        if (learned[i])
            part[parts - 1].end = i + 1 - begin;
    }
    const model_after_t after = run->out->count > run->first ? MODEL_AFTER_TOKEN : MODEL_AFTER_NOTHING;
    gyre_status_t status =
        chat_encode_parts(run->encoder, after, text->text + begin, end - begin, part, parts, run->out);
    free(part);
    return status;
}

static size_t skip_spaces(const jinja_output_t *text, size_t at)
{
    uint32_t c;
    for (size_t n; (n = base_utf8_decode((const unsigned char *)text->text + at, text->bytes - at, &c)) > 0 &&
                   base_utf8_is_space(c);)
        at += n;
    return at;
}

static size_t back_over_spaces(const jinja_output_t *text, size_t begin, size_t end)
{
    uint32_t c;
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)text->text[last] & 0xC0) == 0x80)
            last--;
        if (base_utf8_decode((const unsigned char *)text->text + last, end - last, &c) == 0 ||
            !base_utf8_is_space(c))
            break;
        end = last;
    }
    return end;
}

static gyre_status_t add_output(run_t *run, const model_chat_t *chat, const jinja_output_t *text)
{
    size_t from = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < text->bytes;) {
        const model_symbol_t *one = chat_symbol_at(chat, text->text + at, text->bytes - at, text->from + at);
        if (!one) {
            at++;
            continue;
        }
        const size_t end = one->lstrip ? back_over_spaces(text, from, at) : at;
        if (end > from)
            status = add_text(run, text, from, end);
        if (status == GYRE_OK)
            status = model_ids_add(run->out, &one->id, 1, text->generated[at]);
        at += one->count;
        if (one->rstrip)
            at = skip_spaces(text, at);
        from = at;
    }
    return status == GYRE_OK && from < text->bytes ? add_text(run, text, from, text->bytes) : status;
}

/* ---- what templates do not write ----------------------------------------------------------------------- */

static const char *role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role ? role : "";
}

/* Roles that every template has, but for system. */
static int is_plain(const char *role)
{
    return strcmp(role, "system") == 0 || strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0;
}

static gyre_status_t check_talk(const model_chat_t *chat, const json_t *messages, const json_t *tools)
{
    if (tools && !chat->takes_tools)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "the conversation has \"tools\", which %s does not write",
                               chat->name);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (chat->named && !is_plain(role_of(messages, i)))
            return gyre_fail_quiet(
                GYRE_ERR_INVALID,
                "message %zu: %s does not write the role '%.60s': the program of a model's folder may", i + 1,
                chat->name, role_of(messages, i));
        if (chat_calls(json_array_get(messages, i)) && !chat->takes_calls)
            return gyre_fail_quiet(GYRE_ERR_INVALID, "message %zu: %s does not write \"tool_calls\"%s%s",
                                   i + 1, chat->name, chat->why ? ": " : "", chat->why ? chat->why : "");
    }
    return GYRE_OK;
}

/* Some programs pass over messages of a role that they do not know. */
static gyre_status_t check_written(const model_chat_t *chat, const json_t *messages, const place_t *place)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        const char *text = json_is_string(content) ? json_string_value(content) : "";
        if (!is_plain(role_of(messages, i)) && !place[i + 1].end && text[strspn(text, " \t\r\n")])
            return gyre_fail_quiet(GYRE_ERR_INVALID, "message %zu: %s writes nothing of the role '%.60s'",
                                   i + 1, chat->name, role_of(messages, i));
    }
    return GYRE_OK;
}

/* A program's refusal; the role that it may be for. */
static gyre_status_t refused(const model_chat_t *chat, const json_t *messages, gyre_status_t status)
{
    status = of_template(chat->name, status);
    for (size_t i = 0; status == GYRE_ERR_INVALID && i < json_array_size(messages); i++)
        if (!is_plain(role_of(messages, i)))
            return gyre_fail_quiet(status, "%s (message %zu has the role '%.60s')", gyre_last_error(), i + 1,
                                   role_of(messages, i));
    return status;
}

static gyre_status_t encode(const model_chat_t *chat, model_encoder_t *encoder, const json_t *messages,
                            const json_t *tools, model_ids_t *out)
{
    jinja_output_t text = {0};
    run_t run = {.encoder = encoder, .out = out, .first = out->count};
    place_t *place = NULL;
    gyre_status_t status = chat_render(chat, messages, tools, &text);
    if (status != GYRE_OK)
        return refused(chat, messages, status);
    if (!(place = calloc(json_array_size(messages) + 2, sizeof *place)))
        status = no_memory();
    if (status == GYRE_OK) {
        find_places(&text, place);
        status = check_written(chat, messages, place);
    }
    if (status == GYRE_OK && !jinja_marks(chat->program))
        status = mark_answers(chat, messages, tools, place, &text);
    else if (status == GYRE_OK)
        unmark(messages, &text);
    model_encoder_refuse(encoder, chat->own, chat->owns);
    if (status == GYRE_OK)
        status = add_output(&run, chat, &text);
    model_encoder_refuse(encoder, NULL, 0);
    jinja_output_free(&text);
    free(place);
    return status;
}

gyre_status_t model_chat_encode(const model_chat_t *chat, model_encoder_t *encoder, const json_t *messages,
                                const json_t *tools, model_ids_t *out)
{
    json_t *shaped;
    tools = json_array_size(tools) > 0 ? tools : NULL;
    if (tools && chat->refused)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "%s", chat->refused);
    chat = tools && chat->with_tools ? chat->with_tools : chat;
    gyre_status_t status = check_talk(chat, messages, tools);
    if (status != GYRE_OK || (status = chat_shaped(messages, &chat->shape, &shaped)) != GYRE_OK)
        return status;
    status = encode(chat, encoder, shaped, tools, out);
    json_decref(shaped);
    return status;
}
