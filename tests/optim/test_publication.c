/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_publication.c: a checkpoint is published whole or not at all: what a saver's thread does
 * (write_out and conclude of optim/checkpoint/saver.c themselves), with the files of one or two ranks, in
 * every interleaving of the calls by which they change names; and with a rank that dies before any of these.
 * At every moment each name in the folder stands for a whole checkpoint, the old one or the new one; what is
 * not synced gets no name; a run that comes later finds one of the two and no leftovers. Then with a mistake
 * at a time, which must be found.
 *
 * Longer than 600 lines: what stands in for libc's calls needs what the scenes and the savers share. */
/* one thread: TSan has nothing to see */
/* ASan in check-long: the same interleavings, in three times the time */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "optim/checkpoint/path.h"
#include "tests/support/explore.h"

enum { RANKS = 2, OLD_STEP = 7, OLD = 1, NEW = 2 /* generations of what is saved */ };

typedef enum {
    RIGHT,
    ENTRY_FIRST,       /* a rank's entry has its name before its shard has */
    FOLDER_NOT_SYNCED, /* before the checkpoint gets its name */
    REPLACED_IN_TWO,   /* the old one is taken away before the new one comes, without need */
    OLD_REMOVED_EARLY  /* before the new one's name is synced */
} mistake_t;

typedef struct {
    const char *name;
    int ranks, victim;  /* a rank that dies at any moment; -1: none does */
    int failing;        /* a rank that cannot write its shard; -1: none */
    uint64_t old, step; /* 0: there is no old one */
    int exchanges;      /* 1: this file system can exchange two names; -1: nor give the new one its name */
} scene_t;

/* Everything that the ranks share. The files follow from it: ranks change files of their own, but for
 * those that rank 0 removes, which it learns. */
static struct {
    uint32_t dead[RANKS], ended[RANKS];
    uint32_t changes[RANKS]; /* calls that changed a file */
    uint32_t told[RANKS];    /* shards' entries, or reasons for having none */
    uint32_t learned[RANKS]; /* hash of what the calls have returned */
    uint32_t seen;           /* how many of these, when rank 0 looked */
    uint32_t late;           /* rank 0's time is up */
} shared;

static const scene_t *scene;
static mistake_t mistake;
static char folder[] = "/tmp/gyre-publication-XXXXXX", master[] = "/tmp/gyre-publication-old-XXXXXX";
static char wrong[300]; /* what was seen that must not be */

static int alive(int rank)
{
    return rank >= scene->ranks || !*(volatile uint32_t *)&shared.dead[rank];
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static uint32_t told(void)
{
    uint32_t all = 0;
    for (int r = 1; r < scene->ranks; r++)
        all += *(volatile uint32_t *)&shared.told[r];
    return all;
}

static int others_have_ended(void)
{
    for (int r = 1; r < scene->ranks; r++)
        if (alive(r) && !*(volatile uint32_t *)&shared.ended[r])
            return 0;
    return 1;
}

static int has_news(void)
{
    return !alive(0) || told() != shared.seen || others_have_ended();
}

/* Rank 0 sleeps until it makes sense to look again; its time is up when nothing more can come. */
static int wait_for_news(void)
{
    if (alive(0))
        explore_until(has_news);
    if (told() == shared.seen)
        shared.late = 1;
    return ETIMEDOUT;
}

#define base_now()                                ((base_time_t)shared.late << 60)
#define base_deadline(seconds)                    ((base_time_t)1 << 50)
#define pthread_cond_timedwait(cond, mutex, time) ((void)(time), (void)saver, wait_for_news())
#define nanosleep(time, rest)                     ((void)(time))
#include "optim/checkpoint/saver.c"
#undef nanosleep
#undef base_now
#undef base_deadline
#undef pthread_cond_timedwait

/* ---- the file system: these functions are the test's, for the whole program --------------------------- */

#define NEXT(name)                                       \
    __extension__({                                      \
        static __typeof__(&name) next_;                  \
        if (!next_) {                                    \
            void *const found = dlsym(RTLD_NEXT, #name); \
            memcpy(&next_, &found, sizeof next_);        \
        }                                                \
        next_;                                           \
    })

/* What is on the disk already, were the power to fail now. */
static struct {
    char path[PATH_MAX];
    int synced, fd;
} file[64];
static int files;

static int looking; /* 1: the test itself asks */
static int unnamed; /* 1: the new checkpoint's name is not on the disk yet */

static int is_ours(const char *path)
{
    return explore_thread() >= 0 && !looking && strncmp(path, folder, sizeof folder - 1) == 0;
}

/* The names of temporary files are not the same in each run. */
static uint32_t hash_of(const char *path)
{
    const char *temporary = strstr(path, ".tmp-");
    return (uint32_t)base_hash64(path, temporary ? (size_t)(temporary - path) : strlen(path), 3);
}

/* The next step of the rank that runs, with that file. 0: it is dead, and does nothing any more. */
static int step(void)
{
    int me = explore_thread();
    if (alive(me) && explore_load(&shared.dead[me]) == 0)
        return 1;
    errno = EIO;
    return 0;
}

static int ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);
    return length >= n && strcmp(path + length - n, ending) == 0;
}

