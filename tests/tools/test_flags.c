/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/test_flags.c: the tools' parser of command lines: each kind of value, each way to write an
 * option, help from the table, and what is said of mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/shared/flags.h"

#include <gyre/version.h>

/* What each option became, from one command line. */
typedef struct {
    int number, choice, on, off, maybe_given, number_given, first, even;
    size_t size;
    uint64_t count;
    const char *text, *word, *maybe;
    double real;
    char why[256], out[4096], left[256]; /* left: argv after parsing */
} parsed_t;

static int read_even(void *to, const char *text)
{
    *(int *)to = atoi(text);
    return atoi(text) % 2 == 0;
}

static flags_result_t parse(parsed_t *p, const char *line)
{
    static char copy[256];
    char *argv[16];
    int argc = 0;
    *p = (parsed_t){.number = -1, .choice = -1, .maybe = "none"};
    const flag_t rows[] = {
        {FLAG('n', "number", INT, &p->number, "N", "a number\nof two lines"), .low = 1, .high = 9,
         .given = &p->number_given},
        {FLAG('s', "size", SIZE, &p->size, "SIZE", "a size"), .low = 4},
        {FLAG(0, "limit", SIZE, NULL, "N", NULL), .low = 1},
        {FLAG(0, "count", COUNT, &p->count, "N", "a count"), .also = "amount"},
        {.kind = FLAG_HEADING, .help = "More"},
        {FLAG(0, "ms", REAL, &p->real, "MS", "a time")},
        {FLAG('t', "text", TEXT, &p->text, "TEXT", "a text")},
        {FLAG(0, "color", WORD, &p->word, "red|green", "a word")},
        {FLAG(0, "shade", CHOICE, &p->choice, "dark|light|none", "a choice with a long description")},
        {FLAG(0, "even_number", READ, &p->even, "N", "a reader"), .read = read_even,
         .wants = "an even number"},
        {FLAG('o', "on", SWITCH, &p->on, NULL, "a switch")},
        {FLAG('f', "off", SWITCH, &p->off, NULL, NULL)},
        {FLAG(0, "maybe", TEXT, &p->maybe, "[X]", "with or without"), .optional = 1,
         .given = &p->maybe_given},
        {FLAG('z', "nothing", WORD, NULL, "0", NULL)},
    };
    const flags_t flags = {.program = "x sub", .usage = "usage: x\n", .notes = "the end\n", FLAG_ROWS(rows)};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    FILE *out = tmpfile();
    assert_non_null(out);
    flags_result_t result = flags_parse(&flags, argc, argv, &p->first, out, p->why, sizeof p->why);
    rewind(out);
    p->out[fread(p->out, 1, sizeof p->out - 1, out)] = '\0';
    fclose(out);
    for (int i = 1; i < argc; i++)
        snprintf(p->left + strlen(p->left), sizeof p->left - strlen(p->left), "%s%s", i > 1 ? " " : "",
                 argv[i]);
    return result;
}

static void values(void **state)
{
    (void)state;
    static parsed_t p;
    assert_int_equal(
        parse(&p, "x -n 3 word -s 4KiB --count 18446744073709551615 --color green --shade light "), FLAGS_GO);
    assert_true(p.number == 3 && p.number_given && p.size == 4096 && p.count == UINT64_MAX && p.choice == 1);
    assert_string_equal(p.word, "green");
    assert_int_equal(parse(&p, "x --text a=b --ms 0.5 --on --even_number 12 -z 0"), FLAGS_GO);
    assert_string_equal(p.text, "a=b");
    assert_true(p.real > 0.49 && p.real < 0.51 && p.on == 1 && p.even == 12 && !p.off && !p.number_given);
    assert_int_equal(parse(&p, "x"), FLAGS_GO);
    assert_true(p.number == -1 && p.first == 1);
}

