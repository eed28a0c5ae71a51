/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/options.c: the command line and host lists of ucx-run; help.c has the text of --help. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/version.h>

#include "base/settings/settings.h"
#include "tools/shared/flags.h"
#include "tools/shared/output.h"
#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/hosts/buffer.h"
#include "tools/ucx-run/run.h"

enum { HOSTFILE_MAX = 16 << 20 };

int run_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("ucx-run: ", stderr);
    vfprintf(stderr, format, args);
    fputs("; see ucx-run --help\n", stderr);
    va_end(args);
    return RUN_RC_USAGE;
}

const char *run_hostname(void)
{
    static char name[256];
    if (!name[0] && gethostname(name, sizeof name - 1) != 0)
        snprintf(name, sizeof name, "localhost");
    return name;
}

int run_is_here(const char *name)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if (strcmp(name, local[i]) == 0)
            return 1;
    const char *own = run_hostname();
    size_t n = strcspn(own, ".");
    return strcmp(name, own) == 0 || (strlen(name) == n && strncmp(name, own, n) == 0);
}

static int parse_int(const char *text, long low, long high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return 0;
    *out = (int)value;
    return 1;
}

static int parse_seconds(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > 1e9)
        return 0;
    *out = value;
    return 1;
}

static int parse_hosts(run_options_t *options, const char *list)
{
    char why[400];
    options->hosts_given = 1;
    if (!run_hostlist_parse(&options->hosts, list, why, sizeof why))
        return run_usage("-H: %s", why);
    return -1;
}

int run_options_hostfile(run_options_t *options, const char *path)
{
    char why[400];
    run_buffer_t text = {NULL, 0, 0, 0};
    FILE *file = fopen(path, "re");
    if (!file)
        return run_usage("--hostfile: cannot read '%s': %s", path, strerror(errno));
    size_t n = 1;
    while (n > 0 && run_buffer_length(&text) < HOSTFILE_MAX && run_buffer_reserve(&text, 65536)) {
        n = fread(text.data + text.tail, 1, 65536, file);
        text.tail += n;
    }
    int failed = ferror(file) ? errno : n > 0 ? EFBIG : 0;
    fclose(file);
    int rc = -1;
    options->hosts_given = 1;
    if (failed)
        rc = run_usage("--hostfile: cannot read '%s': %s", path, strerror(failed));
    else if (!run_hostlist_parse_file(&options->hosts, run_buffer_front(&text), run_buffer_length(&text),
                                      path, why, sizeof why))
        rc = run_usage("--hostfile: %s", why);
    run_buffer_free(&text);
    return rc;
}

static int add_export(run_options_t *options, const char *text)
{
    size_t n = strcspn(text, "=");
    if (n == 0)
        return run_usage("-x: '%s' has no name before the =", text);
    if (run_environment_is_identity(text, n))
        return run_usage("-x: %.*s is set by ucx-run itself", (int)n, text);
    const char **more = realloc(options->exports, ((size_t)options->nexports + 1) * sizeof *options->exports);
    if (!more)
        return run_usage("out of memory");
    options->exports = more;
    options->exports[options->nexports++] = text;
    return -1;
}

enum {
    OPT_RANKS,
    OPT_HOST,
    OPT_HOSTFILE,
    OPT_PER_NODE,
    OPT_MAP,
    OPT_LAUNCHER,
    OPT_LAUNCHER_ARGS,
    OPT_RSH,
    OPT_AGENT,
    OPT_LOST,
    OPT_BIND,
    OPT_REPORT,
    OPT_WDIR,
    OPT_EXPORT,
    OPT_TAG,
    OPT_OUTPUT,
    OPT_STDIN,
    OPT_TIMEOUT,
    OPT_GRACE,
    OPT_RESTARTS,
    OPT_KEEP_GOING,
    OPT_RECORD,
    OPT_DRY,
    OPT_HELP,
    OPT_VERSION
};
static const flag_t table[] = {
    [OPT_RANKS] = {.letter = 'n', .name = "np", .kind = FLAG_TEXT},
    [OPT_HOST] = {.letter = 'H', .name = "host", .also = "hosts", .kind = FLAG_TEXT},
    [OPT_HOSTFILE] = {.letter = 'f', .name = "hostfile", .also = "machinefile", .kind = FLAG_TEXT},
    [OPT_PER_NODE] = {.letter = 'N', .name = "ppn", .kind = FLAG_TEXT},
    [OPT_MAP] = {.name = "map-by", .kind = FLAG_TEXT},
    [OPT_LAUNCHER] = {.name = "launcher", .kind = FLAG_TEXT},
    [OPT_LAUNCHER_ARGS] = {.name = "launcher-args", .kind = FLAG_TEXT},
    [OPT_RSH] = {.name = "rsh", .kind = FLAG_TEXT},
    [OPT_AGENT] = {.name = "agent", .kind = FLAG_TEXT},
    [OPT_LOST] = {.name = "lost-after", .kind = FLAG_TEXT},
    [OPT_BIND] = {.name = "bind", .also = "bind-to", .kind = FLAG_TEXT},
    [OPT_REPORT] = {.name = "report-bindings", .kind = FLAG_SWITCH},
    [OPT_WDIR] = {.name = "wdir", .kind = FLAG_TEXT},
    [OPT_EXPORT] = {.letter = 'x', .kind = FLAG_TEXT},
    [OPT_TAG] = {.name = "tag", .also = "tag-output", .kind = FLAG_SWITCH},
    [OPT_OUTPUT] = {.name = "output-filename", .kind = FLAG_TEXT},
    [OPT_STDIN] = {.name = "stdin", .kind = FLAG_TEXT},
    [OPT_TIMEOUT] = {.name = "timeout", .kind = FLAG_TEXT},
    [OPT_GRACE] = {.name = "kill-grace", .kind = FLAG_TEXT},
    [OPT_RESTARTS] = {.name = "max-restarts", .kind = FLAG_TEXT},
    [OPT_KEEP_GOING] = {.name = "no-kill-on-bad-exit", .kind = FLAG_SWITCH},
    [OPT_RECORD] = {.name = "record", .kind = FLAG_TEXT},
    [OPT_DRY] = {.name = "dry-run", .kind = FLAG_SWITCH},
    [OPT_HELP] = {.letter = 'h', .name = "help", .kind = FLAG_SWITCH},
    [OPT_VERSION] = {.name = "version", .kind = FLAG_SWITCH},
};

