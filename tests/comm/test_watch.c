/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_watch.c: deaths, aborts and goodbyes reach all ranks; idleness is free. */
/* takes: 16 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "tests/support/boot_job.h"

#define SOON base_deadline(10.0)

static void count_wake(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

/* Sleeps, but not past the deadline, until `trouble` has moved on from `seen`. */
static int troubled(const _Atomic uint32_t *trouble, uint32_t seen, double seconds)
{
    base_time_t deadline = base_deadline(seconds);
    while (atomic_load_explicit(trouble, memory_order_relaxed) == seen && base_poll_ms(deadline) != 0)
        nap(1);
    return atomic_load_explicit(trouble, memory_order_relaxed) != seen;
}

/* ---- deaths ------------------------------------------------------------------------------------------ */

static int dying_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    int victim = *(int *)arg;
    _Atomic int wakes = 0;
    char how[128] = "";
    int all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const _Atomic uint32_t *trouble = comm_watch_trouble(watch);
    comm_watch_sleeper_t sleeper = {.wake = count_wake, .user = &wakes};
    comm_watch_on_trouble(watch, &sleeper);
    RANK_CHECK(comm_watch_dead(watch, all, 8, NULL, 0) == -1);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (comm_boot_rank(boot) == victim) {
        nap(30);
        kill(getpid(), SIGKILL);
    }
    RANK_CHECK(troubled(trouble, 0, 5.0)); /* soon after the death; the rest is for a busy machine */
    RANK_CHECK(comm_watch_dead(watch, all, 8, how, sizeof(how)) == victim);
    RANK_CHECK(strstr(how, "connection") != NULL);
    int others[2] = {(victim + 1) % 8, (victim + 2) % 8};
    RANK_CHECK(comm_watch_dead(watch, others, 2, NULL, 0) == -1);
    base_time_t until = base_deadline(1.0);
    while (atomic_load(&wakes) == 0 && base_poll_ms(until) != 0)
        nap(1);
    RANK_CHECK(atomic_load(&wakes) >= 1);
    comm_watch_off_trouble(watch, &sleeper);
    /* what can no longer work says so at once */
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_ERR_PEER_DEAD);
    char name[16];
    snprintf(name, sizeof(name), "rank %d", victim);
    RANK_CHECK(strstr(gyre_last_error(), name) != NULL);
    nap(200); /* no rank leaves before all have looked */
    return 0;
}

static void each_rank_dies(void **state)
{
    (void)state;
    for (int victim = 0; victim < 8; victim++) {
        int codes[8];
        assert_int_equal(boot_job_processes(8, 1, dying_body, &victim, codes, 20.0), 1);
        assert_true(WIFSIGNALED(codes[victim]) && WTERMSIG(codes[victim]) == SIGKILL);
    }
}

/* A rank that leaves with a goodbye is not dead, for neighbours and for all others. */
static int leaving_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    int all[5] = {0, 1, 2, 3, 4};
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (comm_boot_rank(boot) == 2 || comm_boot_rank(boot) == 4)
        return 0;
    nap(150);
    RANK_CHECK(atomic_load(comm_watch_trouble(watch)) == 0);
    RANK_CHECK(comm_watch_dead(watch, all, 5, NULL, 0) == -1);
    if (comm_boot_rank(boot) == 0) {
        for (int turn = 0; turn < 500 && comm_boot_connections(boot) > 1; turn++) /* a busy machine is late */
            nap(10);
        RANK_CHECK(comm_boot_connections(boot) <= 1); /* that of rank 1, unless it has left by now, too */
        RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_ERR_PEER_DEAD);
        RANK_CHECK(strstr(gyre_last_error(), "has left") != NULL);
    }
    return 0;
}

static void goodbye_is_not_death(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(5, 1, leaving_body, NULL), 0);
}

/* A rank that leaves after an error is reported as that, not as a death, and never hides a real one. */
static int erring_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    int all[5] = {0, 1, 2, 3, 4}, others[4] = {0, 1, 2, 4}, rank = comm_boot_rank(boot);
    char how[128] = "";
    const _Atomic uint32_t *trouble = comm_watch_trouble(watch);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (rank == 3) {
        comm_watch_stop(watch);
        comm_boot_leave(boot, 0);
        _exit(0);
    }
    RANK_CHECK(troubled(trouble, 0, 2.0));
    RANK_CHECK(comm_watch_dead(watch, all, 5, how, sizeof(how)) == 3);
    RANK_CHECK(strcmp(how, "left after an error") == 0);
    RANK_CHECK(comm_watch_dead(watch, others, 4, NULL, 0) == -1);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_ERR_PEER_DEAD);
    RANK_CHECK(strstr(gyre_last_error(), "rank 3 left after an error") != NULL);
    if (rank == 1) {
        nap(100);
        kill(getpid(), SIGKILL);
    }
    RANK_CHECK(troubled(trouble, 1, 2.0));
    RANK_CHECK(comm_watch_dead(watch, all, 5, how, sizeof(how)) == 1);
    RANK_CHECK(strncmp(how, "died: ", 6) == 0 && strstr(how, "connection") != NULL);
    nap(200); /* no rank leaves before all have looked */
    return 0;
}

