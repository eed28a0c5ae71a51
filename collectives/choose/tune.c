/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/tune.c: gets the numbers from GYRE_TUNE, the cache or a measurement, and sends them to
 * all ranks.
 *
 * The cache file's name holds the build and what a process learns of the machine in microseconds (kernel
 * release, cache sizes, processors). So machines that share a home directory have files of their own. The
 * signature in the file shows whether the file is of this machine. Checking the signature takes hwloc, some
 * 15 ms. So the file remembers the boot in which it was last checked, and within one boot it is checked
 * once. */
#include "collectives/choose/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "topo/topo.h"

enum { REVISION = 6 }; /* of what is measured and how: another one makes all caches stale */
static const double MEASURE_SECONDS = 0.07;
/* Times the best samples: a machine on which others have the cores takes longer (docs/tuning.md). */
static const double BUSY = 1.3;
enum { AGAIN_FIRST = 60, AGAIN_MOST = 86400 }; /* seconds until such a machine is measured again */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BUILD_KIND "instrumented" /* its times are not those of the other builds */
#else
#define BUILD_KIND "plain"
#endif

static uint64_t add_text(uint64_t hash, const char *text)
{
    return base_hash64(text, strlen(text) + 1, hash);
}

static uint64_t build_hash(void)
{
    uint64_t hash = REVISION;
    hash = add_text(hash, gyre_version());
    hash = add_text(hash, coll_kernel_isa());
    return add_text(hash, BUILD_KIND);
}

/* What is known of the machine without looking closely. */
static uint64_t quick_hash(void)
{
    uint64_t hash = build_hash();
    struct utsname names;
    const long facts[] = {sysconf(_SC_NPROCESSORS_CONF), sysconf(_SC_LEVEL1_DCACHE_SIZE),
                          sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE)};
    if (uname(&names) == 0) {
        hash = add_text(hash, names.release);
        hash = add_text(hash, names.machine);
    }
    return base_hash64(facts, sizeof facts, hash);
}

/* hwloc's view, kernel release and build; 0 if hwloc cannot say. */
static uint64_t signature_now(void)
{
    topo_t *topo;
    if (topo_load(NULL, &topo) != GYRE_OK)
        return 0;
    uint64_t words[2] = {topo_signature(topo), build_hash()};
    topo_free(topo);
    uint64_t hash = base_hash64(words, sizeof words, 0);
    return hash ? hash : 1;
}

/* The kernel's name of this boot; "" if it has none. text: [64]. */
static void boot_now(char *text)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    text[0] = 0;
    if (!file)
        return;
    if (fscanf(file, "%63s", text) != 1)
        text[0] = 0;
    fclose(file);
}

void coll_tune_cache_path(char *path)
{
    const char *cache = base_env("XDG_CACHE_HOME"), *home = base_env("HOME");
    const char *below = "";
    path[0] = 0;
    if (!cache || cache[0] != '/') { /* the rule of XDG: a relative one does not count */
        cache = home;
        below = "/.cache";
    }
    if (!cache || cache[0] != '/')
        return;
    int n = snprintf(path, COLL_TUNE_PATH, "%s%s/gyre/tune-%016llx", cache, below,
                     (unsigned long long)quick_hash());
    if (n < 0 || n >= COLL_TUNE_PATH)
        path[0] = 0;
}

/* Makes the folders that a path lies in, for their owner only. Whether that was enough shows when the file
 * is written. */
static void make_folders(const char *path)
{
    char part[COLL_TUNE_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0700);
        *slash = '/';
    }
}

void coll_tune_builtin(coll_tune_t *out)
{
    memset(out, 0, sizeof *out);
    coll_cost_builtin(&out->cost);
}

gyre_status_t coll_tune_save(const coll_tune_t *tune, const char *path)
{
    char cache[COLL_TUNE_PATH], boot[64];
    base_file_t file;
    coll_tune_cache_path(cache);
    if (!strcmp(cache, path))
        make_folders(path);
    boot_now(boot);
    gyre_status_t st = base_file_begin(path, &file);
    if (st != GYRE_OK)
        return st;
    coll_tune_print(file.out, tune, boot);
    return base_file_commit(&file);
}

