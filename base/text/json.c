/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/json.c: whole JSON files, read and written so that a failure names file, line and column. */
#include "base/text/json.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

/* ---- memory -------------------------------------------------------------------------------------------- */

/* jansson 2.14 reports a lack of memory as damaged text, or not at all. A byte that its buffer cannot grow
 * for is missing in the string, or trips an assertion; json_dumps leaves out keys. So the requests of the
 * thread that is at work are watched. After the first that fails the text ends, and what jansson asks for
 * until it has noticed comes from a reserve. That is as large as what jansson can ask for then: its buffer,
 * which has the longest string and doubles, and that string. Without its closing quote, which may be the byte
 * that has no place, jansson reads on beyond the string. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_malloc_t memory_of;
static json_free_t free_of;
static _Thread_local int at_work, lacked;
static _Alignas(max_align_t) char small[64 << 10]; /* jansson reads 1 KiB ahead */
/* Of the thread at work; others, which free memory meanwhile, have none. */
static _Thread_local char *reserve;
static _Thread_local size_t reserve_bytes, reserved; /* reserved: bytes of it that are taken */

static void *watched_malloc(size_t bytes)
{
    void *memory = memory_of(bytes);
    const size_t room = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (memory || !at_work)
        return memory;
    lacked = 1;
    if (room < bytes || room > reserve_bytes - reserved)
        return NULL;
    memory = reserve + reserved;
    reserved += room;
    return memory;
}

static void watched_free(void *memory)
{
    if ((uintptr_t)memory - (uintptr_t)reserve >= reserve_bytes)
        free_of(memory);
}

static void watch(void)
{
    pthread_mutex_lock(&lock);
    json_get_alloc_funcs(&memory_of, &free_of);
    json_set_alloc_funcs(watched_malloc, watched_free);
    at_work = 1;
    reserve = small;
    reserve_bytes = sizeof small;
    lacked = 0;
    reserved = 0;
}

static void unwatch(void)
{
    at_work = 0;
    reserve = NULL;
    reserve_bytes = 0;
    json_set_alloc_funcs(memory_of, free_of);
    pthread_mutex_unlock(&lock);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct {
    FILE *file; /* or text [left] */
    const char *text;
    size_t left;
} source_t;

static size_t give(void *to, size_t room, void *from)
{
    source_t *source = from;
    if (lacked)
        return 0;
    if (source->file)
        return fread(to, 1, room, source->file);
    const size_t n = room < source->left ? room : source->left;
    memcpy(to, source->text, n);
    source->text += n;
    source->left -= n;
    return n;
}

/* What source still has; 0: not known. */
static size_t length_of(const source_t *source)
{
    struct stat info;
    if (!source->file)
        return source->left;
    return fstat(fileno(source->file), &info) == 0 && info.st_size > 0 ? (size_t)info.st_size : 0;
}

static json_t *parse(source_t *source, size_t flags, json_error_t *error, int *lacks)
{
    const size_t length = length_of(source);
    json_t *value = NULL;
    watch();
    if (length > sizeof small / 8) {
        char *large = length < SIZE_MAX / 4 ? memory_of(sizeof small + 3 * length) : NULL;
        lacked = !large;
        reserve = large ? large : small;
        reserve_bytes = sizeof small + (large ? 3 * length : 0);
    }
    if (!lacked)
        value = json_load_callback(give, source, flags | JSON_DECODE_ANY, error);
    *lacks = lacked;
    if (lacked) { /* it is not what the text says, and some of it lies in the reserve */
        json_decref(value);
        value = NULL;
    }
    if (reserve != small)
        free_of(reserve);
    unwatch();
    return value;
}

/* 1: an escape of the first half of a surrogate pair, 2: of its second half, 0: neither. */
static int half_at(const char *text)
{
    if (strncmp(text, "\\u", 2) != 0 || (text[2] | 32) != 'd')
        return 0;
    for (int i = 3; i < 6; i++)
        if (!isxdigit((unsigned char)text[i]))
            return 0;
    return strchr("89abAB", text[3]) ? 1 : text[3] > '9' ? 2 : 0;
}

/* Valid JSON that jansson refuses, and that Python writes and reads: an integer beyond json_int_t becomes a
 * real number, half of a surrogate pair U+FFFD. In place and at the same length, so errors name the same
 * column. The last three digits of the integer are lost: less than the last bit of a double. 1: something
 * has changed. `text` has a NUL after it. */
static int repair(char *text, size_t bytes)
{
    int changed = 0, quoted = 0;
    for (size_t i = 0; i < bytes; i++) {
        const int half = quoted ? half_at(text + i) : 0;
        if (half == 1 && half_at(text + i + 6) == 2) {
            i += 11;
        } else if (half) {
            memcpy(text + i, "\\ufffd", 6);
            changed = 1;
        } else if (quoted && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && (text[i] == '-' || isdigit((unsigned char)text[i]))) {
            char *end;
            errno = 0;
            strtoll(text + i, &end, 10);
            const size_t more = strspn(end, ".eE+-0123456789");
            if (errno == ERANGE && more == 0) {
                memcpy(end - 3, "e03", 3);
                changed = 1;
            }
            if (end + more > text + i)
                i = (size_t)(end + more - text) - 1;
        }
    }
    return changed;
}

/* 1: what repair() mends may be why jansson refuses the text. */
static int may_be_repaired(const json_error_t *error)
{
    return json_error_code(error) == json_error_numeric_overflow || strstr(error->text, "invalid Unicode");
}

/* A source that is text, or a file that can be read twice, is repaired if it is refused as it is. */
static json_t *load(source_t *source, size_t flags, json_error_t *error, int *lacks)
{
    const source_t begin = *source;
    json_t *value = parse(source, flags, error, lacks);
    if (value || *lacks || (begin.file && ferror(begin.file)) || !may_be_repaired(error))
        return value;
    size_t bytes = length_of(&begin);
    char *copy = malloc(bytes + 1);
    if (!copy) {
        *lacks = 1;
        return NULL;
    }
    if (!begin.file)
        memcpy(copy, begin.text, bytes);
    else
        bytes = fseek(begin.file, 0, SEEK_SET) == 0 ? fread(copy, 1, bytes, begin.file) : 0;
    copy[bytes] = 0;
    if (repair(copy, bytes))
        value = parse(&(source_t){.text = copy, .left = bytes}, flags, error, lacks);
    free(copy);
    return value;
}

json_t *base_json_text_with(const char *text, size_t bytes, size_t flags, json_error_t *error, int *lacks)
{
    source_t source = {.text = text, .left = bytes};
    return load(&source, flags, error, lacks);
}

json_t *base_json_text(const char *text, size_t bytes, json_error_t *error, int *lacks)
{
    return base_json_text_with(text, bytes, JSON_REJECT_DUPLICATES, error, lacks);
}

gyre_status_t base_json_read_with(const char *path, size_t flags, json_t **out)
{
    source_t source = {.file = fopen(path, "re")};
    if (source.file == NULL)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);

    json_error_t error;
    int lacks;
    errno = 0;
    json_t *value = load(&source, flags, &error, &lacks);
    int err = errno;
    int unread = ferror(source.file); /* to jansson an unreadable file (a directory, a bad disk) ends early */
    fclose(source.file);
    if (unread) {
        json_decref(value);
        return gyre_fail_errno(GYRE_ERR_IO, err, "cannot read %s", path);
    }
    if (value == NULL) {
        if (lacks)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory left to read it", path);
        return gyre_fail(GYRE_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s", path, error.line, error.column,
                         error.text);
    }
    *out = value;
    return GYRE_OK;
}

