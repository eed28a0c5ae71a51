/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/conversation.c: conversations become ids by a template; which template a model's folder has. */
#include "model/chat/conversation.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/text/json.h"
#include "base/utf8.h"
#include "model/chat/templates.h"

struct model_chat {
    const chat_template_t *template;
    model_token_t id[CHAT_TOKENS]; /* of template->token, [tokens] */
    size_t tokens;
};

int model_role_find(const char *name, model_role_t *out)
{
    static const char *const names[MODEL_ROLES] = {"system", "user", "assistant"};
    for (int i = 0; i < MODEL_ROLES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (model_role_t)i;
            return 1;
        }
    return 0;
}

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

/* ---- the template of a folder -------------------------------------------------------------------------- */

/* FILE in the folder of the tokenizer's file; 0: there is no such file. */
static int file_next_to(const char *spec, const char *file, char path[PATH_MAX])
{
    const char *colon = strchr(spec, ':'), *slash = strrchr(spec, '/');
    const char *from = colon && (!slash || colon < slash) ? colon + 1 : spec; /* gpt2:FILE */
    int folder = slash ? (int)(slash - from) + 1 : 0;
    int n = snprintf(path, PATH_MAX, "%.*s%s", folder, from, file);
    return n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
}

/* Of "chat_template": a program, or a list of named ones, of which "default" is meant. */
static const char *program_of(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(value);
}

static gyre_status_t recognise(const char *path, const char *program, const chat_template_t **out)
{
    if ((*out = chat_template_of(program)))
        return GYRE_OK;
    return gyre_fail_quiet(
        GYRE_ERR_INVALID,
        "%s: its chat template (%zu characters, \"%.40s...\") is unknown, and Jinja is not "
        "interpreted: name one that writes the same with --template: %s",
        path, strlen(program), program, model_chat_names());
}

static gyre_status_t read_program(const char *path, char **out)
{
    FILE *in = fopen(path, "rbe");
    char *text = in ? calloc(1, 1 << 20) : NULL;
    size_t got = text ? fread(text, 1, (1 << 20) - 1, in) : 0;
    int fine = text && !ferror(in) && feof(in) && strlen(text) == got;
    if (in)
        fclose(in);
    if (fine) {
        *out = text;
        return GYRE_OK;
    }
    free(text);
    return gyre_fail_quiet(in ? GYRE_ERR_FORMAT : GYRE_ERR_IO, "%s is not a chat template that can be read",
                           path);
}

static gyre_status_t template_of_folder(const char *spec, const chat_template_t **out)
{
    char path[PATH_MAX], *program = NULL;
    gyre_status_t status;
    if (file_next_to(spec, "chat_template.jinja", path)) {
        if ((status = read_program(path, &program)) == GYRE_OK)
            status = recognise(path, program, out);
        free(program);
        return status;
    }
    if (file_next_to(spec, "tokenizer_config.json", path)) {
        json_t *config = NULL;
        if ((status = base_json_read_with(path, 0, &config)) != GYRE_OK)
            return status;
        const char *text = program_of(config);
        status = text ? recognise(path, text, out) : GYRE_OK;
        json_decref(config);
        if (status != GYRE_OK || text)
            return status;
    }
    return gyre_fail_quiet(GYRE_ERR_NOT_FOUND,
                           "there is no chat template next to the tokenizer %s (chat_template.jinja, or "
                           "\"chat_template\" in tokenizer_config.json): name one with --template: %s",
                           spec, model_chat_names());
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static gyre_status_t find_tokens(const model_tokenizer_t *tokenizer, model_chat_t *chat)
{
    for (size_t i = 0; i < CHAT_TOKENS && chat->template->token[i]; i++) {
        const char *token = chat->template->token[i];
        int64_t id = strcmp(token, CHAT_EOT) == 0 ? model_tokenizer_eot(tokenizer)
                                                  : model_tokenizer_find(tokenizer, token, strlen(token));
        if (id < 0)
            return gyre_fail_quiet(
                GYRE_ERR_INVALID,
                "--template %s needs the token %s, which the tokenizer %s lacks: take another "
                "template (%s) or the model's own tokenizer",
                chat->template->name, strcmp(token, CHAT_EOT) == 0 ? "for the end of a text" : token,
                model_tokenizer_name(tokenizer), model_chat_names());
        chat->id[chat->tokens++] = (model_token_t)id;
    }
    return GYRE_OK;
}

gyre_status_t model_chat_open(const model_tokenizer_t *tokenizer, const char *spec, const char *name,
                              model_chat_t **out)
{
    const chat_template_t *template = name ? find_template(name) : NULL;
    gyre_status_t status = GYRE_OK;
    if (!name)
        status = template_of_folder(spec, &template);
    else if (!template)
        status = gyre_fail_quiet(GYRE_ERR_INVALID, "there is no chat template '%s': there are %s", name,
                                 model_chat_names());
    if (status != GYRE_OK)
        return status;
    model_chat_t *chat = calloc(1, sizeof *chat);
    if (!chat)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a chat template");
    chat->template = template;
    if ((status = find_tokens(tokenizer, chat)) != GYRE_OK) {
        model_chat_destroy(chat);
        return status;
    }
    *out = chat;
    return GYRE_OK;
}

void model_chat_destroy(model_chat_t *chat)
{
    free(chat);
}

/* ---- encoding ------------------------------------------------------------------------------------------ */

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the tokens of a document");
}

