/* model/data.c: reads text, splits it, cuts sequences. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/data.h"
#include "model/random.h"

#define LOOK      8192 /* bytes in which a zero byte says "not text" */
#define MAX_DEPTH 64

typedef struct {
    char **path; /* [count], owned */
    size_t count, room;
} paths_t;

static void paths_free(paths_t *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->path[i]);
    free(paths->path);
}

static gyre_status_t paths_add(paths_t *paths, const char *path)
{
    if (paths->count == paths->room) {
        size_t room = paths->room ? 2 * paths->room : 64;
        char **grown = realloc(paths->path, room * sizeof *grown);
        if (!grown)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of files at %s", path);
        paths->path = grown;
        paths->room = room;
    }
    if (!(paths->path[paths->count] = strdup(path)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of files at %s", path);
    paths->count++;
    return GYRE_OK;
}

static gyre_status_t collect(const char *folder, paths_t *paths, int depth)
{
    if (depth > MAX_DEPTH)
        return gyre_fail(GYRE_ERR_INVALID, "%s: folders nest deeper than %d: name a folder further down",
                         folder, MAX_DEPTH);
    DIR *dir = opendir(folder);
    if (!dir)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot open the folder %s: name another with --data",
                               folder);
    gyre_status_t status = GYRE_OK;
    struct dirent *entry;
    while (status == GYRE_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        char path[PATH_MAX];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            status = gyre_fail(GYRE_ERR_INVALID, "%s/%s: the path is too long", folder, entry->d_name);
        else if (lstat(path, &info) != 0)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
        else if (S_ISDIR(info.st_mode))
            status = collect(path, paths, depth + 1);
        else if (S_ISREG(info.st_mode))
            status = paths_add(paths, path);
    }
    if (status == GYRE_OK && errno != 0)
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot list the folder %s", folder);
    closedir(dir);
    return status;
}

/* Appends the file to data->text; with skip_binary a file that does not look like text is counted and left out. */
static gyre_status_t append_file(model_data_t *data, const char *path, int skip_binary)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno, "cannot open %s",
                               path);
    gyre_status_t status = GYRE_OK;
    struct stat info;
    if (fstat(fd, &info) != 0) {
        status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
        goto close_file;
    }
    size_t size = (size_t)info.st_size, room, got = 0;
    if (size == 0)
        goto close_file;
    unsigned char *grown = base_add(data->bytes, size, &room) ? realloc(data->text, room) : NULL;
    if (!grown) {
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", size, path);
        goto close_file;
    }
    data->text = grown;
    while (got <
           size) { /* a file that shrinks meanwhile ends early; one that grows is cut at its first size */
        ssize_t n = read(fd, grown + data->bytes + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
            goto close_file;
        }
        if (n == 0)
            break;
        got += (size_t)n;
    }
    if (memchr(grown + data->bytes, 0, base_min_size(got, LOOK))) {
        if (skip_binary) {
            data->skipped++;
            goto close_file;
        }
        log_warning("%s does not look like text; training on its bytes all the same", path);
    }
    data->bytes += got;
    data->files++;
close_file:
    close(fd);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static gyre_status_t append_folder(model_data_t *data, const char *folder)
{
    paths_t paths = {0};
    gyre_status_t status = collect(folder, &paths, 0);
    if (paths.count > 1)
        qsort(paths.path, paths.count, sizeof *paths.path, by_path);
    for (size_t i = 0; status == GYRE_OK && i < paths.count; i++)
        status = append_file(data, paths.path[i], 1);
    paths_free(&paths);
    return status;
}

static double entropy(const unsigned char *text, size_t bytes)
{
    size_t count[256] = {0};
    double sum = 0.0;
    for (size_t i = 0; i < bytes; i++)
        count[text[i]]++;
    for (int b = 0; b < 256; b++)
        if (count[b]) {
            double p = (double)count[b] / (double)bytes;
            sum -= p * log(p);
        }
    return sum;
}

gyre_status_t model_data_open(const char *path, model_data_t **out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot open the training text %s: name a text file or folder with --data",
                               path);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return gyre_fail(GYRE_ERR_INVALID, "%s is neither a file nor a folder: name one with --data", path);
    model_data_t *data = calloc(1, sizeof *data);
    if (!data)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the training text %s", path);
    gyre_status_t status = S_ISDIR(info.st_mode) ? append_folder(data, path) : append_file(data, path, 0);
    if (status == GYRE_OK && data->bytes == 0)
        status =
            S_ISDIR(info.st_mode)
                ? gyre_fail(GYRE_ERR_FORMAT,
                            "the folder %s holds no text (%zu files were skipped as binary; links and names "
                            "that begin with a dot are not followed): name another with --data",
                            path, data->skipped)
                : gyre_fail(GYRE_ERR_FORMAT, "the file %s is empty: name one with text with --data", path);
    if (status != GYRE_OK) {
        model_data_destroy(data);
        return status;
    }
    data->train = data->bytes - data->bytes / 10;
    data->unigram_entropy = entropy(data->text, data->bytes);
    *out = data;
    return GYRE_OK;
}

void model_data_destroy(model_data_t *data)
{
    if (!data)
        return;
    free(data->text);
    free(data);
}

gyre_status_t model_data_check(const model_data_t *data, const char *path, size_t seq)
{
    size_t validation = data->bytes - data->train;
    if (data->train > seq && validation > seq)
        return GYRE_OK;
    if (validation < 2)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s holds %zu bytes: too little to train on; name a longer text with --data", path,
                         data->bytes);
    return gyre_fail(
        GYRE_ERR_INVALID,
        "%s holds %zu bytes, of which the last tenth (%zu) is for validation: too short for one sequence "
        "of %zu tokens; name a text of at least %zu bytes with --data, or take --seq %zu or less",
        path, data->bytes, validation, seq, (seq + 1) * 10, validation - 1);
}

static void cut(const unsigned char *text, size_t seq, model_token_t *tokens, model_token_t *targets)
{
    for (size_t t = 0; t < seq; t++) {
        tokens[t] = text[t];
        targets[t] = text[t + 1];
    }
}

void model_data_train(const model_data_t *data, uint64_t seed, uint64_t step, size_t index, size_t seq,
                      model_token_t *tokens, model_token_t *targets)
{
    uint64_t bits = model_random_bits(seed, MODEL_RANDOM_DATA, (uint32_t)index, step);
    size_t places = data->train - seq; /* the last target must lie in the training part */
    cut(data->text + (size_t)(bits % places), seq, tokens, targets);
}

size_t model_data_validation_count(const model_data_t *data, size_t seq)
{
    size_t validation = data->bytes - data->train;
    return validation > seq ? (validation - 1) / seq : 0;
}

void model_data_validation(const model_data_t *data, size_t index, size_t seq, model_token_t *tokens,
                           model_token_t *targets)
{
    cut(data->text + data->train + index * seq, seq, tokens, targets);
}