gyre_status_t base_json_read(const char *path, json_t **out)
{
    return base_json_read_with(path, JSON_REJECT_DUPLICATES, out);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

char *base_json_dump(const json_t *value, size_t flags)
{
    watch();
    char *text = json_dumps(value, flags);
    if (lacked && text) {
        watched_free(text);
        text = NULL;
    }
    unwatch();
    return text;
}

gyre_status_t base_json_write(const char *path, const json_t *value)
{
    base_file_t file;
    if (value == NULL)
        return gyre_fail(GYRE_ERR_INVALID, "cannot write %s: the value is not JSON", path);
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    if (json_dumpf(value, file.out, JSON_INDENT(2) | JSON_ENCODE_ANY) != 0) {
        status = ferror(file.out) ? gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write %s", file.path)
                                  : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write %s", path);
        base_file_abandon(&file);
        return status;
    }
    fputc('\n', file.out);
    return base_file_commit(&file);
}

json_t *base_json_string(const char *text, size_t bytes)
{
    char *valid = malloc(3 * bytes + 1);
    size_t used = 0;
    for (size_t at = 0; valid && at < bytes;) {
        const size_t good = base_utf8_span((const unsigned char *)text + at, bytes - at);
        memcpy(valid + used, text + at, good);
        used += good;
        at += good;
        if (at < bytes) {
            at += base_utf8_bad((const unsigned char *)text + at, bytes - at);
            memcpy(valid + used, "\xef\xbf\xbd", 3);
            used += 3;
        }
    }
    json_t *string = valid ? json_stringn(valid, used) : NULL;
    free(valid);
    return string;
}

json_t *base_json_hex(uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

uint64_t base_json_hex_value(const json_t *value)
{
    const char *text = json_string_value(value);
    return text ? strtoull(text, NULL, 16) : 0;
}

const char *base_json_real(char text[BASE_JSON_REAL], int digits, double value)
{
    if (isfinite(value))
        snprintf(text, BASE_JSON_REAL, "%.*g", digits, value);
    else
        snprintf(text, BASE_JSON_REAL, "null");
    return text;
}
