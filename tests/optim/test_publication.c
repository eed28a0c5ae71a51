/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_publication.c: a checkpoint is published whole or not at all: what a saver's thread does
 * (write_out and conclude of optim/checkpoint/saver.c themselves), with the files of one or two ranks, in
 * every interleaving of the calls by which they change names; and with a rank that dies before any of these.
 * At every moment each name in the folder stands for a whole checkpoint, the old one or the new one; what is
 * not synced gets no name; a run that comes later finds one of the two and no leftovers. Then with a mistake
 * at a time, which must be found. */
/* one thread: TSan has nothing to see */
/* ASan in check-long: the same interleavings, in three times the time */
#include "tests/optim/watched_saver.h"

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
        savers[r]->given_up = 0;
        savers[r]->kept.goods = scene->old != 0;
        savers[r]->kept.good[0] = OLD_STEP;
        savers[r]->kept.newest = scene->old ? OLD_STEP : UINT64_MAX;
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
