/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/collectives/schedules/test_tune.c: the tuning file: reading with errors that name the line, writing,
 * the cache and when it is stale; the source of each choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "collectives/choose/choose.h"

static coll_tune_t tune, other; /* large: not on the stack */

static gyre_status_t parse(const char *text, coll_tune_t *out)
{
    FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(in);
    coll_tune_builtin(out);
    gyre_status_t st = coll_tune_parse(in, "my.tune", 1, out, NULL);
    fclose(in);
    return st;
}

static void test_reads(void **state)
{
    (void)state;
    assert_int_equal(parse("# mine\n\ngyre-tune 1\nsignature 00ff\ncost line 55.25 # ns\n  cost cores 7\n"
                           "choose all_reduce ranks 2-8 bytes 8K-1M algo direct chunk 256K  # fast here\n"
                           "choose barrier algo butterfly\nchoose broadcast hosts 2- bytes 1M- algo tree\n",
                           &tune),
                     GYRE_OK);
    assert_int_equal(tune.signature, 0xff);
    assert_true(tune.cost.line == 55.25);
    assert_int_equal(tune.cost.cores, 7);
    assert_int_equal(tune.nlines, 3);
    const coll_tune_line_t *l = &tune.lines[0];
    assert_int_equal(l->op, COLL_ALL_REDUCE);
    assert_int_equal(l->ranks[0], 2);
    assert_int_equal(l->ranks[1], 8);
    assert_int_equal(l->bytes[0], 8192);
    assert_int_equal(l->bytes[1], 1 << 20);
    assert_int_equal(l->algo, COLL_DIRECT);
    assert_int_equal(l->chunk, 256 << 10);
    assert_int_equal(l->one_shot, -1);
    assert_int_equal(l->line, 7);
    assert_string_equal(l->comment, "fast here");
    assert_true(tune.lines[1].any_bytes);
    assert_int_equal(tune.lines[2].hosts[0], 2);
    assert_true(tune.lines[2].bytes[1] == UINT64_MAX);
}

static void test_errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wants;
    } cases[] = {
        {"", "my.tune:0: a tuning file begins with"},
        {"cost line 5\n", "my.tune:1: a tuning file begins with"},
        {"gyre-tune 2\n", "my.tune:1: version 2"},
        {"gyre-tune 1\n\n# x\ncost lime 5\n", "my.tune:4: there is no cost \"lime\""},
        {"gyre-tune 1\ncost line -5\n", "my.tune:2: cost line: \"-5\""},
        {"gyre-tune 1\ncost line 0\n", "from 0.000001"},
        {"gyre-tune 1\ncost cores 0.5\n", "a whole number from 1 to 1000000"},
        {"gyre-tune 1\ncost line 1000000000000.1\n", "a number from 0.000001 to 1000000000000"},
        {"gyre-tune 1\ncost net_rate 0.0000001\n", "from 0.000001 to 1000000000000, or 0"},
        {"gyre-tune 1\ncost line 1e5\n", "\"1e5\""},
        {"gyre-tune 1\ncost line\n", "a cost has a name and a number"},
        {"gyre-tune 1\nchoose\n", "needs a collective"},
        {"gyre-tune 1\nchoose allreduce algo direct\n", "no collective \"allreduce\""},
        {"gyre-tune 1\nchoose allreduce algo direct\n", "all_to_all, scan, exscan, barrier)"},
        {"gyre-tune 1\nchoose all_reduce algo directly\n", "\"directly\" is no algorithm"},
        {"gyre-tune 1\nchoose all_reduce algo bruck\n", "\"bruck\" is no algorithm for all_reduce"},
        {"gyre-tune 1\nchoose all_reduce algo\n", "\"algo\" needs a value"},
        {"gyre-tune 1\nchoose all_reduce ranks 8-2 algo direct\n", "\"8-2\" is no range"},
        {"gyre-tune 1\nchoose all_reduce bytes 1X algo direct\n", "\"1X\" is no range"},
        {"gyre-tune 1\nchoose all_reduce bytes 1-2 algo ring bytes 4K\n", "\"bytes\" is given twice"},
        {"gyre-tune 1\nchoose all_reduce hosts 0 algo ring\n", "hosts: \"0\" must be at least 1"},
        {"gyre-tune 1\nchoose all_reduce chunk 0\n", "chunk: \"0\""},
        {"gyre-tune 1\nchoose all_reduce form two_shot\n", "\"two_shot\" is neither"},
        {"gyre-tune 1\nchoose all_reduce size 8 algo direct\n", "\"size\" is not one of"},
        {"gyre-tune 1\nchoose all_reduce ranks 2\n", "chooses nothing"},
        {"gyre-tune 1\nsignature xyz\n", "not a hexadecimal"},
        {"gyre-tune 1\nbusy 1.5 1\n", "my.tune:2: busy needs three numbers"},
        {"gyre-tune 1\nbusy 0.5 1 1\n", "busy needs three numbers"},
        {"gyre-tune 1\nbusy 1.5 0 1\n", "busy needs three numbers"},
        {"gyre-tune 1\nbusy 1000001 1 1\n", "busy needs three numbers"},
        {"gyre-tune 1\nhello\n", "my.tune:2: \"hello\" is not one of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text[0] ? cases[i].text : "\n", &tune), GYRE_ERR_FORMAT);
        const char *wants = cases[i].text[0] ? cases[i].wants : "my.tune:1: a tuning file begins with";
        if (!strstr(gyre_last_error(), wants))
            fail_msg("\"%s\" does not say \"%s\"", gyre_last_error(), wants);
    }
}

