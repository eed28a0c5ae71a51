/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens.c: finds the files of a path, makes one stream of them, and reads it. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "model/data/files.h"
#include "model/data/tokens_format.h"

#define SMALL       ((size_t)64 << 10) /* bytes of a file that is not worth a map */
#define MAPS_MOST   30000              /* Linux allows 65,530 by default (vm.max_map_count) */
#define HASH_WHOLE  ((size_t)64 << 20) /* streams up to this are hashed whole */
#define HASH_PIECES 1024
#define HASH_PIECE  ((size_t)64 << 10)

__extension__ typedef unsigned __int128 wide_t;

static const char *const names[] = {"auto", "text", "gyre", "llmc", "megatron", "nanogpt"};
#define NAMES (sizeof names / sizeof *names)

const char *model_tokens_format_name(model_tokens_format_t format)
{
    return (size_t)format < NAMES ? names[format] : "?";
}

int model_tokens_format_find(const char *name, model_tokens_format_t *out)
{
    for (size_t i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (model_tokens_format_t)i;
            return 1;
        }
    return 0;
}

size_t model_tokens_width(model_tokens_type_t type)
{
    static const unsigned char width[] = {1, 1, 2, 2, 4, 4, 8};
    return width[type];
}

/* ---- maps and parts ------------------------------------------------------------------------------------ */

/* in_memory 1: it is not to be mapped, however large it is. */
static gyre_status_t map(int fd, const char *path, int in_memory, model_tokens_file_t *file)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot look at %s", path);
    if (!S_ISREG(info.st_mode))
        return gyre_fail(GYRE_ERR_INVALID, "%s is not a file: name a token file", path);
    if (info.st_size == 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s is empty: name a file with tokens", path);
    file->bytes = (size_t)info.st_size;
    if (in_memory || file->bytes < SMALL) {
        if (!(file->copy = malloc(file->bytes)))
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", file->bytes, path);
        file->map = file->copy;
        return base_file_read(fd, path, file->copy, file->bytes, 0);
    }
    void *at = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return gyre_fail_errno(GYRE_ERR_IO, errno,
                               "cannot map the %zu bytes of %s: where that is for too many maps "
                               "(vm.max_map_count), join files into fewer",
                               file->bytes, path);
    file->map = at;
    return GYRE_OK;
}

static void unmap(model_tokens_file_t *file)
{
    if (file->map && !file->copy)
        munmap((void *)(uintptr_t)file->map, file->bytes);
    free(file->copy);
    free(file->path);
}

gyre_status_t tokens_map(model_tokens_t *tokens, const char *path)
{
    model_tokens_file_t *grown = realloc(tokens->file, (tokens->maps + 1) * sizeof *grown);
    if (!grown)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    tokens->file = grown;
    model_tokens_file_t *file = &grown[tokens->maps];
    *file = (model_tokens_file_t){.path = strdup(path)};
    if (!file->path)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gyre_status_t status = fd < 0 ? gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path)
                                  : map(fd, path, tokens->maps >= MAPS_MOST, file);
    if (fd >= 0)
        close(fd);
    if (status != GYRE_OK) {
        unmap(file);
        return status;
    }
    tokens->maps++;
    tokens->files++;
    return GYRE_OK;
}

void tokens_unmap_last(model_tokens_t *tokens)
{
    unmap(&tokens->file[--tokens->maps]);
    tokens->files--;
}

void tokens_unmap(model_tokens_t *tokens)
{
    for (size_t i = 0; i < tokens->maps; i++)
        unmap(&tokens->file[i]);
    free(tokens->file);
    free(tokens->part);
    free(tokens->path);
}

gyre_status_t tokens_append(model_tokens_t *tokens, size_t file, const unsigned char *at, uint64_t count)
{
    size_t width = model_tokens_width(tokens->file[file].type);
    model_tokens_part_t *part = tokens->part;
    const size_t parts = tokens->parts;
    if (count == 0)
        return GYRE_OK;
    if (parts > 0 && part[parts - 1].file == file && part[parts - 1].at + part[parts - 1].count * width == at)
        part[parts - 1].count += count;
    else {
        if ((parts & (parts - 1)) == 0) { /* doubles at powers of two */
            size_t room = parts > 0 ? 2 * parts : 1;
            model_tokens_part_t *grown = realloc(tokens->part, room * sizeof *grown);
            if (!grown)
                return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu pieces of %s", room,
                                 tokens->file[file].path);
            tokens->part = grown;
        }
        tokens->part[tokens->parts++] =
            (model_tokens_part_t){.at = at, .first = tokens->count, .count = count, .file = file};
    }
    tokens->count += count;
    tokens->bytes += count * width;
    return GYRE_OK;
}