/* All ways to write an option mean the same. */
static void ways(void **state)
{
    (void)state;
    static parsed_t p;
    static const char *const same[] = {"x -n 7 -o -f",        "x -n7 -of", "x --number=7 --on --off",
                                       "x --numb 7 -fo",      "x -ofn7",   "x -ofn 7",
                                       "x --num=7 --on --off"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (parse(&p, same[i]) != FLAGS_GO || p.number != 7 || !p.on || !p.off)
            fail_msg("%s: %s", same[i], p.why);
    assert_int_equal(parse(&p, "x --even-number 2 --amount 5"), FLAGS_GO);
    assert_true(p.even == 2 && p.count == 5);
    assert_int_equal(parse(&p, "x -n 1 -n 2"), FLAGS_GO);
    assert_int_equal(p.number, 2);
    assert_int_equal(parse(&p, "x --maybe"), FLAGS_GO);
    assert_true(p.maybe_given && strcmp(p.maybe, "none") == 0);
    assert_int_equal(parse(&p, "x --maybe -o"), FLAGS_GO);
    assert_true(p.maybe_given && strcmp(p.maybe, "none") == 0 && p.on);
    assert_int_equal(parse(&p, "x --maybe here"), FLAGS_GO);
    assert_string_equal(p.maybe, "here");
    assert_int_equal(parse(&p, "x --maybe=here"), FLAGS_GO);
    assert_string_equal(p.maybe, "here");
}

static void words_move_to_the_end(void **state)
{
    (void)state;
    static parsed_t p;
    assert_int_equal(parse(&p, "x one -n 3 two - --text t three"), FLAGS_GO);
    assert_string_equal(p.left, "-n 3 --text t one two - three");
    assert_int_equal(p.first, 5);
    assert_int_equal(parse(&p, "x one -o -- -n --number two"), FLAGS_GO);
    assert_string_equal(p.left, "-o -- one -n --number two");
    assert_true(p.first == 3 && p.on && p.number == -1);
    const flags_t none = {.program = "x", .usage = ""};
    char why[64], *argv[] = {"x", "word", NULL};
    assert_int_equal(flags_parse(&none, 2, argv, NULL, stdout, why, sizeof why), FLAGS_WRONG);
    assert_string_equal(why, "does not know what to do with \"word\"");
}

static void mistakes(void **state)
{
    (void)state;
    static parsed_t p;
    static const char *const bad[][2] = {
        {"x -n 0", "--number 0: wants a whole number from 1 to 9"},
        {"x -n 10", "--number 10: wants a whole number from 1 to 9"},
        {"x -n 3x", "--number 3x: wants a whole number from 1 to 9"},
        {"x --number=", "--number \"\": wants a whole number from 1 to 9"},
        {"x -n 4294967297", "--number 4294967297: wants"},
        {"x -s 3", "--size 3: wants a size such as 4096, 64K or 4MiB, from 4 on"},
        {"x --limit 0", "--limit 0: wants a whole number from 1 on"},
        {"x -s 4X", "--size 4X: wants a size"},
        {"x --count -1", "--count -1: wants a whole number from 0 on"},
        {"x --count 18446744073709551616", "--count 18446744073709551616: wants"},
        {"x --count 1e3", "--count 1e3: wants"},
        {"x --ms -1", "--ms -1: wants a number from 0 on"},
        {"x --ms inf", "--ms inf: wants"},
        {"x --ms nan", "--ms nan: wants"},
        {"x --text=", "--text \"\": wants a text that is not empty"},
        {"x --color blue", "--color blue: wants one of red|green"},
        {"x --color red|green", "--color red|green: wants one of red|green"},
        {"x --shade lightest", "--shade lightest: wants one of dark|light|none"},
        {"x --even_number 3", "--even_number 3: wants an even number"},
        {"x -z 1", "--nothing 1: wants 0"},
        {"x --on=1", "--on=1: --on takes no value"},
        {"x --text", "--text needs an argument: a text that is not empty"},
        {"x -t", "--text needs an argument"},
        {"x --numbr 3", "unknown option --numbr (did you mean --number?)"},
        {"x --colour=red", "unknown option --colour (did you mean --color?)"},
        {"x --amuont 3", "unknown option --amuont (did you mean --amount?)"},
        {"x --hlep", "unknown option --hlep (did you mean --help?)"},
        {"x --nonesuch", "unknown option --nonesuch"},
        {"x --=1", "unknown option --"},
        {"x -Q", "unknown option -Q"},
        {"x -oQ", "unknown option -Q"},
        {"x --o", "--o is the beginning of --on and --off: write it out"},
        {"x --help=1", "--help=1: --help takes no value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(&p, bad[i][0]), FLAGS_WRONG);
        if (strncmp(p.why, bad[i][1], strlen(bad[i][1])) != 0)
            fail_msg("\"%s\" says \"%s\", not \"%s\"", bad[i][0], p.why, bad[i][1]);
        assert_string_equal(p.out, "");
    }
    assert_int_equal(parse(&p, "x --nonesuch"), FLAGS_WRONG);
    assert_null(strstr(p.why, "did you mean"));
    assert_int_equal(parse(&p, "x --foo"), FLAGS_WRONG); /* two edits from --on */
    assert_null(strstr(p.why, "did you mean"));
}

/* Option by option: what each argument is, of names with one dash and with two. */
static void walks(void **state)
{
    (void)state;
    const flag_t rows[] = {{.letter = 'n', .name = "np", .kind = FLAG_TEXT},
                           {.name = "kill-grace", .also = "grace", .kind = FLAG_TEXT},
                           {.letter = 't', .name = "tag", .kind = FLAG_SWITCH}};
    const flags_t flags = {.program = "x", FLAG_ROWS(rows), .one_dash = 1};
    const flags_t two_dashes = {.program = "x", FLAG_ROWS(rows)};
    char *argv[] = {"x", "-n",    "1",        "-np",     "2",   "--np=3", "--kill_grace=4", "--grace",
                    "5", "--tag", "--tag=no", "--grave", "-n2", "--",     "-word",          NULL};
    static const struct {
        flag_at_t at;
        int row;
        const char *value;
    } want[] = {{FLAG_AT_OPTION, 0, "1"}, {FLAG_AT_OPTION, 0, "2"},    {FLAG_AT_OPTION, 0, "3"},
                {FLAG_AT_OPTION, 1, "4"}, {FLAG_AT_OPTION, 1, "5"},    {FLAG_AT_OPTION, 2, NULL},
                {FLAG_AT_SPARE, 2, "no"}, {FLAG_AT_UNKNOWN, -1, NULL}, {FLAG_AT_UNKNOWN, -1, NULL}};
    flags_walk_t walk = {.flags = &flags, .argc = 15, .argv = argv, .at = 1};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(flags_next(&walk), want[i].at);
        assert_ptr_equal(walk.flag, want[i].row < 0 ? NULL : &rows[want[i].row]);
        assert_true((!walk.value && !want[i].value) || strcmp(walk.value, want[i].value) == 0);
    }
    assert_string_equal(flags_nearest(&flags, "--grave=1"), "grace");
    assert_null(flags_nearest(&flags, "--nonesuch"));
    assert_int_equal(flags_next(&walk), FLAG_AT_WORD);
    assert_string_equal(argv[walk.at], "-word");
    walk = (flags_walk_t){.flags = &two_dashes, .argc = 5, .argv = argv, .at = 3};
    assert_int_equal(flags_next(&walk), FLAG_AT_UNKNOWN);
    walk = (flags_walk_t){.flags = &flags, .argc = 2, .argv = argv, .at = 1};
    assert_int_equal(flags_next(&walk), FLAG_AT_BARE);
    assert_int_equal(flags_next(&walk), FLAG_AT_END);
}

static void help(void **state)
{
    (void)state;
    static parsed_t p;
    assert_int_equal(parse(&p, "x -o --help --nonesuch"), FLAGS_HELP);
    assert_string_equal(p.out, "usage: x\n"
                               "\n"
                               "  -n, --number N           a number\n"
                               "                           of two lines\n"
                               "  -s, --size SIZE          a size\n"
                               "      --count N            a count\n"
                               "\n"
                               "More\n"
                               "      --ms MS              a time\n"
                               "  -t, --text TEXT          a text\n"
                               "      --color red|green    a word\n"
                               "      --shade dark|light|none\n"
                               "                           a choice with a long description\n"
                               "      --even_number N      a reader\n"
                               "  -o, --on                 a switch\n"
                               "      --maybe [X]          with or without\n"
                               "\n"
                               "  -h, --help               this text\n"
                               "      --version            the version\n"
                               "\n"
                               "the end\n");
    assert_int_equal(parse(&p, "x -oh"), FLAGS_HELP);
    assert_int_equal(parse(&p, "x word --version"), FLAGS_VERSION);
    assert_string_equal(p.out, "x " GYRE_VERSION "\n");
}

/* A value from elsewhere, such as a column of a table: the same rows read it. */
static void rows_alone(void **state)
{
    (void)state;
    size_t bytes = 0;
    char why[128];
    const flag_t rows[] = {{FLAG('b', "bucket-bytes", SIZE, &bytes, "SIZE", "")}};
    const flags_t flags = {.program = "x", .usage = "", FLAG_ROWS(rows)};
    assert_ptr_equal(flags_find(&flags, "bucket-bytes"), rows);
    assert_ptr_equal(flags_find(&flags, "bucket_bytes"), rows);
    assert_null(flags_find(&flags, "bucket"));
    assert_null(flags_find(&flags, "help"));
    assert_true(flags_set(rows, "2k", why, sizeof why) && bytes == 2048);
    assert_false(flags_set(rows, "2q", why, sizeof why));
    assert_non_null(strstr(why, "--bucket-bytes 2q: wants a size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),     cmocka_unit_test(ways),  cmocka_unit_test(words_move_to_the_end),
        cmocka_unit_test(mistakes),   cmocka_unit_test(walks), cmocka_unit_test(help),
        cmocka_unit_test(rows_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
