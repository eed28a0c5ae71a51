/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor.c: what this machine has, what Gyre will use, what is missing and how to get it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gyre/gyre.h>

#include "base/text/json.h"
#include "base/settings/settings.h"
#include "tools/gyre-doctor/compare.h"
#include "tools/gyre-doctor/job.h"
#include "tools/gyre-doctor/report.h"
#include "tools/shared/flags.h"

static const char usage[] =
    "usage: gyre-doctor [--settings] [--json FILE|-]\n"
    "       ucx-run ... gyre-doctor --compare [--json FILE|-]\n"
    "       gyre-doctor --job [ID|FILE] [--record DIR] [--json FILE|-]\n"
    "\n"
    "Prints what this machine has, what Gyre will use, what is missing and how to get it.\n"
    "With --compare: what differs between the ranks of a job that runs it.\n"
    "With --job: what the ranks of a job are doing, who waits for whom, and which rank is the cause.\n";

static const char notes[] =
    "Lines marked X are required and missing, ! can be improved, - are absent and not needed.\n"
    "Exit status: 0 everything required is there (--compare: and equal), 1 something is missing or "
    "malformed\n"
    "or differs, 2 wrong usage.\n";

typedef struct {
    int settings, compare;
    int job;           /* asked for */
    const char *which; /* id or file; NULL: list them */
    const char *json;  /* NULL: none */
} options_t;

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, options_t *options)
{
    const char *record = NULL;
    const flag_t rows[] = {
        {FLAG(0, "job", TEXT, &options->which, "[ID|FILE]",
              "ID: a running job of this host, or one with a flight recorder below --record\n"
              "(ucx-run --record); the beginning of the id is enough\n"
              "FILE: the flight recorder in FILE, after all processes ended\n"
              "without: lists the jobs that it finds"),
         .optional = 1, .given = &options->job},
        {FLAG(0, "record", TEXT, &record, "DIR", "where flight recorders are (default: GYRE_RECORD)")},
        {FLAG(0, "settings", SWITCH, &options->settings, NULL,
              "list every setting instead: value, default, unit, where the value came from, meaning")},
        {FLAG(0, "compare", SWITCH, &options->compare, NULL,
              "start gyre-doctor like the job: rank 0 prints what differs between the ranks")},
        {FLAG(0, "json", TEXT, &options->json, "FILE",
              "write the same as JSON to FILE (-: to standard output, and nothing else there)")},
    };
    const flags_t flags = {.program = "gyre-doctor", .usage = usage, .notes = notes, FLAG_ROWS(rows)};
    int done = flags_take(&flags, argc, argv, NULL);
    if (done < 0 && record && !options->job)
        return flags_wrong(flags.program, "--record is for --job");
    if (done < 0 && record && base_settings_set(SET_RECORD, record, "flag --record") != GYRE_OK)
        return 2;
    if (done < 0 && options->job + options->settings + options->compare > 1)
        return flags_wrong(flags.program, "--job, --settings and --compare are different questions");
    return done;
}

/* Writes and releases `value`. */
static int put_json(json_t *value, const char *path)
{
    int bad;
    if (value == NULL) {
        fputs("gyre-doctor: no memory left\n", stderr);
        return 1;
    }
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
    json_t *compared = NULL;
    if (options->compare) {
        bad |= compare_ranks(&report, options->json != NULL ? &compared : NULL);
        if (compared != NULL) /* rank 0 */
            bad |= put_json(compared, options->json);
    } else if (options->json == NULL)
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
    int bad = base_settings_load() != GYRE_OK; /* it has logged what is malformed */
    bad |= options.settings ? settings(&options) : options.job ? jobs(&options) : examine(&options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("gyre-doctor: standard output");
        return 1;
    }
    return bad;
}
