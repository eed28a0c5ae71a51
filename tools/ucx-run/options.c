/* tools/ucx-run/options.c: the command line and host lists of ucx-run. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gyre/status.h>

#include "base/settings.h"
#include "tools/ucx-run/run.h"

static const char help_text[] =
    "usage: ucx-run [options] PROGRAM [ARGS...]\n"
    "Starts PROGRAM as several ranks of one Gyre job on this machine and looks after them.\n"
    "\n"
    "ranks and place\n"
    "  -n, -np N              number of ranks (default: the slots of -H or --hostfile, else 1)\n"
    "  -H, --host H[:S],...   hosts and their slots; this version starts ranks on this host only\n"
    "  --hostfile F           the same from a file: lines `host`, `host:S` or `host slots=S`, # comments\n"
    "  --bind core|l3|numa|none\n"
    "                         where each rank may run (default: core; more ranks than cores share them)\n"
    "  --report-bindings      say on stderr where each rank was bound\n"
    "  --wdir D               working directory of the ranks\n"
    "  -x K[=V]               set K in the environment of the ranks (they also get all of ours)\n"
    "\n"
    "input and output (lines of different ranks are never mixed)\n"
    "  --tag                  begin each line with [rank]\n"
    "  --output-filename DIR  write DIR/rank.R/stdout and stderr instead\n"
    "  --stdin R|all|none     who reads our standard input (default: rank 0)\n"
    "\n"
    "when things go wrong\n"
    "  --timeout S            end the job after S seconds with code 124, and say what each rank was doing\n"
    "  --kill-grace S         after a rank failed the others get S seconds to end by themselves, then "
    "SIGTERM,\n"
    "                         S/2 later SIGKILL (default 1)\n"
    "  --record DIR           keep the flight recorder in a file below DIR while the job runs, and after a "
    "failure\n"
    "                         (GYRE_RECORD; gyre-doctor --job reads it, even when everybody is dead)\n"
    "  --max-restarts K       start all ranks anew after a failure, up to K times (default 0)\n"
    "\n"
    "  --dry-run              print what would be run, start nothing\n"
    "  --help, --version\n"
    "\n"
    "INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are passed on to the ranks; a second INT kills them at "
    "once.\n"
    "The exit code is that of the first rank that failed (128 + signal if it was killed), 126 or 127 if "
    "PROGRAM\n"
    "cannot be run, 124 after --timeout, 2 for a wrong command line, 1 if the system refused something.\n"
    "Each rank finds GYRE_RANK, GYRE_SIZE, GYRE_ROOT and friends in its environment, and torch's RANK,\n"
    "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.\n";

static int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int usage(const char *format, ...)
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

/* Whether `name` (length n) is this machine: its whole name or the part before the first dot. */
static int is_here(const char *name, size_t n)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if (strlen(local[i]) == n && strncmp(name, local[i], n) == 0)
            return 1;
    const char *own = run_hostname();
    return (strlen(own) == n && strncmp(name, own, n) == 0) ||
           (strcspn(own, ".") == n && strncmp(name, own, n) == 0);
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

/* One host with `slots` as text (NULL: 1). `where` is what to blame. Adds to *total. */
static int add_host(const char *name, size_t n, const char *slots, const char *where, int *total)
{
    int count = 1;
    if (n == 0)
        return usage("%s: a host name is missing", where);
    if (slots && !parse_int(slots, 1, RUN_MAX_RANKS, &count))
        return usage("%s: '%s' is not a number of slots (1 to %d)", where, slots, RUN_MAX_RANKS);
    if (!is_here(name, n))
        return usage("%s: host '%.*s' is not this machine (%s): starting ranks on other hosts comes with a "
                     "launcher engine, which this version does not have",
                     where, (int)n, name, run_hostname());
    if (*total > RUN_MAX_RANKS - count)
        return usage("%s: more than %d slots", where, RUN_MAX_RANKS);
    *total += count;
    return -1;
}

