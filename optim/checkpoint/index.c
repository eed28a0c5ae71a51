/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/index.c: index.json of a checkpoint: its text, its checksum, what is wrong with it. */
#include "optim/checkpoint/index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "optim/checkpoint/path.h"
#include "optim/checkpoint/snapshot.h"

#define INDEX_LIMIT (256u << 20) /* bytes; a range takes about 20 */

int checkpoint_index_hash(const json_t *index, uint64_t *hash)
{
    json_t *rest = json_copy((json_t *)index); /* shallow; it leaves out what it has no memory for */
    char *text = NULL;
    if (json_object_size(rest) == json_object_size(index)) {
        json_object_del(rest, "xxh3");
        text = base_json_dump(rest, JSON_COMPACT | JSON_SORT_KEYS);
    }
    if (text)
        *hash = base_hash64(text, strlen(text), 0);
    json_decref(rest);
    free(text);
    return text != NULL;
}

/* A list, an element a line: it may have thousands. 0: no memory, or the stream has an error. */
static int put_list(FILE *out, const char *name, const json_t *list)
{
    int good = 1;
    fprintf(out, " \"%s\": [", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        good &= json_dumpf(json_array_get(list, i), out, JSON_COMPACT) == 0;
    }
    fputs("],\n", out);
    return good;
}

static int put_member(FILE *out, const char *name, const json_t *value, const char *ending)
{
    fprintf(out, " \"%s\": ", name);
    int good = json_dumpf(value, out, JSON_ENCODE_ANY | (json_is_object(value) ? JSON_INDENT(2) : 0)) == 0;
    fputs(ending, out);
    return good;
}

gyre_status_t checkpoint_write_index(const char *path, const json_t *index)
{
    const char *const member[] = {"format", "version", "step", "run"};
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    int good = 1;
    fputs("{\n", file.out);
    for (size_t i = 0; i < sizeof member / sizeof *member; i++)
        good &= put_member(file.out, member[i], json_object_get(index, member[i]), ",\n");
    good &= put_list(file.out, "rows", json_object_get(index, "rows"));
    good &= put_list(file.out, "files", json_object_get(index, "files"));
    good &= put_member(file.out, "xxh3", json_object_get(index, "xxh3"), "\n}\n");
    if (good || ferror(file.out))
        return base_file_commit(&file);
    base_file_abandon(&file);
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write %s", path);
}

static int is_hex(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

gyre_status_t optim_snapshot_parse(const char *text, size_t length, const char *path, json_t **out)
{
    json_error_t error;
    int lacks;
    json_t *index = base_json_text(text, length, &error, &lacks);
    const char *what = NULL;
    char found[48];
    uint64_t hash = 0;
    if (!index)
        return lacks ? gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path)
                     : gyre_fail(GYRE_ERR_FORMAT, "%s:%d: is damaged: %s", path, error.line, error.text);
    const char *format = json_string_value(json_object_get(index, "format"));
    const json_t *step = json_object_get(index, "step");
    json_int_t version = json_integer_value(json_object_get(index, "version"));
    if (!format || strcmp(format, CHECKPOINT_FORMAT) != 0)
        what = "is not the index of a training checkpoint";
    else if (version == 1)
        what = "is of Gyre's first version, before runs could change their layout: it cannot be gone on "
               "with; give its "
               "model.safetensors to --load to begin a run with its weights";
    else if (version != CHECKPOINT_VERSION) {
        snprintf(found, sizeof found, "has version %lld; this program reads %d", (long long)version,
                 CHECKPOINT_VERSION);
        what = found;
    } else if (is_hex(json_object_get(index, "xxh3")) && !checkpoint_index_hash(index, &hash)) {
        json_decref(index);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to check %s", path);
    } else if (!is_hex(json_object_get(index, "xxh3")) ||
               strtoull(json_string_value(json_object_get(index, "xxh3")), NULL, 16) != hash)
        what = "is damaged: its checksum does not fit";
    else if (!json_is_integer(step) || json_integer_value(step) < 0 ||
             json_integer_value(step) >= (json_int_t)OPTIM_SNAPSHOT_STEPS ||
             !json_is_object(json_object_get(index, "run")))
        what = "lacks step or run";
    if (what) {
        json_decref(index);
        return gyre_fail(GYRE_ERR_FORMAT, "%s %s", path, what);
    }
    *out = index;
    return GYRE_OK;
}

/* The whole file, at most INDEX_LIMIT bytes. */
static gyre_status_t read_index(const char *path, json_t **index)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    struct stat info;
    gyre_status_t status = GYRE_OK;
    char *text = NULL;
    size_t length = 0;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > (off_t)INDEX_LIMIT)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s is not the index of a training checkpoint", path);
    else if (!(text = malloc((size_t)info.st_size + 1)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    else {
        length = fread(text, 1, (size_t)info.st_size, file);
        if (ferror(file))
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
    }
    fclose(file);
    if (status == GYRE_OK)
        status = optim_snapshot_parse(text, length, path, index);
    free(text);
    return status;
}

gyre_status_t checkpoint_open_index(const char *at, uint64_t step, json_t **out)
{
    char path[PATH_MAX];
    json_t *index = NULL;
    if (!checkpoint_path_join(path, at, CHECKPOINT_INDEX))
        return checkpoint_path_too_long(at);
    gyre_status_t status = read_index(path, &index);
    if (status != GYRE_OK)
        return status;
    if ((uint64_t)json_integer_value(json_object_get(index, "step")) != step) {
        status = gyre_fail(GYRE_ERR_FORMAT, "%s is of step %lld: the folder was renamed", path,
                           (long long)json_integer_value(json_object_get(index, "step")));
        json_decref(index);
        return status;
    }
    *out = index;
    return GYRE_OK;
}
