/* optim/checkpoint/snapshot.c: checkpoints of a run: written whole or not at all, checked when read. */
#include "optim/checkpoint/snapshot.h"
#include "optim/checkpoint/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text/json.h"
#include "base/log.h"

#define FORMAT      "gyre-training-checkpoint"
#define VERSION     2
#define INDEX       "index.json"
#define INDEX_LIMIT (256u << 20) /* bytes; a range takes about 20 */
#define HIDDEN      ".step-"     /* what is being written or removed */
#define ABANDONED_S 3600         /* nothing was written in there for so long: nobody writes there any more */

/* ---- names ---------------------------------------------------------------------------------------------- */

int model_snapshot_path(const char *folder, uint64_t step, char *path, size_t bytes)
{
    int n = snprintf(path, bytes, "%s/step-%012llu", folder, (unsigned long long)step);
    return n > 0 && (size_t)n < bytes;
}

void model_snapshot_id(char *id, size_t bytes)
{
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof host - 1);
    snprintf(id, bytes, "%s-%ld", host, (long)getpid());
}

/* A hidden name next to it that no other writer uses. */
static int hidden_path(const char *folder, uint64_t step, const char *what, const char *id, char *path)
{
    int n =
        snprintf(path, PATH_MAX, "%s/" HIDDEN "%012llu.%s-%s", folder, (unsigned long long)step, what, id);
    return n > 0 && n < PATH_MAX;
}

/* The same of this process. */
static int own_hidden_path(const char *folder, uint64_t step, const char *what, char *path)
{
    char id[MODEL_SNAPSHOT_ID];
    model_snapshot_id(id, sizeof id);
    return hidden_path(folder, step, what, id, path);
}

/* The step that a name stands for; -1: the name is not a checkpoint's. */
static int64_t step_of(const char *name)
{
    const char *digits = name + 5;
    if (strncmp(name, "step-", 5) != 0 || strlen(digits) != 12 || strspn(digits, "0123456789") != 12)
        return -1;
    return (int64_t)strtoull(digits, NULL, 10);
}

/* ---- folders -------------------------------------------------------------------------------------------- */

/* Names are safe on disk after this. Some file systems cannot sync folders: there is nothing to be done then. */
static gyre_status_t sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != EROFS), err = errno;
    if (fd >= 0)
        close(fd);
    return bad ? gyre_fail_errno(GYRE_ERR_IO, err, "cannot sync the folder %s", path) : GYRE_OK;
}

/* A folder of files, as a checkpoint is. 0 or errno's value. */
static int remove_folder(const char *path)
{
    char file[PATH_MAX];
    DIR *folder = opendir(path);
    if (!folder)
        return errno;
    int err = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!checkpoint_path_join(file, path, entry->d_name))
            err = ENAMETOOLONG;
        else if (unlink(file) != 0 && errno != ENOENT)
            err = errno;
    }
    closedir(folder);
    return rmdir(path) == 0 || errno == ENOENT ? 0 : err ? err : errno;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

gyre_status_t model_snapshot_list(const char *folder, uint64_t **steps, size_t *count)
{
    uint64_t *found = NULL;
    size_t n = 0, room = 0;
    DIR *all = opendir(folder);
    if (!all && errno != ENOENT)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the checkpoint folder %s", folder);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        if (n == room) {
            uint64_t *grown = realloc(found, (room = 2 * room + 16) * sizeof *grown);
            if (!grown) {
                free(found);
                closedir(all);
                return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the names of %zu checkpoints", room);
            }
            found = grown;
        }
        found[n++] = (uint64_t)step;
    }
    if (all)
        closedir(all);
    if (n > 1)
        qsort(found, n, sizeof *found, newest_first);
    *steps = found;
    *count = n;
    return GYRE_OK;
}

