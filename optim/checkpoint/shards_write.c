/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/shards_write.c: one rank's ranges as a file, and its entry. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "model/formats/weights.h"
#include "model/formats/safetensors.h"
#include "optim/checkpoint/shards.h"
#include "optim/checkpoint/index.h"
#include "optim/checkpoint/path.h"

#define ENTRY_LIMIT (64 << 20) /* bytes of a shard-N.done */

static const char *const part_name[OPTIM_RANGE_PARTS] = {"weight", "exp_avg", "exp_avg_sq"};

/* ---- ranges -------------------------------------------------------------------------------------------- */

size_t optim_range_row(const model_params_t *whole, size_t row)
{
    size_t alias = whole->row[row].alias;
    return alias != MODEL_NONE ? alias : row;
}

size_t *optim_range_numbers(const model_params_t *whole)
{
    size_t *number = calloc(whole->rows + 1, sizeof *number), n = 0;
    for (size_t r = 0; number && r < whole->rows; r++)
        number[r] = whole->row[r].alias != MODEL_NONE ? MODEL_NONE : n++;
    return number;
}

static int shard_path(const char *folder, size_t writer, const char *ending, char *path)
{
    int n = snprintf(path, PATH_MAX, "%s/" CHECKPOINT_SHARD "%05zu.%s", folder, writer, ending);
    return n > 0 && n < PATH_MAX;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void list_vectors(model_safetensors_t *file, const model_params_t *whole, const optim_range_t *range,
                         size_t ranges)
{
    model_safetensors_metadata(file, json_pack("{s:s}", "format", "gyre-shard"));
    for (size_t i = 0; i < ranges; i++)
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++) {
            char name[160];
            snprintf(name, sizeof name, "%s[%zu:%zu].%s", whole->row[range[i].row].name, range[i].first,
                     range[i].first + range[i].count, part_name[p]);
            model_safetensors_tensor(file, name, "F32", &range[i].count, 1, range[i].count * sizeof(float));
        }
}

/* Summed up from memory, so a disk that keeps something else is found out. */
static gyre_status_t write_file(const char *path, const model_params_t *whole, const optim_range_t *range,
                                size_t ranges, model_file_sum_t *sum, size_t *data)
{
    base_hash_t *hash = base_hash_begin();
    model_safetensors_t file = {.hash = hash};
    list_vectors(&file, whole, range, ranges);
    gyre_status_t status = hash ? model_safetensors_begin(&file, path)
                                : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write %s", path);
    *data = file.data;
    for (size_t i = 0; i < ranges; i++)
        for (size_t p = 0; status == GYRE_OK && p < OPTIM_RANGE_PARTS; p++)
            status = model_safetensors_put(&file, range[i].part[p], range[i].count * sizeof(float));
    sum->bytes = file.bytes;
    if (status == GYRE_OK)
        status = model_safetensors_commit(&file);
    else
        model_safetensors_abandon(&file);
    sum->hash = base_hash_end(hash);
    return status;
}

static json_t *make_entry(const char *path, const model_file_sum_t *sum, size_t data, const size_t *number,
                          const optim_range_t *range, size_t ranges)
{
    json_t *list = json_array();
    int bad = !list;
    for (size_t i = 0; i < ranges; i++)
        bad |= json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)number[range[i].row],
                                                     (json_int_t)range[i].first, (json_int_t)range[i].count));
    json_t *entry = json_pack("{s:s, s:I, s:o, s:I, s:o}", "name", strrchr(path, '/') + 1, "bytes",
                              (json_int_t)sum->bytes, "xxh3", base_json_hex(sum->hash), "data",
                              (json_int_t)data, "ranges", list);
    if (entry && bad) {
        json_decref(entry);
        entry = NULL;
    }
    return entry;
}

