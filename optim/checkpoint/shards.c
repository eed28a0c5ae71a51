/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/shards.c: the files of a checkpoint by its index: checking them, and finding any range
 * in them. */
#include "optim/checkpoint/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "model/formats/weights.h"
#include "optim/checkpoint/path.h"

/* ---- taking an index apart ----------------------------------------------------------------------------- */

typedef struct {
    char *name;
    size_t dims, shape[2], leaves, copies, parts, part[MODEL_PARTS], count;
} row_t;

typedef struct {
    char *name;
    uint64_t bytes, hash;
} file_t;

/* A range in a file. */
typedef struct {
    size_t row, first, count;
    size_t file;
    uint64_t at; /* byte in the file of the first of its three vectors */
} stored_t;

struct optim_shards {
    size_t rows, files, ranges;
    row_t *row;
    file_t *file;
    stored_t *range; /* by row and first, once they are checked */
};

void optim_shards_destroy(optim_shards_t *shards)
{
    if (!shards)
        return;
    for (size_t r = 0; shards->row && r < shards->rows; r++)
        free(shards->row[r].name);
    for (size_t f = 0; shards->file && f < shards->files; f++)
        free(shards->file[f].name);
    free(shards->row);
    free(shards->file);
    free(shards->range);
    free(shards);
}

/* A count of the index: an integer from `least`, below 2^48, so that bytes of a few can be added. */
static int get_size(const json_t *value, json_int_t least, size_t *out)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < least || n >= (json_int_t)1 << 48)
        return 0;
    *out = (size_t)n;
    return 1;
}

/* A plain file name: it must not lead out of the checkpoint. */
static int is_name(const char *text)
{
    return text && *text && *text != '.' && !strchr(text, '/') && strlen(text) < 128;
}

static int get_hash(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return 0;
    *out = strtoull(text, NULL, 16);
    return 1;
}

/* row->count becomes that of a row with row->copies of each part but the first, which lie along the last
 * dimension. 0: it is wrong. */
static int add_copies(row_t *row)
{
    size_t more, width = row->shape[row->dims - 1];
    row->count /= width;
    for (size_t p = 1; p < row->parts; p++)
        if (!base_mul(row->copies - 1, row->part[p], &more) || !base_add(width, more, &width))
            return 0;
    return base_mul(row->count, width, &row->count) && row->count < (size_t)1 << 48;
}

/* 1; 0: it is wrong; -1: no memory. */
static int parse_row(const json_t *json, row_t *row)
{
    const json_t *shape = json_object_get(json, "shape"), *parts = json_object_get(json, "parts");
    const char *name = json_string_value(json_object_get(json, "name"));
    row->dims = json_array_size(shape);
    row->parts = json_array_size(parts);
    row->count = 1;
    int good = name && strlen(name) < 128 && (row->dims == 1 || row->dims == 2) &&
               row->parts <= MODEL_PARTS && get_size(json_object_get(json, "leaves"), 1, &row->leaves);
    for (size_t d = 0; good && d < row->dims; d++)
        good = get_size(json_array_get(shape, d), 1, &row->shape[d]) &&
               base_mul(row->count, row->shape[d], &row->count) && row->count < (size_t)1 << 48;
    for (size_t p = 0; good && p < row->parts; p++)
        good = get_size(json_array_get(parts, p), 1, &row->part[p]);
    row->copies = 1;
    if (good && json_object_get(json, "copies"))
        good = get_size(json_object_get(json, "copies"), 1, &row->copies) && add_copies(row);
    return !good ? 0 : (row->name = strdup(name)) ? 1 : -1;
}