static int parse_stdin(const char *value, int *out)
{
    if (strcmp(value, "all") == 0)
        *out = RUN_STDIN_ALL;
    else if (strcmp(value, "none") == 0)
        *out = RUN_STDIN_NONE;
    else if (!parse_int(value, 0, RUN_MAX_RANKS - 1, out))
        return run_usage("--stdin: '%s' is not a rank, all or none", value);
    return -1;
}

/* ppr:N:node gives the number of ranks per host; core, l3 and numa also give their binding unless --bind
 * does. */
static int parse_map(run_options_t *options, const char *value)
{
    topo_bind_t bind;
    char number[16];
    int used = 0;
    if (sscanf(value, "ppr:%15[0-9]:node%n", number, &used) == 1 && used > 0 && !value[used] &&
        parse_int(number, 1, RUN_MAX_RANKS, &options->per_node))
        return -1;
    if (strcmp(value, "slot") == 0 || strcmp(value, "node") == 0) {
        options->map = *value == 'n' ? RUN_MAP_NODE : RUN_MAP_SLOT;
        return -1;
    }
    if (strcmp(value, "none") == 0 || !topo_bind_parse(strcmp(value, "l3cache") == 0 ? "l3" : value, &bind))
        return run_usage("--map-by: '%s' is not slot, node, core, l3, numa or ppr:N:node", value);
    options->map = RUN_MAP_SLOT;
    if (!options->bind_given)
        options->bind = bind;
    options->bind_given = 1;
    return -1;
}

static int check_words(const char *name, const char *value, int least)
{
    run_words_t words = {NULL, 0, 0, 0};
    int closed = run_words_split(&words, value), count = words.count;
    run_words_free(run_words_take(&words));
    if (!closed)
        return run_usage("%s: a quote is not closed", name);
    return count >= least ? -1 : run_usage("%s: the command is empty", name);
}

