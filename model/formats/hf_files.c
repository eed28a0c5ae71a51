/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/hf_files.c: the files of weights in a folder. */
#include "model/formats/hf_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "collectives/kernels/kernels.h"

#define INDEX  "model.safetensors.index.json"
#define SINGLE "model.safetensors"

typedef model_safetensors_file_t file_t;

/* ---- one file ------------------------------------------------------------------------------------------ */

/* The sizes of tensors of a type that is not here are not checked. */
size_t hf_type_bytes(const char *type)
{
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2},  {"F64", 8},     {"I64", 8},
                 {"U64", 8}, {"I32", 4},  {"U32", 4},  {"I16", 2},     {"U16", 2},
                 {"I8", 1},  {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, type) == 0)
            return known[i].bytes;
    return 0;
}

int hf_type_is_read(const char *type)
{
    return strcmp(type, "F32") == 0 || strcmp(type, "BF16") == 0 || strcmp(type, "F16") == 0;
}

int hf_name_is_made(const char *name)
{
    static const char *const ends[] = {".attn.bias",          ".attn.masked_bias",
                                       ".attention.bias",     ".attention.masked_bias",
                                       "rotary_emb.inv_freq", "position_ids"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (length >= end && strcmp(name + length - end, ends[i]) == 0)
            return 1;
    }
    return 0;
}

/* Computes the bytes of a tensor; 0: the shape is malformed. */
static int bytes_of(const json_t *shape, size_t element, size_t *bytes)
{
    *bytes = element;
    for (size_t d = 0; d < json_array_size(shape); d++) {
        const json_t *size = json_array_get(shape, d);
        if (!json_is_integer(size) || json_integer_value(size) < 0 ||
            !base_mul(*bytes, (size_t)json_integer_value(size), bytes))
            return 0;
    }
    return 1;
}

typedef struct {
    size_t from, to;
    const char *name; /* in the header */
} extent_t;

/* A tensor that is not read may have any type; its offsets must be sound all the same. */
static gyre_status_t check_entry(const file_t *file, const char *name, const json_t *entry, extent_t *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets"), *shape = json_object_get(entry, "shape");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    json_int_t from = json_integer_value(json_array_get(offsets, 0)),
               to = json_integer_value(json_array_get(offsets, 1));
    size_t bytes, element;
    if (!type || !json_is_array(shape) || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) || !json_is_integer(json_array_get(offsets, 1)) ||
        from < 0 || to < from)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the tensor %.80s has no type, no shape or no offsets",
                         file->path, name);
    if ((size_t)to > file->bytes - file->data)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s is cut off: it has %zu bytes, and the tensor %.80s ends after %zu: if it is a "
                         "download, it is not complete: fetch it again",
                         file->path, file->bytes, name, file->data + (size_t)to);
    element = hf_type_bytes(type);
    if (!bytes_of(shape, element, &bytes) || (element > 0 && bytes != (size_t)(to - from)))
        return gyre_fail(GYRE_ERR_FORMAT, "%.80s in %s: shape and offsets do not go together", name,
                         file->path);
    *out = (extent_t){(size_t)from, (size_t)to, name};
    return GYRE_OK;
}

static int by_place(const void *a, const void *b)
{
    const extent_t *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

static gyre_status_t check_header(const file_t *file)
{
    size_t count = 0;
    gyre_status_t status = GYRE_OK;
    extent_t *extent = calloc(json_object_size(file->header) + 1, sizeof *extent);
    if (!extent)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of %s", file->path);
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        if (status == GYRE_OK && strcmp(name, "__metadata__") != 0)
            status = check_entry(file, name, entry, &extent[count++]);
    }
    qsort(extent, count, sizeof *extent, by_place);
    for (size_t i = 1; status == GYRE_OK && i < count; i++)
        if (extent[i].from < extent[i - 1].to)
            status = gyre_fail(GYRE_ERR_FORMAT, "%s: the tensors %.80s and %.80s overlap", file->path,
                               extent[i - 1].name, extent[i].name);
    free(extent);
    return status;
}

/* ---- the folder ---------------------------------------------------------------------------------------- */