static void learn_result(const char *path, int result)
{
    int me = explore_thread(), why = errno;
    const uint32_t record[] = {shared.learned[me], hash_of(path), result < 0 ? (uint32_t)why : 0};
    shared.learned[me] = (uint32_t)base_hash64(record, sizeof record, 4);
    shared.changes[me] += result >= 0;
    if (result >= 0 && (ends_in(path, ".done") || ends_in(path, ".failed")))
        shared.told[me] = 1;
    errno = why;
}

static int find(const char *path)
{
    int i = 0;
    while (i < files && strcmp(file[i].path, path) != 0)
        i++;
    return i;
}

/* The folder of a file, or the file itself, is changed. */
static void touch(const char *path)
{
    int i = find(path);
    if (i == (int)(sizeof file / sizeof *file))
        abort();
    if (i == files) {
        snprintf(file[files++].path, PATH_MAX, "%s", path);
        file[i].fd = 0;
    }
    file[i].synced = 0;
}

static void touch_parent(const char *path)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    touch(parent);
}

static void forget_file(const char *path)
{
    int i = find(path);
    if (i < files)
        file[i] = file[--files];
}

/* The folder `from` and what is in it are now `to`. */
static void move(const char *from, const char *to)
{
    size_t length = strlen(from);
    for (int i = 0; i < files; i++)
        if (strncmp(file[i].path, from, length) == 0 &&
            (!file[i].path[length] || file[i].path[length] == '/')) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s%s", to, file[i].path + length);
            snprintf(file[i].path, PATH_MAX, "%s", path);
        }
}

static void is_wrong(const char *what, const char *path)
{
    if (!*wrong)
        snprintf(wrong, sizeof wrong, "%s: %.200s", what, path);
}

/* A folder gets the name of a checkpoint: all of it must be on the disk. */
static void look_whether_synced(const char *made)
{
    size_t length = strlen(made);
    for (int i = 0; i < files; i++)
        if (strncmp(file[i].path, made, length) == 0 && !file[i].synced && !ends_in(file[i].path, ".done"))
            is_wrong("is published before it is synced", file[i].path);
}

/* 1: `path` is FOLDER/step-N. */
static int is_public(const char *path)
{
    return strncmp(path + sizeof folder - 1, "/step-", 6) == 0 && !strchr(path + sizeof folder, '/');
}

static int sync_fd(int fd)
{
    for (int i = 0; i < files; i++)
        if (file[i].fd == fd + 1) {
            file[i].synced = 1;
            unnamed = unnamed && strcmp(file[i].path, folder) != 0;
        }
    return 0;
}

int fsync(int fd)
{
    return explore_thread() >= 0 ? sync_fd(fd) : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return explore_thread() >= 0 ? sync_fd(fd) : NEXT(fdatasync)(fd);
}

