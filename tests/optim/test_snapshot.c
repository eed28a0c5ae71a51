/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_snapshot.c: checkpoints of a run: written, listed, replaced, removed; every damage is
 * recognised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "model/formats/weights.h"
#include "optim/checkpoint/snapshot.h"
#include "tests/support/entries.h"
#include "tests/support/weights.h"

static const model_config_t config = {.vocab = 13, .seq = 8, .layers = 1, .hidden = 12, .heads = 3};
static char folder[] = "/tmp/gyre-snapshot-XXXXXX";
static model_params_t *params;
static float *state[OPTIM_RANGE_PARTS], *back[OPTIM_RANGE_PARTS]; /* [params->total] each */
static char id[OPTIM_SNAPSHOT_ID];

static int begin(void **unused)
{
    (void)unused;
    base_log_set_level(BASE_LOG_NONE);
    optim_snapshot_id(id, sizeof id);
    if (!mkdtemp(folder) || model_params_create(&config, &params) != GYRE_OK)
        return -1;
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++) {
        state[p] = calloc(params->total, sizeof(float));
        back[p] = calloc(params->total, sizeof(float));
        if (!state[p] || !back[p])
            return -1;
        init_params(params, p, state[p]);
    }
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    model_params_destroy(params);
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++) {
        free(state[p]);
        free(back[p]);
    }
    return rmdir(folder); /* fails if a test left something */
}

/* Whole rows [from, to) that have a place of their own: all but a tied head. */
static size_t rows_of(float *const *part, size_t from, size_t to, optim_range_t *range)
{
    size_t n = 0;
    for (size_t r = from; r < to; r++) {
        size_t at = params->row[r].offset;
        if (params->row[r].alias == MODEL_NONE)
            range[n++] = (optim_range_t){
                .row = r, .count = params->row[r].count, .part = {part[0] + at, part[1] + at, part[2] + at}};
    }
    return n;
}

/* Two writers, each half of the rows. */
static gyre_status_t write_shards(const char *made, json_t *files)
{
    optim_range_t range[64];
    assert_true(params->rows <= 64);
    gyre_status_t status = GYRE_OK;
    for (size_t w = 0; status == GYRE_OK && w < 2; w++) {
        json_t *entry = NULL;
        size_t n = rows_of(state, w * params->rows / 2, (w + 1) * params->rows / 2, range);
        assert_int_equal(model_shard_entry(made, w, &entry), GYRE_IN_PROGRESS);
        status = model_shard_write(made, w, params, range, n);
        if (status == GYRE_OK)
            assert_int_equal(model_shard_entry(made, w, &entry), GYRE_OK);
        model_shard_forget(made, w);
        json_array_append_new(files, entry);
    }
    return status;
}

static gyre_status_t try_write(const char *where, uint64_t step, const json_t *run)
{
    char made[PATH_MAX];
    json_t *files = json_array();
    gyre_status_t status = optim_snapshot_begin(where, step, id, 1, made);
    if (status == GYRE_OK) {
        status = write_shards(made, files);
        if (status == GYRE_OK)
            status = optim_snapshot_publish(where, step, made, params, files, run, 1);
        if (status != GYRE_OK)
            optim_snapshot_abandon(made);
    }
    json_decref(files);
    return status;
}

static void write_one(uint64_t step)
{
    json_t *run = json_pack("{s:I}", "answer", (json_int_t)(step + 1));
    assert_non_null(run);
    assert_int_equal(try_write(folder, step, run), GYRE_OK);
    json_decref(run);
}

static gyre_status_t load(uint64_t step, json_t **run)
{
    optim_snapshot_t *snapshot = NULL;
    optim_range_t range[64];
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        memset(back[p], 0, params->total * sizeof(float));
    size_t n = rows_of(back, 0, params->rows, range);
    gyre_status_t status = optim_snapshot_open(folder, step, &snapshot);
    if (status == GYRE_OK)
        status = optim_snapshot_fit(snapshot, params);
    for (size_t i = 0; status == GYRE_OK && i < 3; i++) /* three readers for two files */
        status = optim_snapshot_verify(snapshot, i, 3);
    if (status == GYRE_OK)
        status = optim_snapshot_read(snapshot, params, range, n);
    if (status == GYRE_OK && run)
        *run = json_incref((json_t *)optim_snapshot_run(snapshot));
    optim_snapshot_close(snapshot);
    return status;
}