static char *join(const char *folder, const char *name)
{
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static gyre_status_t add_file(hf_files_t *hf, const char *path)
{
    file_t *grown = path ? realloc(hf->file, (hf->count + 1) * sizeof *grown) : NULL;
    if (!grown)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", hf->path);
    hf->file = grown;
    file_t *file = &hf->file[hf->count];
    gyre_status_t status = model_safetensors_open(path, file);
    if (status != GYRE_OK)
        return status;
    hf->count++;
    status = check_header(file);
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        for (size_t i = 0; status == GYRE_OK && hf->file + i < file; i++)
            if (strcmp(name, "__metadata__") != 0 && json_object_get(hf->file[i].header, name))
                status = gyre_fail(GYRE_ERR_FORMAT, "%s and %s both hold a tensor %.80s", hf->file[i].path,
                                   file->path, name);
    }
    return status;
}

/* The files that the index names, as keys of a new object. */
static gyre_status_t list_files(const char *index_path, const json_t *map, json_t **out)
{
    const char *tensor;
    json_t *value, *names = json_object();
    gyre_status_t status = GYRE_OK;
    json_object_foreach((json_t *)map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (status == GYRE_OK && (!name || strchr(name, '/') || name[0] == '.'))
            status = gyre_fail(GYRE_ERR_FORMAT, "%s: the file of %.80s is not a name in this folder",
                               index_path, tensor);
        else if (status == GYRE_OK && json_object_set_new(names, name, json_null()) != 0)
            status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", index_path);
    }
    if (status != GYRE_OK) {
        json_decref(names);
        return status;
    }
    *out = names;
    return GYRE_OK;
}

/* All files are there, before any is opened. */
static gyre_status_t check_there(const char *folder, const json_t *names)
{
    const char *name, *first = NULL;
    json_t *none;
    size_t missing = 0;
    json_object_foreach((json_t *)names, name, none)
    {
        char *path = join(folder, name);
        if (!path)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to look into %s", folder);
        if (access(path, F_OK) != 0 && missing++ == 0)
            first = name;
        free(path);
    }
    if (missing == 0)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NOT_FOUND,
                     "%s/%s is missing (%zu of the %zu files that " INDEX
                     " names are): the download is not complete: fetch the folder again",
                     folder, first, missing, json_object_size(names));
}

static gyre_status_t open_shards(hf_files_t *hf, const char *index_path)
{
    json_t *index = NULL, *names = NULL, *map, *none;
    const char *name;
    gyre_status_t status = base_json_read(index_path, &index);
    if (status != GYRE_OK)
        return status;
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s has no weight_map", index_path);
    if (status == GYRE_OK)
        status = list_files(index_path, map, &names);
    if (status == GYRE_OK)
        status = check_there(hf->path, names);
    json_object_foreach(names, name, none)
    {
        char *path = status == GYRE_OK ? join(hf->path, name) : NULL;
        if (status == GYRE_OK)
            status = add_file(hf, path);
        free(path);
    }
    json_decref(names);
    json_decref(index);
    return status;
}

/* The folder has no index: perhaps it has what the index is of. */
static gyre_status_t without_index(const char *folder)
{
    size_t shards = 0, total = 0, part, of;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        int end = -1;
        if (sscanf(entry->d_name, "model-%5zu-of-%5zu.safetensors%n", &part, &of, &end) == 2 && end > 0 &&
            !entry->d_name[end]) {
            shards++;
            total = base_max_size(total, of);
        }
    }
    if (entries)
        closedir(entries);
    if (shards > 0)
        return gyre_fail(GYRE_ERR_NOT_FOUND,
                         "%s/" INDEX
                         " is missing, which says what is in the files model-00001-of-%05zu.safetensors and "
                         "so on (%zu of %zu are there): the download is not complete: fetch the folder again",
                         folder, total, shards, total);
    return gyre_fail(GYRE_ERR_NOT_FOUND,
                     "%s holds neither " SINGLE " nor " INDEX
                     ": other formats are not read; `transformers` writes these with save_pretrained",
                     folder);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static gyre_status_t open_path(hf_files_t *hf)
{
    struct stat info;
    if (stat(hf->path, &info) != 0 || !S_ISDIR(info.st_mode))
        return add_file(hf, hf->path);
    char *single = join(hf->path, SINGLE), *index = join(hf->path, INDEX);
    gyre_status_t status = !single || !index ? gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", hf->path)
                           : access(single, F_OK) == 0 ? add_file(hf, single)
                           : access(index, F_OK) == 0  ? open_shards(hf, index)
                                                       : without_index(hf->path);
    free(single);
    free(index);
    return status;
}