static void test_too_many_lines(void **state)
{
    (void)state;
    static char text[64 * (COLL_TUNE_LINES_MOST + 3)];
    size_t at = (size_t)snprintf(text, sizeof text, "gyre-tune 1\n");
    for (int i = 0; i <= COLL_TUNE_LINES_MOST; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "choose all_reduce ranks %d algo ring\n", i + 1);
    assert_int_equal(parse(text, &tune), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "more than"));
    text[at / 2] = 'x';
    memset(text + 12, 'x', 2000);
    text[2012] = '\n';
    assert_int_equal(parse(text, &tune), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "my.tune:2: the line is longer"));
}

static void test_round_trip(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(
        parse("gyre-tune 1\nsignature abc\nbusy 1.75 3 1764283000\ncost line 61.5\ncost cache_bytes 1048576\n"
              "choose all_reduce ranks 3 hosts 1 bytes 1000-2048 algo butterfly form one_shot "
              "chunk 3K # a # b\n"
              "choose reduce ranks 4- bytes 1M- algo tree\nchoose all_reduce form blocks\n",
              &tune),
        GYRE_OK);
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    coll_tune_print(out, &tune, "the-boot");
    fclose(out);
    char boot[64] = "";
    FILE *in = fmemopen(text, bytes, "r");
    assert_int_equal(coll_tune_parse(in, "again", 1, &other, boot), GYRE_OK);
    fclose(in);
    assert_string_equal(boot, "the-boot");
    assert_int_equal(other.signature, 0xabc);
    assert_true(other.busy.stretch == 1.75 && other.busy.times == 3 && other.busy.when == 1764283000);
    assert_int_equal(other.nlines, 3);
    for (int i = 0; i < 3; i++) {
        coll_tune_line_t a = tune.lines[i], b = other.lines[i];
        assert_int_not_equal(b.line, 0);
        a.line = b.line;
        assert_memory_equal(&a, &b, sizeof a);
    }
    for (int i = 0; i < coll_cost_field_count; i++) /* written with two decimals */
        assert_true(coll_cost_get(&tune.cost, &coll_cost_fields[i]) -
                        coll_cost_get(&other.cost, &coll_cost_fields[i]) <
                    0.01);
    free(text);
}

static void test_measures(void **state)
{
    (void)state;
    coll_cost_t cost;
    assert_true(coll_measure(0.01, &cost) >= 1);
    for (int i = 0; i < coll_cost_field_count; i++) {
        const double value = coll_cost_get(&cost, &coll_cost_fields[i]);
        const int net = strncmp(coll_cost_fields[i].name, "net_", 4) == 0;
        if (net ? value != 0 : !(value > 0.01 && value < 1e10))
            fail_msg("%s: %g", coll_cost_fields[i].name, value);
    }
}

