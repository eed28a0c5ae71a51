/* tools/gyre-doctor.c: what this machine has, what Gyre will use, what is missing and how to get it. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <gyre/gyre.h>

#include "base/json.h"
#include "base/settings.h"
#include "tools/gyre-doctor/report.h"

static const char help[] =
    "usage: gyre-doctor [--settings] [--json FILE|-]\n"
    "\n"
    "Prints what this machine has, what Gyre will use, what is missing and how to get it.\n"
    "\n"
    "  --settings   list every setting instead: value, default, unit, where the value came from, meaning\n"
    "  --json FILE  write the same as JSON to FILE (-: to standard output, and nothing else there)\n"
    "  --help       this text\n"
    "  --version    Gyre's version\n"
    "\n"
    "Lines marked X are required and missing, ! can be improved, - are absent and not needed.\n"
    "Exit status: 0 everything required is there, 1 something is missing or malformed, 2 wrong usage.\n";

typedef struct {
    int settings;
    const char *json; /* NULL: none */
} options_t;

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, options_t *options)
{
    static const struct option known[] = {{"settings", no_argument, NULL, 's'},
                                          {"json", required_argument, NULL, 'j'},
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

int main(int argc, char **argv)
{
    options_t options = {0};
    int done = parse(argc, argv, &options);
    if (done >= 0)
        return done;
    int bad = base_settings_load() != GYRE_OK; /* it has said what is malformed */
    bad |= options.settings ? settings(&options) : examine(&options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("gyre-doctor: standard output");
        return 1;
    }
    return bad;
}