/* The cache is a convenience: its errors are logged at info level, and the job goes on. */
static void keep(coll_tune_t *tune, const char *path)
{
    if (!path[0]) {
        log_info("tuning: neither XDG_CACHE_HOME nor HOME says where to keep the measurements; each job "
                 "measures again");
        return;
    }
    make_folders(path);
    int why = base_file_check(path);
    if (why == 0 && coll_tune_save(tune, path) == GYRE_OK) {
        snprintf(tune->path, sizeof tune->path, "%s", path);
        log_info("tuning: kept in %s", path);
    } else {
        log_info("tuning: %s cannot be written (%s); each job measures again", path,
                 why ? strerror(why) : "see above");
    }
}

typedef enum { CACHE_NONE, CACHE_STALE, CACHE_BROKEN, CACHE_GOOD } cache_t;

/* Remembers that the file was checked in this boot; everything else in it, comments too, stays as it is. */
static void note_boot(const char *path, const char *boot)
{
    char line[1100];
    base_file_t file;
    FILE *in = base_file_check(path) == 0 ? fopen(path, "re") : NULL;
    if (!in)
        return; /* then the next job checks again: some 15 ms */
    if (base_file_begin(path, &file) == GYRE_OK) {
        while (fgets(line, sizeof line, in)) {
            if (strncmp(line, "boot ", 5) != 0)
                fputs(line, file.out);
            if (strncmp(line, "signature ", 10) == 0)
                fprintf(file.out, "boot %s\n", boot);
        }
        if (ferror(in))
            base_file_abandon(&file);
        else if (base_file_commit(&file) != GYRE_OK)
            log_info("tuning: %s could not be brought up to date; each job checks it", path);
    }
    fclose(in);
}

/* GOOD: `out` has the cache's numbers, which are of this machine and build; *checked: it took hwloc to
 * know. STALE: *signature is this machine's. BROKEN: the last error says where. */
static cache_t read_cache(const char *path, coll_tune_t *out, uint64_t *signature, int *checked)
{
    char boot[64] = "", now[64];
    FILE *file = path[0] ? fopen(path, "re") : NULL;
    *checked = 0;
    if (!file)
        return CACHE_NONE;
    gyre_status_t st = coll_tune_parse(file, path, 1, out, boot);
    fclose(file);
    if (st != GYRE_OK)
        return CACHE_BROKEN;
    boot_now(now);
    if (out->signature && now[0] && !strcmp(boot, now))
        return CACHE_GOOD;
    *signature = signature_now();
    *checked = 1;
    return *signature && out->signature == *signature ? CACHE_GOOD : CACHE_STALE;
}

int coll_tune_due(const coll_tune_busy_t *busy, int64_t now)
{
    int64_t wait = AGAIN_FIRST;
    for (int i = 1; i < busy->times && wait < AGAIN_MOST; i++)
        wait *= 2;
    wait = wait < AGAIN_MOST ? wait : AGAIN_MOST;
    return busy->stretch > 0 &&
           (now >= busy->when + wait || now < busy->when); /* a clock that was set back */
}

void coll_tune_take(coll_tune_t *tune, const coll_cost_t *fresh, double stretch, int64_t now)
{
    const coll_tune_busy_t before = tune->busy;
    const coll_cost_t old = tune->cost;
    if (before.stretch <= 0 || stretch <= before.stretch) {
        tune->cost = *fresh;
        /* these only gyre-perf --tune measures */
        tune->cost.call = old.call, tune->cost.step = old.step, tune->cost.message = old.message;
        tune->cost.net_latency = old.net_latency, tune->cost.net_rate = old.net_rate;
    }
    if (stretch <= BUSY)
        tune->busy = (coll_tune_busy_t){0};
    else
        tune->busy = (coll_tune_busy_t){
            .stretch = before.stretch > 0 && before.stretch < stretch ? before.stretch : stretch,
            .times = before.stretch > 0 ? before.times + 1 : 1,
            .when = now};
    tune->source = COLL_TUNE_MEASURED;
}