/* ---- what a path means --------------------------------------------------------------------------------- */

/* AUTO: nothing identifies it, or it is not there. Errors: it is there, and cannot be opened: it must not be
 * taken for text, or be left out. */
static gyre_status_t sniff_file(const char *path, model_tokens_format_t *out)
{
    unsigned char head[TOKENS_SNIFF];
    *out = MODEL_TOKENS_AUTO;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && base_file_status(errno) != GYRE_ERR_NOT_FOUND && errno != ENXIO) /* a socket */
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    ssize_t got = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    if (got > 0)
        *out = tokens_sniff(head, (size_t)got);
    return GYRE_OK;
}

static int ends(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

/* Looks for the index next to NAME.bin or NAME; *has 0: there is no index of Megatron's. */
static gyre_status_t has_index(const char *path, int *has)
{
    char beside[4096];
    model_tokens_format_t found = MODEL_TOKENS_AUTO;
    int stem = (int)strlen(path) - (ends(path, ".bin") ? 4 : 0);
    int n = snprintf(beside, sizeof beside, "%.*s.idx", stem, path);
    gyre_status_t status = n > 0 && (size_t)n < sizeof beside ? sniff_file(beside, &found) : GYRE_OK;
    *has = found == MODEL_TOKENS_MEGATRON;
    return status;
}

/* Of one file; *format stays AUTO if nothing identifies it. */
static gyre_status_t find_format(const char *path, model_tokens_format_t *format)
{
    int has = 0;
    gyre_status_t status = sniff_file(path, format);
    if (status == GYRE_OK && *format == MODEL_TOKENS_AUTO)
        status = has_index(path, &has);
    if (has)
        *format = MODEL_TOKENS_MEGATRON;
    return status;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A folder is one stream: parts for training and for validation must not be mixed unseen. */
static gyre_status_t check_names(const char *folder, const model_files_t *files)
{
    const char *train = NULL, *val = NULL;
    for (size_t i = 0; i < files->count; i++) {
        const char *name = base_name(files->path[i]);
        if (strstr(name, "train"))
            train = name;
        else if (strstr(name, "val"))
            val = name;
    }
    if (!train || !val)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s holds files for training (%s) and for validation (%s): give --data '%s/*train*' "
                     "--valid-data '%s/*val*'",
                     folder, train, val, folder, folder);
}

/* Keeps those of `format` in `files`; AUTO: those of the one format that all have, which becomes *format, or
 * TEXT if no file has a format. */
static gyre_status_t choose(const char *folder, model_files_t *files, model_tokens_format_t *format)
{
    const char *token = NULL, *other = NULL;
    model_tokens_format_t found = MODEL_TOKENS_AUTO;
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) {
        char *path = files->path[i];
        model_tokens_format_t this;
        int twin = 0; /* it comes with its .idx */
        gyre_status_t status = sniff_file(path, &this);
        if (status == GYRE_OK && this == MODEL_TOKENS_AUTO && ends(path, ".bin"))
            status = has_index(path, &twin);
        if (status != GYRE_OK)
            return status;
        int take = *format == MODEL_TOKENS_AUTO      ? this != MODEL_TOKENS_AUTO
                   : *format == MODEL_TOKENS_NANOGPT ? ends(path, ".bin")
                                                     : this == *format;
        if (*format == MODEL_TOKENS_AUTO && take && found != MODEL_TOKENS_AUTO && this != found)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "%s holds files of several formats (%s: %s, %s: %s): name them by a pattern, or their "
                "format with --data-format",
                folder, token, model_tokens_format_name(found), path, model_tokens_format_name(this));
        if (take) {
            found = this;
            token = path;
            files->path[i] = files->path[kept];
            files->path[kept++] = path;
        } else if (!twin)
            other = path;
    }
    if (*format == MODEL_TOKENS_AUTO && kept > 0 && other)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s holds token files (%s) and others (%s): name those that are meant by a pattern, or "
            "with --data-format %s or text",
            folder, token, other, model_tokens_format_name(found));
    if (*format == MODEL_TOKENS_AUTO)
        *format = kept > 0 ? found : MODEL_TOKENS_TEXT;
    else if (kept == 0)
        return gyre_fail(GYRE_ERR_NOT_FOUND, "%s holds no file of format %s", folder,
                         model_tokens_format_name(*format));
    while (files->count > kept)
        free(files->path[--files->count]);
    model_files_sort(files);
    return *format == MODEL_TOKENS_TEXT ? GYRE_OK : check_names(folder, files);
}