/* Others have the cores: each core gets some threads that only compute, as many as it takes. */
static void test_notices_others(void **state)
{
    (void)state;
    enum { OTHERS = 6 };
    pid_t others[OTHERS];
    coll_cost_t cost;
    double busy = 0;
    for (int i = 0; i < OTHERS; i++) {
        others[i] = fork();
        if (others[i] == 0) {
            alarm(60); /* in case this process is ended */
            for (;;)
                __asm__ volatile("");
        }
        assert_true(others[i] > 0);
    }
    for (int i = 0; i < 5 && busy < 1.3; i++)
        busy = coll_measure(0.07, &cost);
    for (int i = 0; i < OTHERS; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
    if (busy < 1.3 && sysconf(_SC_NPROCESSORS_ONLN) >= OTHERS)
        skip(); /* there were cores for all */
    assert_true(busy >= 1.3);
}

/* What is done with numbers of a busy machine. */
static void test_busy(void **state)
{
    (void)state;
    coll_cost_t first = {.line = 100}, better = {.line = 90}, worse = {.line = 200};
    const int64_t now = 1764283000;
    coll_tune_builtin(&tune);
    assert_false(coll_tune_due(&tune.busy, now));
    coll_tune_take(&tune, &first, 1.01, now);
    assert_true(tune.cost.line == 100 && tune.busy.stretch == 0);
    assert_false(coll_tune_due(&tune.busy, now + 1000000));

    coll_tune_builtin(&tune);
    coll_tune_take(&tune, &first, 2, now);
    assert_true(tune.cost.line == 100 && tune.busy.stretch == 2 && tune.busy.times == 1);
    assert_false(coll_tune_due(&tune.busy, now + 59));
    assert_true(coll_tune_due(&tune.busy, now + 60));
    assert_true(coll_tune_due(&tune.busy, now - 1)); /* the clock was set back */
    /* busier: the old numbers stay, and the next try waits for longer */
    coll_tune_take(&tune, &worse, 3, now + 60);
    assert_true(tune.cost.line == 100 && tune.busy.stretch == 2 && tune.busy.times == 2);
    assert_false(coll_tune_due(&tune.busy, now + 179));
    assert_true(coll_tune_due(&tune.busy, now + 180));
    coll_tune_take(&tune, &better, 1.5, now + 180);
    assert_true(tune.cost.line == 90 && tune.busy.stretch == 1.5 && tune.busy.times == 3);
    tune.busy.times = 1000000; /* never longer than a day */
    assert_true(coll_tune_due(&tune.busy, now + 180 + 86400));
    coll_tune_take(&tune, &first, 1.1, now + 200);
    assert_true(tune.cost.line == 100 && tune.busy.stretch == 0 && tune.busy.times == 0);
}

/* ---- the cache ---- */

static char folder[64];

static void use_cache(const char *xdg, const char *setting)
{
    assert_int_equal(setenv("XDG_CACHE_HOME", xdg, 1), 0);
    if (setting)
        assert_int_equal(setenv("GYRE_TUNE", setting, 1), 0);
    else
        unsetenv("GYRE_TUNE");
    assert_int_equal(base_settings_reload(), GYRE_OK);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "build/test_tune.XXXXXX");
    char *made = mkdtemp(folder), *whole = made ? realpath(made, NULL) : NULL;
    if (!whole)
        return -1;
    int fits = strlen(whole) < sizeof folder;
    if (fits)
        snprintf(folder, sizeof folder, "%.63s", whole);
    free(whole);
    return fits ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[COLL_TUNE_PATH];
    use_cache(folder, NULL);
    coll_tune_cache_path(path);
    unlink(path);
    char *slash = strrchr(path, '/');
    *slash = 0;
    rmdir(path);
    return rmdir(folder);
}

static void edit_cache(const char *from, const char *to)
{
    char path[COLL_TUNE_PATH], text[8192], *at;
    coll_tune_cache_path(path);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    at = strstr(text, from);
    assert_non_null(at);
    rewind(file);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(ftruncate(fileno(file), ftell(file)), 0);
    fclose(file);
}

