/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/test_run_parts.c: parts of ucx-run: host lists, places of ranks, words, frames between launcher
 * and agents, and an agent whose launcher falls silent. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tools/ucx-run/hosts/agent_command.h"
#include "tools/ucx-run/hosts/hostlist.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/hosts/wire.h"

/* "a:2,b:1" of a list. */
static const char *shown(const run_hostlist_t *list)
{
    static char text[512];
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < list->count && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s:%d", i ? "," : "", list->host[i].name,
                              list->host[i].slots);
    return text;
}

static void test_host_lists(void **state)
{
    static const struct {
        const char *text, *result; /* NULL: malformed */
    } cases[] = {
        {"a", "a:1"},
        {"a:2,b", "a:2,b:1"},
        {"a,b,a", "a:2,b:1"},
        {"[fe80::1]:3,::1", "fe80::1:3,::1:1"},
        {"[10.0.0.1]", "10.0.0.1:1"},
        {"user@node-1.example.org:65536", "user@node-1.example.org:65536"},
        {"", NULL},
        {",", NULL},
        {"a,", NULL},
        {"a:0", NULL},
        {"a:", NULL},
        {"a:x", NULL},
        {"a:65537", NULL},
        {"a:99999999999999999999", NULL},
        {"a:65536,b", NULL},
        {":2", NULL},
        {"[a", NULL},
        {"[a]x", NULL},
        {"[]:1", NULL},
        {"-oProxyCommand=x", NULL},
        {"a b", NULL},
        {"a;b", NULL},
        {"$(x)", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_hostlist_t list = {0};
        char why[200] = "";
        int ok = run_hostlist_parse(&list, cases[i].text, why, sizeof why);
        if (ok != (cases[i].result != NULL) || (ok && strcmp(shown(&list), cases[i].result) != 0) ||
            (!ok && !*why))
            fail_msg("\"%s\": %s (%s)", cases[i].text, ok ? shown(&list) : "refused", why);
        run_hostlist_free(&list);
    }
}

static void test_hostfiles(void **state)
{
    static const struct {
        const char *text, *result, *why;
    } cases[] = {
        {"a slots=2\nb:3\nc\n", "a:2,b:3,c:1", NULL},
        {"# all\n\n  a\tslots=2  max_slots=9 # first\r\nb", "a:2,b:1", NULL},
        {"a\na\n", "a:2", NULL},
        {"fe80::1 slots=4\n", "fe80::1:4", NULL},
        {"", NULL, "names no host"},
        {"# nothing\n", NULL, "names no host"},
        {"a\nb cores=2\n", NULL, "f:2: 'cores=2' is not understood"},
        {"a slots=0\n", NULL, "f:1: '0' is not a number of slots"},
        {"a slots=2x\n", NULL, "f:1: '2x'"},
        {"-x\n", NULL, "f:1: '-x' is no name"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_hostlist_t list = {0};
        char why[200] = "";
        size_t n = strlen(cases[i].text);
        char *exact = malloc(n + 1); /* without its NUL, so that ASan sees a step too far */
        assert_non_null(exact);
        char *copy = realloc(exact, n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, cases[i].text, n);
        int ok = run_hostlist_parse_file(&list, copy, n, "f", why, sizeof why);
        if (ok ? !cases[i].result || strcmp(shown(&list), cases[i].result) != 0
               : !cases[i].why || !strstr(why, cases[i].why))
            fail_msg("\"%s\": %s (%s)", cases[i].text, ok ? shown(&list) : "refused", why);
        free(copy);
        run_hostlist_free(&list);
    }
}

static void test_slurm_lists(void **state)
{
    static const struct {
        const char *nodes, *counts, *result;
    } cases[] = {
        {"n0", "4", "n0:4"},
        {"n[0-1]", "2(x2)", "n0:2,n1:2"},
        {"n[0-2,7],login", "2(x3),1,8", "n0:2,n1:2,n2:2,n7:1,login:8"},
        {"n[008-010]", NULL, "n008:1,n009:1,n010:1"},
        {"r[1-2]n[0-1]", "1(x4)", "r1n0:1,r1n1:1,r2n0:1,r2n1:1"},
        {"n[0-1]-ib", "1,3", "n0-ib:1,n1-ib:3"},
        {"", "1", NULL},
        {"n[0-1", "1(x2)", NULL},
        {"n0-1]", "1", NULL},
        {"n[1-0]", "1", NULL},
        {"n[]", "1", NULL},
        {"n[a]", "1", NULL},
        {"n[0-99999999]", NULL, NULL},
        {"n[0-1],", "1(x2)", NULL},
        {"n[0-1]", "2", NULL},
        {"n[0-1]", "2(x", NULL},
        {"n[0-1]", "x2", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_hostlist_t list = {0};
        char why[200] = "";
        int ok = run_hostlist_parse_slurm(&list, cases[i].nodes, cases[i].counts, why, sizeof why);
        if (ok != (cases[i].result != NULL) || (ok && strcmp(shown(&list), cases[i].result) != 0) ||
            (!ok && !*why))
            fail_msg("\"%s\" with %s: %s (%s)", cases[i].nodes, cases[i].counts ? cases[i].counts : "none",
                     ok ? shown(&list) : "refused", why);
        run_hostlist_free(&list);
    }
}

/* Every rank has a host; until all slots are taken no host has more ranks than its slots, beyond that the
 * difference stays small; by slot the hosts come in order. */
static void test_places(void **state)
{
    run_hostlist_t list = {0};
    char why[100];
    int of[64];
    (void)state;
    assert_true(run_hostlist_parse(&list, "a:3,b:1,c:2", why, sizeof why));
    for (int ranks = 1; ranks <= 64; ranks++)
        for (int map = 0; map < 2; map++) {
            int count[3] = {0, 0, 0}, crowd = (ranks + 5) / 6;
            run_hostlist_place(&list, (run_map_t)map, ranks, of);
            for (int r = 0; r < ranks; r++) {
                assert_in_range(of[r], 0, 2);
                count[of[r]]++;
                if (map == RUN_MAP_SLOT && r > 0)
                    assert_true(of[r] >= of[r - 1]);
            }
            for (int h = 0; h < 3; h++)
                assert_in_range(count[h], 0, crowd * list.host[h].slots);
        }
    run_hostlist_place(&list, RUN_MAP_NODE, 6, of);
    assert_memory_equal(of, ((int[]){0, 1, 2, 0, 2, 0}), sizeof(int[6]));
    run_hostlist_drop(&list, 0);
    assert_string_equal(shown(&list), "b:1,c:2");
    assert_int_equal(list.slots, 3);
    run_hostlist_free(&list);
}

static void test_words(void **state)
{
    (void)state;
    run_words_t words = {NULL, 0, 0, 0};
    assert_true(run_words_split(&words, " -p 22  -o 'A b'\"c d\" e\\ f '' "));
    const char *expected[] = {"-p", "22", "-o", "A bc d", "e f", ""};
    assert_int_equal(words.count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(words.word[i], expected[i]);
    run_words_free(run_words_take(&words));
    words = (run_words_t){NULL, 0, 0, 0};
    assert_false(run_words_split(&words, "a 'b"));
    run_words_free(run_words_take(&words));
}

static const run_wire_job_t a_job = {
    .world = 7,
    .ranks = 3,
    .number = (int[]){1, 4, 6},
    .node = 1,
    .nodes = 2,
    .attempt = 2,
    .bind = 1,
    .report_bindings = 1,
    .stdin_to = -2,
    .terminal = {1, 0},
    .columns = 80,
    .rows = 25,
    .silence_ms = 20000,
    .grace_ms = 500,
    .stop_ms = 30000,
    .id = "0123456789ab",
    .secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    .wdir = "/tmp",
    .output_dir = "",
    .peer = "a",
    .program = (char *[]){"prog", "", "x y", NULL},
    .environment = (char *[]){"A=1", "B=", NULL},
    .exports = (char *[]){NULL},
};

static void test_job_frame(void **state)
{
    run_buffer_t b = {NULL, 0, 0, 0};
    run_frame_t frame;
    run_wire_job_t job;
    const char *why = NULL;
    (void)state;
    assert_true(run_wire_put_job(&b, &a_job));
    size_t n = run_buffer_length(&b);
    for (size_t part = 0; part < n; part++)
        assert_int_equal(run_wire_next(run_buffer_front(&b), part, RUN_WIRE_TO_AGENT, &frame, &why), 0);
    assert_int_equal(run_wire_next(run_buffer_front(&b), n, RUN_WIRE_TO_LAUNCHER, &frame, &why), -1);
    assert_int_equal(run_wire_next(run_buffer_front(&b), n, RUN_WIRE_TO_AGENT, &frame, &why), (long)n);
    assert_true(run_wire_job(&frame, &job, &why));
    assert_int_equal(job.world, 7);
    assert_memory_equal(job.number, a_job.number, sizeof(int[3]));
    assert_int_equal(job.stdin_to, -2);
    assert_int_equal(job.stop_ms, 30000);
    assert_string_equal(job.secret, a_job.secret);
    assert_string_equal(job.program[2], "x y");
    assert_null(job.program[3]);
    assert_string_equal(job.environment[1], "B=");
    assert_null(job.exports[0]);
    run_wire_job_free(&job);
    /* Cut anywhere, it is refused. */
    for (size_t cut = 0; cut < frame.bytes; cut++) {
        run_frame_t part = {frame.kind, frame.data, cut};
        assert_false(run_wire_job(&part, &job, &why));
        assert_non_null(why);
    }
    run_buffer_free(&b);
}

/* A launcher that is cut off right after it has started the ranks: its agent accepts silence for the time
 * that JOB gave it, not for the minute that it would wait for a job. */
static void test_agent_left_alone(void **state)
{
    run_wire_job_t job = a_job;
    run_buffer_t b = {NULL, 0, 0, 0};
    int to[2], from[2], status = 0;
    pid_t ended = 0;
    (void)state;
    job.world = job.ranks = job.nodes = 1;
    job.number = (int[]){0};
    job.node = job.attempt = 0;
    job.terminal[0] = 0;
    job.silence_ms = 200;
    job.grace_ms = 0;
    job.program = (char *[]){"sleep", "40", NULL};
    job.environment = (char *[]){NULL};
    assert_true(run_wire_put_job(&b, &job));
    assert_true(run_wire_put_root(&b, RUN_WIRE_GO, "127.0.0.1:1", 1));
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(to[0], 0) != 0 || dup2(from[1], 1) != 1 || close(to[1]) != 0 || run_sweep_spare() != 0)
            _exit(99);
        _exit(run_agent());
    }
    assert_true(pid > 0);
    close(to[0]);
    close(from[1]);
    assert_int_equal(write(to[1], run_buffer_front(&b), run_buffer_length(&b)), (int)run_buffer_length(&b));
    base_time_t until = base_deadline(20.0);
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && base_poll_ms(until) > 0)
        poll(NULL, 0, 20);
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    assert_int_equal(ended, pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(to[1]);
    close(from[0]);
    run_buffer_free(&b);
}

static int takes(const run_wire_job_t *given)
{
    run_buffer_t b = {NULL, 0, 0, 0};
    run_frame_t frame;
    run_wire_job_t job;
    const char *why = NULL;
    assert_true(run_wire_put_job(&b, given));
    assert_true(run_wire_next(run_buffer_front(&b), run_buffer_length(&b), RUN_WIRE_TO_AGENT, &frame, &why) >
                0);
    int ok = run_wire_job(&frame, &job, &why);
    if (ok)
        run_wire_job_free(&job);
    run_buffer_free(&b);
    return ok;
}

static void test_job_values(void **state)
{
    (void)state;
    assert_true(takes(&a_job));
#define REFUSED(change)                     \
    do {                                    \
        run_wire_job_t job = a_job;         \
        job.change;                         \
        if (takes(&job))                    \
            fail_msg("accepted: " #change); \
    } while (0)
    REFUSED(world = 0);
    REFUSED(world = 65537);
    REFUSED(world = 6); /* rank 6 is not one of them */
    REFUSED(ranks = 0);
    REFUSED(number = ((int[]){1, 1, 2}));
    REFUSED(number = ((int[]){2, 1, 3}));
    REFUSED(number = ((int[]){-1, 1, 3}));
    REFUSED(node = 2);
    REFUSED(bind = 4);
    REFUSED(stdin_to = -3);
    REFUSED(secret = "0123");
    REFUSED(secret = "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef");
    REFUSED(id = "0123456789012345678901234567890");
    REFUSED(program = ((char *[]){NULL}));
    REFUSED(program = ((char *[]){"", NULL}));
    REFUSED(environment = ((char *[]){"NOVALUE", NULL}));
    REFUSED(exports = ((char *[]){"=x", NULL}));
#undef REFUSED
}

/* Takes the one frame of `b`, on its way to the launcher. */
static run_frame_t only(const run_buffer_t *b)
{
    run_frame_t frame;
    const char *why = "";
    long n = run_wire_next(run_buffer_front(b), run_buffer_length(b), RUN_WIRE_TO_LAUNCHER, &frame, &why);
    if (n != (long)run_buffer_length(b))
        fail_msg("%ld of %zu bytes: %s", n, run_buffer_length(b), why);
    return frame;
}

static int exit_of(uint32_t rank, uint32_t status, const char *text)
{
    run_buffer_t b = {NULL, 0, 0, 0};
    int r, s;
    unsigned st;
    const char *doing;
    const uint32_t numbers[] = {rank, status, 2};
    assert_true(run_wire_put_numbers(&b, RUN_WIRE_EXIT, numbers, 3, text));
    run_frame_t frame = only(&b);
    int ok = run_wire_exit(&frame, &r, &s, &st, &doing) && r == (int)rank && s == (int)status && st == 2 &&
             strcmp(doing, text) == 0;
    run_buffer_free(&b);
    return ok;
}

static void test_small_frames(void **state)
{
    run_buffer_t b = {NULL, 0, 0, 0};
    run_frame_t frame;
    int rank, to;
    const char *data;
    size_t n;
    (void)state;
    assert_true(run_wire_put_output(&b, 5, 1, "a\0b", 3));
    frame = only(&b);
    assert_true(run_wire_output(&frame, &rank, &to, &data, &n));
    assert_true(rank == 5 && to == 1 && n == 3 && memcmp(data, "a\0b", 3) == 0);
    assert_true(exit_of(3, 7 << 8, "in a call"));
    assert_true(exit_of(0, SIGKILL, ""));
    assert_true(exit_of(0, SIGSEGV | 0x80, ""));
    assert_false(exit_of(0, 0x7f, ""));               /* stopped, not ended */
    assert_false(exit_of(0, (7 << 8) | SIGKILL, "")); /* both */
    assert_false(exit_of(0, 0x80, ""));               /* a dump of no signal */
    assert_false(exit_of(65536, 0, ""));
    b.head = b.tail = 0;
    char *large = calloc(1, RUN_WIRE_DATA_MAX + 1);
    assert_non_null(large);
    assert_true(run_wire_put_output(&b, 0, 0, large, RUN_WIRE_DATA_MAX));
    size_t before = run_buffer_length(&b);
    assert_false(run_wire_put_output(&b, 0, 0, large, RUN_WIRE_DATA_MAX + 1));
    assert_int_equal(run_buffer_length(&b), before); /* left out whole */
    free(large);
    run_buffer_free(&b);
}

static void test_garbage(void **state)
{
    unsigned char frame[12] = {4, 0, 0, 0, RUN_WIRE_CLOSE, 0, RUN_WIRE_MARK & 255, RUN_WIRE_MARK >> 8,
                               1, 0, 0, 0};
    run_frame_t out;
    const char *why = NULL;
    int to;
    (void)state;
    assert_int_equal(run_wire_next(frame, sizeof frame, RUN_WIRE_TO_AGENT, &out, &why), 12);
    assert_true(run_wire_close(&out, &to) && to == 1);
    frame[8] = 2;
    assert_false(run_wire_close(&out, &to));
    for (int i = 4; i < 8; i++) { /* kind, zero, mark */
        unsigned char bad[12];
        memcpy(bad, frame, sizeof bad);
        bad[i] ^= 0x80;
        assert_int_equal(run_wire_next(bad, sizeof bad, RUN_WIRE_TO_AGENT, &out, &why), -1);
    }
    frame[3] = 0xff; /* 4 GB */
    assert_int_equal(run_wire_next(frame, sizeof frame, RUN_WIRE_TO_AGENT, &out, &why), -1);
    const char text[] = "Welcome\n\n%gyre-agent" RUN_WIRE_MAGIC "rest";
    assert_int_equal(run_wire_find_magic(text, sizeof text - 1), (long)(sizeof text - 1 - strlen("rest")));
    assert_int_equal(run_wire_find_magic(text, 12), -1);
    assert_int_equal(run_wire_find_magic("", 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_lists),
        cmocka_unit_test(test_hostfiles),
        cmocka_unit_test(test_slurm_lists),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_job_frame),
        cmocka_unit_test(test_agent_left_alone),
        cmocka_unit_test(test_job_values),
        cmocka_unit_test(test_small_frames),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