static int parse_hosts(char *list, int *total)
{
    char *state = NULL;
    if (!*list)
        return usage("-H: the list of hosts is empty");
    for (char *item = strtok_r(list, ",", &state); item; item = strtok_r(NULL, ",", &state)) {
        char *colon = strchr(item, ':');
        if (colon && strchr(colon + 1, ':')) /* an IPv6 address; slots follow in the hostfile form only */
            colon = NULL;
        size_t n = colon ? (size_t)(colon - item) : strlen(item);
        int rc = add_host(item, n, colon ? colon + 1 : NULL, "-H", total);
        if (rc >= 0)
            return rc;
    }
    return -1;
}

static int parse_hostfile_line(char *line, const char *where, int *total)
{
    char *state = NULL;
    line[strcspn(line, "#\r\n")] = 0;
    char *name = strtok_r(line, " \t", &state);
    if (!name)
        return -1;
    char *slots = NULL;
    char *colon = strchr(name, ':');
    if (colon && !strchr(colon + 1, ':')) {
        *colon = 0;
        slots = colon + 1;
    }
    for (char *word = strtok_r(NULL, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
        if (strncmp(word, "slots=", 6) == 0)
            slots = word + 6;
        else if (strncmp(word, "max_slots=", 10) != 0 && strncmp(word, "max-slots=", 10) != 0)
            return usage("%s: '%s' is not understood (expected slots=N)", where, word);
    }
    return add_host(name, strlen(name), slots, where, total);
}

static int parse_hostfile(const char *path, int *total)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return usage("--hostfile: cannot read '%s': %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    int number = 0, rc = -1, before = *total;
    while (rc < 0 && getline(&line, &room, file) >= 0) {
        char where[300];
        snprintf(where, sizeof where, "%.250s:%d", path, ++number);
        rc = parse_hostfile_line(line, where, total);
    }
    if (rc < 0 && ferror(file))
        rc = usage("--hostfile: cannot read '%s': %s", path, strerror(errno));
    else if (rc < 0 && *total == before)
        rc = usage("--hostfile: '%s' names no host", path);
    free(line);
    fclose(file);
    return rc;
}

static int add_export(run_options_t *options, const char *text)
{
    static const char *const ours[] = {"GYRE_RANK",       "GYRE_SIZE",       "GYRE_ROOT",
                                       "GYRE_ROOT_FD",    "GYRE_SECRET",     "GYRE_JOB",
                                       "GYRE_LOCAL_RANK", "GYRE_LOCAL_SIZE", "GYRE_RECORDER_FD"};
    size_t n = strcspn(text, "=");
    if (n == 0)
        return usage("-x: '%s' has no name before the =", text);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strlen(ours[i]) == n && strncmp(text, ours[i], n) == 0)
            return usage("-x: %s is set by ucx-run itself", ours[i]);
    const char **more = realloc(options->exports, ((size_t)options->nexports + 1) * sizeof *options->exports);
    if (!more)
        return usage("out of memory");
    options->exports = more;
    options->exports[options->nexports++] = text;
    return -1;
}

enum {
    OPT_RANKS,
    OPT_HOST,
    OPT_HOSTFILE,
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
    OPT_RECORD,
    OPT_DRY,
    OPT_HELP,
    OPT_VERSION,
    OPT_UNKNOWN
};
static const struct {
    const char *name;
    int id;
    int takes; /* a value */
} table[] = {
    {"-n", OPT_RANKS, 1},           {"-np", OPT_RANKS, 1},
    {"--np", OPT_RANKS, 1},         {"-H", OPT_HOST, 1},
    {"--host", OPT_HOST, 1},        {"--hostfile", OPT_HOSTFILE, 1},
    {"--bind", OPT_BIND, 1},        {"--report-bindings", OPT_REPORT, 0},
    {"--wdir", OPT_WDIR, 1},        {"-x", OPT_EXPORT, 1},
    {"--tag", OPT_TAG, 0},          {"--output-filename", OPT_OUTPUT, 1},
    {"--stdin", OPT_STDIN, 1},      {"--timeout", OPT_TIMEOUT, 1},
    {"--kill-grace", OPT_GRACE, 1}, {"--max-restarts", OPT_RESTARTS, 1},
    {"--record", OPT_RECORD, 1},    {"--dry-run", OPT_DRY, 0},
    {"--help", OPT_HELP, 0},        {"-h", OPT_HELP, 0},
    {"--version", OPT_VERSION, 0},
};

