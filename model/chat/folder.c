/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/folder.c: the chat template of a model's folder, and the special tokens that it names. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/chat/internal.h"

/* FILE in the folder of the tokenizer's file; 0: there is no such file. */
static int file_next_to(const char *spec, const char *file, char path[PATH_MAX])
{
    const char *colon = strchr(spec, ':'), *slash = strrchr(spec, '/');
    const char *from = colon && (!slash || colon < slash) ? colon + 1 : spec; /* gpt2:FILE */
    int folder = slash ? (int)(slash - from) + 1 : 0;
    int n = snprintf(path, PATH_MAX, "%.*s%s", folder, from, file);
    return n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
}

static gyre_status_t read_next_to(const char *spec, const char *file, char path[PATH_MAX], json_t **out)
{
    *out = NULL;
    return file_next_to(spec, file, path) ? base_json_read_with(path, 0, out) : GYRE_OK;
}

/* Of "chat_template": a program, or a list of named ones. */
static const char *program_of(const json_t *config, const char *wanted)
{
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, wanted) == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return strcmp(wanted, "default") == 0 ? json_string_value(value) : NULL;
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

gyre_status_t chat_program_of_folder(const char *spec, int tools, char **program, char *path)
{
    if (tools && file_next_to(spec, "additional_chat_templates/tool_use.jinja", path))
        return read_program(path, program);
    if (file_next_to(spec, "chat_template.jinja", path))
        return tools ? GYRE_ERR_NOT_FOUND : read_program(path, program);
    json_t *config;
    gyre_status_t status = read_next_to(spec, "tokenizer_config.json", path, &config);
    const char *text = program_of(config, tools ? "tool_use" : "default");
    if (status == GYRE_OK && text && !(*program = strdup(text)))
        status = gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a chat template");
    json_decref(config);
    if (status != GYRE_OK || *program)
        return status;
    return gyre_fail_quiet(GYRE_ERR_NOT_FOUND,
                           "there is no chat template next to the tokenizer %s (chat_template.jinja, or "
                           "\"chat_template\" in tokenizer_config.json): name one with --template: %s",
                           spec, model_chat_names());
}

gyre_status_t chat_variables_of_folder(const char *spec, json_t *variables)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"},
                             *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
    gyre_status_t status = GYRE_OK;
    for (size_t f = 0; status == GYRE_OK && f < sizeof files / sizeof *files; f++) {
        char path[PATH_MAX];
        json_t *config;
        status = read_next_to(spec, files[f], path, &config);
        for (size_t i = 0; status == GYRE_OK && i < sizeof names / sizeof *names; i++) {
            json_t *token = json_object_get(config, names[i]);
            token = json_is_object(token) ? json_object_get(token, "content") : token;
            if (json_is_string(token) && !json_object_get(variables, names[i]) &&
                json_object_set(variables, names[i], token) != 0)
                status = gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the variables of a template");
        }
        json_decref(config);
    }
    return status;
}