static void test_cache(void **state)
{
    (void)state;
    char path[COLL_TUNE_PATH], why[256];
    use_cache(folder, NULL);
    assert_int_equal(coll_tune_obtain(&tune), GYRE_OK);
    assert_int_equal(tune.source, COLL_TUNE_MEASURED);
    coll_tune_cache_path(path);
    assert_string_equal(tune.path, path);
    assert_int_equal(access(path, R_OK), 0);

    edit_cache("cost line ", "choose all_reduce algo ring # mine\ncost line ");
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
    assert_int_equal(other.nlines, 1);
    assert_int_equal(other.signature, tune.signature);

    /* of a busy machine: measured again once it is time, by which the lines stay */
    char mark[64];
    edit_cache("\ncost copy_cache ", "\ncost copy_cache 9999 # ");
    edit_cache("\ncost message ", "\ncost message 99 # ");
    if (tune.busy.stretch > 0) /* it is busy now */
        edit_cache("\nbusy ", "\n# ");
    snprintf(mark, sizeof mark, "\nbusy 1000000 1 %lld\ncost line ", (long long)time(NULL));
    edit_cache("\ncost line ", mark);
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
    assert_true(other.cost.copy_cache == 9999 && other.busy.stretch == 1000000);
    edit_cache("busy 1000000 1 ", "busy 1000000 1 1 # ");
    assert_int_equal(coll_tune_peek(&other, why), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_MEASURED);
    assert_true(other.cost.copy_cache != 9999 && other.busy.stretch < 1000000);
    assert_true(other.cost.message == 99); /* which a start of a job does not measure */
    assert_int_equal(other.nlines, 1);
    assert_string_equal(other.lines[0].comment, "mine");
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
    assert_true(other.cost.copy_cache != 9999);

    /* of a process that could use one processor alone: measured again, in the same boot, too */
    if (coll_measure_cores() > 1) {
        edit_cache("\ncost cores ", "\ncost cores 1 # ");
        edit_cache("\ncost copy_cache ", "\ncost copy_cache 9999 # ");
        assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
        assert_int_equal(other.source, COLL_TUNE_MEASURED);
        assert_int_equal(other.cost.cores, coll_measure_cores());
        assert_true(other.cost.copy_cache != 9999);
        assert_int_equal(other.nlines, 1);
        assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
        assert_int_equal(other.source, COLL_TUNE_CACHED);
    }

    /* another boot of the same machine: checked, and the edits stay */
    edit_cache("\nboot ", "\nboot 0");
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
    edit_cache("# mine", "# mine");
    edit_cache("\nboot ", "\nboot ");

    /* broken by its owner: logged, not overwritten */
    edit_cache("choose all_reduce", "chose all_reduce");
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_MEASURED);
    assert_int_equal(other.nlines, 0);
    edit_cache("chose all_reduce", "choose all_reduce");

    /* refreshed: new numbers, the lines stay */
    edit_cache("cost cores ", "cost cores 99 # ");
    assert_int_equal(coll_tune_refresh(path, &other), GYRE_OK);
    assert_int_equal(other.nlines, 1);
    assert_true(other.cost.cores != 99);
    assert_true(other.cost.message == 99); /* two ranks have measured it */

    /* of another machine: measured again */
    edit_cache("\nsignature ", "\nsignature f");
    edit_cache("\nboot ", "\nboot 0");
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_MEASURED);
    assert_int_equal(other.nlines, 0);
    assert_int_equal(coll_tune_obtain(&other), GYRE_OK);
    assert_int_equal(other.source, COLL_TUNE_CACHED);
}

static void test_nowhere_to_write(void **state)
{
    (void)state;
    use_cache("/proc/self/nothing", NULL);
    assert_int_equal(coll_tune_obtain(&tune), GYRE_OK);
    assert_int_equal(tune.source, COLL_TUNE_MEASURED);
    assert_string_equal(tune.path, "");
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    unsetenv("HOME");
    use_cache("relative", NULL);
    char path[COLL_TUNE_PATH];
    coll_tune_cache_path(path);
    assert_string_equal(path, "");
    assert_int_equal(coll_tune_obtain(&tune), GYRE_OK);
    assert_int_equal(tune.source, COLL_TUNE_MEASURED);
    if (home)
        setenv("HOME", home, 1);
    free(home);
}

static void test_setting(void **state)
{
    (void)state;
    char path[128];
    use_cache(folder, "none");
    assert_int_equal(coll_tune_obtain(&tune), GYRE_OK);
    assert_int_equal(tune.source, COLL_TUNE_BUILTIN);
    use_cache(folder, "/nowhere/at.all");
    assert_int_equal(coll_tune_obtain(&tune), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), "/nowhere/at.all"));
    assert_non_null(strstr(gyre_last_error(), "GYRE_TUNE= without a value"));
    snprintf(path, sizeof path, "%s/own", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("gyre-tune 1\ncost line 12345\nchoose all_reduce algo ring\n", file);
    fclose(file);
    use_cache(folder, path);
    assert_int_equal(coll_tune_obtain(&tune), GYRE_OK);
    unlink(path);
    assert_int_equal(tune.source, COLL_TUNE_FILE);
    assert_true(tune.cost.line == 12345);
    assert_true(tune.cost.copy_cache > 0);
    assert_int_equal(tune.nlines, 1);
    use_cache(folder, NULL);
}

/* ---- the source of a choice ---- */

