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
#include "model/jinja/jinja.h"

enum { PROMPTS = 2 };

struct model_chat {
    jinja_program_t *program;
    json_t *variables;
    const char *date;
    char *name;             /* for messages: a file, or --template NAME */
    model_symbol_t *symbol; /* [symbols], of the tokenizer */
    size_t symbols;
    unsigned char begins[256]; /* 1: a symbol begins with this byte */
    size_t longest;            /* bytes of the longest symbol */
    model_token_t *own;        /* [owns]: symbols of the template, which messages do not give */
    size_t owns, own_room;
    /* what it adds for add_generation_prompt: without thoughts, where it knows these, and as it is */
    char *prompt[PROMPTS];
};

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

/* The longest symbol at text[0 .. bytes), all of which is the program's own; NULL: there is none. */
static const model_symbol_t *symbol_at(const model_chat_t *chat, const char *text, size_t bytes,
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

/* Symbols that the program wrote. */
static gyre_status_t own_of_output(model_chat_t *chat, const jinja_output_t *out)
{
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && at < out->bytes;) {
        const model_symbol_t *one = symbol_at(chat, out->text + at, out->bytes - at, out->from + at);
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

/* ---- what a template begins an answer with ------------------------------------------------------------- */

static int set_flag(model_chat_t *chat, const char *name, json_t *value)
{
    return json_object_set_new(chat->variables, name, value) == 0;
}

static gyre_status_t render(const model_chat_t *chat, const json_t *messages, jinja_output_t *out)
{
    return jinja_run(chat->program,
                     &(jinja_input_t){.variables = chat->variables, .messages = messages, .date = chat->date},
                     out);
}

/* Runs a conversation of these roles, one letter each, to learn what the program writes. Some programs refuse
 * some conversations: then *out is empty. */
static gyre_status_t probe(model_chat_t *chat, const char *roles, jinja_output_t *out)
{
    json_t *messages = json_array();
    int fine = messages != NULL;
    for (; fine && *roles; roles++)
        fine = json_array_append_new(messages, json_pack("{s:s,s:s}", "role",
                                                         *roles == 's'   ? "system"
                                                         : *roles == 'u' ? "user"
                                                                         : "assistant",
                                                         "content", "x")) == 0;
    *out = (jinja_output_t){0};
    gyre_status_t status = fine ? render(chat, messages, out) : no_memory();
    json_decref(messages);
    if (status == GYRE_ERR_INVALID)
        status = GYRE_OK;
    return status == GYRE_OK ? own_of_output(chat, out) : status;
}

/* What a question is followed by more with add_generation_prompt than without. */
static gyre_status_t find_prompt(model_chat_t *chat, char **prompt)
{
    jinja_output_t with = {0}, without = {0};
    if (!set_flag(chat, "add_generation_prompt", json_true()))
        return no_memory();
    gyre_status_t status = probe(chat, "u", &with);
    if (!set_flag(chat, "add_generation_prompt", json_false()))
        status = no_memory();
    if (status == GYRE_OK)
        status = probe(chat, "u", &without);
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

static gyre_status_t find_prompts(model_chat_t *chat)
{
    jinja_output_t out = {0};
    if (!set_flag(chat, "tools", json_null()) || !set_flag(chat, "documents", json_null()) ||
        !set_flag(chat, "enable_thinking", json_false()))
        return no_memory();
    gyre_status_t status = find_prompt(chat, &chat->prompt[0]);
    json_object_del(chat->variables, "enable_thinking");
    if (status == GYRE_OK)
        status = find_prompt(chat, &chat->prompt[1]);
    static const char *const more[] = {"sua", "ua"};
    for (size_t i = 0; status == GYRE_OK && i < sizeof more / sizeof *more; i++) {
        status = probe(chat, more[i], &out);
        jinja_output_free(&out);
    }
    return status;
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

static gyre_status_t open_chat(const model_tokenizer_t *tokenizer, const char *spec,
                               const chat_template_t *template, model_chat_t *chat)
{
    char path[PATH_MAX], *text = NULL;
    gyre_status_t status = model_tokenizer_symbols(tokenizer, &chat->symbol, &chat->symbols);
    if (status == GYRE_OK && template) {
        snprintf(path, sizeof path, "--template %s", template->name);
        if (!(text = strdup(template->program)))
            status = no_memory();
        if (status == GYRE_OK)
            status = check_tokens(tokenizer, template, chat);
    } else if (status == GYRE_OK) {
        if ((status = chat_program_of_folder(spec, &text, path)) == GYRE_OK)
            status = chat_variables_of_folder(spec, chat->variables);
    }
    if (status == GYRE_OK && !(chat->name = strdup(path)))
        status = no_memory();
    if (status == GYRE_OK && (status = jinja_compile(text, strlen(text), &chat->program)) != GYRE_OK)
        status = of_template(path, status);
    if (status == GYRE_OK)
        status = own_of_text(chat, text);
    free(text);
    return status == GYRE_OK ? find_prompts(chat) : status;
}

gyre_status_t model_chat_open(const model_tokenizer_t *tokenizer, const char *spec, const char *name,
                              const char *date, model_chat_t **out)
{
    const chat_template_t *template = name ? find_template(name) : NULL;
    if (name && !template)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "there is no chat template '%s': there are %s", name,
                               model_chat_names());
    model_chat_t *chat = calloc(1, sizeof *chat);
    if (!chat)
        return no_memory();
    chat->date = date;
    chat->variables = json_object();
    gyre_status_t status = chat->variables ? open_chat(tokenizer, spec, template, chat) : no_memory();
    if (status != GYRE_OK) {
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
    for (int i = 0; i < PROMPTS; i++)
        free(chat->prompt[i]);
    free(chat->name);
    free(chat->symbol);
    free(chat->own);
    free(chat);
}

/* ---- what is learned ----------------------------------------------------------------------------------- */

/* Where the answer whose first character is at `at` begins: after the template's beginning of an answer, if
 * that stands between the message before and it. */
static size_t answer_begin(const model_chat_t *chat, const jinja_output_t *out, size_t at)
{
    size_t from = at;
    while (from > 0 && out->from[from - 1] == 0)
        from--;
    for (int i = 0; i < PROMPTS; i++) {
        const size_t n = chat->prompt[i] ? strlen(chat->prompt[i]) : 0;
        for (size_t end = at; n > 0 && end >= from + n; end--)
            if (memcmp(out->text + end - n, chat->prompt[i], n) == 0)
                return end;
    }
    return at;
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
    const model_symbol_t *one = symbol_at(chat, out->text + end, out->bytes - end, out->from + end);
    return one ? end + one->count : at;
}

/* Marks in out->generated what is learned. */
static gyre_status_t mark_answers(const model_chat_t *chat, const json_t *messages, jinja_output_t *out)
{
    typedef struct {
        size_t begin, end; /* of the message's own characters */
    } place_t;
    const size_t count = json_array_size(messages);
    if (jinja_marks(chat->program))
        return GYRE_OK;
    place_t *place = calloc(count + 1, sizeof *place); /* the first: of the program */
    if (!place)
        return no_memory();
    for (size_t at = 0; at < out->bytes; at++) {
        place_t *of = &place[out->from[at]];
        of->begin = of->end ? of->begin : at;
        of->end = at + 1;
    }
    for (size_t i = 1; i <= count; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i - 1), "role"));
        if (!role || strcmp(role, "assistant") != 0 || !place[i].end)
            continue;
        const size_t begin = answer_begin(chat, out, place[i].begin);
        memset(out->generated + begin, 1, answer_end(chat, out, place[i].end) - begin);
    }
    free(place);
    return GYRE_OK;
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
        const model_symbol_t *one = symbol_at(chat, text->text + at, text->bytes - at, text->from + at);
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

gyre_status_t model_chat_encode(const model_chat_t *chat, model_encoder_t *encoder, const json_t *messages,
                                model_ids_t *out)
{
    jinja_output_t text = {0};
    run_t run = {.encoder = encoder, .out = out, .first = out->count};
    gyre_status_t status = render(chat, messages, &text);
    if (status != GYRE_OK)
        return of_template(chat->name, status);
    status = mark_answers(chat, messages, &text);
    model_encoder_refuse(encoder, chat->own, chat->owns);
    if (status == GYRE_OK)
        status = add_output(&run, chat, &text);
    model_encoder_refuse(encoder, NULL, 0);
    jinja_output_free(&text);
    return status;
}