gyre_status_t hf_files_open(const char *path, hf_files_t *out)
{
    hf_files_t files = {.path = strdup(path)};
    gyre_status_t status = /* NOLINT: `files` owns the path, and goes to the caller or is closed */
        files.path ? open_path(&files) : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    if (status != GYRE_OK) {
        hf_files_close(&files);
        return status;
    }
    *out = files;
    return GYRE_OK;
}

void hf_files_close(hf_files_t *files)
{
    for (size_t i = 0; i < files->count; i++)
        model_safetensors_close(&files->file[i]);
    free(files->file);
    free(files->path);
    *files = (hf_files_t){0};
}

const json_t *hf_files_find(const hf_files_t *files, const char *name, const file_t **file)
{
    for (size_t i = 0; i < files->count; i++) {
        const json_t *entry = json_object_get(files->file[i].header, name);
        if (entry) {
            *file = &files->file[i];
            return entry;
        }
    }
    return NULL;
}

/* ---- quantized ones ------------------------------------------------------------------------------------ */

/* The method's name as people know it, with its bits. */
static void name_method(const json_t *said, const char *method, char *text, size_t bytes)
{
    static const struct {
        const char *key, *name;
    } known[] = {{"gptq", "GPTQ"}, {"awq", "AWQ"}, {"fp8", "FP8"}, {"bitsandbytes", "bitsandbytes"}};
    const json_t *width = json_object_get(said, "bits");
    int bits = (int)json_integer_value(width ? width : json_object_get(said, "w_bit"));
    if (json_is_true(json_object_get(said, "load_in_4bit")))
        bits = 4;
    else if (json_is_true(json_object_get(said, "load_in_8bit")) || strcmp(method, "fp8") == 0)
        bits = 8;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].key, method) == 0)
            method = known[i].name;
    if (bits > 0)
        snprintf(text, bytes, "%.40s, %d bits", method, bits);
    else
        snprintf(text, bytes, "%.40s", method);
}

/* 1: some file holds a tensor that is not read. A file that cannot be opened is somebody else's error. */
static int holds_packed(const char *folder)
{
    hf_files_t files;
    const char *name;
    json_t *entry;
    int packed = 0, muted = base_log_mute(1);
    gyre_status_t status = hf_files_open(folder, &files);
    base_log_mute(muted);
    if (status != GYRE_OK)
        return 0;
    for (size_t i = 0; i < files.count; i++)
        json_object_foreach(files.file[i].header, name, entry)
        {
            if (strcmp(name, "__metadata__") != 0 && !hf_name_is_made(name))
                packed |= !hf_type_is_read(json_string_value(json_object_get(entry, "dtype")));
        }
    hf_files_close(&files);
    return packed;
}

gyre_status_t hf_files_check_quantized(const char *folder, const json_t *config)
{
    const json_t *said = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(said, "quant_method"));
    char text[80];
    if (!method)
        method = "bitsandbytes"; /* it did not say at first */
    if (!json_is_object(said) || strcmp(method, "mxfp4") == 0 || !holds_packed(folder))
        return GYRE_OK; /* such a configuration may be left of a copy in BF16 */
    name_method(said, method, text, sizeof text);
    return gyre_fail(
        GYRE_ERR_UNSUPPORTED,
        "%s holds quantized weights (%s, by quantization_config of its config.json): F32, BF16 and "
        "F16 are read: load the unquantized folder that it was made of",
        folder, text);
}

/* ---- elements ------------------------------------------------------------------------------------------ */

gyre_status_t hf_files_decode(const model_safetensors_file_t *file, size_t at, const char *type, float *to,
                              size_t count)
{
    if (strcmp(type, "F32") == 0)
        return base_file_read(file->fd, file->path, to, count * sizeof *to, at);
    enum { PIECE = 4096 };
    int brain = strcmp(type, "BF16") == 0;
    unsigned short half[PIECE];
    for (size_t i = 0, n; i < count; i += n) {
        n = base_min_size(PIECE, count - i);
        gyre_status_t status =
            base_file_read(file->fd, file->path, half, n * sizeof *half, at + i * sizeof *half);
        if (status != GYRE_OK)
            return status;
        for (size_t j = 0; j < n; j++)
            to[i + j] = brain ? coll_bfloat_to_float(half[j]) : coll_half_to_float(half[j]);
    }
    return GYRE_OK;
}