/* 1: the numbers are of a process that could use fewer processors than this one: of a small job's share of
 * the host. The cores that it was bound to do not count: if they were several, but not all, total_memory
 * stays that of these cores. It serves predictions only. */
static int outgrown(const coll_tune_t *tune)
{
    return tune->cost.cores < sysconf(_SC_NPROCESSORS_ONLN) && tune->cost.cores < coll_measure_cores();
}

/* Keeps the choose lines. */
static void measure(coll_tune_t *tune)
{
    const base_time_t begun = base_now();
    coll_cost_t fresh;
    const double stretch = coll_measure(MEASURE_SECONDS, &fresh);
    coll_tune_take(tune, &fresh, stretch, (int64_t)time(NULL));
    log_info("tuning: measured this machine in %.0f ms, %.2f times as long as its best samples%s",
             (double)(base_now() - begun) * 1e-6, stretch,
             tune->busy.stretch > 0 ? ": it is busy; a later job measures again" : "");
}

static void obtain_own(coll_tune_t *out)
{
    char path[COLL_TUNE_PATH], now[64];
    uint64_t signature = 0;
    int checked;
    coll_tune_cache_path(path);
    coll_tune_builtin(out);
    cache_t found = read_cache(path, out, &signature, &checked);
    if (found == CACHE_GOOD) {
        out->source = COLL_TUNE_CACHED;
        boot_now(now);
        const int more = outgrown(out);
        if (more)
            out->busy = (coll_tune_busy_t){0}; /* of other numbers */
        if (more || coll_tune_due(&out->busy, (int64_t)time(NULL))) {
            measure(out);
            keep(out, path);
        } else if (checked && now[0]) {
            note_boot(path, now);
        }
        return;
    }
    if (found == CACHE_STALE)
        log_info("tuning: %s is of another machine, kernel or build; measuring again", path);
    if (found == CACHE_BROKEN)
        log_warning("tuning: %s; this job measures instead (gyre-perf --tune writes the file anew)",
                    gyre_last_error());
    coll_tune_builtin(out);
    measure(out);
    out->signature = signature ? signature : signature_now();
    if (found != CACHE_BROKEN) /* perhaps edited by hand: its owner will want to mend it */
        keep(out, path);
}

static void peek_own(coll_tune_t *out, char *why)
{
    static const char *const reasons[] = {"not measured yet", "of another machine, kernel or build",
                                          "broken"};
    char path[COLL_TUNE_PATH];
    uint64_t signature;
    int checked;
    coll_tune_cache_path(path);
    coll_tune_builtin(out);
    cache_t found = read_cache(path, out, &signature, &checked);
    if (found == CACHE_GOOD) {
        out->source = COLL_TUNE_CACHED;
        return;
    }
    coll_tune_builtin(out);
    snprintf(out->path, sizeof out->path, "%s", path);
    if (found == CACHE_BROKEN)
        snprintf(why, 256, "%.255s", gyre_last_error());
    else
        snprintf(why, 256, "%s",
                 path[0] ? reasons[found] : "no place to keep it: neither XDG_CACHE_HOME nor HOME is set");
}

/* NULL with errno. A folder can be opened, too, but not read. */
static FILE *open_wish(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "re");
    if (file && fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
        fclose(file);
        errno = EISDIR;
        return NULL;
    }
    return file;
}