/* Takes the name away at one stroke. `*hidden` [PATH_MAX] is what is left to be removed. */
static gyre_status_t move_away(const char *folder, uint64_t step, char *hidden)
{
    char path[PATH_MAX];
    if (!model_snapshot_path(folder, step, path, sizeof path) ||
        !own_hidden_path(folder, step, "old", hidden))
        return checkpoint_path_too_long(folder);
    (void)remove_folder(hidden); /* of an attempt that failed half-way */
    if (rename(path, hidden) != 0)
        return errno == ENOENT
                   ? gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "there is no checkpoint %s", path)
                   : gyre_fail_errno(GYRE_ERR_IO, errno, "cannot take the checkpoint %s away", path);
    return GYRE_OK;
}

gyre_status_t model_snapshot_remove(const char *folder, uint64_t step)
{
    char hidden[PATH_MAX];
    gyre_status_t status = move_away(folder, step, hidden);
    if (status != GYRE_OK)
        return status;
    int why = remove_folder(hidden);
    return why == 0 ? GYRE_OK
                    : gyre_fail_errno(GYRE_ERR_IO, why, "cannot remove the old checkpoint %s", hidden);
}

/* ---- the index ------------------------------------------------------------------------------------------ */

/* The hash of everything but the hash. 0: no memory. */
static uint64_t index_hash(const json_t *index)
{
    json_t *rest = json_copy((json_t *)index); /* shallow */
    if (!rest)
        return 0;
    json_object_del(rest, "xxh3");
    char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = text ? base_hash64(text, strlen(text), 0) : 0;
    free(text);
    json_decref(rest);
    return hash;
}

/* A list, an element a line: it may have thousands. */
static void put_list(FILE *out, const char *name, const json_t *list)
{
    fprintf(out, " \"%s\": [", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        json_dumpf(json_array_get(list, i), out, JSON_COMPACT);
    }
    fputs("],\n", out);
}

static void put_member(FILE *out, const char *name, const json_t *value, const char *ending)
{
    fprintf(out, " \"%s\": ", name);
    json_dumpf(value, out, JSON_ENCODE_ANY | (json_is_object(value) ? JSON_INDENT(2) : 0));
    fputs(ending, out);
}

static gyre_status_t write_index(const char *path, const json_t *index)
{
    const char *const member[] = {"format", "version", "step", "run"};
    base_file_t file;
    gyre_status_t status = base_file_begin(path, &file);
    if (status != GYRE_OK)
        return status;
    fputs("{\n", file.out);
    for (size_t i = 0; i < sizeof member / sizeof *member; i++)
        put_member(file.out, member[i], json_object_get(index, member[i]), ",\n");
    put_list(file.out, "rows", json_object_get(index, "rows"));
    put_list(file.out, "files", json_object_get(index, "files"));
    put_member(file.out, "xxh3", json_object_get(index, "xxh3"), "\n}\n");
    return base_file_commit(&file);
}

static int is_hex(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
}

gyre_status_t model_snapshot_parse(const char *text, size_t length, const char *path, json_t **out)
{
    json_error_t error;
    json_t *index = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    const char *what = NULL;
    char found[48];
    if (!index)
        return json_error_code(&error) == json_error_out_of_memory
                   ? gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path)
                   : gyre_fail(GYRE_ERR_FORMAT, "%s:%d: is damaged: %s", path, error.line, error.text);
    const char *format = json_string_value(json_object_get(index, "format"));
    const json_t *step = json_object_get(index, "step");
    json_int_t version = json_integer_value(json_object_get(index, "version"));
    if (!format || strcmp(format, FORMAT) != 0)
        what = "is not the index of a training checkpoint";
    else if (version == 1)
        what = "is of Gyre's first version, before runs could change their layout: it cannot be gone on "
               "with; give its "
               "model.safetensors to --load to begin a run with its weights";
    else if (version != VERSION) {
        snprintf(found, sizeof found, "has version %lld; this program reads %d", (long long)version, VERSION);
        what = found;
    } else if (!is_hex(json_object_get(index, "xxh3")) ||
               strtoull(json_string_value(json_object_get(index, "xxh3")), NULL, 16) != index_hash(index))
        what = "is damaged: its checksum does not fit";
    else if (!json_is_integer(step) || json_integer_value(step) < 0 ||
             json_integer_value(step) >= (json_int_t)MODEL_SNAPSHOT_STEPS ||
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
        return gyre_fail_errno(errno == ENOENT || errno == ENOTDIR ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "cannot open %s", path);
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
        status = model_snapshot_parse(text, length, path, index);
    free(text);
    return status;
}

