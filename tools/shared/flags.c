/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/flags.c: reads a command line by a table, and prints the table as help. */
#include "tools/shared/flags.h"
#include "tools/shared/output.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gyre/version.h>

#include "base/file.h"
#include "base/settings/parse.h"
#include "base/settings/size.h"

enum { HELP_COLUMN = 27, USAGE = 2 }; /* HELP_COLUMN: where the meaning of an option begins */

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* What every tool has; they follow the table's own rows. */
static const flag_t own[] = {{FLAG('h', "help", SWITCH, NULL, NULL, "this text")},
                             {FLAG(0, "version", SWITCH, NULL, NULL, "the version")}};
enum { OWN = sizeof own / sizeof *own };

static const flag_t *row(const flags_t *flags, size_t i)
{
    return i < flags->count ? &flags->flag[i] : &own[i - flags->count];
}

/* How many characters of `name` the option's name begins with; _ and - are the same. */
static int begins(const char *option, const char *name, size_t length)
{
    size_t i = 0;
    if (!option)
        return 0;
    while (i < length && (option[i] == name[i] || (option[i] == '-' && name[i] == '_') ||
                          (option[i] == '_' && name[i] == '-')))
        i++;
    return i == length;
}

static int is_named(const flag_t *flag, const char *name, size_t length)
{
    return (begins(flag->name, name, length) && !flag->name[length]) ||
           (begins(flag->also, name, length) && !flag->also[length]);
}

static const flag_t *find_exact(const flags_t *flags, const char *name, size_t length)
{
    for (size_t i = 0; i < flags->count + OWN; i++)
        if (is_named(row(flags, i), name, length))
            return row(flags, i);
    return NULL;
}

const flag_t *flags_find(const flags_t *flags, const char *name)
{
    const flag_t *found = find_exact(flags, name, strlen(name));
    return found >= own && found < own + OWN ? NULL : found;
}

/* The option whose name is nearest; NULL: none is near, so the name is another word rather than a slip. */
static const char *nearest(const flags_t *flags, const char *name)
{
    const char *best = NULL;
    size_t least = base_setting_slip(strlen(name)) + 1;
    for (size_t i = 0; i < flags->count + OWN; i++) {
        const flag_t *flag = row(flags, i);
        const char *const names[] = {flag->name, flag->also};
        for (int k = 0; k < 2; k++)
            if (names[k] && base_setting_nearer(name, names[k], &least))
                best = names[k];
    }
    return best;
}

/* The option of a long name or of its beginning; NULL, and why: there is none, or there are several. */
static const flag_t *find(const flags_t *flags, const char *name, size_t length, char *why, size_t bytes)
{
    const flag_t *found = find_exact(flags, name, length);
    int several = 0;
    if (found)
        return found;
    for (size_t i = 0; length && i < flags->count + OWN; i++) {
        const flag_t *flag = row(flags, i);
        if (!begins(flag->name, name, length) && !begins(flag->also, name, length))
            continue;
        if (found && !several++)
            snprintf(why, bytes, "--%.*s is the beginning of --%s and --%s: write it out", (int)length, name,
                     found->name, flag->name);
        found = flag;
    }
    if (several)
        return NULL;
    if (!found) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : (int)sizeof word - 1, name);
        const char *near = nearest(flags, word);
        snprintf(why, bytes, "unknown option --%s%s%s%s", word, near ? " (did you mean --" : "",
                 near ? near : "", near ? "?)" : "");
    }
    return found;
}

static const flag_t *find_letter(const flags_t *flags, char letter)
{
    for (size_t i = 0; i < flags->count + OWN; i++)
        if (row(flags, i)->letter == letter)
            return row(flags, i);
    return NULL;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static int in_range(const flag_t *flag, double value)
{
    return value >= flag->low && (flag->high == 0 || value <= flag->high);
}

static int read_int(const flag_t *flag, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < INT_MIN || value > INT_MAX || !in_range(flag, (double)value))
        return 0;
    if (flag->to)
        *(int *)flag->to = (int)value;
    return 1;
}