static gyre_status_t match(const char *pattern, model_files_t *files)
{
    glob_t found;
    int why = glob(pattern, 0, NULL, &found);
    if (why == GLOB_NOMATCH)
        return gyre_fail(GYRE_ERR_NOT_FOUND, "no file matches %s", pattern);
    if (why != 0)
        return gyre_fail(why == GLOB_NOSPACE ? GYRE_ERR_NO_MEMORY : GYRE_ERR_IO, "cannot look for %s",
                         pattern);
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < found.gl_pathc; i++)
        status = model_files_add(files, found.gl_pathv[i]);
    globfree(&found);
    model_files_sort(files); /* not by the locale */
    return status;
}

/* Of a pair both names may match a pattern: NAME.bin goes with NAME.idx. */
static void drop_twins(model_files_t *files)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) {
        char *path = files->path[i], *next = i + 1 < files->count ? files->path[i + 1] : NULL;
        size_t length = strlen(path);
        if (next && ends(path, ".bin") && ends(next, ".idx") && strlen(next) == length &&
            strncmp(path, next, length - 4) == 0)
            free(path);
        else
            files->path[kept++] = path;
    }
    files->count = kept;
}

/* Finds the files of `path` and their format; TEXT: tokens_open_text takes the path itself. */
static gyre_status_t resolve(const char *path, model_tokens_format_t *format, model_files_t *files)
{
    struct stat info;
    int there = stat(path, &info) == 0, err = errno;
    if (there && S_ISDIR(info.st_mode)) {
        if (*format == MODEL_TOKENS_TEXT)
            return GYRE_OK;
        gyre_status_t status = model_files_find(path, files);
        return status == GYRE_OK ? choose(path, files, format) : status;
    }
    int index = 0;
    gyre_status_t status = there ? GYRE_OK : has_index(path, &index);
    if (status != GYRE_OK)
        return status;
    if (there || index)
        status = model_files_add(files, path);
    else if (strpbrk(path, "*?["))
        status = match(path, files);
    else
        return gyre_fail(err == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO,
                         "cannot open %s: %s; name a text file or folder, or token files", path,
                         strerror(err));
    if (status == GYRE_OK && *format == MODEL_TOKENS_AUTO)
        status = find_format(files->path[0], format);
    if (status != GYRE_OK)
        return status;
    if (*format == MODEL_TOKENS_AUTO)
        *format = MODEL_TOKENS_TEXT;
    if (*format == MODEL_TOKENS_MEGATRON)
        drop_twins(files);
    return GYRE_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static gyre_status_t open_files(model_tokens_t *tokens, const model_files_t *files)
{
    gyre_status_t (*const reader[])(model_tokens_t *, const char *) = {
        NULL, NULL, tokens_open_gyre, tokens_open_llmc, tokens_open_megatron, tokens_open_nanogpt};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < files->count; i++)
        status = reader[tokens->format](tokens, files->path[i]);
    if (status == GYRE_OK && tokens->count == 0)
        status = gyre_fail(GYRE_ERR_FORMAT, "%s holds no tokens",
                           tokens->file ? tokens->file[0].path : "what was read");
    return status;
}

gyre_status_t model_tokens_open(const char *path, model_tokens_format_t format, model_tokens_t **out)
{
    model_files_t files = {0};
    model_tokens_t *tokens = calloc(1, sizeof *tokens);
    if (!tokens)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    tokens->eot = -1;
    int sure = format == MODEL_TOKENS_TEXT; /* it is said to be text */
    gyre_status_t status = (tokens->path = strdup(path))
                               ? resolve(path, &format, &files)
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to open %s", path);
    tokens->format = format;
    if (status == GYRE_OK && format == MODEL_TOKENS_TEXT && files.count > 1)
        status =
            gyre_fail(GYRE_ERR_INVALID, "%s matches several text files: name one, or their folder", path);
    else if (status == GYRE_OK)
        status = format == MODEL_TOKENS_TEXT
                     ? tokens_open_text(tokens, files.count == 1 ? files.path[0] : path, sure)
                     : open_files(tokens, &files);
    model_files_free(&files);
    if (status != GYRE_OK) {
        model_tokens_close(tokens);
        return status;
    }
    *out = tokens;
    return GYRE_OK;
}