static gyre_status_t open_index(const char *at, uint64_t step, json_t **out)
{
    char path[PATH_MAX];
    json_t *index = NULL;
    if (!checkpoint_path_join(path, at, INDEX))
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

/* ---- checking and reading ------------------------------------------------------------------------------- */

struct model_snapshot {
    char at[PATH_MAX];
    json_t *index;
    model_shards_t *shards;
};

void model_snapshot_close(model_snapshot_t *snapshot)
{
    if (!snapshot)
        return;
    json_decref(snapshot->index);
    model_shards_destroy(snapshot->shards);
    free(snapshot);
}

/* What is in the folder `at`, whatever its name. */
static gyre_status_t open_folder(const char *at, uint64_t step, model_snapshot_t **out)
{
    char path[PATH_MAX];
    model_snapshot_t *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", at);
    int fits = checkpoint_path_join(path, at, INDEX);
    snprintf(snapshot->at, sizeof snapshot->at, "%s", at);
    gyre_status_t status = fits ? open_index(at, step, &snapshot->index) : checkpoint_path_too_long(at);
    if (status == GYRE_OK)
        status = model_shards_parse(snapshot->index, path, &snapshot->shards);
    if (status == GYRE_OK)
        status = model_shards_sizes(snapshot->shards, at);
    if (status != GYRE_OK) {
        model_snapshot_close(snapshot);
        return status;
    }
    *out = snapshot;
    return GYRE_OK;
}

gyre_status_t model_snapshot_open(const char *folder, uint64_t step, model_snapshot_t **out)
{
    char at[PATH_MAX];
    if (!model_snapshot_path(folder, step, at, sizeof at))
        return checkpoint_path_too_long(folder);
    return open_folder(at, step, out);
}

gyre_status_t model_snapshot_check(const char *folder, uint64_t step)
{
    model_snapshot_t *snapshot = NULL;
    gyre_status_t status = model_snapshot_open(folder, step, &snapshot);
    model_snapshot_close(snapshot);
    return status;
}

const char *model_snapshot_at(const model_snapshot_t *snapshot)
{
    return snapshot->at;
}

const json_t *model_snapshot_run(const model_snapshot_t *snapshot)
{
    return json_object_get(snapshot->index, "run");
}

uint64_t model_snapshot_hash(const model_snapshot_t *snapshot)
{
    return strtoull(json_string_value(json_object_get(snapshot->index, "xxh3")), NULL, 16);
}

const model_shards_t *model_snapshot_shards(const model_snapshot_t *snapshot)
{
    return snapshot->shards;
}

gyre_status_t model_snapshot_fit(const model_snapshot_t *snapshot, const model_params_t *whole)
{
    return model_shards_fit(snapshot->shards, whole, snapshot->at);
}

gyre_status_t model_snapshot_verify(const model_snapshot_t *snapshot, size_t index, size_t of)
{
    return model_shards_verify(snapshot->shards, snapshot->at, index, of);
}

gyre_status_t model_snapshot_read(const model_snapshot_t *snapshot, const model_params_t *whole,
                                  const model_range_t *range, size_t ranges)
{
    return model_shards_read(snapshot->shards, snapshot->at, whole, range, ranges);
}

/* ---- writing -------------------------------------------------------------------------------------------- */

gyre_status_t model_snapshot_begin(const char *folder, uint64_t step, const char *id, unsigned attempt,
                                   char *made)
{
    char what[24];
    snprintf(what, sizeof what, "new%u", attempt);
    if (step >= MODEL_SNAPSHOT_STEPS)
        return gyre_fail(GYRE_ERR_INVALID, "step %llu: checkpoints know steps below %llu",
                         (unsigned long long)step, (unsigned long long)MODEL_SNAPSHOT_STEPS);
    if (!hidden_path(folder, step, what, id, made))
        return checkpoint_path_too_long(folder);
    if (mkdir(made, 0777) != 0 && errno != EEXIST) /* another rank was first */
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    return GYRE_OK;
}

void model_snapshot_abandon(const char *made)
{
    (void)remove_folder(made);
}

/* The index of what is written; every range must be there. *out is a new reference. */
static gyre_status_t make_index(const char *path, uint64_t step, const model_params_t *whole, json_t *files,
                                const json_t *run, json_t **out)
{
    model_shards_t *shards = NULL;
    json_t *rows = model_shards_rows(whole);
    json_t *index =
        rows ? json_pack("{s:s, s:i, s:I, s:o, s:O, s:O}", "format", FORMAT, "version", VERSION, "step",
                         (json_int_t)step, "rows", rows, "files", files, "run", (json_t *)run)
             : NULL;
    uint64_t hash = index ? index_hash(index) : 0;
    gyre_status_t status = hash != 0 && json_object_set_new(index, "xxh3", base_json_hex(hash)) == 0
                               ? GYRE_OK
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %s", path);
    if (status == GYRE_OK)
        status = model_shards_parse(index, path, &shards);
    model_shards_destroy(shards);
    if (status != GYRE_OK) {
        json_decref(index);
        return status;
    }
    *out = index;
    return GYRE_OK;
}

/* Last: without it, it is not a checkpoint. */
static gyre_status_t complete(const char *made, uint64_t step, const model_params_t *whole, json_t *files,
                              const json_t *run)
{
    char path[PATH_MAX];
    json_t *index = NULL;
    if (!checkpoint_path_join(path, made, INDEX))
        return checkpoint_path_too_long(made);
    gyre_status_t status = make_index(path, step, whole, files, run, &index);
    if (status == GYRE_OK)
        status = write_index(path, index);
    json_decref(index);
    return status == GYRE_OK ? sync_folder(made) : status;
}

/* Gives what was written its name. A checkpoint that has it already is exchanged for it at one stroke; file systems that
 * cannot do that leave a moment in which neither has the name (restore). */
static gyre_status_t publish(const char *folder, uint64_t step, const char *made)
{
    char path[PATH_MAX], old[PATH_MAX];
    if (!model_snapshot_path(folder, step, path, sizeof path))
        return checkpoint_path_too_long(folder);
    if (rename(made, path) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename the checkpoint %s to %s", made, path);
        if (renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
            gyre_status_t synced = sync_folder(folder); /* before the old one goes */
            if (remove_folder(made) != 0)
                (void)unlink(made); /* it was no folder */
            return synced;
        }
        gyre_status_t status = move_away(folder, step, old);
        if (status != GYRE_OK)
            return status;
        if (rename(made, path) != 0)
            return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot rename the checkpoint %s to %s", made, path);
        if (remove_folder(old) != 0)
            (void)unlink(old); /* it was no folder */
    }
    return sync_folder(folder);
}

gyre_status_t model_snapshot_publish(const char *folder, uint64_t step, const char *made,
                                     const model_params_t *whole, json_t *files, const json_t *run)
{
    gyre_status_t status = complete(made, step, whole, files, run);
    return status == GYRE_OK ? publish(folder, step, made) : status;
}

/* ---- what a writer leaves that was killed ----------------------------------------------------------------- */

/* The newest change of the folder or of a file in it; 0: it is not there any more. */
static time_t last_change(const char *path)
{
    char file[PATH_MAX];
    struct stat info;
    DIR *folder = opendir(path);
    time_t newest = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) /* "." among them */
        if (checkpoint_path_join(file, path, entry->d_name) && strcmp(entry->d_name, "..") != 0 &&
            stat(file, &info) == 0 && info.st_mtime > newest)
            newest = info.st_mtime;
    if (folder)
        closedir(folder);
    return newest;
}