static int read_count(const flag_t *flag, const char *text)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || !*text || strspn(text, "0123456789") != strlen(text) || !in_range(flag, (double)value))
        return 0;
    if (flag->to)
        *(uint64_t *)flag->to = value;
    return 1;
}

static int read_size(const flag_t *flag, const char *text)
{
    uint64_t value;
    if (!base_size_parse(text, &value) || value > SIZE_MAX || !in_range(flag, (double)value))
        return 0;
    if (flag->to)
        *(size_t *)flag->to = (size_t)value;
    return 1;
}

static int read_real(const flag_t *flag, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || !in_range(flag, value))
        return 0;
    if (flag->to)
        *(double *)flag->to = value;
    return 1;
}

/* The place of a word in "a|b|c"; -1: it is not one of them. */
static int place_of(const char *list, const char *text)
{
    size_t length;
    const char *word;
    for (int i = 0; (word = base_setting_word(list, i, &length)) != NULL; i++)
        if (strlen(text) == length && strncmp(text, word, length) == 0)
            return i;
    return -1;
}

static int read_value(const flag_t *flag, const char *text)
{
    int place;
    switch (flag->kind) {
    case FLAG_HEADING:
        return 0;
    case FLAG_SWITCH:
        if (flag->to)
            *(int *)flag->to = 1;
        return 1;
    case FLAG_INT:
        return read_int(flag, text);
    case FLAG_COUNT:
        return read_count(flag, text);
    case FLAG_SIZE:
        return read_size(flag, text);
    case FLAG_REAL:
        return read_real(flag, text);
    case FLAG_TEXT:
        if (flag->to)
            *(const char **)flag->to = text;
        return *text != '\0';
    case FLAG_WORD:
    case FLAG_CHOICE:
        place = place_of(flag->argument, text);
        if (flag->to && flag->kind == FLAG_WORD)
            *(const char **)flag->to = text;
        else if (flag->to)
            *(int *)flag->to = place;
        return place >= 0;
    case FLAG_READ:
        return flag->read(flag->to, text);
    }
    return 0;
}

/* What the option takes, in words. */
static void wanted(const flag_t *flag, char *text, size_t bytes)
{
    const int has_unit = flag->kind == FLAG_SIZE && strcmp(flag->argument, "N") != 0;
    const char *what = flag->kind == FLAG_REAL ? "a number"
                       : has_unit              ? "a size such as 4096, 64K or 4MiB,"
                                               : "a whole number";
    switch (flag->kind) {
    case FLAG_INT:
    case FLAG_COUNT:
    case FLAG_SIZE:
    case FLAG_REAL:
        if (flag->high == 0)
            snprintf(text, bytes, "%s from %.15g on", what, flag->low);
        else
            snprintf(text, bytes, "%s from %.15g to %.15g", what, flag->low, flag->high);
        break;
    case FLAG_TEXT:
        snprintf(text, bytes, "a text that is not empty");
        break;
    case FLAG_WORD:
    case FLAG_CHOICE:
        if (flag->wants) {
            snprintf(text, bytes, "%s", flag->wants);
            break;
        }
        snprintf(text, bytes, "%s%s", strchr(flag->argument, '|') ? "one of " : "", flag->argument);
        break;
    default:
        snprintf(text, bytes, "%s", flag->wants ? flag->wants : flag->argument);
    }
}

int flags_set(const flag_t *flag, const char *text, char *why, size_t bytes)
{
    char words[256];
    if (read_value(flag, text)) {
        if (flag->given)
            *flag->given = 1;
        return 1;
    }
    wanted(flag, words, sizeof words);
    snprintf(why, bytes, "--%s %.200s: wants %s", flag->name, *text ? text : "\"\"", words);
    return 0;
}

/* ---- help ---------------------------------------------------------------------------------------------- */

