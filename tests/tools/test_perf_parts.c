/* tests/tools/test_perf_parts.c: parts of gyre-perf's subcommands: flag tables, lists of sizes, medians, cold buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/gyre-perf/command.h"

static void test_size_lists(void **state)
{
    (void)state;
    size_t list[3], count;
    assert_true(perf_parse_sizes("64K,25M,1", list, 3, &count));
    assert_true(count == 3 && list[0] == 64 << 10 && list[1] == 25 << 20 && list[2] == 1);
    assert_true(perf_parse_sizes("8", list, 3, &count) && count == 1 && list[0] == 8);
    static const char *const bad[] = {"",     ",",       "1,",  ",1",
                                      "1,,2", "0",       "1,0", "1,x",
                                      "1 2",  "1,2,3,4", "-1",  "1111111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (perf_parse_sizes(bad[i], list, 3, &count))
            fail_msg("\"%s\" passes as a list of sizes", bad[i]);
    }
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {5.0, 1.0, 3.0}, even[] = {8.0, 2.0, 4.0, 6.0};
    assert_true(perf_median(odd, 3) > 2.999 && perf_median(odd, 3) < 3.001);
    assert_true(perf_median(even, 4) > 4.999 && perf_median(even, 4) < 5.001);
    assert_true(perf_median(NULL, 0) < 1e-9);
}

/* What each flag became, from one command line. */
typedef struct {
    int number, on, words;
    size_t size;
    gyre_type_t type;
    const char *text, *choice;
    double ms;
    char why[128], out[2048];
} parsed_t;

static int parse(parsed_t *p, const char *line)
{
    static const char *const choices[] = {"red", "green", NULL};
    static char copy[256];
    char *argv[16];
    int argc = 0;
    *p = (parsed_t){.number = -1};
    const perf_flag_t flags[] = {
        {'n', "number", PERF_FLAG_INT, &p->number, 1, 9, "N", "a number\nof two lines", NULL},
        {'s', "size", PERF_FLAG_SIZE, &p->size, 0, 0, "SIZE", "a size", NULL},
        {'d', "type", PERF_FLAG_TYPE, &p->type, 0, 0, "TYPE", "a type", NULL},
        {0, "text", PERF_FLAG_TEXT, &p->text, 0, 0, "TEXT", "a text", NULL},
        {0, "choice", PERF_FLAG_TEXT, &p->choice, 0, 0, "red|green", "a choice", choices},
        {0, "ms", PERF_FLAG_SECONDS, &p->ms, 0, 0, "MS", "a time", NULL},
        {0, "on", PERF_FLAG_SWITCH, &p->on, 0, 0, NULL, "a switch", NULL},
    };
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    FILE *out = tmpfile();
    assert_non_null(out);
    int code = perf_flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, "usage: x", "the end\n", out,
                                &p->words, p->why, sizeof p->why);
    rewind(out);
    p->out[fread(p->out, 1, sizeof p->out - 1, out)] = '\0';
    fclose(out);
    return code;
}

static void test_flags(void **state)
{
    (void)state;
    static parsed_t p;
    assert_int_equal(parse(&p, "x -n 3 word -s 2K --type bf16 --choice green --text a=b --ms 0.5 --on"),
                     PERF_OK);
    assert_true(p.number == 3 && p.size == 2048 && p.type == GYRE_BFLOAT16 && p.on == 1);
    assert_true(strcmp(p.choice, "green") == 0 && strcmp(p.text, "a=b") == 0 && p.ms > 0.49 && p.ms < 0.51);
    assert_int_equal(p.words, 14); /* the word was moved after the options */
    assert_int_equal(parse(&p, "x --number=9"), PERF_OK);
    assert_int_equal(p.number, 9);
    static const char *const bad[][2] = {
        {"x -n 0", "--number 0: not a value"},
        {"x -n 10", "--number 10"},
        {"x -n 3x", "--number 3x"},
        {"x -s -1", "--size -1"},
        {"x -d float8", "--type float8"},
        {"x --choice blue", "--choice blue"},
        {"x --ms -1", "--ms -1"},
        {"x --ms inf", "--ms inf"},
        {"x --nonesuch", "unknown option --none"},
        {"x -Q", "unknown option -Q"},
        {"x --text", "--text needs an argument"},
        {"x --on=1", "--on=1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(&p, bad[i][0]), PERF_USAGE);
        if (!strstr(p.why, bad[i][1]))
            fail_msg("\"%s\" says \"%s\", without \"%s\"", bad[i][0], p.why, bad[i][1]);
    }
    assert_int_equal(parse(&p, "x --help"), -1);
    assert_non_null(strstr(p.out, "usage: x"));
    assert_non_null(
        strstr(p.out, "  -n, --number N           a number\n                           of two lines\n"));
    assert_non_null(strstr(p.out, "      --choice red|green   a choice\n"));
    assert_non_null(strstr(p.out, "the end"));
    assert_int_equal(parse(&p, "x --version"), -1);
    assert_non_null(strstr(p.out, gyre_version()));
}

/* That memory is slower to read afterwards is a matter of time, and so of a quiet machine: gyre-perf --cold
 * shows it. Here: the method has a name, and nothing in or around the range changes, for any last write and
 * any place of lines. */
static void test_cold(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10 };
    perf_cold_t cold;
    static const char *const methods[] = {"clflushopt", "clflush", "dc civac", "a walk through 64 MiB"};
    int known = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        known += strcmp(perf_cold_method(), methods[i]) == 0;
    assert_int_equal(known, 1);
    assert_int_equal(perf_cold_open(&cold), GYRE_OK);
    unsigned char *memory = malloc(BYTES), *same = malloc(BYTES);
    assert_true(memory && same);
    for (size_t i = 0; i < BYTES; i++)
        memory[i] = same[i] = (unsigned char)(i * 167 >> 3);
    perf_cold_flush(&cold, memory, BYTES);
    assert_memory_equal(memory, same, BYTES);
    memory[1013] = same[1013] = 0x5a; /* in a line that is flushed right away */
    perf_cold_flush(&cold, memory + 1013, 100);
    perf_cold_flush(&cold, memory + 7, 0);
    assert_memory_equal(memory, same, BYTES);
    free(memory);
    free(same);
    perf_cold_close(&cold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_lists),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_cold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
