/* tools/gyre-perf/flags.c: command lines of subcommands, each described by a table: parsing and help come from the same
 * rows, so that neither can lack what the other has. */
#include "tools/gyre-perf/command.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLAGS = 40, CODE_BASE = 256, CODE_VERSION = 'V' };

static int parse_int(const char *text, int low, int high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return 0;
    *out = (int)value;
    return 1;
}

static int parse_type(const char *word, gyre_type_t *out)
{
    static const char *const alias[][2] = {
        {"fp16", "half"}, {"bf16", "bfloat16"}, {"fp32", "float"}, {"fp64", "double"}};
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
        word = strcmp(word, alias[i][0]) == 0 ? alias[i][1] : word;
    for (int t = 0; t < GYRE_TYPE_COUNT; t++) {
        if (strcmp(word, gyre_type_name((gyre_type_t)t)) == 0) {
            *out = (gyre_type_t)t;
            return 1;
        }
    }
    return 0;
}

static int one_of(const char *word, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(word, *words) == 0)
            return 1;
    }
    return 0;
}

static int take(const perf_flag_t *f, const char *arg)
{
    switch (f->kind) {
    case PERF_FLAG_INT:
        return parse_int(arg, f->low, f->high, f->to);
    case PERF_FLAG_SIZE:
        return perf_parse_size(arg, f->to);
    case PERF_FLAG_TYPE:
        return parse_type(arg, f->to);
    case PERF_FLAG_TEXT:
        *(const char **)f->to = arg;
        return *arg && (!f->choices || one_of(arg, f->choices));
    case PERF_FLAG_SECONDS: {
        char *end;
        double value = strtod(arg, &end);
        *(double *)f->to = value;
        return end != arg && *end == '\0' && isfinite(value) && value >= 0.0;
    }
    case PERF_FLAG_SWITCH:
        *(int *)f->to = 1;
        return 1;
    }
    return 0;
}

int perf_parse_sizes(const char *text, size_t *list, size_t room, size_t *count)
{
    *count = 0;
    for (;;) {
        char one[32];
        const size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof one || *count == room)
            return 0;
        memcpy(one, text, length);
        one[length] = '\0';
        if (!perf_parse_size(one, &list[*count]) || list[*count] == 0)
            return 0;
        ++*count;
        if (text[length] == '\0')
            return 1;
        text += length + 1;
    }
}

/* "  -b, --minbytes SIZE      first size", further lines of the help below its first. */
static void print_flag(FILE *out, const perf_flag_t *f)
{
    char head[64], letter[8] = "    ";
    if (f->letter)
        snprintf(letter, sizeof letter, "-%c, ", f->letter);
    int at = snprintf(head, sizeof head, "  %s--%s%s%s", letter, f->name, f->argument ? " " : "",
                      f->argument ? f->argument : "");
    if (at > 26)
        fprintf(out, "%s\n%27s", head, "");
    else
        fprintf(out, "%-27s", head);
    for (const char *c = f->help; *c; c++) {
        fputc(*c, out);
        if (*c == '\n')
            fprintf(out, "%27s", "");
    }
    fputc('\n', out);
}

static void print_help(FILE *out, const perf_flag_t *flags, size_t count, const char *usage,
                       const char *notes)
{
    fprintf(out, "%s\n", usage);
    for (size_t i = 0; i < count; i++)
        print_flag(out, &flags[i]);
    fprintf(out, "  -h, --help   --version\n\n%s", notes);
}

int perf_flags_parse(int argc, char **argv, const perf_flag_t *flags, size_t count, const char *usage,
                     const char *notes, FILE *out, int *words, char *why, size_t why_bytes)
{
    struct option table[MAX_FLAGS + 3] = {{0}};
    char letters[2 * MAX_FLAGS + 4] = ":h";
    size_t at = 2;
    if (count > MAX_FLAGS) {
        snprintf(why, why_bytes, "more than %d options", MAX_FLAGS);
        return PERF_ERROR;
    }
    for (size_t i = 0; i < count; i++) {
        const int has_arg = flags[i].kind != PERF_FLAG_SWITCH;
        table[i] = (struct option){flags[i].name, has_arg, NULL, CODE_BASE + (int)i};
        if (flags[i].letter) {
            letters[at++] = flags[i].letter;
            if (has_arg)
                letters[at++] = ':';
        }
    }
    letters[at] = '\0';
    table[count] = (struct option){"help", no_argument, NULL, 'h'};
    table[count + 1] = (struct option){"version", no_argument, NULL, CODE_VERSION};
    optind = 0; /* start over */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, letters, table, NULL)) != -1;) {
        if (option == 'h') {
            print_help(out, flags, count, usage, notes);
            return -1;
        }
        if (option == CODE_VERSION) {
            fprintf(out, "gyre-perf %s\n", gyre_version());
            return -1;
        }
        const perf_flag_t *f = NULL;
        for (size_t i = 0; i < count; i++)
            f = option == CODE_BASE + (int)i || option == flags[i].letter ? &flags[i] : f;
        if (option == '?' || option == ':' || !f) {
            snprintf(why, why_bytes, option == ':' ? "%s needs an argument" : "unknown option %s",
                     argv[optind - 1]);
            return PERF_USAGE;
        }
        if (!take(f, optarg)) {
            snprintf(why, why_bytes, "--%s %s: not a value that this option takes", f->name, optarg);
            return PERF_USAGE;
        }
    }
    *words = optind;
    return PERF_OK;
}
