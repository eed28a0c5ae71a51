/* model/checkpoint.c: reads and writes the weights of a whole model as safetensors, row by row. */
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
#include "model/hf.h"

#define HEADER_LIMIT 100000000u /* bytes, the format's own limit */
#define PREFIX       "transformer."

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors is little-endian: add byte swaps here");

/* ---- writing ------------------------------------------------------------------------------------------- */

/* The JSON header as text, padded with spaces so that the data begins on 8 bytes; caller frees. NULL: no memory. */
static char *header_text(const model_params_t *params, model_family_t family, size_t *bytes)
{
    json_t *header = json_object();
    json_int_t at = 0;
    char heads[32];
    snprintf(heads, sizeof heads, "%zu", params->config.heads);
    int bad = json_object_set_new(header, "__metadata__",
                                  json_pack("{s:s, s:s, s:s}", "format", "pt", "model_type",
                                            model_family_name(family), "n_head", heads));
    for (size_t r = 0; r < params->rows; r++) {
        model_tensor_t tensor;
        for (size_t i = 0; model_row_tensor(params, family, &params->row[r], i, &tensor); i++) {
            json_int_t end = at + (json_int_t)(tensor.rows * tensor.columns * sizeof(float));
            json_t *shape = json_array();
            for (size_t d = 0; d < tensor.dims; d++)
                bad |= json_array_append_new(shape, json_integer((json_int_t)tensor.shape[d]));
            bad |= json_object_set_new(
                header, tensor.name,
                json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", at, end));
            at = end;
        }
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

static size_t largest_row(const model_params_t *params)
{
    size_t largest = 0;
    for (size_t r = 0; r < params->rows; r++)
        largest = base_max_size(largest, params->row[r].leaves * params->row[r].leaf_count);
    return largest;
}

/* A file being written, and room for the largest row in three orders. */
typedef struct {
    const char *path;
    const model_params_t *params;
    model_family_t family;
    base_file_t file;
    float *canonical, *whole, *piece;
} writer_t;

static gyre_status_t writer_open(writer_t *writer)
{
    size_t bytes = 0, room = largest_row(writer->params);
    char *header = header_text(writer->params, writer->family, &bytes);
    writer->canonical = malloc(3 * room * sizeof(float));
    if (!header || !writer->canonical) {
        free(header);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", writer->path);
    }
    writer->whole = writer->canonical + room;
    writer->piece = writer->whole + room;
    uint64_t length = bytes;
    gyre_status_t status = base_file_begin(writer->path, &writer->file);
    if (status == GYRE_OK && (fwrite(&length, sizeof length, 1, writer->file.out) != 1 ||
                              fwrite(header, bytes, 1, writer->file.out) != 1)) {
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", writer->path);
        base_file_abandon(&writer->file);
    }
    free(header);
    return status;
}

static gyre_status_t write_row(writer_t *writer, const model_param_t *row)
{
    model_tensor_t tensor;
    model_param_to_file(row, writer->canonical, writer->whole);
    for (size_t i = 0; model_row_tensor(writer->params, writer->family, row, i, &tensor); i++) {
        model_tensor_from_whole(&tensor, writer->piece, writer->whole, row->shape[1]);
        if (fwrite(writer->piece, tensor.rows * tensor.columns * sizeof(float), 1, writer->file.out) != 1)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", writer->path);
    }
    return GYRE_OK;
}

gyre_status_t model_checkpoint_stream(const char *path, const model_params_t *params, model_row_fn get,
                                      void *user)
{
    writer_t writer = {.path = path, .params = params, .family = model_config_family(&params->config)};
    gyre_status_t written = path ? writer_open(&writer) : GYRE_OK, status = GYRE_OK;
    int open = path && written == GYRE_OK;
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++) {
        if (params->row[r].kind == MODEL_HEAD && params->row[r].twin)
            continue;
        /* rows go on coming where they cannot be written: other ranks take part */
        status = get(user, r, writer.canonical);
        if (status == GYRE_OK && open && written == GYRE_OK)
            written = write_row(&writer, &params->row[r]);
    }
    if (open && status == GYRE_OK && written == GYRE_OK)
        written = base_file_commit(&writer.file);
    else if (open)
        base_file_abandon(&writer.file);
    free(writer.canonical);
    return status != GYRE_OK ? status : written;
}

typedef struct {
    const model_params_t *params;
    const float *flat;
} flat_t;

static gyre_status_t flat_row(void *user, size_t r, float *canonical)
{
    const flat_t *from = user;
    const model_param_t *row = &from->params->row[r];
    memcpy(canonical, from->flat + row->offset, row->count * sizeof *canonical);
    return GYRE_OK;
}

gyre_status_t model_checkpoint_save(const char *path, const model_params_t *params, const float *flat)
{
    flat_t from = {params, flat};
    return model_checkpoint_stream(path, params, flat_row, &from);
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
    if (status != GYRE_OK)
        file_close(file);
    return status;
}

/* The entry of a tensor under its full name, or under GPT-2's own without the prefix. */
static const json_t *find(const file_t *file, const char *name)
{
    size_t prefix = strlen(PREFIX);
    const json_t *entry = json_object_get(file->header, name);
    return entry || strncmp(name, PREFIX, prefix) != 0 ? entry : json_object_get(file->header, name + prefix);
}

/* The shape of a matrix. */
static gyre_status_t find_shape(const file_t *file, const char *name, size_t shape[2])
{
    const json_t *entry = find(file, name), *extents = json_object_get(entry, "shape");
    if (!entry)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "the checkpoint %s holds no tensor %s: it is not of this kind of model", file->path,
                         name);
    for (size_t d = 0; d < 2; d++) {
        json_int_t extent = json_integer_value(json_array_get(extents, d));
        if (json_array_size(extents) != 2 || extent <= 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s in %s is no matrix", name, file->path);
        shape[d] = (size_t)extent;
    }
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
    size_t wte[2] = {0}, wpe[2] = {0}, layers = 0, heads = 0;
    gyre_status_t status = file_open(path, &file);
    if (status != GYRE_OK)
        return status;
    status = find_shape(&file, PREFIX "wte.weight", wte);
    if (status == GYRE_OK)
        status = find_shape(&file, PREFIX "wpe.weight", wpe);
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
    return model_hf_load(path, params, flat);
}
