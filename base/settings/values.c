/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/values.c: the settings' present values.
 *
 * What readers see is a snapshot that never changes once published: an array of values and the environment
 * that they came from. Readers take it with one acquiring load. A reload or an override builds a new one
 * under a lock and publishes it; old ones stay readable until the process ends, so no reader ever holds a
 * stale pointer. A reload of an unchanged environment publishes nothing, so gyre_init may do it as often
 * as it likes. */
#include "base/settings/settings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/parse.h"

typedef struct {
    const char *name;
    base_setting_kind_t kind;
    const char *standard, *unit, *meaning;
} row_t;

static const row_t rows[SET_COUNT] = {
#define SETTING(id, name, kind, def, unit, meaning) {name, BASE_SETTING_##kind, def, unit, meaning},
#include "base/settings/table.def"
#undef SETTING
};

/* The environment as it was: "NAME=VALUE" strings one after another. */
typedef struct {
    size_t count, bytes;
    char *text; /* [bytes] */
} env_t;

typedef struct {
    env_t env;
    base_setting_value_t values[SET_COUNT];
    const char *sources[SET_COUNT];
    gyre_status_t status;  /* of reading the environment */
    const char *complaint; /* the text that goes with it */
} snapshot_t;

static const char from_default[] = "default", from_environment[] = "environment";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(snapshot_t *) current;
/* Under `lock`: */
static base_arena_t memory; /* snapshots and their texts; never freed */
static struct {
    const char *value, *source;
} overrides[SET_COUNT]; /* value NULL: none */
static struct warned {
    struct warned *next;
    const char *name;
} * warned; /* unknown names that were logged already */

/* ---- the environment ----------------------------------------------------------------------------------- */

static const char *env_find(const env_t *env, const char *name)
{
    size_t length = strlen(name);
    const char *entry = env->text;
    for (size_t i = 0; i < env->count; i++, entry += strlen(entry) + 1)
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            return entry + length + 1;
    return NULL;
}

/* 1 if `env` is what the process has now. */
static int env_is_current(const env_t *env)
{
    size_t count = 0, at = 0;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++, count++) {
        size_t bytes = strlen(*entry) + 1;
        if (bytes > env->bytes - at || memcmp(env->text + at, *entry, bytes) != 0)
            return 0;
        at += bytes;
    }
    return count == env->count;
}

static int env_copy(env_t *env)
{
    *env = (env_t){0};
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++, env->count++)
        env->bytes += strlen(*entry) + 1;
    env->text = base_arena_alloc(&memory, env->bytes + 1, 1);
    if (env->text == NULL)
        return 0;
    size_t at = 0;
    for (size_t i = 0; i < env->count; i++) {
        size_t bytes = strlen(environ[i]) + 1;
        memcpy(env->text + at, environ[i], bytes);
        at += bytes;
    }
    return 1;
}

/* ---- building a snapshot; all of it under the lock ----------------------------------------------------- */

/* Sets values[id] from `text`, or returns 0 and leaves it. */
static int take(snapshot_t *snapshot, base_setting_t id, const char *text, const char *source)
{
    base_setting_value_t value = {0};
    if (!base_setting_parse(rows[id].kind, rows[id].unit, text, &value))
        return 0;
    if (rows[id].kind == BASE_SETTING_CHOICE) { /* the word as the table spells it */
        size_t length;
        const char *word = base_setting_word(rows[id].unit, (int)value.number, &length);
        char *copy = base_arena_alloc(&memory, length + 1, 1);
        if (copy != NULL)
            value.text = memcpy(copy, word, length);
    }
    snapshot->values[id] = value;
    snapshot->sources[id] = source;
    return 1;
}

static gyre_status_t malformed(base_setting_t id, const char *text, const char *source)
{
    char accepts[256];
    base_setting_accepts(rows[id].kind, rows[id].unit, accepts, sizeof(accepts));
    if (source == from_environment)
        return gyre_fail(GYRE_ERR_INVALID, "%s=\"%.80s\" is malformed: it must be %s", rows[id].name, text,
                         accepts);
    return gyre_fail(GYRE_ERR_INVALID, "%s (%s): \"%.80s\" is malformed: it must be %s", rows[id].name,
                     source, text, accepts);
}