int close(int fd)
{
    for (int i = 0; i < files; i++)
        if (file[i].fd == fd + 1)
            file[i].fd = 0;
    return NEXT(close)(fd);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!is_ours(path))
        return NEXT(open)(path, flags, mode);
    if (!alive(explore_thread())) { /* what nobody looks for yet is no step of its own */
        errno = EIO;
        return -1;
    }
    int broken = flags & O_CREAT && explore_thread() == scene->failing && strstr(path, ".safetensors");
    int fd = broken ? -1 : NEXT(open)(path, flags, mode);
    if (broken)
        errno = ENOSPC;
    if (flags & O_CREAT) {
        learn_result(path, fd);
        if (fd >= 0) {
            touch(path);
            touch_parent(path);
        }
    }
    int i = find(path);
    int is_folder = strcmp(path, folder) == 0;
    int left_out = flags & O_DIRECTORY && mistake == (is_folder ? OLD_REMOVED_EARLY : FOLDER_NOT_SYNCED);
    if (fd >= 0 && i < files && !left_out)
        file[i].fd = fd + 1;
    return fd;
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    if (!is_ours(path) || *mode != 'w')
        return NEXT(fopen)(path, mode);
    if (!step())
        return NULL;
    FILE *out = NEXT(fopen)(path, mode);
    learn_result(path, out ? 0 : -1);
    if (out)
        touch_parent(path);
    return out;
}

/* Rank 0 looks who has come. */
DIR *opendir(const char *path)
{
    if (!is_ours(path))
        return NEXT(opendir)(path);
    if (!step())
        return NULL;
    DIR *all = NEXT(opendir)(path);
    uint32_t names = 0;
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (ends_in(entry->d_name, ".done") || ends_in(entry->d_name, ".failed"))
            names ^= hash_of(entry->d_name);
    if (all)
        rewinddir(all);
    if (explore_thread() == 0)
        shared.seen = told();
    shared.learned[explore_thread()] ^= names; /* the call is learned from the step */
    return all;
}

int mkdir(const char *path, mode_t mode)
{
    if (!is_ours(path))
        return NEXT(mkdir)(path, mode);
    if (!step())
        return -1;
    int result = NEXT(mkdir)(path, mode);
    learn_result(path, result);
    if (result == 0) {
        touch(path);
        touch_parent(path);
    }
    return result;
}

int unlink(const char *path)
{
    if (!is_ours(path))
        return NEXT(unlink)(path);
    if (!step())
        return -1;
    int result = NEXT(unlink)(path);
    learn_result(path, result);
    shared.told[explore_thread()] = shared.told[explore_thread()] && !ends_in(path, ".done");
    if (result == 0)
        forget_file(path);
    if (unnamed && ends_in(path, "index.json"))
        is_wrong("is removed before the new one's name is synced", path);
    return result;
}

static void look_at_names(int may_lack);

int rmdir(const char *path)
{
    if (!is_ours(path))
        return NEXT(rmdir)(path);
    if (!step())
        return -1;
    int result = NEXT(rmdir)(path);
    learn_result(path, result);
    if (result == 0)
        forget_file(path);
    return result;
}

static char postponed[2][PATH_MAX]; /* a rename */