static void same_back(void)
{
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        assert_memory_equal(state[p], back[p], params->total * sizeof(float));
}

static void in_file(uint64_t step, const char *name, char *path, size_t bytes)
{
    int n = (int)strlen(name) + 2;
    assert_true(optim_snapshot_path(folder, step, path, bytes - (size_t)n));
    strcat(strcat(path, "/"), name);
}

/* The whole file; *bytes long. */
static char *read_file(const char *path, size_t *bytes)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    *bytes = (size_t)info.st_size;
    char *text = malloc(*bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *bytes, file), *bytes);
    fclose(file);
    return text;
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void round_trip(void **unused)
{
    (void)unused;
    uint64_t *steps = NULL;
    size_t count = 0;
    json_t *run = NULL;
    assert_int_equal(optim_snapshot_list("/tmp/no-such-folder", &steps, &count), GYRE_OK);
    assert_int_equal(count, 0);
    free(steps);
    write_one(7);
    write_one(200);
    write_one(30);
    assert_int_equal(optim_snapshot_list(folder, &steps, &count), GYRE_OK);
    assert_int_equal(count, 3);
    assert_true(steps[0] == 200 && steps[1] == 30 && steps[2] == 7);
    free(steps);
    assert_int_equal(optim_snapshot_check(folder, 30), GYRE_OK);
    assert_int_equal(load(200, &run), GYRE_OK);
    assert_int_equal(json_integer_value(json_object_get(run, "answer")), 201);
    json_decref(run);
    same_back();
    assert_int_equal(optim_snapshot_check(folder, 8), GYRE_ERR_NOT_FOUND);

    /* the same step again: the new one stands */
    state[0][3] = 42.0f;
    write_one(30);
    assert_int_equal(load(30, NULL), GYRE_OK);
    same_back();
    assert_int_equal(entries(folder), 3);
    const uint64_t all[] = {7, 30, 200};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(optim_snapshot_remove(folder, all[i]), GYRE_OK);
    assert_int_equal(optim_snapshot_remove(folder, 7), GYRE_ERR_NOT_FOUND);
    assert_int_equal(entries(folder), 0);
}

static void names(void **unused)
{
    (void)unused;
    const char *const foreign[] = {"step-5", "step-0000000000005", "step-00000000000x", "xstep-000000000005",
                                   "step-",  "model.safetensors"};
    char path[PATH_MAX];
    uint64_t *steps = NULL;
    size_t count = 1;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, foreign[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_int_equal(optim_snapshot_list(folder, &steps, &count), GYRE_OK);
    assert_int_equal(count, 0);
    free(steps);
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, foreign[i]);
        assert_int_equal(rmdir(path), 0); /* it is still there */
    }
}

/* The number of a process that was. */
static long gone(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return (long)pid;
}

/* What process `pid` of this host is at work on. */
static void hidden(uint64_t step, const char *what, long pid, char *path)
{
    char host[HOST_NAME_MAX + 1] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(path, PATH_MAX, "%s/.step-%012llu.%s-%s-%ld", folder, (unsigned long long)step, what, host, pid);
}