/* The level first: it decides whether the rest is seen. */
static void apply_log(const snapshot_t *snapshot)
{
    base_log_set_level((base_log_level_t)snapshot->values[SET_LOG].number);
    int64_t rank = snapshot->values[SET_RANK].number;
    if (base_log_rank() < 0 && rank >= 0)
        base_log_set_rank((int)rank);
}

/* Calls before gyre_init may fail before the settings are read: GYRE_LOG holds for them, too. */
__attribute__((constructor)) static void begin_log(void)
{
    base_setting_value_t level;
    const char *text = getenv(rows[SET_LOG].name);
    if (text != NULL && base_setting_parse(rows[SET_LOG].kind, rows[SET_LOG].unit, text, &level))
        base_log_set_level((base_log_level_t)level.number);
}

static void warn_of(const char *name)
{
    for (struct warned *w = warned; w != NULL; w = w->next)
        if (strcmp(w->name, name) == 0)
            return;
    struct warned *entry = base_arena_alloc(&memory, 1, sizeof(*entry));
    char *copy = base_arena_strdup(&memory, name);
    if (entry != NULL && copy != NULL) {
        *entry = (struct warned){warned, copy};
        warned = entry;
    }
    const char *near = rows[base_setting_nearest(name)].name;
    const int slip = base_setting_distance(name, near) <= base_setting_slip(strlen(name) - strlen("GYRE_")) ||
                     strncmp(name, near, strlen(near)) == 0;
    log_warning("%s is not a setting of Gyre and is ignored%s%s%s (gyre-doctor --settings lists all)", name,
                slip ? "; did you mean " : "", slip ? near : "", slip ? "?" : "");
}

static void warn_of_unknown(const env_t *env)
{
    const char *entry = env->text;
    for (size_t i = 0; i < env->count; i++, entry += strlen(entry) + 1) {
        char name[64];
        size_t length = strcspn(entry, "=");
        /* GYRE_MPI_..., GYRE_NCCL_...: libgyre-mpi and libgyre-nccl read them. */
        if (strncmp(entry, "GYRE_", 5) != 0 || strncmp(entry, "GYRE_MPI_", 9) == 0 ||
            strncmp(entry, "GYRE_NCCL_", 10) == 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", length < sizeof(name) ? (int)length : (int)sizeof(name) - 1,
                 entry);
        int known = 0;
        for (size_t id = 0; id < SET_COUNT && !known; id++)
            known = strcmp(rows[id].name, name) == 0;
        if (!known)
            warn_of(name);
    }
}

/* Fills values in order of rising authority: defaults, the environment, flags. */
static void fill(snapshot_t *snapshot)
{
    const char *wrong[SET_COUNT] = {NULL};
    snapshot->status = GYRE_OK;
    snapshot->complaint = "";
    for (size_t i = 0; i < SET_COUNT; i++) {
        base_setting_t id = (base_setting_t)i;
        take(snapshot, id, rows[i].standard, from_default); /* a test holds every default to its kind */
        const char *text = env_find(&snapshot->env, rows[i].name);
        if (text != NULL && *text != '\0' && !take(snapshot, id, text, from_environment))
            wrong[i] = text;
        if (overrides[i].value != NULL)
            take(snapshot, id, overrides[i].value, overrides[i].source);
    }
    apply_log(snapshot);
    for (size_t i = SET_COUNT; i-- > 0;) /* backwards: the first one is the one that stays as last error */
        if (wrong[i] != NULL)
            snapshot->status = malformed((base_setting_t)i, wrong[i], from_environment);
    if (snapshot->status != GYRE_OK) {
        const char *copy = base_arena_strdup(&memory, gyre_last_error());
        snapshot->complaint = copy != NULL ? copy : "a GYRE_* variable is malformed";
    }
    warn_of_unknown(&snapshot->env);
}