static int host_of[8];
static int with_oneshot; /* whether the outboxes could serve the calls below */

static coll_facts_t facts_of(int hosts)
{
    return (coll_facts_t){.hosts = hosts, .parts = hosts, .algo = "", .cost = tune.cost, .tune = &tune};
}

static coll_choice_t select_for(const coll_facts_t *facts, int n, coll_op_t op, size_t count, int uniform)
{
    coll_choice_t c;
    size_t counts[8] = {count, count, count, count, count, count, count, count};
    coll_args_t args = {.op = op,
                        .n = n,
                        .count = count,
                        .uniform = uniform,
                        .chunk = 1,
                        .host = host_of,
                        .counts = counts,
                        .displs = counts,
                        .rcounts = counts,
                        .rdispls = counts};
    assert_int_equal(coll_select(facts, &args, 4, with_oneshot, &c), GYRE_OK);
    return c;
}

static void test_precedence(void **state)
{
    (void)state;
    assert_int_equal(parse("gyre-tune 1\nchoose all_reduce ranks 2-3 algo tree\n"
                           "choose all_reduce ranks 4 bytes 4K-64K algo ring chunk 8K\n"
                           "choose all_reduce ranks 4 bytes 64K algo tree\n"
                           "choose all_reduce bytes 1M- chunk 32K form one_shot\n"
                           "choose all_to_all bytes 0-1K algo pairwise\nchoose gather algo binomial\n",
                           &tune),
                     GYRE_OK);
    coll_facts_t facts = facts_of(1);
    coll_choice_t c = select_for(&facts, 4, COLL_ALL_REDUCE, 16, 0);
    assert_int_equal(c.algo, COLL_DIRECT);
    assert_int_equal(c.why, COLL_WHY_RULE);
    assert_int_equal(c.line, 0);
    c = select_for(&facts, 4, COLL_ALL_REDUCE, 16384, 0); /* 64K: the first line that fits */
    assert_int_equal(c.algo, COLL_RING);
    assert_int_equal(c.why, COLL_WHY_LINE);
    assert_int_equal(c.line, 3);
    assert_int_equal(c.chunk, 2048);
    assert_true(c.forced);
    c = select_for(&facts, 4, COLL_ALL_REDUCE, 16385, 0);
    assert_int_not_equal(c.why, COLL_WHY_LINE);
    c = select_for(&facts, 4, COLL_ALL_REDUCE, 1 << 18, 0); /* form and chunk only */
    assert_int_equal(c.algo, COLL_DIRECT);
    assert_int_equal(c.why, COLL_WHY_RULE);
    assert_int_equal(c.line, 5);
    assert_int_equal(c.chunk, 8192);
    assert_true(c.one_shot);
    assert_false(c.forced);
    /* the size of all_to_allv is not known to all ranks: a line with a range says nothing about it */
    assert_int_equal(select_for(&facts, 4, COLL_ALL_TO_ALL, 16, 1).algo, COLL_PAIRWISE);
    assert_int_equal(select_for(&facts, 4, COLL_ALL_TO_ALL, 0, 0).why, COLL_WHY_RULE);
    /* binomial does not serve gatherv: the line is passed over */
    assert_int_equal(select_for(&facts, 4, COLL_GATHER, 16, 1).algo, COLL_BINOMIAL);
    assert_int_equal(select_for(&facts, 4, COLL_GATHER, 0, 0).why, COLL_WHY_RULE);

    facts.algo = "all_reduce:butterfly";
    c = select_for(&facts, 4, COLL_ALL_REDUCE, 16384, 0);
    assert_int_equal(c.algo, COLL_BUTTERFLY);
    assert_int_equal(c.why, COLL_WHY_FORCED);
    facts.algo = "";
    with_oneshot = 1; /* goes before the rules, but not before a line that names an algorithm */
    assert_true(select_for(&facts, 4, COLL_ALL_REDUCE, 16, 0).oneshot);
    assert_false(select_for(&facts, 4, COLL_ALL_REDUCE, 16384, 0).oneshot);
    assert_true(select_for(&facts, 4, COLL_ALL_REDUCE, 1 << 18, 0).oneshot);
    with_oneshot = 0;
    coll_tune_line_t pin = {.op = COLL_ALL_REDUCE, .algo = COLL_TREE, .one_shot = -1};
    facts.pin = &pin;
    c = select_for(&facts, 4, COLL_ALL_REDUCE, 16384, 0);
    assert_int_equal(c.algo, COLL_TREE);
    assert_int_equal(c.line, 0);
    pin = (coll_tune_line_t){.op = COLL_ALL_REDUCE, .one_shot = -1}; /* nothing, without lines */
    assert_int_equal(select_for(&facts, 4, COLL_ALL_REDUCE, 16384, 0).why, COLL_WHY_RULE);
}