/* 1: the process is no more, or only its parent has not taken note yet (in containers nobody may ever). */
static int is_gone(long pid)
{
    char path[48], stat[256] = "";
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return 1;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(stat, 1, sizeof stat - 1, in) : 0;
    if (in)
        fclose(in);
    stat[n] = 0;
    const char *name_end = strrchr(stat, ')'); /* "PID (NAME) STATE ..." */
    return name_end && (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

/* Nobody is at work on the hidden folder `name`: its process is gone, as far as that can be seen from here (its name ends
 * in -HOST-PID), or has done nothing for long. A process that has our number is not the one that made it. */
static int is_abandoned(const char *path, const char *name)
{
    char host[HOST_NAME_MAX + 2] = "-", *end;
    (void)gethostname(host + 1, sizeof host - 2);
    const char *dash = strrchr(name, '-');
    size_t n = strlen(host);
    if (dash && (size_t)(dash - name) > n && strncmp(dash - n, host, n) == 0) {
        long pid = strtol(dash + 1, &end, 10);
        if (end > dash + 1 && !*end && pid > 0 && (pid == (long)getpid() || is_gone(pid)))
            return 1;
    }
    return time(NULL) - last_change(path) > ABANDONED_S;
}

/* Where checkpoints cannot be exchanged, a writer that is killed between two renames leaves a step without its name: the
 * old and the new one are whole, and hidden. 1: this one has the name now. */
static int restore(const char *folder, const char *path, const char *name)
{
    const char *digits = name + sizeof HIDDEN - 1;
    char place[PATH_MAX];
    struct stat info;
    model_snapshot_t *snapshot = NULL;
    if (strspn(digits, "0123456789") != 12 || digits[12] != '.')
        return 0;
    uint64_t step = strtoull(digits, NULL, 10);
    if (!model_snapshot_path(folder, step, place, sizeof place) || lstat(place, &info) == 0)
        return 0;
    int muted = base_log_mute(1); /* most are half-written: not an error */
    int whole =
        open_folder(path, step, &snapshot) == GYRE_OK && model_snapshot_verify(snapshot, 0, 1) == GYRE_OK;
    base_log_mute(muted);
    model_snapshot_close(snapshot);
    return whole && rename(path, place) == 0;
}

void model_snapshot_sweep(const char *folder, const char *id, const char *except)
{
    char path[PATH_MAX];
    size_t n = strlen(id);
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, HIDDEN, sizeof HIDDEN - 1) == 0 && length > n + sizeof HIDDEN &&
            strcmp(entry->d_name + length - n, id) == 0 && entry->d_name[length - n - 1] == '-' &&
            checkpoint_path_join(path, folder, entry->d_name) && (!except || strcmp(path, except) != 0))
            (void)remove_folder(path);
    }
    if (all)
        closedir(all);
}