/* "  -b, --minbytes SIZE      first size"; further lines of the help stand below the first. */
static void print_row(const flag_t *flag, FILE *out)
{
    char head[128], letter[8] = "    ";
    if (flag->letter)
        snprintf(letter, sizeof letter, "-%c, ", flag->letter);
    int length = snprintf(head, sizeof head, "  %s--%s%s%s", letter, flag->name, flag->argument ? " " : "",
                          flag->argument ? flag->argument : "");
    if (length >= HELP_COLUMN)
        fprintf(out, "%s\n%*s", head, HELP_COLUMN, "");
    else
        fprintf(out, "%-*s", HELP_COLUMN, head);
    for (const char *c = flag->help; *c; c++) {
        fputc(*c, out);
        if (*c == '\n')
            fprintf(out, "%*s", HELP_COLUMN, "");
    }
    fputc('\n', out);
}

static void print_rows(const flags_t *flags, FILE *out)
{
    int grouped = 0;
    for (size_t i = 0; i < flags->count + OWN; i++) {
        const flag_t *flag = row(flags, i);
        grouped |= flag->kind == FLAG_HEADING;
        if (i == flags->count && grouped)
            fputc('\n', out);
        if (flag->kind == FLAG_HEADING)
            fprintf(out, "%s%s\n", i ? "\n" : "", flag->help);
        else if (flag->help)
            print_row(flag, out);
    }
}

/* ---- the command line ---------------------------------------------------------------------------------- */

typedef struct {
    const flags_t *flags;
    int argc, at; /* the argument in work */
    char **argv;
    FILE *out;
    char *why;
    size_t bytes;
} line_t;

/* Sets an option. value: what stands in the same argument; NULL: nothing does, so the next argument is the
 * value. */
static flags_result_t take(line_t *line, const flag_t *flag, const char *value)
{
    if (flag == &own[0]) {
        fprintf(line->out, "%s\n", line->flags->usage);
        print_rows(line->flags, line->out);
        if (line->flags->notes)
            fprintf(line->out, "\n%s", line->flags->notes);
        return FLAGS_HELP;
    }
    if (flag == &own[1]) {
        const char *program = line->flags->program;
        fprintf(line->out, "%.*s " GYRE_VERSION "\n", (int)strcspn(program, " "), program);
        return FLAGS_VERSION;
    }
    if (flag->kind == FLAG_SWITCH)
        return flags_set(flag, "", line->why, line->bytes) ? FLAGS_GO : FLAGS_WRONG;
    const char *next = line->at + 1 < line->argc ? line->argv[line->at + 1] : NULL;
    if (!value && next && !(flag->optional && next[0] == '-')) {
        value = next;
        line->at++;
    }
    if (!value && flag->optional) {
        if (flag->given)
            *flag->given = 1;
        return FLAGS_GO;
    }
    if (!value) {
        char words[256];
        wanted(flag, words, sizeof words);
        snprintf(line->why, line->bytes, "--%s needs an argument: %s", flag->name, words);
        return FLAGS_WRONG;
    }
    return flags_set(flag, value, line->why, line->bytes) ? FLAGS_GO : FLAGS_WRONG;
}

/* --name, --name=value */
static flags_result_t take_name(line_t *line, const char *name)
{
    size_t length = strcspn(name, "=");
    const flag_t *flag = find(line->flags, name, length, line->why, line->bytes);
    if (!flag)
        return FLAGS_WRONG;
    if (name[length] && flag->kind == FLAG_SWITCH) {
        snprintf(line->why, line->bytes, "--%.200s: --%s takes no value", name, flag->name);
        return FLAGS_WRONG;
    }
    return take(line, flag, name[length] ? name + length + 1 : NULL);
}

/* -x, -xvalue, -xyz */
static flags_result_t take_letters(line_t *line, const char *letters)
{
    for (; *letters; letters++) {
        const flag_t *flag = find_letter(line->flags, *letters);
        if (!flag) {
            snprintf(line->why, line->bytes, "unknown option -%c", *letters);
            return FLAGS_WRONG;
        }
        int alone = flag->kind == FLAG_SWITCH;
        flags_result_t result = take(line, flag, !alone && letters[1] ? letters + 1 : NULL);
        if (result != FLAGS_GO || !alone)
            return result;
    }
    return FLAGS_GO;
}

