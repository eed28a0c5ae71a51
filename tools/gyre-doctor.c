/* tools/gyre-doctor.c: what this machine has, what Gyre will use, what is missing and how to get it. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/text/json.h"
#include "base/settings/settings.h"
#include "tools/gyre-doctor/job.h"
#include "tools/gyre-doctor/report.h"

static const char help[] =
    "usage: gyre-doctor [--settings] [--json FILE|-]\n"
    "       gyre-doctor --job [ID|FILE] [--record DIR] [--json FILE|-]\n"
    "\n"
    "Prints what this machine has, what Gyre will use, what is missing and how to get it.\n"
    "With --job: what the ranks of a job are doing, who waits for whom, and who is to blame.\n"
    "\n"
    "  --job ID     a running job of this host, or one with a flight recorder below --record\n"
    "               (ucx-run --record); the beginning of the id is enough\n"
    "  --job FILE   the flight recorder in FILE, after all processes ended\n"
    "  --job        lists the jobs that it finds\n"
    "  --record DIR where flight recorders are (default: GYRE_RECORD)\n"
    "  --settings   list every setting instead: value, default, unit, where the value came from, meaning\n"
    "  --json FILE  write the same as JSON to FILE (-: to standard output, and nothing else there)\n"
    "  --help       this text\n"
    "  --version    Gyre's version\n"
    "\n"
    "Lines marked X are required and missing, ! can be improved, - are absent and not needed.\n"
    "Exit status: 0 everything required is there, 1 something is missing or malformed, 2 wrong usage.\n";

typedef struct {
    int settings;
    int job;           /* asked for */
    const char *which; /* id or file; NULL: list them */
    const char *json;  /* NULL: none */
} options_t;

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, options_t *options)
{
    static const struct option known[] = {{"settings", no_argument, NULL, 's'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"job", optional_argument, NULL, 'J'},
                                          {"record", required_argument, NULL, 'r'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's':
            options->settings = 1;
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'J':
            options->job = 1;
            options->which = optarg;
            if (optarg == NULL && optind < argc && argv[optind][0] != '-')
                options->which = argv[optind++];
            break;
        case 'r':
            if (base_settings_set(SET_RECORD, optarg, "flag --record") != GYRE_OK)
                return 2;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        case 'v':
            printf("gyre-doctor %s\n", gyre_version());
            return 0;
        default: /* getopt_long has said what is wrong */
            fputs("gyre-doctor --help lists the flags\n", stderr);
            return 2;
        }
    }
    if (options->job && options->settings) {
        fputs("gyre-doctor: --job and --settings are two questions\ngyre-doctor --help lists the flags\n",
              stderr);
        return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "gyre-doctor: takes no argument: '%s'\ngyre-doctor --help lists the flags\n",
                argv[optind]);
        return 2;
    }
    return -1;
}

/* Writes and releases `value`. */
static int put_json(json_t *value, const char *path)
{
    int bad;
    if (value == NULL) {
        fputs("gyre-doctor: no memory left\n", stderr);
        return 1;
    }
    if (strcmp(path, "-") == 0)
        bad = json_dumpf(value, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF;
    else
        bad = base_json_write(path, value) != GYRE_OK;
    json_decref(value);
    return bad;
}

static int settings(const options_t *options)
{
    if (options->json != NULL)
        return put_json(
            json_pack("{s:s, s:o}", "version", gyre_version(), "settings", report_settings_json()),
            options->json);
    base_settings_print(stdout);
    return 0;
}

static int examine(const options_t *options)
{
    report_t report = {0};
    look_at_machine(&report);
    look_at_kernel(&report);
    look_at_network(&report);
    look_at_limits(&report);
    look_at_gpus(&report);
    look_at_software(&report);
    look_at_choices(&report);
    int bad = report_count(&report, FOUND_MISSING) > 0;
    if (options->json == NULL)
        report_print(&report, stdout);
    else
        bad |= put_json(report_json(&report), options->json);
    report_free(&report);
    return bad;
}

/* The only job whose id begins with `text`; NULL, and a line on stderr: there is none, or several. */
static const char *job_named(const recorders_t *found, const char *text)
{
    const char *only = NULL;
    for (int i = 0; i < found->n; i++) {
        const char *id = found->list[i].head.job;
        if (strcmp(id, text) == 0)
            return id;
        if (strncmp(id, text, strlen(text)) != 0 || (only != NULL && strcmp(only, id) == 0))
            continue;
        if (only != NULL) {
            fprintf(stderr, "gyre-doctor: several jobs begin with '%s': %s, %s\n", text, only, id);
            return NULL;
        }
        only = id;
    }
    if (only == NULL)
        fprintf(stderr,
                "gyre-doctor: no job '%s' on this host: no process of %s has its flight recorder open%s%s; "
                "gyre-doctor --job lists what there is\n",
                text, geteuid() == 0 ? "anybody" : "yours",
                base_setting_string(SET_RECORD)[0] != '\0' ? ", and no file is below " : "",
                base_setting_string(SET_RECORD));
    return only;
}

static int show_job(const options_t *options, const recorders_t *found, const char *id)
{
    job_t job;
    int bad = 0;
    if (!job_look(found, id, &job)) {
        fputs("gyre-doctor: no memory left\n", stderr);
        return 1;
    }
    if (options->json != NULL)
        bad = put_json(job_json(&job), options->json);
    else
        job_print(&job, stdout);
    job_free(&job);
    return bad;
}

static int jobs(const options_t *options)
{
    recorders_t found;
    int bad = 0;
    if (!recorders_find(base_setting_string(SET_RECORD), &found)) {
        fputs("gyre-doctor: no memory left\n", stderr);
        return 1;
    }
    const char *which = options->which;
    if (which != NULL && strchr(which, '/') != NULL) {
        int i = recorders_add_file(which, &found); /* its job may have other recorders, of live ranks even */
        bad = i < 0 || show_job(options, &found, found.list[i].head.job);
    } else if (which != NULL) {
        const char *id = job_named(&found, which);
        bad = id == NULL || show_job(options, &found, id);
    } else if (options->json != NULL) {
        bad = put_json(job_list_json(&found), options->json);
    } else if (found.n == 0) {
        puts("no job found on this host");
    } else {
        job_list_print(&found, stdout);
    }
    recorders_free(&found);
    return bad;
}

int main(int argc, char **argv)
{
    options_t options = {0};
    int done = parse(argc, argv, &options);
    if (done >= 0)
        return done;
    int bad = base_settings_load() != GYRE_OK; /* it has said what is malformed */
    bad |= options.settings ? settings(&options) : options.job ? jobs(&options) : examine(&options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("gyre-doctor: standard output");
        return 1;
    }
    return bad;
}