static void leaving_after_an_error(void **state)
{
    (void)state;
    int codes[5];
    assert_int_equal(boot_job_processes(5, 1, erring_body, NULL, codes, 20.0), 1);
    assert_true(WIFSIGNALED(codes[1]) && WTERMSIG(codes[1]) == SIGKILL);
}

/* ---- a rank whose stderr nobody reads ------------------------------------------------------------------ */

static void clog_stderr(void)
{
    static const char waste[4096];
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
        _exit(90);
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (write(STDERR_FILENO, waste, sizeof(waste)) > 0)
        ;
    fcntl(STDERR_FILENO, F_SETFL, 0);
}

/* Rank 2, alone next to rank 3, logs its death into a full pipe. The news passes all the same, rank 2 still
 * beats, and what it says itself is heard. */
static int clogged_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    int all[4] = {0, 1, 2, 3}, others[3] = {0, 1, 2}, rank = comm_boot_rank(boot);
    base_time_t until = SOON;
    const _Atomic uint32_t *trouble = comm_watch_trouble(watch);
    if (rank == 2) {
        clog_stderr();
        base_log_set_level(BASE_LOG_INFO);
    }
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (rank == 3)
        kill(getpid(), SIGKILL);
    RANK_CHECK(troubled(trouble, 0, 2.0));
    RANK_CHECK(comm_watch_dead(watch, all, 4, NULL, 0) == 3);
    nap(1500); /* three times what counts as silence */
    RANK_CHECK(comm_watch_dead(watch, others, 3, NULL, 0) == -1);
    if (rank == 2)
        comm_watch_abort(watch, 77, GYRE_ERR_ABORTED, "said under the lock");
    while (comm_watch_aborted(watch, 77, NULL, 0) == GYRE_OK && base_poll_ms(until) != 0)
        nap(1);
    RANK_CHECK(comm_watch_aborted(watch, 77, NULL, 0) == GYRE_ERR_ABORTED);
    nap(200); /* no rank leaves before all have looked */
    return 0;
}

static void a_full_stderr_delays_no_news(void **state)
{
    (void)state;
    int codes[4];
    base_settings_set(SET_HEARTBEAT, "0.5", "test");
    assert_int_equal(boot_job_processes(4, 1, clogged_body, NULL, codes, 20.0), 1);
    assert_true(WIFSIGNALED(codes[3]) && WTERMSIG(codes[3]) == SIGKILL);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* ---- heartbeats -------------------------------------------------------------------------------------- */

/* Rank 2 of 4 is stopped, long enough to be given up; when it goes on it learns that it is out. */
static int stopped_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    int all[4] = {0, 1, 2, 3}, rank = comm_boot_rank(boot);
    char text[256] = "";
    const _Atomic uint32_t *trouble = comm_watch_trouble(watch);
    pid_t mine = getpid(), pids[4];
    RANK_CHECK(comm_boot_all_gather(boot, &mine, sizeof(mine), pids, SOON) == GYRE_OK);
    nap(900); /* no rank is taken for dead while all beat, although they send nothing else */
    RANK_CHECK(atomic_load(trouble) == 0);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (rank == 2) {
        kill(mine, SIGSTOP);
        RANK_CHECK(troubled(trouble, 0, 5.0));
        RANK_CHECK(comm_watch_aborted(watch, 5, text, sizeof(text)) == GYRE_ERR_ABORTED);
        RANK_CHECK(strstr(text, "rank 2 is no longer one of the job") && strstr(text, "heard nothing"));
        RANK_CHECK(comm_watch_dead(watch, all, 4, NULL, 0) == -1); /* the others are not to blame */
        RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_ERR_ABORTED);
        return 0;
    }
    RANK_CHECK(troubled(trouble, 0, 5.0));
    RANK_CHECK(comm_watch_dead(watch, all, 4, text, sizeof(text)) == 2);
    RANK_CHECK(strstr(text, "died: silent for 0.") != NULL);
    nap(200);
    if (rank == 0)
        kill(pids[2], SIGCONT);
    nap(300);
    return 0;
}