gyre_status_t model_snapshot_probe(const char *folder, const char *id)
{
    char path[PATH_MAX];
    if (!hidden_path(folder, 0, "probe", id, path))
        return checkpoint_path_too_long(folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    return GYRE_OK;
}

int model_snapshot_sees(const char *folder, const char *id)
{
    char path[PATH_MAX];
    struct stat info;
    return hidden_path(folder, 0, "probe", id, path) && stat(path, &info) == 0 && access(folder, W_OK) == 0;
}

gyre_status_t model_snapshot_prepare(const char *folder)
{
    char path[PATH_MAX];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot make the checkpoint folder %s", folder);
    DIR *all = opendir(folder);
    if (!all)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read the checkpoint folder %s", folder);
    for (struct dirent *entry; (entry = readdir(all));)
        if (strncmp(entry->d_name, HIDDEN, sizeof HIDDEN - 1) == 0 &&
            checkpoint_path_join(path, folder, entry->d_name) && is_abandoned(path, entry->d_name) &&
            !restore(folder, path, entry->d_name))
            (void)remove_folder(path); /* what cannot be removed harms nobody */
    closedir(all);
    if (!own_hidden_path(folder, 0, "try", path))
        return checkpoint_path_too_long(folder);
    if (mkdir(path, 0777) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to the checkpoint folder %s", folder);
    (void)rmdir(path);
    return GYRE_OK;
}