/* The very first one is static: even without any memory left there are settings to read. */
static snapshot_t *snapshot_new(void)
{
    static snapshot_t first;
    if (atomic_load_explicit(&current, memory_order_relaxed) == NULL)
        return &first;
    return base_arena_alloc(&memory, 1, sizeof(snapshot_t));
}

static gyre_status_t no_memory(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory left to read the settings");
}

static gyre_status_t read_environment(void)
{
    snapshot_t *fresh = snapshot_new();
    if (fresh == NULL)
        return no_memory();
    int copied = env_copy(&fresh->env);
    if (!copied)
        fresh->env = (env_t){0};
    fill(fresh);
    if (!copied)
        fresh->status = no_memory();
    atomic_store_explicit(&current, fresh, memory_order_release); /* pairs with the acquire in get() */
    return fresh->status;
}

/* Repeats an old error on a thread that may not have got it. */
static gyre_status_t answer(const snapshot_t *snapshot)
{
    return snapshot->status == GYRE_OK ? GYRE_OK
                                       : gyre_fail_quiet(snapshot->status, "%s", snapshot->complaint);
}

/* What was read without memory left is read again. */
static int is_read(const snapshot_t *snapshot)
{
    return snapshot != NULL && snapshot->status != GYRE_ERR_NO_MEMORY;
}

gyre_status_t base_settings_load(void)
{
    snapshot_t *now = atomic_load_explicit(&current, memory_order_acquire);
    if (is_read(now))
        return answer(now);
    pthread_mutex_lock(&lock);
    now = atomic_load_explicit(&current, memory_order_relaxed);
    gyre_status_t status = is_read(now) ? answer(now) : read_environment();
    pthread_mutex_unlock(&lock);
    return status;
}

gyre_status_t base_settings_reload(void)
{
    pthread_mutex_lock(&lock);
    snapshot_t *now = atomic_load_explicit(&current, memory_order_relaxed);
    gyre_status_t status = now != NULL && env_is_current(&now->env) ? answer(now) : read_environment();
    pthread_mutex_unlock(&lock);
    return status;
}

static gyre_status_t set_locked(base_setting_t id, const char *value, const char *source)
{
    snapshot_t *now = atomic_load_explicit(&current, memory_order_relaxed);
    base_setting_value_t parsed;
    if (value != NULL && !base_setting_parse(rows[id].kind, rows[id].unit, value, &parsed))
        return malformed(id, value, source);

    const char *kept_value = value == NULL ? NULL : base_arena_strdup(&memory, value);
    const char *kept_source = value == NULL ? NULL : base_arena_strdup(&memory, source);
    snapshot_t *fresh = snapshot_new();
    if (fresh == NULL || (value != NULL && (kept_value == NULL || kept_source == NULL)))
        return no_memory();
    *fresh = *now;
    overrides[id].value = kept_value;
    overrides[id].source = kept_source;
    if (value != NULL) {
        take(fresh, id, kept_value, kept_source);
    } else {
        const char *text = env_find(&fresh->env, rows[id].name);
        if (text == NULL || *text == '\0' || !take(fresh, id, text, from_environment))
            take(fresh, id, rows[id].standard, from_default);
    }
    apply_log(fresh);
    atomic_store_explicit(&current, fresh, memory_order_release);
    return GYRE_OK;
}