int rename(const char *from, const char *to)
{
    if (!is_ours(from))
        return NEXT(rename)(from, to);
    if (!step())
        return -1;
    if (mistake == ENTRY_FIRST && explore_thread() == 1 && ends_in(to, ".safetensors")) {
        snprintf(postponed[0], PATH_MAX, "%s", from);
        snprintf(postponed[1], PATH_MAX, "%s", to);
        return 0;
    }
    int leaves = is_public(from), comes = is_public(to);
    if (comes)
        look_whether_synced(from);
    int refused = scene->exchanges < 0 && comes && strstr(from, ".new") && access(to, F_OK) != 0;
    int result = refused ? -1 : NEXT(rename)(from, to);
    if (refused)
        errno = EIO;
    learn_result(to, result);
    if (result == 0) {
        move(from, to);
        touch_parent(to);
    }
    unnamed = unnamed || (comes && result == 0 && strstr(from, ".new"));
    if (leaves || comes)
        look_at_names(scene->exchanges != 1);
    if (mistake == ENTRY_FIRST && *postponed[0] && ends_in(to, ".done")) {
        if (step())
            NEXT(rename)(postponed[0], postponed[1]);
        *postponed[0] = 0;
    }
    return result;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (!is_ours(from))
        return NEXT(renameat2)(from_folder, from, to_folder, to, flags);
    if (!step())
        return -1;
    if (scene->exchanges != 1 || mistake == REPLACED_IN_TWO) {
        errno = EINVAL;
        return -1;
    }
    look_whether_synced(from);
    int result = NEXT(renameat2)(from_folder, from, to_folder, to, flags);
    learn_result(to, result);
    if (result == 0) {
        move(from, to);
        touch_parent(to);
        unnamed = 1;
        look_at_names(0);
    }
    return result;
}

/* ---- savers -------------------------------------------------------------------------------------------- */

static const model_config_t config = {.vocab = 5, .seq = 2, .layers = 1, .hidden = 4, .heads = 1};
static model_params_t *params;
static float *state[OPTIM_RANGE_PARTS];
static char id[OPTIM_SNAPSHOT_ID];
static optim_saver_t *savers[RANKS];
static json_t *run_of[NEW + 1];

/* What rank `rank` of `ranks` saves: its part of each row. */
static void fill(optim_saver_t *saver, int rank, int ranks, int generation)
{
    saver->count = saver->used = 0;
    saver->run = run_of[generation];
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        for (size_t i = 0; i < params->total; i++)
            state[p][i] = (float)(generation * 1000 + (int)(p * 100 + i));
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        size_t first = row->count * (size_t)rank / (size_t)ranks, at = row->offset + first;
        const optim_range_t range = {.row = r,
                                     .first = first,
                                     .count = row->count * (size_t)(rank + 1) / (size_t)ranks - first,
                                     .part = {state[0] + at, state[1] + at, state[2] + at}};
        if (range.count > 0 && row->alias == MODEL_NONE)
            assert_int_equal(optim_saver_add(saver, &range), GYRE_OK);
    }
    set_parts(saver);
}

static optim_saver_t *make_saver(int rank)
{
    static const unsigned char writes[RANKS] = {1, 1};
    const optim_saver_config_t how_to = {.folder = folder,
                                         .id = id,
                                         .keep = 1,
                                         .rank = (size_t)rank,
                                         .ranks = RANKS,
                                         .writes = writes,
                                         .patience = 1.0};
    optim_saver_t *saver = calloc(1, sizeof *saver);
    assert_non_null(saver);
    assert_true(fill_in(saver, &how_to, params->total));
    saver->whole = params;
    saver->first_sync = -1;
    pthread_mutex_init(&saver->mutex, NULL);
    return saver;
}

static gyre_status_t answer; /* of rank 0 */

/* What a saver's thread does when it has got a job. */
static void save(void)
{
    int me = explore_thread() < 0 ? 0 : explore_thread();
    gyre_status_t status = write_out(savers[me]);
    if (me == 0) {
        answer = status;
        conclude(savers[0], status, 0.0);
    }
    explore_exchange(&shared.ended[me], 1);
}

static void kill_victim(void)
{
    explore_exchange(&shared.dead[scene->victim], 1);
}

/* ---- what is right ------------------------------------------------------------------------------------- */

/* The generation of what has this name; 0: it is not whole. */
static int generation_of(uint64_t at)
{
    optim_snapshot_t *snapshot = NULL;
    json_int_t generation = 0;
    if (optim_snapshot_open(folder, at, &snapshot) == GYRE_OK &&
        optim_snapshot_verify(snapshot, 0, 1) == GYRE_OK)
        generation = json_integer_value(json_object_get(optim_snapshot_run(snapshot), "generation"));
    optim_snapshot_close(snapshot);
    return (int)generation;
}

/* The newest generation that has a name. Each name must stand for a whole checkpoint; may_lack: perhaps none
 * is there, although there was one. */