/* Adds the file's ranges to shards->range, which has room. NULL, or what is wrong. */
static const char *parse_file(const json_t *json, optim_shards_t *shards, file_t *file)
{
    const json_t *ranges = json_object_get(json, "ranges");
    const char *name = json_string_value(json_object_get(json, "name"));
    size_t data = 0, bytes = 0;
    if (!is_name(name) || !get_size(json_object_get(json, "bytes"), 0, &bytes) ||
        !get_hash(json_object_get(json, "xxh3"), &file->hash) ||
        !get_size(json_object_get(json, "data"), 0, &data) || !json_is_array(ranges))
        return "has an entry of a file that lacks name, bytes, xxh3, data or ranges";
    if (!(file->name = strdup(name)))
        return "";
    uint64_t at = data;
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *range = json_array_get(ranges, i);
        stored_t *s = &shards->range[shards->ranges];
        if (json_array_size(range) != 3 || !get_size(json_array_get(range, 0), 0, &s->row) ||
            !get_size(json_array_get(range, 1), 0, &s->first) ||
            !get_size(json_array_get(range, 2), 1, &s->count) || s->row >= shards->rows ||
            s->first + s->count > shards->row[s->row].count)
            return "has a range that is in none of its rows";
        s->file = (size_t)(file - shards->file);
        s->at = at;
        at += (uint64_t)OPTIM_RANGE_PARTS * sizeof(float) * s->count;
        if (at > bytes)
            return "has a file that is too short for its ranges";
        shards->ranges++;
    }
    if (at != bytes)
        return "has a file that is too long for its ranges";
    file->bytes = bytes;
    return NULL;
}

static int by_place(const void *a, const void *b)
{
    const stored_t *x = a, *y = b;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->first > y->first) - (x->first < y->first);
}

/* Every element of every row is there once. */
static gyre_status_t check_cover(const optim_shards_t *shards, const char *path)
{
    size_t i = 0;
    for (size_t r = 0; r < shards->rows; r++) {
        const row_t *row = &shards->row[r];
        size_t next = 0;
        for (; i < shards->ranges && shards->range[i].row == r; i++) {
            const stored_t *range = &shards->range[i];
            if (range->first > next)
                return gyre_fail(GYRE_ERR_FORMAT, "%s: elements %zu to %zu of %s are in no file", path, next,
                                 range->first - 1, row->name);
            if (range->first < next)
                return gyre_fail(GYRE_ERR_FORMAT, "%s: element %zu of %s is in both %s and %s", path,
                                 range->first, row->name, shards->file[range[-1].file].name,
                                 shards->file[range->file].name);
            next += range->count;
        }
        if (next < row->count)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: elements %zu to %zu of %s are in no file", path, next,
                             row->count - 1, row->name);
    }
    return GYRE_OK;
}

static gyre_status_t parse_members(const json_t *rows, const json_t *files, const char *path,
                                   optim_shards_t *shards)
{
    for (; shards->rows < json_array_size(rows); shards->rows++) {
        const int parsed = parse_row(json_array_get(rows, shards->rows), &shards->row[shards->rows]);
        if (parsed < 0)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
        if (!parsed)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: row %zu lacks name, shape, leaves or parts", path,
                             shards->rows);
    }
    for (size_t f = 0; f < json_array_size(files); f++) {
        const char *wrong = parse_file(json_array_get(files, f), shards, &shards->file[f]);
        shards->files++;
        if (wrong)
            return *wrong ? gyre_fail(GYRE_ERR_FORMAT, "%s %s (file %zu)", path, wrong, f)
                          : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    }
    if (shards->ranges > 1)
        qsort(shards->range, shards->ranges, sizeof *shards->range, by_place);
    return check_cover(shards, path);
}

gyre_status_t optim_shards_parse(const json_t *index, const char *path, optim_shards_t **out)
{
    const json_t *rows = json_object_get(index, "rows"), *files = json_object_get(index, "files");
    if (!json_array_size(rows) || !json_array_size(files))
        return gyre_fail(GYRE_ERR_FORMAT, "%s lacks rows or files", path);
    size_t ranges = 0;
    for (size_t f = 0; f < json_array_size(files); f++)
        ranges += json_array_size(json_object_get(json_array_get(files, f), "ranges"));
    optim_shards_t *shards = calloc(1, sizeof *shards);
    int there = shards && (shards->row = calloc(json_array_size(rows), sizeof *shards->row)) &&
                (shards->file = calloc(json_array_size(files), sizeof *shards->file)) &&
                (shards->range = calloc(ranges + 1, sizeof *shards->range));
    gyre_status_t status = there ? parse_members(rows, files, path, shards)
                                 : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    if (status != GYRE_OK) {
        optim_shards_destroy(shards);
        return status;
    }
    *out = shards;
    return GYRE_OK;
}