gyre_status_t base_settings_set(base_setting_t id, const char *value, const char *source)
{
    if ((unsigned)id >= SET_COUNT)
        return gyre_fail(GYRE_ERR_INVALID, "setting number %d is not in 0..%d", (int)id, SET_COUNT - 1);
    base_settings_load(); /* its complaints were logged; the override does not depend on them */
    pthread_mutex_lock(&lock);
    gyre_status_t status = set_locked(id, value, source != NULL ? source : "program");
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static const snapshot_t *get(void)
{
    snapshot_t *now = atomic_load_explicit(&current, memory_order_acquire);
    if (now == NULL) {
        base_settings_load();
        now = atomic_load_explicit(&current, memory_order_acquire);
    }
    return now;
}

const char *base_setting_string(base_setting_t id)
{
    return (unsigned)id < SET_COUNT ? get()->values[id].text : "";
}

int64_t base_setting_int(base_setting_t id)
{
    return (unsigned)id < SET_COUNT ? get()->values[id].number : 0;
}

double base_setting_seconds(base_setting_t id)
{
    return (unsigned)id < SET_COUNT ? get()->values[id].seconds : 0.0;
}

int base_setting_is_default(base_setting_t id)
{
    return (unsigned)id >= SET_COUNT || get()->sources[id] == from_default;
}

const char *base_env(const char *name)
{
    return env_find(&get()->env, name);
}

base_setting_row_t base_setting_row(base_setting_t id)
{
    const snapshot_t *now = get();
    if ((unsigned)id >= SET_COUNT)
        return (base_setting_row_t){"", BASE_SETTING_STRING, "", "", "", "", ""};
    const char *value = now->values[id].text;
    if (id == SET_SECRET && *value != '\0')
        value = "(hidden)"; /* what is printed ends up in bug reports */
    return (base_setting_row_t){rows[id].name,    rows[id].kind, rows[id].standard, rows[id].unit,
                                rows[id].meaning, value,         now->sources[id]};
}

double base_setting_standard_seconds(base_setting_t id)
{
    base_setting_value_t value;
    const int ok = (unsigned)id < SET_COUNT && rows[id].kind == BASE_SETTING_SECONDS &&
                   base_setting_parse(rows[id].kind, rows[id].unit, rows[id].standard, &value);
    return ok ? value.seconds : 0.0; /* tests/base/test_settings.c parses all defaults */
}

base_setting_t base_setting_nearest(const char *name)
{
    base_setting_t best = (base_setting_t)0;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < SET_COUNT; i++)
        if (base_setting_nearer(name, rows[i].name, &least))
            best = (base_setting_t)i;
    return best;
}

/* Ends the line with `text`, in lines of at most 60 columns that begin at column `indent`. */
static void print_meaning(FILE *out, const char *text, size_t indent)
{
    enum { WIDTH = 60 };
    while (strlen(text) > WIDTH) {
        size_t end = WIDTH;
        while (end > 0 && text[end] != ' ')
            end--;
        if (end == 0)
            end = strcspn(text, " ");
        if (text[end] == '\0')
            break;
        fprintf(out, "%.*s\n%*s", (int)end, text, (int)indent, "");
        text += end + 1;
    }
    fprintf(out, "%s\n", text);
}

void base_settings_print(FILE *out)
{
    base_setting_row_t table[SET_COUNT + 1] = {
        {"NAME", BASE_SETTING_STRING, "DEFAULT", "UNIT", "MEANING", "VALUE", "SOURCE"}};
    int width[5] = {0};
    for (size_t i = 0; i <= SET_COUNT; i++) {
        if (i > 0)
            table[i] = base_setting_row((base_setting_t)(i - 1));
        base_setting_row_t *row = &table[i];
        if (*row->value == '\0')
            row->value = "-";
        if (*row->standard == '\0')
            row->standard = "-";
        const char *cells[5] = {row->name, row->value, row->standard, row->unit, row->source};
        for (size_t c = 0; c < 5; c++) {
            int length = (int)strnlen(cells[c], 60);
            width[c] = length > width[c] ? length : width[c];
        }
    }
    size_t indent = 0;
    for (size_t c = 0; c < 5; c++)
        indent += (size_t)width[c] + 2;
    for (size_t i = 0; i <= SET_COUNT; i++) {
        fprintf(out, "%-*s  %-*s  %-*s  %-*s  %-*s  ", width[0], table[i].name, width[1], table[i].value,
                width[2], table[i].standard, width[3], table[i].unit, width[4], table[i].source);
        print_meaning(out, table[i].meaning, indent);
    }
}