static int inspect(int may_lack)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int newest = 0;
    looking = 1;
    if (optim_snapshot_list(folder, &steps, &count) != GYRE_OK)
        is_wrong("cannot be read", folder);
    for (size_t i = 0; i < count; i++) {
        int generation = generation_of(steps[i]);
        if (generation == 0)
            is_wrong("has a name and is not whole", gyre_last_error());
        if (scene->old != scene->step && generation != (steps[i] == scene->step ? NEW : OLD))
            is_wrong("has the other's name", folder);
        newest = generation > newest ? generation : newest;
    }
    if (newest == 0 && scene->old && !may_lack)
        is_wrong("holds no checkpoint any more", folder);
    free(steps);
    looking = 0;
    return newest;
}

static void look_at_names(int may_lack)
{
    int why = errno;
    (void)inspect(may_lack);
    errno = why;
}

static int all_is_right(void)
{
    int newest = inspect(scene->victim == 0 && scene->exchanges != 1), should = scene->old ? OLD : 0;
    looking = 1;
    if (scene->victim != 0) {
        if (scene->victim < 0 && scene->failing < 0 && scene->exchanges >= 0 && answer != GYRE_OK)
            is_wrong("could not be saved", gyre_last_error());
        if ((scene->failing >= 0 || scene->exchanges < 0) && answer == GYRE_OK)
            is_wrong("was saved, it says", folder);
        if (newest != (answer == GYRE_OK ? NEW : should))
            is_wrong("is not what rank 0 says", folder);
    }
    /* a run that comes later */
    if (optim_snapshot_prepare(folder) != GYRE_OK)
        is_wrong("cannot be prepared", gyre_last_error());
    looking = 0;
    int later = inspect(0);
    if (later < newest)
        is_wrong("is lost later", folder);
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_wrong("is left", entry->d_name);
    if (all)
        closedir(all);
    return !*wrong;
}

/* ---- what is explored ---------------------------------------------------------------------------------- */

static void empty(const char *path, int itself)
{
    char name[PATH_MAX];
    DIR *all = opendir(path);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !checkpoint_path_join(name, path, entry->d_name))
            continue;
        if (unlink(name) != 0)
            empty(name, 1);
    }
    if (all)
        closedir(all);
    if (itself)
        (void)rmdir(path);
}

static void put_old_one(void)
{
    char to[PATH_MAX], from[PATH_MAX], at[PATH_MAX];
    if (!optim_snapshot_path(folder, OLD_STEP, at, sizeof at))
        abort();
    (void)mkdir(at, 0777);
    DIR *all = opendir(master);
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (entry->d_name[0] != '.' && checkpoint_path_join(from, master, entry->d_name) &&
            checkpoint_path_join(to, at, entry->d_name) && link(from, to) != 0)
            abort();
    if (all)
        closedir(all);
}

static void begin_scene(void)
{
    memset(&shared, 0, sizeof shared);
    files = unnamed = 0;
    *wrong = *postponed[0] = 0;
    empty(folder, 0);
    if (scene->old)
        put_old_one();
    for (int r = 0; r < scene->ranks; r++) {
        savers[r]->step = scene->step;
        savers[r]->attempt = 1;
        savers[r]->lost = savers[r]->given_up = 0;
        savers[r]->goods = scene->old != 0;
        savers[r]->good[0] = OLD_STEP;
        savers[r]->newest = scene->old ? OLD_STEP : UINT64_MAX;
    }
}

static explore_result_t play(const scene_t *what, mistake_t with)
{
    explore_t plan = {.threads = what->ranks + (what->victim >= 0),
                      .body = {save, save},
                      .reset = begin_scene,
                      .right = all_is_right,
                      .completes = 1,
                      .memory = &shared,
                      .bytes = sizeof shared};
    if (what->victim >= 0)
        plan.body[what->ranks] = kill_victim;
    scene = what;
    mistake = with;
    for (int r = 0; r < what->ranks; r++) {
        savers[r]->ranks = (size_t)what->ranks;
        fill(savers[r], r, what->ranks, NEW);
    }
    return explore(&plan);
}