/* ---- checking ------------------------------------------------------------------------------------------ */

static void print_row(const row_t *row, char *text, size_t bytes)
{
    if (row->dims == 2)
        snprintf(text, bytes, "%.60s [%zu, %zu] of %zu leaves", row->name, row->shape[0], row->shape[1],
                 row->leaves);
    else
        snprintf(text, bytes, "%.60s [%zu] of %zu leaves", row->name, row->shape[0], row->leaves);
}

static int same_row(const row_t *a, const row_t *b)
{
    int same = strcmp(a->name, b->name) == 0 && a->dims == b->dims && a->shape[0] == b->shape[0] &&
               (a->dims == 1 || a->shape[1] == b->shape[1]) && a->leaves == b->leaves &&
               a->copies == b->copies && a->parts == b->parts;
    for (size_t p = 0; same && p < a->parts; p++)
        same = a->part[p] == b->part[p];
    return same;
}

gyre_status_t optim_shards_fit(const optim_shards_t *shards, const model_params_t *whole, const char *path)
{
    size_t n = 0;
    for (size_t r = 0; r < whole->rows; r++) {
        model_param_t *w = &whole->row[r];
        if (w->alias != MODEL_NONE)
            continue;
        row_t mine = {.name = w->name,
                      .dims = w->dims,
                      .shape = {w->shape[0], w->shape[1]},
                      .leaves = w->leaves,
                      .copies = w->copies,
                      .parts = w->parts > 1 ? w->parts : 0};
        memcpy(mine.part, w->part, sizeof mine.part);
        char this[160], that[160];
        print_row(&mine, this, sizeof this);
        if (n == shards->rows)
            return gyre_fail(GYRE_ERR_INVALID, "%s is of another model: it ends before %s", path, this);
        print_row(&shards->row[n], that, sizeof that);
        if (!same_row(&mine, &shards->row[n]))
            return gyre_fail(GYRE_ERR_INVALID, "%s is of another model: it has %s where this one has %s%s",
                             path, that, this, strcmp(this, that) == 0 ? " with other parts" : "");
        n++;
    }
    return n == shards->rows ? GYRE_OK
                             : gyre_fail(GYRE_ERR_INVALID, "%s is of another model: %s is not in this one",
                                         path, shards->row[n].name);
}

static int file_path(const char *folder, const file_t *file, char *path)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, file->name);
    return n > 0 && n < PATH_MAX;
}

gyre_status_t optim_shards_sizes(const optim_shards_t *shards, const char *folder)
{
    char path[PATH_MAX];
    struct stat info;
    for (size_t f = 0; f < shards->files; f++) {
        const file_t *file = &shards->file[f];
        if (!file_path(folder, file, path))
            return checkpoint_path_too_long(folder);
        if (stat(path, &info) != 0)
            return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                                   "cannot open %s", path);
        if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != file->bytes)
            return gyre_fail(GYRE_ERR_FORMAT, "%s has %lld bytes instead of %llu", path,
                             (long long)info.st_size, (unsigned long long)file->bytes);
    }
    return GYRE_OK;
}