/* What GYRE_TUNE asks for. A file may be silent on some things: those come from the machine's own numbers. */
static gyre_status_t obtain(coll_tune_t *out, int peek, char *why)
{
    const char *wish = base_setting_string(SET_TUNE);
    FILE *file = NULL;
    if (!strcmp(wish, "none")) {
        coll_tune_builtin(out);
        return GYRE_OK;
    }
    if (wish[0] && !(file = open_wish(wish)))
        return gyre_fail_errno(errno == ENOENT ? GYRE_ERR_NOT_FOUND : GYRE_ERR_IO, errno,
                               "GYRE_TUNE: cannot read the tuning file %s (gyre-perf --tune=FILE writes one; "
                               "GYRE_TUNE= without a value measures)",
                               wish);
    if (peek)
        peek_own(out, why);
    else
        obtain_own(out);
    if (!file)
        return GYRE_OK;
    gyre_status_t st = coll_tune_parse(file, wish, 0, out, NULL);
    fclose(file);
    out->source = COLL_TUNE_FILE;
    return st;
}

gyre_status_t coll_tune_obtain(coll_tune_t *out)
{
    return obtain(out, 0, NULL);
}

gyre_status_t coll_tune_peek(coll_tune_t *out, char *why)
{
    why[0] = 0;
    return obtain(out, 1, why);
}

/* The lines and costs of the file at `path`, into `old`. A cache of another machine, or one that is broken,
 * has none to keep. */
static gyre_status_t read_old(const char *path, uint64_t signature, coll_tune_t *old)
{
    char cache[COLL_TUNE_PATH];
    FILE *file = path[0] ? fopen(path, "re") : NULL;
    coll_tune_cache_path(cache);
    if (!file && path[0] && errno != ENOENT)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", path);
    if (!file)
        return GYRE_OK;
    const int own = !strcmp(cache, path);
    gyre_status_t st = coll_tune_parse(file, path, own, old, NULL);
    fclose(file);
    if (own && (st != GYRE_OK || old->signature != signature)) {
        log_warning("tuning: %s is replaced: %s", path,
                    st != GYRE_OK ? gyre_last_error() : "it is of another machine, kernel or build");
        coll_tune_builtin(old);
        st = GYRE_OK;
    }
    return st;
}

gyre_status_t coll_tune_refresh(const char *path, coll_tune_t *out)
{
    coll_tune_t *old = malloc(sizeof *old);
    if (!old)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to read %s", path);
    coll_tune_builtin(old);
    const uint64_t signature = signature_now();
    gyre_status_t st = read_old(path, signature, old);
    if (st == GYRE_OK) {
        coll_tune_builtin(out);
        if (old->signature == signature) /* what `measure` cannot measure stays: coll_tune_take */
            out->cost = old->cost;
        measure(out);
        out->signature = signature;
        out->nlines = old->nlines;
        memcpy(out->lines, old->lines, (size_t)old->nlines * sizeof *old->lines);
        snprintf(out->path, sizeof out->path, "%s", path);
    }
    free(old);
    return st;
}

gyre_status_t coll_tune_share(comm_boot_t *boot, gyre_status_t status, coll_tune_t *tune,
                              base_time_t deadline)
{
    /* The lines in use only; they come last. */
    size_t bytes = offsetof(coll_tune_t, lines) + (size_t)tune->nlines * sizeof *tune->lines;
    gyre_status_t st = comm_boot_share(boot, status, tune, sizeof *tune, &bytes, deadline);
    if (st != GYRE_OK)
        return st;
    if (bytes < offsetof(coll_tune_t, lines) || tune->nlines < 0 || tune->nlines > COLL_TUNE_LINES_MOST ||
        bytes != offsetof(coll_tune_t, lines) + (size_t)tune->nlines * sizeof *tune->lines)
        return gyre_fail(GYRE_ERR_MISMATCH,
                         "rank 0's tuning of %zu bytes makes no sense here; use the same build on all ranks",
                         bytes);
    return GYRE_OK;
}

const char *coll_tune_source_name(const coll_tune_t *tune)
{
    static const char *const names[] = {"built in", "measured now", "cache", "GYRE_TUNE"};
    return names[tune->source >= 0 && tune->source <= COLL_TUNE_FILE ? tune->source : 0];
}