gyre_status_t model_ids_add(model_ids_t *ids, const model_token_t *id, size_t count, int learned)
{
    if (ids->room - ids->count < count) {
        size_t room = 2 * ids->room + count + 1024;
        model_token_t *grown = realloc(ids->id, room * sizeof *grown);
        ids->id = grown ? grown : ids->id;
        unsigned char *flags = grown ? realloc(ids->learned, room) : NULL;
        if (!flags)
            return no_memory();
        ids->learned = flags;
        ids->room = room;
    }
    if (count > 0) {
        memcpy(ids->id + ids->count, id, count * sizeof *id);
        memset(ids->learned + ids->count, learned, count);
    }
    ids->count += count;
    return GYRE_OK;
}

static gyre_status_t encode(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                            int learned, model_ids_t *out)
{
    const model_token_t *id;
    size_t count;
    gyre_status_t status = bytes > 0 ? model_encode_after(encoder, after, text, bytes, &id, &count) : GYRE_OK;
    return status == GYRE_OK && bytes > 0 ? model_ids_add(out, id, count, learned) : status;
}

gyre_status_t model_ids_encode(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                               size_t begin, model_ids_t *out)
{
    const size_t first = out->count;
    const model_token_t *id;
    size_t count;
    gyre_status_t status = encode(encoder, after, text, bytes, begin < bytes, out);
    if (status != GYRE_OK || begin == 0 || begin >= bytes ||
        (status = model_encode_after(encoder, after, text, begin, &id, &count)) != GYRE_OK)
        return status;
    if (count == 0)
        return GYRE_OK;
    if (count <= out->count - first && memcmp(out->id + first, id, count * sizeof *id) == 0) {
        memset(out->learned + first, 0, count);
        return GYRE_OK;
    }
    out->count = first;
    status = model_ids_add(out, id, count, 0);
    return status == GYRE_OK ? encode(encoder, MODEL_AFTER_TEXT, text + begin, bytes - begin, 1, out)
                             : status;
}

/* Text between two tokens of the template, which is encoded as one. */
typedef struct {
    const model_chat_t *chat;
    model_encoder_t *encoder;
    model_ids_t *out;
    size_t first; /* where the conversation begins there */
    char *text;   /* [bytes], owned */
    size_t bytes, room;
    size_t answer; /* where an answer begins in the text, up to whose end it reaches; SIZE_MAX: nowhere */
} run_t;

static gyre_status_t run_add(run_t *run, const char *text, size_t bytes)
{
    if (!base_grow(&run->text, &run->room, run->bytes, bytes, 1))
        return no_memory();
    if (bytes > 0)
        memcpy(run->text + run->bytes, text, bytes);
    run->bytes += bytes;
    return GYRE_OK;
}

static gyre_status_t run_end(run_t *run)
{
    const model_after_t after = run->out->count > run->first ? MODEL_AFTER_TOKEN : MODEL_AFTER_NOTHING;
    gyre_status_t status =
        model_ids_encode(run->encoder, after, run->text, run->bytes, run->answer, run->out);
    run->bytes = 0;
    run->answer = SIZE_MAX;
    return status;
}

/* The template's token that begins at `text`, or CHAT_TOKENS. */
static size_t token_at(const chat_template_t *t, const char *text)
{
    size_t i = 0;
    while (i < CHAT_TOKENS && t->token[i] && strncmp(text, t->token[i], strlen(t->token[i])) != 0)
        i++;
    return i < CHAT_TOKENS && t->token[i] ? i : CHAT_TOKENS;
}

/* A text of the template. Its first token is learned, if `learned`. */
static gyre_status_t run_template(run_t *run, const char *text, int learned)
{
    const chat_template_t *t = run->chat->template;
    gyre_status_t status = GYRE_OK;
    while (status == GYRE_OK && *text) {
        size_t i = token_at(t, text);
        if (i == CHAT_TOKENS) {
            status = run_add(run, text++, 1);
            continue;
        }
        if ((status = run_end(run)) == GYRE_OK)
            status = model_ids_add(run->out, &run->chat->id[i], 1, learned);
        learned = 0;
        text += strlen(t->token[i]);
    }
    return status;
}