static const scene_t scenes[] = {
    {"the first", 2, -1, -1, 0, 8, 1},
    {"the next", 2, -1, -1, OLD_STEP, 8, 1},
    {"the same again", 2, -1, -1, OLD_STEP, OLD_STEP, 1},
    {"the same again, no exchange", 2, -1, -1, OLD_STEP, OLD_STEP, 0},
    {"the same again, no rename", 2, -1, -1, OLD_STEP, OLD_STEP, -1},
    {"rank 1 has no room", 2, -1, 1, OLD_STEP, 8, 1},
    {"rank 1 dies", 2, 1, -1, OLD_STEP, 8, 1},
    {"rank 0 dies", 2, 0, -1, OLD_STEP, 8, 1},
    {"rank 0 dies, the same again", 1, 0, -1, OLD_STEP, OLD_STEP, 1},
    {"rank 0 dies, no exchange", 1, 0, -1, OLD_STEP, OLD_STEP, 0},
};
enum { FIRST = 0, AGAIN = 2, AGAIN_IN_TWO = 3, SCENES = sizeof scenes / sizeof scenes[0] };

static void test_is_whole_at_every_moment(void **unused)
{
    (void)unused;
    for (int i = 0; i < SCENES; i++) {
        explore_result_t got = play(&scenes[i], RIGHT);
        printf("%s: %zu states, %zu runs\n", scenes[i].name, got.states, got.runs);
        if (got.stuck || got.wrong)
            fail_msg("%s: %s\n%s", scenes[i].name, got.stuck ? "stuck" : wrong, got.text);
        assert_true(got.states > 30);
    }
}

static void finds(mistake_t with, int in, const char *text)
{
    explore_result_t got = play(&scenes[in], with);
    if (!got.wrong || !strstr(wrong, text))
        fail_msg("mistake %d is not found by \"%s\": %s", (int)with, scenes[in].name, wrong);
}

static void test_mistakes_are_found(void **unused)
{
    (void)unused;
    finds(ENTRY_FIRST, FIRST, "not whole");
    finds(FOLDER_NOT_SYNCED, FIRST, "before it is synced");
    finds(REPLACED_IN_TWO, AGAIN, "no checkpoint any more");
    finds(OLD_REMOVED_EARLY, AGAIN, "is removed before");
    finds(OLD_REMOVED_EARLY, AGAIN_IN_TWO, "is removed before");
}

static int begin(void **unused)
{
    (void)unused;
    static const scene_t alone = {"", RANKS, -1, -1, 0, OLD_STEP, 1};
    char made[PATH_MAX];
    base_log_set_level(BASE_LOG_NONE);
    optim_snapshot_id(id, sizeof id);
    if (!mkdtemp(folder) || !mkdtemp(master) || model_params_create(&config, &params) != GYRE_OK)
        return -1;
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        if (!(state[p] = calloc(params->total, sizeof(float))))
            return -1;
    for (int g = OLD; g <= NEW; g++)
        run_of[g] = json_pack("{s:i}", "generation", g);
    for (int r = 0; r < RANKS; r++)
        savers[r] = make_saver(r);
    /* the old one, saved by one rank */
    scene = &alone;
    savers[0]->ranks = 1;
    savers[0]->step = OLD_STEP;
    fill(savers[0], 0, 1, OLD);
    save();
    if (answer != GYRE_OK || !optim_snapshot_path(folder, OLD_STEP, made, sizeof made))
        return -1;
    return rename(made, master);
}

static int end(void **unused)
{
    (void)unused;
    empty(folder, 1);
    empty(master, 1);
    for (int r = 0; r < RANKS; r++)
        release(savers[r]);
    for (int g = OLD; g <= NEW; g++)
        json_decref(run_of[g]);
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        free(state[p]);
    model_params_destroy(params);
    return access(folder, F_OK) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_whole_at_every_moment),
        cmocka_unit_test(test_mistakes_are_found),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
