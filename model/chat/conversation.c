/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/conversation.c: a template's program writes a conversation; what it wrote becomes ids, around
 * the tokens of the template. */
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
        if (chat->named && !is_plain(chat_role_of(messages, i)))
            return gyre_fail_quiet(
                GYRE_ERR_INVALID,
                "message %zu: %s does not write the role '%.60s': the program of a model's folder may", i + 1,
                chat->name, chat_role_of(messages, i));
        if (chat_calls(json_array_get(messages, i)) && !chat->takes_calls)
            return gyre_fail_quiet(GYRE_ERR_INVALID, "message %zu: %s does not write \"tool_calls\"%s%s",
                                   i + 1, chat->name, chat->why ? ": " : "", chat->why ? chat->why : "");
    }
    return GYRE_OK;
}

/* Some programs pass over messages of a role that they do not know, or over calls next to a text. */
static gyre_status_t check_written(const model_chat_t *chat, const json_t *messages,
                                   const chat_place_t *place)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        const char *text = json_is_string(content) ? json_string_value(content) : "";
        if (!is_plain(chat_role_of(messages, i)) && !place[i + 1].end && text[strspn(text, " \t\r\n")])
            return gyre_fail_quiet(GYRE_ERR_INVALID, "message %zu: %s writes nothing of the role '%.60s'",
                                   i + 1, chat->name, chat_role_of(messages, i));
        if (chat_calls(json_array_get(messages, i)) && !place[i + 1].calls)
            return gyre_fail_quiet(GYRE_ERR_INVALID,
                                   "message %zu: %s does not write the \"tool_calls\" of this message", i + 1,
                                   chat->name);
    }
    return GYRE_OK;
}

/* A program's refusal; the role that it may be for. */
static gyre_status_t refused(const model_chat_t *chat, const json_t *messages, gyre_status_t status)
{
    status = of_template(chat->name, status);
    for (size_t i = 0; status == GYRE_ERR_INVALID && i < json_array_size(messages); i++)
        if (!is_plain(chat_role_of(messages, i)))
            return gyre_fail_quiet(status, "%s (message %zu has the role '%.60s')", gyre_last_error(), i + 1,
                                   chat_role_of(messages, i));
    return status;
}

static gyre_status_t encode(const model_chat_t *chat, model_encoder_t *encoder, const json_t *messages,
                            const json_t *tools, model_ids_t *out)
{
    jinja_output_t text = {0};
    run_t run = {.encoder = encoder, .out = out, .first = out->count};
    chat_place_t *place = NULL;
    gyre_status_t status = chat_render(chat, messages, tools, &text);
    if (status != GYRE_OK)
        return refused(chat, messages, status);
    if (!(place = calloc(json_array_size(messages) + 2, sizeof *place)))
        status = no_memory();
    if (status == GYRE_OK) {
        chat_find_places(&text, place);
        status = check_written(chat, messages, place);
    }
    if (status == GYRE_OK && !jinja_marks(chat->program))
        status = chat_mark_answers(chat, messages, tools, place, &text);
    else if (status == GYRE_OK)
        chat_unmark(messages, &text);
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
    gyre_status_t status = chat_check(messages);
    if (status == GYRE_OK)
        status = check_talk(chat, messages, tools);
    if (status != GYRE_OK || (status = chat_shaped(messages, &chat->shape, &shaped)) != GYRE_OK)
        return status;
    status = encode(chat, encoder, shaped, tools, out);
    json_decref(shaped);
    return status;
}