gyre_status_t optim_shards_verify(const optim_shards_t *shards, const char *folder, size_t index, size_t of)
{
    char path[PATH_MAX];
    for (size_t f = index; f < shards->files; f += of) {
        const file_t *file = &shards->file[f];
        model_file_sum_t sum = {0};
        gyre_status_t status = file_path(folder, file, path) ? model_checkpoint_sum(path, &sum)
                                                             : checkpoint_path_too_long(folder);
        if (status == GYRE_OK && sum.bytes != file->bytes)
            status = gyre_fail(GYRE_ERR_FORMAT, "%s has %llu bytes instead of %llu", path,
                               (unsigned long long)sum.bytes, (unsigned long long)file->bytes);
        if (status == GYRE_OK && sum.hash != file->hash)
            status =
                gyre_fail(GYRE_ERR_FORMAT, "%s is damaged: its checksum is %016llx; the index says %016llx",
                          path, (unsigned long long)sum.hash, (unsigned long long)file->hash);
        if (status != GYRE_OK)
            return status;
    }
    return GYRE_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* The first stored range that ends after element `first` of `row`. */
static size_t find_range(const optim_shards_t *shards, size_t row, size_t first)
{
    size_t low = 0, high = shards->ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const stored_t *s = &shards->range[middle];
        if (s->row < row || (s->row == row && s->first + s->count <= first))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A piece of a wanted range that lies in one file. */
typedef struct {
    size_t file, wanted, from, count; /* elements of the wanted range */
    uint64_t at, stride;              /* byte of the weights; from one part to the next */
} piece_t;

static int by_file(const void *a, const void *b)
{
    const piece_t *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x->at > y->at) - (x->at < y->at);
}

/* All pieces; *out is malloc'd. */
static gyre_status_t find_pieces(const optim_shards_t *shards, const size_t *number,
                                 const model_params_t *whole, const optim_range_t *range, size_t ranges,
                                 piece_t **out, size_t *count)
{
    size_t n = 0, room = 0;
    piece_t *piece = NULL;
    for (size_t w = 0; w < ranges; w++) {
        size_t row = number[optim_range_row(whole, range[w].row)], end = range[w].first + range[w].count;
        for (size_t i = find_range(shards, row, range[w].first);
             i < shards->ranges && shards->range[i].row == row && shards->range[i].first < end; i++) {
            const stored_t *s = &shards->range[i];
            size_t from = base_max_size(s->first, range[w].first),
                   to = base_min_size(s->first + s->count, end);
            if (!base_grow(&piece, &room, n, 1, sizeof *piece)) {
                free(piece);
                return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu pieces of a checkpoint", n + 1);
            }
            piece[n++] = (piece_t){.file = s->file,
                                   .wanted = w,
                                   .from = from - range[w].first,
                                   .count = to - from,
                                   .at = s->at + (from - s->first) * sizeof(float),
                                   .stride = s->count * sizeof(float)};
        }
    }
    *out = piece;
    *count = n;
    return GYRE_OK;
}

/* Pieces of one file. */
static gyre_status_t read_file(const char *folder, const file_t *file, const piece_t *piece, size_t pieces,
                               const optim_range_t *range)
{
    char path[PATH_MAX];
    if (!file_path(folder, file, path))
        return checkpoint_path_too_long(folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; i < pieces; i++)
        for (size_t p = 0; status == GYRE_OK && p < OPTIM_RANGE_PARTS; p++)
            if (range[piece[i].wanted].part[p])
                status = base_file_read(fd, path, range[piece[i].wanted].part[p] + piece[i].from,
                                        piece[i].count * sizeof(float), piece[i].at + p * piece[i].stride);
    close(fd);
    return status;
}

gyre_status_t optim_shards_read(const optim_shards_t *shards, const char *folder, const model_params_t *whole,
                                const optim_range_t *range, size_t ranges)
{
    size_t pieces = 0;
    size_t *number = optim_range_numbers(whole);
    piece_t *piece = NULL;
    gyre_status_t status = number ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a checkpoint");
    for (size_t w = 0; status == GYRE_OK && w < ranges; w++) {
        size_t row = range[w].row < whole->rows ? optim_range_row(whole, range[w].row) : MODEL_NONE;
        if (row == MODEL_NONE || number[row] >= shards->rows ||
            range[w].first + range[w].count > shards->row[number[row]].count)
            status = gyre_fail(GYRE_ERR_INVALID, "elements %zu to %zu of row %zu are in no checkpoint",
                               range[w].first, range[w].first + range[w].count, range[w].row);
    }
    if (status == GYRE_OK)
        status = find_pieces(shards, number, whole, range, ranges, &piece, &pieces);
    if (pieces > 1)
        qsort(piece, pieces, sizeof *piece, by_file);
    for (size_t i = 0, end; status == GYRE_OK && i < pieces; i = end) {
        for (end = i; end < pieces && piece[end].file == piece[i].file;)
            end++;
        status = read_file(folder, &shards->file[piece[i].file], piece + i, end - i, range);
    }
    free(piece);
    free(number);
    return status;
}