void model_tokens_close(model_tokens_t *tokens)
{
    if (!tokens)
        return;
    tokens_unmap(tokens);
    free(tokens);
}

const char *model_tokens_mapped(const model_tokens_t *tokens, const void *at)
{
    for (size_t i = 0; i < tokens->maps; i++) {
        const model_tokens_file_t *file = &tokens->file[i];
        if (!file->copy && (uintptr_t)at - (uintptr_t)file->map < file->bytes)
            return file->path;
    }
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static int64_t id_at(const unsigned char *at, model_tokens_type_t type)
{
    switch (type) {
    case MODEL_TOKENS_U8:
        return *at;
    case MODEL_TOKENS_I8:
        return (int8_t)*at;
    case MODEL_TOKENS_U16:
        return (uint16_t)(at[0] | at[1] << 8);
    case MODEL_TOKENS_I16:
        return (int16_t)(uint16_t)(at[0] | at[1] << 8);
    case MODEL_TOKENS_I32:
        return (int32_t)tokens_u32(at);
    case MODEL_TOKENS_U32:
        return tokens_u32(at);
    case MODEL_TOKENS_I64:
        return (int64_t)tokens_u64(at);
    }
    return -1;
}

/* Ids of one part from its number `from` on. Returns how many are fine. */
static size_t copy(const model_tokens_part_t *part, model_tokens_type_t type, uint64_t from, size_t count,
                   int64_t limit, model_token_t *out)
{
    size_t width = model_tokens_width(type);
    const unsigned char *at = part->at + from * width;
    for (size_t i = 0; i < count; i++, at += width) {
        int64_t id = id_at(at, type);
        if (id < 0 || id >= limit)
            return i;
        out[i] = (model_token_t)id;
    }
    return count;
}

static gyre_status_t bad_id(const model_tokens_t *tokens, const model_tokens_part_t *part, uint64_t from,
                            size_t vocab)
{
    const model_tokens_file_t *file = &tokens->file[part->file];
    const unsigned char *at = part->at + from * model_tokens_width(file->type);
    return gyre_fail(
        GYRE_ERR_FORMAT,
        "%s: the token at byte %" PRIu64 " (number %" PRIu64 " of the stream) is %" PRId64
        ", but the vocabulary has %zu: give the right --vocab, or the file's right --data-format (it is "
        "read as %s)",
        file->path, (uint64_t)(at - file->map), part->first + from, id_at(at, file->type), vocab,
        model_tokens_format_name(tokens->format));
}

size_t tokens_find_part(const model_tokens_t *tokens, uint64_t at)
{
    size_t low = 0, high = tokens->parts;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tokens->part[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

gyre_status_t model_tokens_read(const model_tokens_t *tokens, uint64_t first, size_t count, size_t vocab,
                                model_token_t *out)
{
    int64_t limit = vocab == 0 || vocab > TOKENS_VOCAB_MOST ? TOKENS_VOCAB_MOST : (int64_t)vocab;
    for (size_t p = tokens_find_part(tokens, first), done = 0; done < count; p++) {
        const model_tokens_part_t *part = &tokens->part[p];
        uint64_t from = first + done - part->first;
        size_t most = count - done, n = part->count - from < most ? (size_t)(part->count - from) : most;
        size_t fine = copy(part, tokens->file[part->file].type, from, n, limit, out + done);
        if (fine < n) {
            memset(out + done + fine, 0, (count - done - fine) * sizeof *out);
            return bad_id(tokens, part, from + fine, (size_t)limit);
        }
        done += n;
    }
    return GYRE_OK;
}

/* ---- the whole content --------------------------------------------------------------------------------- */

/* Checksums and documents of a file of Gyre's. */
static gyre_status_t verify_file(const model_tokens_t *tokens, size_t number)
{
    const model_tokens_file_t *file = &tokens->file[number];
    uint64_t before = 0;
    const unsigned char *data = file->map + tokens_u64(file->map + TOKENS_AT_DATA);
    size_t bytes = (size_t)tokens_u64(file->map + TOKENS_AT_COUNT) * model_tokens_width(file->type);
    if (base_hash64(data, bytes, 0) != file->hash[0])
        return gyre_fail(
            GYRE_ERR_FORMAT,
            "%s: the checksum of its tokens is wrong: the file is damaged; write it again with gyre-tokenize",
            file->path);
    if (base_hash64(file->documents, (size_t)(file->document_count + 1) * 8, 0) != file->hash[1])
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the checksum of its documents is wrong: the file is damaged",
                         file->path);
    if (file->mask && base_hash64(file->mask, (size_t)(tokens_u64(file->map + TOKENS_AT_COUNT) + 7) / 8, 0) !=
                          tokens_u64(file->map + TOKENS_AT_MASK_HASH))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the checksum of its mask is wrong: the file is damaged",
                         file->path);
    for (uint64_t d = 0; d <= file->document_count; d++) {
        uint64_t at = tokens_u64(file->documents + 8 * d);
        if (at < before)
            return gyre_fail(GYRE_ERR_FORMAT, "%s: document %" PRIu64 " begins before the one before it",
                             file->path, d);
        before = at;
    }
    return GYRE_OK;
}

gyre_status_t model_tokens_verify(const model_tokens_t *tokens, size_t vocab, model_token_t *most)
{
    enum { PIECE = 4096 };
    model_token_t piece[PIECE];
    gyre_status_t status = GYRE_OK;
    *most = 0;
    for (size_t i = 0; status == GYRE_OK && tokens->format == MODEL_TOKENS_GYRE && i < tokens->maps; i++)
        status = verify_file(tokens, i);
    for (uint64_t at = 0; status == GYRE_OK && at < tokens->count; at += PIECE) {
        size_t n = tokens->count - at < PIECE ? (size_t)(tokens->count - at) : PIECE;
        status = model_tokens_read(tokens, at, n, vocab, piece);
        for (size_t i = 0; status == GYRE_OK && i < n; i++)
            if (piece[i] > *most)
                *most = piece[i];
    }
    return status;
}

/* pieces 0: all of it. */
static uint64_t hash_file(const model_tokens_file_t *file, size_t pieces)
{
    uint64_t hash = file->bytes;
    if (pieces == 0 || file->bytes <= pieces * HASH_PIECE)
        return base_hash64(file->map, file->bytes, hash);
    for (size_t i = 0; i < pieces; i++) {
        /* evenly from the first piece to the one that ends the file */
        size_t at = (size_t)((wide_t)(file->bytes - HASH_PIECE) * i / (pieces - 1));
        hash = base_hash64(file->map + at, HASH_PIECE, hash);
    }
    return hash;
}

/* The files' bytes as one text, wherever it is cut into files. */
static gyre_status_t hash_text(const model_tokens_t *tokens, uint64_t *out)
{
    base_hash_t *hash = base_hash_begin();
    if (!hash)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to hash %s", tokens->path);
    for (size_t i = 0; i < tokens->maps; i++)
        base_hash_add(hash, tokens->file[i].map, tokens->file[i].bytes);
    *out = base_hash_end(hash);
    return GYRE_OK;
}

gyre_status_t model_tokens_hash(const model_tokens_t *tokens, uint64_t *out)
{
    if (tokens->format == MODEL_TOKENS_TEXT && tokens->bytes <= HASH_WHOLE)
        return hash_text(tokens, out);
    uint64_t hash = base_hash64(names[tokens->format], strlen(names[tokens->format]), 0);
    size_t pieces = tokens->bytes <= HASH_WHOLE      ? 0
                    : tokens->maps < HASH_PIECES / 2 ? HASH_PIECES / tokens->maps
                                                     : 2;
    for (size_t i = 0; i < tokens->maps; i++) {
        const model_tokens_file_t *file = &tokens->file[i];
        uint64_t mine = tokens->format == MODEL_TOKENS_GYRE ? tokens_u64(file->map + TOKENS_AT_HEADER_HASH)
                                                            : hash_file(file, pieces);
        hash = base_hash64(&mine, sizeof mine, hash);
    }
    for (size_t p = 0; p < tokens->parts; p++) { /* Megatron's index decides where they lie */
        const model_tokens_part_t *part = &tokens->part[p];
        uint64_t where[3] = {part->first, part->count, (uint64_t)(part->at - tokens->file[part->file].map)};
        hash = base_hash64(where, sizeof where, hash);
    }
    *out = hash;
    return GYRE_OK;
}