/* Finds the option in `word`; sets *value to what stands behind a '=' (long options only). Underscores count
 * as dashes. Returns an index into table, or -1. */
static int find_option(char *word, char **value)
{
    *value = NULL;
    char name[40];
    size_t n = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
    if (n >= sizeof name)
        return -1;
    for (size_t i = 0; i < n; i++)
        name[i] = word[i] == '_' ? '-' : word[i];
    name[n] = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(name, table[i].name) == 0) {
            if (word[n] == '=')
                *value = word + n + 1;
            return (int)i;
        }
    return -1;
}

static int parse_stdin(const char *value, int *out)
{
    if (strcmp(value, "all") == 0)
        *out = RUN_STDIN_ALL;
    else if (strcmp(value, "none") == 0)
        *out = RUN_STDIN_NONE;
    else if (!parse_int(value, 0, RUN_MAX_RANKS - 1, out))
        return usage("--stdin: '%s' is not a rank, all or none", value);
    return -1;
}

static int apply(run_options_t *options, int id, const char *name, char *value, int *slots)
{
    switch (id) {
    case OPT_RANKS:
        if (!parse_int(value, 1, RUN_MAX_RANKS, &options->ranks))
            return usage("%s: '%s' is not a number of ranks (1 to %d)", name, value, RUN_MAX_RANKS);
        return -1;
    case OPT_HOST:
        return parse_hosts(value, slots);
    case OPT_HOSTFILE:
        return parse_hostfile(value, slots);
    case OPT_BIND:
        options->bind_given = 1;
        if (!topo_bind_parse(value, &options->bind))
            return usage("--bind: '%s' is not core, l3, numa or none", value);
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
            return usage("--timeout: '%s' is not a number of seconds above 0", value);
        return -1;
    case OPT_GRACE:
        if (!parse_seconds(value, &options->kill_grace_s))
            return usage("--kill-grace: '%s' is not a number of seconds", value);
        return -1;
    case OPT_RESTARTS:
        if (!parse_int(value, 0, 1000000, &options->max_restarts))
            return usage("--max-restarts: '%s' is not a number from 0 to 1000000", value);
        return -1;
    case OPT_RECORD:
        if (base_settings_set(SET_RECORD, value, "flag --record") != GYRE_OK)
            return usage("--record: %s", gyre_last_error());
        return -1;
    case OPT_DRY:
        options->dry_run = 1;
        return -1;
    case OPT_HELP:
        fputs(help_text, stdout);
        return 0;
    case OPT_VERSION:
        puts("ucx-run (Gyre) " GYRE_VERSION);
        return 0;
    default:
        return usage("%s: not handled", name);
    }
}

int run_options_parse(int argc, char **argv, run_options_t *options)
{
    memset(options, 0, sizeof *options);
    options->kill_grace_s = 1.0;
    int slots = 0, at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        char *value;
        int found = find_option(argv[at], &value);
        if (found < 0)
            return usage("'%s' is no option of ucx-run", argv[at]);
        const char *name = table[found].name;
        if (table[found].takes && !value) {
            if (at + 1 >= argc)
                return usage("%s needs a value", name);
            value = argv[++at];
        } else if (!table[found].takes && value) {
            return usage("%s takes no value", name);
        }
        int rc = apply(options, table[found].id, name, value, &slots);
        if (rc >= 0)
            return rc;
    }
    if (at >= argc)
        return usage("no program to run");
    options->program = argv + at;
    if (!options->ranks)
        options->ranks = slots ? slots : 1;
    if (options->stdin_to >= options->ranks)
        return usage("--stdin: there is no rank %d among %d", options->stdin_to, options->ranks);
    return -1;
}

void run_options_free(run_options_t *options)
{
    free(options->exports);
    options->exports = NULL;
}