/* Between hosts chunks are shorter, and hierarchical's the more so the more hosts there are; what was set
 * by name stays. */
static void test_chunk_between_hosts(void **state)
{
    (void)state;
    coll_tune_builtin(&tune);
    coll_facts_t facts = facts_of(1);
    static const size_t caches[] = {1, 512 << 10, 3 << 19, 64 << 20};
    static const size_t chunks[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10};
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        facts.cost.cache_bytes = caches[i];
        assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk * 4, chunks[i]);
        assert_int_equal(select_for(&facts, 8, COLL_REDUCE, 1 << 22, 0).chunk * 4,
                         base_min_size(chunks[i], 128 << 10)); /* up a tree */
    }
    facts.cost.cache_bytes = 512 << 10; /* blocks of more than two ranks */
    assert_int_equal(select_for(&facts, 4, COLL_REDUCE_SCATTER, 1 << 20, 0).chunk * 4, 256 << 10);
    assert_int_equal(select_for(&facts, 4, COLL_ALL_GATHER, 1 << 20, 0).chunk * 4, 256 << 10);
    assert_int_equal(select_for(&facts, 2, COLL_ALL_GATHER, 1 << 20, 0).chunk * 4, 128 << 10);
    facts.cost.cache_bytes = 1 << 20;
    const size_t inside = select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk;
    facts.algo = "ring";
    assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk, inside);
    facts.hosts = 4;
    const size_t ring = select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk;
    assert_true(ring < inside);
    facts.algo = "hierarchical";
    assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk, ring / 4);
    facts.hosts = 8;
    assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk, ring / 8);
    facts.chunk = 1 << 20;
    assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk, 1 << 18);
    facts.chunk = 0;
    facts.algo = "";
    assert_int_equal(parse("gyre-tune 1\nchoose all_reduce algo hierarchical chunk 8K\n", &tune), GYRE_OK);
    assert_int_equal(select_for(&facts, 8, COLL_ALL_REDUCE, 1 << 22, 0).chunk, 2048);
}

static void test_wrong_names(void **state)
{
    (void)state;
    coll_choice_t c;
    coll_tune_builtin(&tune);
    coll_facts_t facts = facts_of(1);
    const coll_args_t args = {.op = COLL_BROADCAST, .n = 4, .count = 16, .chunk = 1, .host = host_of};
    facts.algo = "rink";
    assert_int_equal(coll_select(&facts, &args, 4, 0, &c), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), "GYRE_ALGO: there is no algorithm \"rink\""));
    facts.algo = "leaves"; /* a call has leaves or has not */
    assert_int_equal(coll_select(&facts, &args, 4, 0, &c), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), "GYRE_ALGO: there is no algorithm \"leaves\""));
    facts.algo = "all_reduce:tree,broadcast:bruck";
    assert_int_equal(coll_select(&facts, &args, 4, 0, &c), GYRE_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(gyre_last_error(), "bruck (GYRE_ALGO, or gyre_comm_set) does not serve this broadcast"));
}

static void test_wrong_lists(void **state)
{
    (void)state;
    static const char *const right[] = {"", "ring", "ring,all_reduce:tree,reduce:tree", "barrier:auto,ring"};
    static const char *const wrong[][2] = {
        {"ring,", "there is no algorithm \"\""},
        {"ring,,tree", "there is no algorithm \"\""},
        {"all_reduce:", "there is no algorithm \"\""},
        {":ring", "there is no collective \"\""},
        {"all_reduce:tree,all_reduce:ring", "all_reduce has two algorithms"},
        {"exscan:direct,ring,exscan:direct", "exscan has two algorithms"},
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_int_equal(coll_check_algorithms("GYRE_ALGO", right[i]), GYRE_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(coll_check_algorithms("GYRE_ALGO", wrong[i][0]), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), wrong[i][1]));
        assert_non_null(strstr(gyre_last_error(), wrong[i][0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_too_many_lines),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_notices_others),
        cmocka_unit_test(test_busy),
        cmocka_unit_test_setup_teardown(test_cache, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_setting, make_folder, remove_folder),
        cmocka_unit_test(test_nowhere_to_write),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_chunk_between_hosts),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_wrong_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