static gyre_status_t write_shard(const char *folder, size_t writer, const model_params_t *whole,
                                 const optim_range_t *range, size_t ranges)
{
    char path[PATH_MAX];
    model_file_sum_t sum;
    size_t data = 0;
    size_t *number = optim_range_numbers(whole);
    gyre_status_t status = number ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a checkpoint");
    for (size_t i = 0; status == GYRE_OK && i < ranges; i++)
        if (range[i].row >= whole->rows || number[range[i].row] == MODEL_NONE)
            status = gyre_fail(GYRE_ERR_INVALID, "row %zu is not stored in checkpoints", range[i].row);
    if (status == GYRE_OK && !shard_path(folder, writer, "safetensors", path))
        status = checkpoint_path_too_long(folder);
    if (status == GYRE_OK)
        status = write_file(path, whole, range, ranges, &sum, &data);
    json_t *entry = status == GYRE_OK ? make_entry(path, &sum, data, number, range, ranges) : NULL;
    if (status == GYRE_OK && !entry)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the entry of %s", path);
    if (status == GYRE_OK)
        status = shard_path(folder, writer, "done", path) ? base_json_write(path, entry)
                                                          : checkpoint_path_too_long(folder);
    json_decref(entry);
    free(number);
    return status;
}

/* What cannot be sent is found out by waiting. */
void model_shard_fail(const char *folder, size_t writer)
{
    char path[PATH_MAX];
    FILE *out = shard_path(folder, writer, "failed", path) ? fopen(path, "we") : NULL;
    if (out) {
        fputs(gyre_last_error(), out);
        fclose(out);
    }
}

gyre_status_t model_shard_write(const char *folder, size_t writer, const model_params_t *whole,
                                const optim_range_t *range, size_t ranges)
{
    gyre_status_t status = write_shard(folder, writer, whole, range, ranges);
    if (status != GYRE_OK)
        model_shard_fail(folder, writer);
    return status;
}

gyre_status_t model_shard_entry(const char *folder, size_t writer, json_t **entry)
{
    char path[PATH_MAX], why[512] = "";
    struct stat info;
    if (!shard_path(folder, writer, "done", path))
        return checkpoint_path_too_long(folder);
    if (stat(path, &info) == 0) {
        if (info.st_size > ENTRY_LIMIT)
            return gyre_fail(GYRE_ERR_FORMAT, "%s is not the entry of a shard", path);
        return base_json_read(path, entry);
    }
    FILE *in = shard_path(folder, writer, "failed", path) ? fopen(path, "re") : NULL;
    if (!in)
        return GYRE_IN_PROGRESS;
    size_t n = fread(why, 1, sizeof why - 1, in);
    fclose(in);
    why[n] = 0;
    return gyre_fail(GYRE_ERR_IO, "rank %zu could not write its shard: %s", writer, why);
}

gyre_status_t model_shards_look(const char *folder, unsigned char *came, size_t writers)
{
    size_t writer;
    DIR *all = opendir(folder);
    if (!all)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the folder %s", folder);
    for (struct dirent *entry; (entry = readdir(all));) {
        const char *ending = strrchr(entry->d_name, '.');
        int known = ending && (strcmp(ending, ".done") == 0 || strcmp(ending, ".failed") == 0);
        if (known && sscanf(entry->d_name, CHECKPOINT_SHARD "%zu.", &writer) == 1 && writer < writers)
            came[writer] = 1;
    }
    closedir(all);
    return GYRE_OK;
}

void model_shard_forget(const char *folder, size_t writer)
{
    char path[PATH_MAX];
    if (shard_path(folder, writer, "done", path))
        (void)unlink(path);
}

json_t *optim_shards_rows(const model_params_t *whole)
{
    json_t *rows = json_array();
    int bad = !rows;
    for (size_t r = 0; r < whole->rows; r++) {
        const model_param_t *row = &whole->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        json_t *shape = json_array(), *parts = json_array();
        for (size_t d = 0; d < row->dims; d++)
            bad |= json_array_append_new(shape, json_integer((json_int_t)row->shape[d]));
        for (size_t p = 0; row->parts > 1 && p < row->parts; p++)
            bad |= json_array_append_new(parts, json_integer((json_int_t)row->part[p]));
        json_t *json = json_pack("{s:s, s:o, s:I, s:o}", "name", row->name, "shape", shape, "leaves",
                                 (json_int_t)row->leaves, "parts", parts);
        if (row->copies > 1)
            bad |= json_object_set_new(json, "copies", json_integer((json_int_t)row->copies));
        bad |= json_array_append_new(rows, json);
    }
    if (bad) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}