static int apply(run_options_t *options, int id, const char *name, const char *value)
{
    switch (id) {
    case OPT_RANKS:
        if (!parse_int(value, 1, RUN_MAX_RANKS, &options->ranks))
            return run_usage("%s: '%s' is not a number of ranks (1 to %d)", name, value, RUN_MAX_RANKS);
        options->ranks_given = 1;
        return -1;
    case OPT_HOST:
        return parse_hosts(options, value);
    case OPT_HOSTFILE:
        return run_options_hostfile(options, value);
    case OPT_PER_NODE:
        if (!parse_int(value, 1, RUN_MAX_RANKS, &options->per_node))
            return run_usage("%s: '%s' is not a number of ranks per host (1 to %d)", name, value,
                             RUN_MAX_RANKS);
        return -1;
    case OPT_MAP:
        return parse_map(options, value);
    case OPT_LAUNCHER:
        if (!run_engine_parse(value, &options->engine))
            return run_usage("--launcher: '%s' is not " RUN_ENGINES, value);
        return -1;
    case OPT_LAUNCHER_ARGS:
        options->launcher_args = value;
        return check_words(name, value, 0);
    case OPT_RSH:
        options->rsh = value;
        return check_words(name, value, 1);
    case OPT_AGENT:
        options->agent = value;
        return *value ? -1 : run_usage("--agent: the path is empty");
    case OPT_LOST:
        if (!parse_seconds(value, &options->lost_after_s) || options->lost_after_s < 2)
            return run_usage("--lost-after: '%s' is not a number of seconds from 2 on", value);
        options->lost_after_given = 1;
        return -1;
    case OPT_BIND:
        options->bind_given = 1;
        if (!topo_bind_parse(strcmp(value, "l3cache") == 0 ? "l3" : value, &options->bind))
            return run_usage("%s: '%s' is not core, l3, numa or none", name, value);
        return -1;
    case OPT_REPORT:
        options->report_bindings = 1;
        return -1;
    case OPT_WDIR:
        options->wdir = value;
        return -1;
    case OPT_EXPORT:
        return add_export(options, value);
    case OPT_TAG:
        options->tag = 1;
        return -1;
    case OPT_OUTPUT:
        options->output_dir = value;
        return -1;
    case OPT_STDIN:
        return parse_stdin(value, &options->stdin_to);
    case OPT_TIMEOUT:
        if (!parse_seconds(value, &options->timeout_s) || options->timeout_s <= 0)
            return run_usage("--timeout: '%s' is not a number of seconds above 0", value);
        return -1;
    case OPT_GRACE:
        if (!parse_seconds(value, &options->kill_grace_s))
            return run_usage("--kill-grace: '%s' is not a number of seconds", value);
        options->kill_grace_given = 1;
        return -1;
    case OPT_RESTARTS:
        if (!parse_int(value, 0, 1000000, &options->max_restarts))
            return run_usage("--max-restarts: '%s' is not a number from 0 to 1000000", value);
        return -1;
    case OPT_KEEP_GOING:
        options->keep_going = 1;
        return -1;
    case OPT_RECORD:
        if (base_settings_set(SET_RECORD, value, "flag --record") != GYRE_OK)
            return run_usage("--record: %s", gyre_last_error());
        return -1;
    case OPT_DRY:
        options->dry_run = 1;
        return -1;
    case OPT_HELP:
        for (const char *const *part = run_help; *part; part++)
            fputs(*part, stdout);
        return output_end("ucx-run", 0, RUN_RC_SYSTEM);
    case OPT_VERSION:
        puts("ucx-run (Gyre) " GYRE_VERSION);
        return output_end("ucx-run", 0, RUN_RC_SYSTEM);
    default:
        return run_usage("%s: not handled", name);
    }
}

static int refuse_unknown(const flags_walk_t *walk)
{
    static const struct {
        const char *option, *why;
    } needless[] = {{"oversubscribe", "ranks may outnumber cores"},
                    {"allow-run-as-root", "any user may start ranks"}}; /* mpirun's */
    for (size_t i = 0; i < sizeof needless / sizeof needless[0]; i++)
        if (strcmp(walk->typed + strspn(walk->typed, "-"), needless[i].option) == 0)
            return run_usage("'%s' is no option of ucx-run: leave it out, %s", walk->typed, needless[i].why);
    const char *near = flags_nearest(walk->flags, walk->typed);
    return run_usage("'%s' is no option of ucx-run%s%s%s", walk->typed, near ? " (did you mean --" : "",
                     near ? near : "", near ? "?)" : "");
}

int run_options_parse(int argc, char **argv, run_options_t *options)
{
    memset(options, 0, sizeof *options);
    options->kill_grace_s = 1.0;
    options->lost_after_s = 5.0;
    options->bind = TOPO_BIND_CORE;
    const flags_t flags = {.program = "ucx-run", FLAG_ROWS(table), .one_dash = 1};
    flags_walk_t walk = {.flags = &flags, .argc = argc, .argv = argv, .at = 1};
    flag_at_t at;
    while ((at = flags_next(&walk)) != FLAG_AT_WORD) {
        char name[40];
        snprintf(name, sizeof name, "%.*s", walk.length, walk.typed ? walk.typed : "");
        int rc = at == FLAG_AT_END       ? run_usage("no program to run")
                 : at == FLAG_AT_UNKNOWN ? refuse_unknown(&walk)
                 : at == FLAG_AT_BARE    ? run_usage("%s needs a value", name)
                 : at == FLAG_AT_SPARE   ? run_usage("%s takes no value", name)
                                         : apply(options, (int)(walk.flag - table), name, walk.value);
        if (rc >= 0)
            return rc;
    }
    options->program = argv + walk.at;
    int rc = run_engine_choose(options);
    if (rc >= 0)
        return rc;
    if (options->stdin_to >= options->ranks)
        return run_usage("--stdin: there is no rank %d among %d", options->stdin_to, options->ranks);
    return -1;
}

void run_options_free(run_options_t *options)
{
    run_hostlist_free(&options->hosts);
    free(options->exports);
    options->exports = NULL;
}