/* What a writer leaves that is killed: swept away; what cannot be written leaves nothing. */
static void left_overs(void **unused)
{
    (void)unused;
    char path[PATH_MAX];
    write_one(4);
    hidden(9, "new", gone(), path); /* a process of this host that has ended */
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/shard-00000.safetensors");
    write_file(path, "half", 4);
    assert_int_equal(entries(folder), 2);
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    assert_int_equal(entries(folder), 1);
    assert_int_equal(optim_snapshot_check(folder, 4), GYRE_OK);
    json_t *run = json_object();
    assert_int_equal(try_write("/tmp/no-such-folder", 4, run), GYRE_ERR_IO);
    assert_int_equal(try_write(folder, OPTIM_SNAPSHOT_STEPS, run), GYRE_ERR_INVALID);
    json_decref(run);
    assert_int_equal(entries(folder), 1);
    assert_int_equal(optim_snapshot_check(folder, 4), GYRE_OK);
    assert_int_equal(optim_snapshot_prepare("/proc/self/none"), GYRE_ERR_IO);
    assert_int_equal(optim_snapshot_remove(folder, 4), GYRE_OK);
}

/* A process that has ended and that its parent has not reaped. */
static void unburied(void **unused)
{
    (void)unused;
    char path[PATH_MAX];
    siginfo_t info;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    hidden(9, "new", (long)pid, path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    assert_int_equal(entries(folder), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void set_age(const char *path, time_t seconds)
{
    const struct timespec then[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

/* A writer that lives, or may live elsewhere, is left alone until nothing has changed for long. */
static void live_writers(void **unused)
{
    (void)unused;
    char path[2][PATH_MAX], file[2][PATH_MAX];
    hidden(9, "new", (long)getppid(), path[0]);
    snprintf(path[1], sizeof path[1], "%s/.step-000000000009.new-another-77", folder);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir(path[i], 0777), 0);
        strcat(strcpy(file[i], path[i]), "/shard-00000.safetensors");
        write_file(file[i], "half", 4);
        set_age(path[i], 7200); /* its file is new */
    }
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    assert_int_equal(entries(folder), 2);
    for (int i = 0; i < 2; i++) {
        set_age(file[i], 7200);
        assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
        assert_int_equal(entries(folder), 1 - (size_t)i);
    }
}

/* Killed between two renames: what is whole gets its name back, from whichever of the two; what is not
 * goes. */
static void restored(void **unused)
{
    (void)unused;
    const char *const kind[] = {"old", "new"};
    char path[PATH_MAX], place[PATH_MAX], file[PATH_MAX];
    assert_true(optim_snapshot_path(folder, 6, place, sizeof place));
    for (int i = 0; i < 2; i++) {
        write_one(6);
        hidden(6, kind[i], gone(), path);
        assert_int_equal(rename(place, path), 0);
        assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
        assert_int_equal(entries(folder), 1);
        assert_int_equal(load(6, NULL), GYRE_OK);
        same_back();
    }
    hidden(6, "old", gone(), path); /* one bit is wrong */
    assert_int_equal(rename(place, path), 0);
    strcat(strcpy(file, path), "/shard-00001.safetensors");
    size_t bytes = 0;
    char *image = read_file(file, &bytes);
    image[bytes / 2] ^= 1;
    write_file(file, image, bytes);
    free(image);
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    assert_int_equal(entries(folder), 0);
    write_one(6); /* the step is there: it stays, the other goes */
    hidden(6, "old", gone(), path);
    assert_int_equal(rename(place, path), 0);
    state[2][5] = 7.0f;
    write_one(6);
    assert_int_equal(optim_snapshot_prepare(folder), GYRE_OK);
    assert_int_equal(entries(folder), 1);
    assert_int_equal(load(6, NULL), GYRE_OK);
    same_back();
    assert_int_equal(optim_snapshot_remove(folder, 6), GYRE_OK);
}

/* The newest that is whole, past one that is not. */
static void newest(void **unused)
{
    (void)unused;
    char path[PATH_MAX];
    optim_snapshot_t *snapshot = NULL;
    uint64_t step = 0;
    assert_int_equal(optim_snapshot_open_newest(folder, &step, &snapshot), GYRE_OK);
    assert_null(snapshot);
    for (uint64_t s = 4; s <= 6; s++)
        write_one(s);
    snprintf(path, sizeof path, "%s/step-000000000006/shard-00001.safetensors", folder);
    write_file(path, "half", 4);
    assert_int_equal(optim_snapshot_open_newest(folder, &step, &snapshot), GYRE_OK);
    assert_non_null(snapshot);
    assert_int_equal(step, 5);
    optim_snapshot_close(snapshot);
    for (uint64_t s = 4; s <= 5; s++)
        assert_int_equal(optim_snapshot_remove(folder, s), GYRE_OK);
    assert_int_equal(optim_snapshot_open_newest(folder, &step, &snapshot), GYRE_ERR_FORMAT);
    assert_null(snapshot);
    assert_int_equal(optim_snapshot_remove(folder, 6), GYRE_OK);
}

static void damage(void **unused)
{
    (void)unused;
    char path[PATH_MAX], index_path[PATH_MAX];
    size_t bytes = 0, index_bytes = 0;
    json_t *index = NULL;
    write_one(5);
    in_file(5, "shard-00001.safetensors", path, sizeof path);
    in_file(5, "index.json", index_path, sizeof index_path);
    char *image = read_file(path, &bytes), *text = read_file(index_path, &index_bytes);

    /* any bit of a file, and any length */
    for (size_t i = 0; i < bytes; i += 1 + bytes / 60) {
        image[i] ^= 0x10;
        write_file(path, image, bytes);
        assert_int_equal(load(5, NULL), GYRE_ERR_FORMAT);
        assert_non_null(strstr(gyre_last_error(), "shard-00001.safetensors is damaged"));
        assert_int_equal(optim_snapshot_check(folder, 5), GYRE_OK); /* only a quick look */
        image[i] ^= 0x10;
        write_file(path, image, i);
        assert_int_equal(optim_snapshot_check(folder, 5), GYRE_ERR_FORMAT);
        assert_int_equal(load(5, NULL), GYRE_ERR_FORMAT);
    }
    write_file(path, image, bytes);
    assert_int_equal(load(5, NULL), GYRE_OK);

    /* any bit of the index, and any length: the text alone says so */
    assert_int_equal(optim_snapshot_parse(text, index_bytes, "x", &index), GYRE_OK);
    json_decref(index);
    for (size_t i = 0; i < index_bytes; i += i + 40 < index_bytes ? 7 : 1) { /* all of them takes long */
        assert_int_equal(optim_snapshot_parse(text, i, "x", &index),
                         i + 1 < index_bytes ? GYRE_ERR_FORMAT : GYRE_OK);
        if (i + 1 == index_bytes) /* all but the last line break */
            json_decref(index);
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ 1 << bit);
            /* a space may become another white space, or none that counts: then nothing has changed */
            if (optim_snapshot_parse(text, index_bytes, "x", &index) == GYRE_OK) {
                assert_non_null(strchr(" \n\t\r", text[i]));
                json_decref(index);
            }
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(optim_snapshot_check(folder, 5), GYRE_ERR_NOT_FOUND);
    assert_int_equal(unlink(index_path), 0);
    assert_int_equal(optim_snapshot_check(folder, 5), GYRE_ERR_NOT_FOUND);
    free(image);
    free(text);
    assert_int_equal(optim_snapshot_remove(folder, 5), GYRE_OK);
}

/* With a checksum that fits: what is listed must make sense. */
static void parse(const char *members, gyre_status_t expected, const char *word)
{
    char text[1024], hash[40];
    json_t *index = json_loads(members, 0, NULL), *parsed = NULL;
    assert_non_null(index);
    char *sorted = json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)base_hash64(sorted, strlen(sorted), 0));
    int n = snprintf(text, sizeof text, "{\"xxh3\": \"%s\", %s", hash, members + 1);
    assert_int_equal(optim_snapshot_parse(text, (size_t)n, "the-index", &parsed), expected);
    if (word)
        assert_non_null(strstr(gyre_last_error(), word));
    json_decref(parsed);
    json_decref(index);
    free(sorted);
}

#define HEAD "{\"format\": \"gyre-training-checkpoint\", \"version\": 2, "
static void nonsense(void **unused)
{
    (void)unused;
    parse(HEAD "\"step\": 1, \"run\": {}}", GYRE_OK, NULL);
    parse(HEAD "\"step\": -1, \"run\": {}}", GYRE_ERR_FORMAT, "lacks step");
    parse(HEAD "\"step\": 1000000000000, \"run\": {}}", GYRE_ERR_FORMAT, "lacks step");
    parse(HEAD "\"step\": 1}", GYRE_ERR_FORMAT, "lacks step or run");
    parse("{\"format\": \"gyre-training-checkpoint\", \"version\": 1}", GYRE_ERR_FORMAT,
          "model.safetensors to --load");
    parse("{\"format\": \"gyre-training-checkpoint\", \"version\": 3}", GYRE_ERR_FORMAT, "has version 3");
    parse("{\"format\": \"other\", \"version\": 1}", GYRE_ERR_FORMAT, "is not the index");
    json_t *index = NULL;
    const char *const broken[] = {"", "[]", "7", "null", "{}", "{\"format\": 3}", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_int_equal(optim_snapshot_parse(broken[i], strlen(broken[i]), "x", &index), GYRE_ERR_FORMAT);
}

/* A file's sum is that of its bytes. */
static void sums(void **unused)
{
    (void)unused;
    char path[PATH_MAX];
    model_file_sum_t read = {0};
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    assert_int_equal(save_weights(path, params, state[0]), GYRE_OK);
    assert_int_equal(model_checkpoint_sum(path, &read), GYRE_OK);
    char *image = read_file(path, &bytes);
    assert_true(read.bytes == bytes && read.hash == base_hash64(image, bytes, 0));
    free(image);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(model_checkpoint_sum(path, &read), GYRE_ERR_NOT_FOUND);
    assert_int_equal(model_checkpoint_sum(folder, &read), GYRE_ERR_IO);
}

/* The files of a late rank are swept, and nothing else; a mark in the folder shows which rank sees it. */
static void probes(void **unused)
{
    (void)unused;
    char made[PATH_MAX], late[PATH_MAX], other[PATH_MAX];
    write_one(3);
    assert_int_equal(optim_snapshot_sees(folder, "elsewhere-1"), 0);
    assert_int_equal(optim_snapshot_probe(folder, "elsewhere-1"), GYRE_OK);
    assert_int_equal(optim_snapshot_sees(folder, "elsewhere-1"), 1);
    assert_int_equal(optim_snapshot_sees(folder, "lsewhere-1"), 0);
    assert_int_equal(optim_snapshot_begin(folder, 4, "elsewhere-1", 1, late), GYRE_OK);
    assert_int_equal(optim_snapshot_begin(folder, 4, "elsewhere-1", 2, made), GYRE_OK);
    assert_int_equal(optim_snapshot_begin(folder, 4, "elsewhere-1", 2, made), GYRE_OK); /* another rank */
    assert_int_equal(optim_snapshot_begin(folder, 4, "somewhere.else-1", 1, other), GYRE_OK);
    assert_int_equal(optim_snapshot_begin(folder, 4, "elsewhere-11", 1, other), GYRE_OK);
    assert_int_equal(entries(folder), 6);
    optim_snapshot_sweep(folder, "elsewhere-1", made);
    assert_int_equal(entries(folder), 4);
    optim_snapshot_sweep(folder, "elsewhere-1", NULL);
    assert_int_equal(entries(folder), 3);
    optim_snapshot_sweep(folder, "elsewhere-11", NULL);
    optim_snapshot_sweep(folder, "somewhere.else-1", NULL);
    assert_int_equal(entries(folder), 1);
    assert_int_equal(optim_snapshot_check(folder, 3), GYRE_OK);
    assert_int_equal(optim_snapshot_remove(folder, 3), GYRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(names),        cmocka_unit_test(left_overs),
        cmocka_unit_test(unburied),   cmocka_unit_test(live_writers), cmocka_unit_test(restored),
        cmocka_unit_test(damage),     cmocka_unit_test(nonsense),     cmocka_unit_test(sums),
        cmocka_unit_test(probes),     cmocka_unit_test(newest),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