/* What Jinja's trim leaves out of UTF-8, which is what Python's str.isspace says. */
static int is_space(uint32_t c)
{
    return base_utf8_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

static void trim(const char **text, size_t *bytes)
{
    const unsigned char *at = (const unsigned char *)*text, *end = at + *bytes;
    uint32_t c;
    for (size_t n; (n = base_utf8_decode(at, (size_t)(end - at), &c)) > 0 && is_space(c);)
        at += n;
    while (at < end) {
        const unsigned char *last = end - 1;
        while (last > at && (*last & 0xC0) == 0x80)
            last--;
        if (base_utf8_decode(last, (size_t)(end - last), &c) == 0 || !is_space(c))
            break;
        end = last;
    }
    *text = (const char *)at;
    *bytes = (size_t)(end - at);
}

/* After the last end of a thought in an answer: its place; 0: there is none. */
static size_t thought_end(const chat_template_t *t, const model_message_t *message)
{
    const size_t n = t->thought && message->role == MODEL_ROLE_ASSISTANT ? strlen(t->thought) : 0;
    for (size_t end = message->bytes; n > 0 && end >= n; end--)
        if (memcmp(message->text + end - n, t->thought, n) == 0)
            return end;
    return 0;
}

/* joined: it follows a system's message in the same turn; last: it ends the conversation. */
static gyre_status_t run_message(run_t *run, const model_message_t *message, int joined, int last)
{
    const chat_template_t *t = run->chat->template;
    const size_t thought = thought_end(t, message);
    const char *text = message->text + thought;
    size_t bytes = message->bytes - thought;
    const int answer = message->role == MODEL_ROLE_ASSISTANT;
    if (t->trim && !(t->joined && message->role == MODEL_ROLE_SYSTEM))
        trim(&text, &bytes);
    for (; last && bytes > 0 && *text == '\n'; text++)
        bytes--;
    gyre_status_t status = joined ? GYRE_OK : run_template(run, t->before[message->role], 0);
    if (status == GYRE_OK && last)
        status = run_template(run, t->last, 0);
    if (answer)
        run->answer = run->bytes;
    if (status == GYRE_OK)
        status = run_add(run, text, bytes);
    return status == GYRE_OK ? run_template(run, t->after[message->role], answer) : status;
}

static gyre_status_t check_roles(const chat_template_t *t, const model_message_t *message, size_t count)
{
    static const char *const names[MODEL_ROLES] = {"system", "user", "assistant"};
    for (size_t i = 0; i < count; i++) {
        model_role_t role = message[i].role;
        if (!t->before[role])
            return gyre_fail_quiet(GYRE_ERR_INVALID, "message %zu: --template %s has no role '%s'", i + 1,
                                   t->name, names[role]);
        if (role == MODEL_ROLE_SYSTEM && i > 0)
            return gyre_fail_quiet(GYRE_ERR_INVALID,
                                   "message %zu: the role 'system' is for the first message only", i + 1);
        if (t->last && thought_end(t, &message[i]) > 0)
            return gyre_fail_quiet(
                GYRE_ERR_INVALID,
                "message %zu: an answer with %s: --template %s has answers without thoughts only", i + 1,
                t->thought, t->name);
        const size_t turn = i - (message[0].role == MODEL_ROLE_SYSTEM);
        if (t->joined && count == 1 && role == MODEL_ROLE_SYSTEM)
            return gyre_fail_quiet(GYRE_ERR_INVALID,
                                   "message 1: with --template %s the role 'system' begins a user's message, "
                                   "and there is none",
                                   t->name);
        if (t->alternate && role != MODEL_ROLE_SYSTEM &&
            role != (turn % 2 ? MODEL_ROLE_ASSISTANT : MODEL_ROLE_USER))
            return gyre_fail_quiet(GYRE_ERR_INVALID,
                                   "message %zu: with --template %s user and assistant take turns, and the "
                                   "user begins",
                                   i + 1, t->name);
    }
    return GYRE_OK;
}

gyre_status_t model_chat_encode(const model_chat_t *chat, model_encoder_t *encoder,
                                const model_message_t *message, size_t count, model_ids_t *out)
{
    const chat_template_t *t = chat->template;
    run_t run = {.chat = chat, .encoder = encoder, .out = out, .first = out->count, .answer = SIZE_MAX};
    gyre_status_t status = check_roles(t, message, count);
    model_encoder_refuse(encoder, chat->id, chat->tokens);
    if (status == GYRE_OK)
        status = run_template(&run, t->begin, 0);
    if (status == GYRE_OK && t->system && (count == 0 || message->role != MODEL_ROLE_SYSTEM)) {
        const model_message_t system = {MODEL_ROLE_SYSTEM, t->system, strlen(t->system)};
        status = run_message(&run, &system, 0, 0);
    }
    int asked = 0;
    for (size_t i = 0; status == GYRE_OK && i < count; i++) {
        const model_role_t role = message[i].role;
        status = run_message(&run, &message[i], t->joined && i == 1 && message[0].role == MODEL_ROLE_SYSTEM,
                             t->last && asked && i + 1 == count && role == MODEL_ROLE_ASSISTANT);
        asked |= role == MODEL_ROLE_USER;
    }
    if (status == GYRE_OK)
        status = run_end(&run);
    model_encoder_refuse(encoder, NULL, 0);
    free(run.text);
    return status;
}