/* Moves the arguments from `from` to before `to` in front of the words, which begin at *words. */
static void before_words(char **argv, int *words, int from, int to)
{
    for (int i = from; i < to; i++) {
        char *moved = argv[i];
        memmove(&argv[*words + 1], &argv[*words], (size_t)(i - *words) * sizeof *argv);
        argv[(*words)++] = moved;
    }
}

flags_result_t flags_parse(const flags_t *flags, int argc, char **argv, int *words, FILE *out, char *why,
                           size_t bytes)
{
    line_t line = {flags, argc, 1, argv, out, why, bytes};
    int first = 1; /* of the words */
    for (; line.at < argc; line.at++) {
        const char *arg = argv[line.at];
        const int from = line.at, ends = strcmp(arg, "--") == 0;
        if (arg[0] != '-' || !arg[1])
            continue;
        flags_result_t result = ends            ? FLAGS_GO
                                : arg[1] == '-' ? take_name(&line, arg + 2)
                                                : take_letters(&line, arg + 1);
        if (result != FLAGS_GO)
            return result;
        before_words(argv, &first, from, line.at + 1);
        if (ends)
            break;
    }
    if (!words && first < argc) {
        snprintf(why, bytes, "does not know what to do with \"%.200s\"", argv[first]);
        return FLAGS_WRONG;
    }
    if (words)
        *words = first;
    return FLAGS_GO;
}

flag_at_t flags_next(flags_walk_t *walk)
{
    if (walk->at >= walk->argc)
        return FLAG_AT_END;
    const char *typed = walk->argv[walk->at];
    if (typed[0] != '-' || !typed[1])
        return FLAG_AT_WORD;
    walk->at++;
    if (strcmp(typed, "--") == 0)
        return walk->at < walk->argc ? FLAG_AT_WORD : FLAG_AT_END;
    const int dashes = typed[1] == '-' ? 2 : 1;
    const char *name = typed + dashes;
    const size_t length = dashes == 2 ? strcspn(name, "=") : strlen(name);
    walk->typed = typed;
    walk->length = dashes + (int)length;
    walk->value = name[length] ? name + length + 1 : NULL;
    walk->flag = dashes == 1 && length == 1             ? find_letter(walk->flags, *name)
                 : dashes == 2 || walk->flags->one_dash ? find_exact(walk->flags, name, length)
                                                        : NULL;
    if (!walk->flag)
        return FLAG_AT_UNKNOWN;
    if (walk->flag->kind == FLAG_SWITCH)
        return walk->value ? FLAG_AT_SPARE : FLAG_AT_OPTION;
    if (!walk->value && walk->at < walk->argc)
        walk->value = walk->argv[walk->at++];
    return walk->value ? FLAG_AT_OPTION : FLAG_AT_BARE;
}

const char *flags_nearest(const flags_t *flags, const char *typed)
{
    char name[64];
    if (strncmp(typed, "--", 2) != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
    return nearest(flags, name);
}

int flags_output(const char *path)
{
    const int taken = stdout == stderr;
    if (base_file_is_stdout(path))
        stdout = stderr; /* glibc's are variables */
    return !base_file_is_stdout(path) || !taken;
}

int flags_apart(const char *flag, const char *path, const char *other, char *why, size_t bytes)
{
    struct stat info;
    if (!path || !other || stat(other, &info) != 0 || !base_file_same(path, other))
        return 1;
    snprintf(why, bytes, "--%s %s would replace %s, which is read: name another file", flag, path, other);
    return 0;
}

int flags_wrong(const char *program, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%.*s: ", (int)strcspn(program, " "), program);
    vfprintf(stderr, format, args);
    fprintf(stderr, "; see %s --help\n", program);
    va_end(args);
    return USAGE;
}

int flags_take(const flags_t *flags, int argc, char **argv, int *words)
{
    char why[512];
    switch (flags_parse(flags, argc, argv, words, stdout, why, sizeof why)) {
    case FLAGS_GO:
        return -1;
    case FLAGS_WRONG:
        return flags_wrong(flags->program, "%s", why);
    default:
        return output_end(flags->program, 0, EXIT_FAILURE);
    }
}
