/* model/checkpoint.c: reads and writes safetensors. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "model/checkpoint.h"

#define HEADER_LIMIT 100000000u /* bytes, the format's own limit */
#define PREFIX       "transformer."

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors is little-endian: add byte swaps here");

/* ---- writing ------------------------------------------------------------------------------------------- */

/* The JSON header as text, padded with spaces so that the data begins on 8 bytes; caller frees. NULL: no memory. */
static char *header_text(const model_params_t *params, size_t *bytes)
{
    json_t *header = json_object();
    char heads[32];
    snprintf(heads, sizeof heads, "%zu", params->config.heads);
    int bad = json_object_set_new(
        header, "__metadata__",
        json_pack("{s:s, s:s, s:s}", "format", "pt", "model_type", "gpt2", "n_head", heads));
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        json_int_t begin = (json_int_t)(row->offset * sizeof(float));
        json_int_t end = begin + (json_int_t)(row->count * sizeof(float));
        json_t *shape = json_array();
        for (size_t d = 0; d < row->dims; d++)
            bad |= json_array_append_new(shape, json_integer((json_int_t)row->shape[d]));
        bad |= json_object_set_new(
            header, row->name,
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", begin, end));
    }
    char *text = bad ? NULL : json_dumps(header, JSON_COMPACT), *padded = NULL;
    json_decref(header);
    if (text) {
        size_t length = strlen(text);
        *bytes = base_round_up(length, 8);
        if ((padded = malloc(*bytes + 1))) {
            memset(padded, ' ', *bytes);
            memcpy(padded, text, length);
        }
        free(text);
    }
    return padded;
}

gyre_status_t model_checkpoint_save(const char *path, const model_params_t *params, const float *flat)
{
    base_file_t file;
    size_t bytes = 0;
    char *header = header_text(params, &bytes);
    if (!header)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of the checkpoint %s", path);
    uint64_t length = bytes;
    gyre_status_t status = base_file_begin(path, &file);
    if (status == GYRE_OK) {
        if (fwrite(&length, sizeof length, 1, file.out) == 1 && fwrite(header, bytes, 1, file.out) == 1 &&
            fwrite(flat, params->total * sizeof *flat, 1, file.out) == 1) {
            status = base_file_commit(&file);
        } else {
            base_file_abandon(&file);
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the checkpoint %s", path);
        }
    }
    free(header);
    return status;
}