static void a_stopped_rank_is_dead(void **state)
{
    (void)state;
    base_settings_set(SET_HEARTBEAT, "0.4", "test");
    assert_int_equal(boot_job_processes(4, 1, stopped_body, NULL, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* Rank 2 of 4 is held by a debugger, which is rank 0's process, for three times what counts as silence. No
 * rank takes it for dead. early: the debugger was there before, as under gdb --args, and ranks know nothing
 * of each other's hosts; else it comes as with gdb -p. */
static int each_task(pid_t pid, int request, int stop)
{
    char path[40];
    int n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        pid_t task = atoi(entry->d_name);
        if (task > 0 && ptrace((enum __ptrace_request)request, task, NULL, NULL) == 0 &&
            (!stop || waitpid(task, NULL, __WALL) == task))
            n++;
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

static int held_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const int early = *(const int *)arg, rank = comm_boot_rank(boot);
    pid_t mine = getpid(), pids[4];
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (!early)
        RANK_CHECK(comm_boot_meet(boot, SOON) == GYRE_OK);
    RANK_CHECK(comm_boot_all_gather(boot, &mine, sizeof(mine), pids, SOON) == GYRE_OK);
    if (rank == 0) {
        RANK_CHECK(each_task(pids[2], PTRACE_SEIZE, 0) >= 2);
        if (early)
            nap(600);
        RANK_CHECK(each_task(pids[2], PTRACE_INTERRUPT, 1) >= 2);
        nap(1500);
        RANK_CHECK(kill(pids[2], SIGSTOP) == 0);
        RANK_CHECK(each_task(pids[2], PTRACE_DETACH, 0) >= 2);
        nap(350); /* it is let go of, and does not come to run yet */
        RANK_CHECK(kill(pids[2], SIGCONT) == 0);
    }
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(atomic_load(comm_watch_trouble(watch)) == 0);
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static int may_trace(void)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        nap(10000);
        _exit(0);
    }
    int may = ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return may;
}

static void a_debugger_holds_a_rank(void **state)
{
    (void)state;
    if (!may_trace()) {
        print_message("ptrace is not permitted here\n");
        skip();
    }
    base_settings_set(SET_HEARTBEAT, "0.5", "test");
    for (int early = 0; early < 2; early++)
        assert_int_equal(boot_job_processes(4, 1, held_body, &early, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* Rank 2 of 4 sends no beats for three times what counts as silence: its watcher waits for a lock. While
 * the thread that has the lock runs, which the others of its host see, no rank takes it for dead; when that
 * thread sleeps, too, all do. */
static int busy_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    int all[4] = {0, 1, 2, 3}, rank = comm_boot_rank(boot);
    char text[256] = "";
    const _Atomic uint32_t *trouble = comm_watch_trouble(watch);
    (void)arg;
    RANK_CHECK(comm_boot_meet(boot, SOON) == GYRE_OK);
    if (rank == 2) {
        const base_time_t until = base_now() + 1500000000;
        boot_lock(boot);
        while (base_now() < until)
            ;
        boot_unlock(boot);
    }
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(atomic_load(trouble) == 0);
    if (rank == 2) {
        boot_lock(boot);
        nap(1500);
        boot_unlock(boot);
        return 0;
    }
    RANK_CHECK(troubled(trouble, 0, 5.0));
    RANK_CHECK(comm_watch_dead(watch, all, 4, text, sizeof(text)) == 2);
    RANK_CHECK(strstr(text, "died: silent for 0.") != NULL);
    nap(1000);
    return 0;
}

static void a_silent_rank_that_runs_lives(void **state)
{
    (void)state;
    base_settings_set(SET_HEARTBEAT, "0.5", "test");
    assert_int_equal(boot_job_processes(4, 1, busy_body, NULL, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* When all stand still for a while, as after Ctrl-Z, no rank takes another for dead. */
static int paused_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    pid_t child = comm_boot_rank(boot) == 0 ? fork() : -1;
    if (child == 0) { /* wakes them all */
        signal(SIGCONT, SIG_IGN);
        nap(1500);
        for (int turn = 0; turn < 50; turn++) { /* again, for a rank that came late to its stop */
            kill(0, SIGCONT);
            nap(200);
        }
        _exit(0);
    }
    kill(getpid(), SIGSTOP);
    nap(600);
    RANK_CHECK(atomic_load(comm_watch_trouble(watch)) == 0);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return 0;
}

static void a_paused_job_goes_on(void **state)
{
    (void)state;
    base_settings_set(SET_HEARTBEAT, "0.4", "test");
    assert_int_equal(boot_job_processes(3, 1, paused_body, NULL, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* ---- aborts ------------------------------------------------------------------------------------------ */

static int abort_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    int who = *(int *)arg;
    char text[256], small[8];
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(comm_watch_aborted(watch, 77, text, sizeof(text)) == GYRE_OK);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK); /* all have looked */
    if (comm_boot_rank(boot) == who)
        comm_watch_abort(watch, 77, GYRE_ERR_MISMATCH, "counts differ");
    RANK_CHECK(troubled(comm_watch_trouble(watch), 0, 2.0));
    RANK_CHECK(comm_watch_aborted(watch, 77, text, sizeof(text)) == GYRE_ERR_MISMATCH);
    char expected[64];
    snprintf(expected, sizeof(expected), "rank %d: counts differ", who);
    RANK_CHECK(strcmp(text, expected) == 0);
    RANK_CHECK(comm_watch_aborted(watch, 77, small, sizeof(small)) == GYRE_ERR_MISMATCH &&
               strlen(small) == 7);
    RANK_CHECK(comm_watch_aborted(watch, 78, NULL, 0) == GYRE_OK);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);    /* one communicator's abort is not the job's */
    RANK_CHECK(atomic_load(comm_watch_trouble(watch)) == 1); /* reported once */
    comm_watch_forget(watch, 77);
    RANK_CHECK(comm_watch_aborted(watch, 77, NULL, 0) == GYRE_OK);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    return 0;
}

static void abort_reaches_all(void **state)
{
    (void)state;
    for (int who = 0; who < 7; who += 3)
        assert_int_equal(boot_job_threads(7, 1, abort_body, &who), 0);
}

/* All abort the same communicator at once: each rank notes it once, the barrier still works. */
static int all_abort_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    for (uint64_t id = 1; id <= 50; id++)
        comm_watch_abort(watch, id, GYRE_ERR_ABORTED, "all at once");
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(atomic_load(comm_watch_trouble(watch)) == 50);
    return 0;
}

static void all_abort(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(6, 1, all_abort_body, NULL), 0);
}

/* A rank whose watcher cannot go on ends the job, and its own sleepers are woken with the error, too. */
static int blind_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)arg;
    struct rlimit before, none;
    _Atomic int wakes = 0;
    char text[256] = "";
    comm_watch_sleeper_t sleeper = {.wake = count_wake, .user = &wakes};
    comm_watch_on_trouble(watch, &sleeper);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    RANK_CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 1; /* poll(2) takes no more entries than that */
    if (comm_boot_rank(boot) == 1) {
        /* word of its end must not overtake the barrier's, which ranks in between pass on a moment later */
        nap(300);
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    RANK_CHECK(troubled(comm_watch_trouble(watch), 0, 5.0));
    RANK_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    RANK_CHECK(comm_watch_aborted(watch, 5, text, sizeof(text)) == GYRE_ERR_SYSTEM);
    RANK_CHECK(strstr(text, "rank 1: its watcher had to end") != NULL);
    base_time_t until = base_deadline(2.0);
    while (atomic_load(&wakes) == 0 && base_poll_ms(until) != 0)
        nap(1);
    RANK_CHECK(atomic_load(&wakes) >= 1);
    if (comm_boot_rank(boot) == 0)
        nap(50); /* the others' messages are there when it comes: no reason to go on */
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_ERR_SYSTEM);
    nap(500); /* no rank leaves before all have looked */
    return 0;
}

static void a_blind_watcher_ends_the_job(void **state)
{
    (void)state;
    base_settings_set(SET_HEARTBEAT, "1", "test"); /* its next beat makes it call poll */
    assert_int_equal(boot_job_processes(4, 1, blind_body, NULL, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

/* ---- idleness ---------------------------------------------------------------------------------------- */

/* Voluntary switches of all threads of this process but the calling one. */
static long switches(void)
{
    long sum = 0;
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[300], line[200];
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
            if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                sum += atol(line + 24);
        if (file != NULL)
            fclose(file);
    }
    if (dir != NULL)
        closedir(dir);
    return sum;
}

static int idle_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    nap(300);
    long before = switches();
    RANK_CHECK(before > 0);
    nap(1500); /* longer than the kernel's keepalive takes between two probes */
    long after = switches();
    RANK_CHECK(after == before);
    nap(200);
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void idle_costs_nothing(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizer has a thread of its own that wakes */
#endif
    base_settings_set(SET_HEARTBEAT, "0", "test");
    assert_int_equal(boot_job_processes(4, 1, idle_body, NULL, NULL, 20.0), 0);
    base_settings_set(SET_HEARTBEAT, NULL, "test");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_dies),
        cmocka_unit_test(goodbye_is_not_death),
        cmocka_unit_test(leaving_after_an_error),
        cmocka_unit_test(a_full_stderr_delays_no_news),
        cmocka_unit_test(a_stopped_rank_is_dead),
        cmocka_unit_test(a_debugger_holds_a_rank),
        cmocka_unit_test(a_silent_rank_that_runs_lives),
        cmocka_unit_test(a_paused_job_goes_on),
        cmocka_unit_test(abort_reaches_all),
        cmocka_unit_test(all_abort),
        cmocka_unit_test(a_blind_watcher_ends_the_job),
        cmocka_unit_test(idle_costs_nothing),
    };
    base_settings_set(SET_LOG, "none", "test"); /* the failures are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