gyre_status_t model_checkpoint_sum(const char *path, model_file_sum_t *sum)
{
    enum { PIECE = 1 << 20 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);
    model_file_sum_t found = {0};
    base_hash_t *hash = base_hash_begin();
    char *piece = malloc(PIECE);
    gyre_status_t status =
        hash && piece ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    while (status == GYRE_OK) {
        ssize_t n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
        if (n <= 0)
            break;
        base_hash_add(hash, piece, (size_t)n);
        found.bytes += (uint64_t)n;
    }
    close(fd);
    free(piece);
    found.hash = base_hash_end(hash);
    if (status == GYRE_OK)
        *sum = found;
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct {
    const char *path;
    int fd;
    json_t *header;
    size_t data;  /* where the data begins */
    size_t bytes; /* of the data */
} file_t;

static void file_close(file_t *file)
{
    json_decref(file->header);
    if (file->fd >= 0)
        close(file->fd);
}

static gyre_status_t read_at(const file_t *file, void *to, size_t bytes, size_t at)
{
    char *p = to;
    while (bytes > 0) {
        ssize_t n = pread(file->fd, p, base_min_size(bytes, (size_t)1 << 30), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the checkpoint %s", file->path);
        if (n == 0)
            return gyre_fail(GYRE_ERR_FORMAT, "the checkpoint %s ends early", file->path);
        p += n;
        at += (size_t)n;
        bytes -= (size_t)n;
    }
    return GYRE_OK;
}

static gyre_status_t file_open(const char *path, file_t *file)
{
    struct stat info;
    uint64_t length = 0;
    *file = (file_t){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (file->fd < 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot open the checkpoint %s", path);
    if (fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        file_close(file);
        return gyre_fail(GYRE_ERR_IO, "the checkpoint %s is not a file", path);
    }
    size_t size = (size_t)info.st_size;
    gyre_status_t status = size < sizeof length
                               ? gyre_fail(GYRE_ERR_FORMAT, "%s is too short for a safetensors file", path)
                               : read_at(file, &length, sizeof length, 0);
    if (status == GYRE_OK && (length < 2 || length > HEADER_LIMIT || length > size - sizeof length))
        status = gyre_fail(GYRE_ERR_FORMAT, "%s is not a safetensors file: its header would be %llu bytes",
                           path, (unsigned long long)length);
    char *text = status == GYRE_OK ? malloc(length) : NULL;
    if (status == GYRE_OK && !text)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the header of the checkpoint %s", path);
    if (status == GYRE_OK)
        status = read_at(file, text, length, sizeof length);
    if (status == GYRE_OK) {
        json_error_t error;
        file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(file->header))
            status = gyre_fail(GYRE_ERR_FORMAT, "%s is not a safetensors file: %s", path,
                               file->header ? "the header is not an object" : error.text);
    }
    free(text);
    file->data = sizeof length + (size_t)length;
    file->bytes = size - base_min_size(size, file->data);
    if (status != GYRE_OK)
        file_close(file);
    return status;
}

/* The entry of a tensor under its full name, or under GPT-2's own without the prefix. */
static const json_t *find(const file_t *file, const char *name)
{
    const json_t *entry = json_object_get(file->header, name);
    int shorter = !entry && strncmp(name, PREFIX, strlen(PREFIX)) == 0;
    return shorter ? json_object_get(file->header, name + strlen(PREFIX)) : entry;
}

static gyre_status_t locate(const file_t *file, const char *name, size_t dims, size_t shape[2], size_t *begin)
{
    const json_t *entry = find(file, name);
    if (!entry)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "the checkpoint %s holds no tensor %s: it is not of this kind of model", file->path,
                         name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *extents = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    if (!dtype || strcmp(dtype, "F32") != 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s in %s is %s: only F32 is read; convert it first", name,
                         file->path, dtype ? dtype : "without a type");
    if (!json_is_array(extents) || json_array_size(extents) != dims)
        return gyre_fail(GYRE_ERR_FORMAT, "%s in %s has %zu dimensions, not %zu", name, file->path,
                         json_array_size(extents), dims);
    size_t bytes = sizeof(float);
    for (size_t d = 0; d < dims; d++) {
        json_int_t extent = json_integer_value(json_array_get(extents, d));
        shape[d] = extent > 0 ? (size_t)extent : 0;
        if (!base_mul(bytes, shape[d], &bytes))
            bytes = 0;
    }
    json_int_t from = json_integer_value(json_array_get(offsets, 0)),
               to = json_integer_value(json_array_get(offsets, 1));
    if (bytes == 0 || from < 0 || to < from || (size_t)to > file->bytes || (size_t)(to - from) != bytes)
        return gyre_fail(GYRE_ERR_FORMAT, "%s in %s: shape, offsets and file size do not go together", name,
                         file->path);
    *begin = (size_t)from;
    return GYRE_OK;
}

/* n_head of the metadata; 0 if it is not there. */
static gyre_status_t find_heads(const file_t *file, size_t *heads)
{
    const json_t *value = json_object_get(json_object_get(file->header, "__metadata__"), "n_head");
    const char *text = json_string_value(value);
    *heads = 0;
    if (!value)
        return GYRE_OK;
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (digits == 0 || text[digits] || digits > 9 || (*heads = strtoul(text, NULL, 10)) == 0)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "n_head in the metadata of %s is no number of attention heads: %.30s", file->path,
                         text ? text : "not a string");
    return GYRE_OK;
}

gyre_status_t model_checkpoint_config(const char *path, model_config_t *config)
{
    file_t file;
    size_t wte[2] = {0}, wpe[2] = {0}, begin, layers = 0, heads = 0;
    gyre_status_t status = file_open(path, &file);
    if (status != GYRE_OK)
        return status;
    status = locate(&file, PREFIX "wte.weight", 2, wte, &begin);
    if (status == GYRE_OK)
        status = locate(&file, PREFIX "wpe.weight", 2, wpe, &begin);
    if (status == GYRE_OK) {
        char name[64];
        do
            snprintf(name, sizeof name, PREFIX "h.%zu.ln_1.weight", layers);
        while (find(&file, name) && ++layers);
        if (layers == 0)
            status = gyre_fail(GYRE_ERR_FORMAT, "the checkpoint %s holds no layer", path);
    }
    if (status == GYRE_OK)
        status = find_heads(&file, &heads);
    if (status == GYRE_OK)
        *config = (model_config_t){
            .vocab = wte[0], .seq = wpe[0], .layers = layers, .hidden = wte[1], .heads = heads};
    file_close(&file);
    return status;
}

gyre_status_t model_checkpoint_load(const char *path, const model_params_t *params, float *flat)
{
    file_t file;
    gyre_status_t status = file_open(path, &file);
    if (status != GYRE_OK)
        return status;
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        size_t shape[2] = {1, 1}, begin = 0;
        status = locate(&file, row->name, row->dims, shape, &begin);
        if (status == GYRE_OK && (shape[0] != row->shape[0] || shape[1] != row->shape[1]))
            status = gyre_fail(GYRE_ERR_FORMAT, "%s in %s is [%zu, %zu]; this model needs [%zu, %zu]",
                               row->name, path, shape[0], shape[1], row->shape[0], row->shape[1]);
        if (status == GYRE_OK)
            status = read_at(&file, flat + row->offset, row->count * sizeof *flat, file.data + begin);
    }
    file_close(&file);
    return status;
}
