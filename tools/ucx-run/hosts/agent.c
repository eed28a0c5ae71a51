/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/agent.c: ucx-run on a host that the launcher reached through ssh or srun. It starts
 * that host's ranks, passes on their output and their ends, and ends them when asked to, or when the launcher
 * is gone.
 *
 * wire.h has the messages between the two, over the agent's standard input and output. The end of its input
 * or too long a silence means that the launcher is gone. The agent then sends TERM to the ranks' process
 * groups, KILL after a grace and after checkpoints under way (tools/ucx-run/ranks/unfinished.c), and exits.
 * After a signal to the agent (scancel signals the steps of a job) the ranks get the longer grace of a signal
 * to the launcher, and the agent goes on to listen to the launcher. If the agent itself is killed,
 * PR_SET_PDEATHSIG and the leash process (tools/ucx-run/ranks/parent_death.c) kill the ranks at once. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "comm/net/held.h"
#include "tools/ucx-run/hosts/address.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/hosts/wire.h"

enum { OUT_MAX_BYTES = 1 << 20, READ_BYTES = 1 << 16 };
#define JOB_SECONDS       60.0          /* for the launcher to send JOB */
#define SUSPENDED_SECONDS (7 * 86400.0) /* for it to go on after it was suspended */

typedef enum { LIFE_WORKING, LIFE_TERM, LIFE_KILL } life_t;

static struct {
    run_buffer_t in, out;
    run_frame_t job_frame; /* its payload is a copy, from which the job borrows */
    run_wire_job_t wire;
    run_options_t options;
    run_job_t job;
    int planned, started;
    int input_open;     /* the agent's: the launcher may still send */
    int output_broken;  /* the launcher no longer reads */
    int owes_taken;     /* an INPUT has not been answered yet */
    base_time_t silent; /* the launcher counts as gone then */
    double patience;    /* which is so many seconds after its last word */
    life_t life;
    int kill_asked; /* by the launcher */
    run_unfinished_t unfinished;
    base_time_t next; /* when the present stage of life ends */
    int holding;      /* the last line is kept back: it may be the reason of a refusal */
    char held[1200];
    int rc;
} a;

static void broken(void)
{
    a.output_broken = 1;
    a.out.head = a.out.tail = 0;
}

/* Queues a frame. Without memory for it the launcher cannot rely on this agent any more. */
static void sent(int ok)
{
    if (!ok) {
        fprintf(stderr, "ucx-run agent on %s: out of memory\n", run_hostname());
        broken();
    }
}

static void note(const char *line)
{
    if (!a.output_broken)
        sent(run_wire_put_numbers(&a.out, RUN_WIRE_NOTE, NULL, 0, line));
}

static void release_held(void)
{
    if (a.held[0])
        note(a.held);
    a.held[0] = 0;
}

/* Where run_say goes here. */
static void say(const char *line)
{
    release_held();
    if (a.holding)
        snprintf(a.held, sizeof a.held, "%s", line);
    else
        note(line);
}

static void take(int i, int to, const char *data, size_t n)
{
    if (!a.output_broken)
        sent(run_wire_put_output(&a.out, a.job.rank[i].number, to, data, n));
}

static void refuse(int rc)
{
    uint32_t number = (uint32_t)rc;
    const char *why = a.held[0] ? a.held : "ucx-run: refused without a reason";
    sent(run_wire_put_numbers(&a.out, RUN_WIRE_REFUSED, &number, 1, why));
    a.held[0] = 0;
}

/* --- where rank 0 listens --- */

static int open_root(void)
{
    boot_addr_t mine;
    char text[BOOT_ADDR_TEXT];
    if (!run_address(a.wire.peer, a.wire.nodes, &mine)) {
        run_say("ucx-run: %s has no address at which '%s' could reach it; say which interface with "
                "GYRE_INTERFACE",
                run_hostname(), a.wire.peer);
        return RUN_RC_SYSTEM;
    }
    if (boot_listen_child(a.wire.nodes == 1 ? "127.0.0.1:1" : "others:1", &mine, &a.job.root_fd) != GYRE_OK) {
        run_say("ucx-run: %s", gyre_last_error());
        return RUN_RC_SYSTEM;
    }
    boot_keep(a.job.root_fd); /* for rank 0, a child */
    boot_addr_text(&mine, text);
    int port = run_free_port("");
    sent(run_wire_put_root(&a.out, RUN_WIRE_ROOT, text, port ? port : boot_addr_port(&mine)));
    return 0;
}

/* --- the job --- */

/* From now on so many seconds of silence mean that the launcher is gone. */
static void expect(double seconds)
{
    a.patience = seconds;
    a.silent = base_deadline(seconds);
}

static int set_environment(void)
{
    for (char **at = a.wire.environment; *at; at++)
        if (putenv(*at) != 0) {
            run_say("ucx-run: out of memory for the environment");
            return RUN_RC_SYSTEM;
        }
    if (base_settings_reload() != GYRE_OK) {
        run_say("ucx-run: %s", gyre_last_error());
        return RUN_RC_USAGE;
    }
    return 0;
}

static void fill_options(void)
{
    run_options_t *o = &a.options;
    int n = 0;
    while (a.wire.exports[n])
        n++;
    memset(o, 0, sizeof *o);
    o->ranks = a.wire.world;
    o->program = a.wire.program;
    o->exports = (const char **)(uintptr_t)a.wire.exports;
    o->nexports = n;
    o->bind = (topo_bind_t)a.wire.bind;
    o->bind_given = a.wire.bind_given;
    o->report_bindings = a.wire.report_bindings;
    o->wdir = *a.wire.wdir ? a.wire.wdir : NULL;
    o->output_dir = *a.wire.output_dir ? a.wire.output_dir : NULL;
    o->stdin_to = a.wire.stdin_to;
}

static int plan(void)
{
    fill_options();
    int rc = set_environment();
    if (!rc)
        rc = run_have_descriptors(24 + 3 * (unsigned long)a.wire.ranks);
    if (!rc)
        rc = run_job_plan_part(&a.job, &a.options, a.wire.ranks, a.wire.number, a.wire.world);
    if (rc)
        return rc;
    a.planned = 1;
    a.job.attempt = a.wire.attempt;
    snprintf(a.job.secret, sizeof a.job.secret, "%s", a.wire.secret);
    snprintf(a.job.id, sizeof a.job.id, "%s", a.wire.id);
    run_capture_t capture = {.ranks = a.wire.ranks,
                             .output_dir = a.options.output_dir,
                             .terminal = {a.wire.terminal[0], a.wire.terminal[1]},
                             .columns = a.wire.columns,
                             .rows = a.wire.rows,
                             .take = take};
    run_input_t input = {.ranks = a.wire.ranks, .to = a.wire.stdin_to, .fed = 1};
    char part[16];
    snprintf(part, sizeof part, "node%d", a.wire.node);
    rc = run_job_open_recorder(&a.job, part);
    if (!rc)
        rc = run_capture_open(&capture);
    if (!rc)
        rc = run_input_open(&input);
    if (!rc)
        rc = run_leash_open(RUN_LEASH_KILL);
    if (!rc && a.wire.number[0] == 0)
        rc = open_root();
    return rc;
}

static const char *on_job(const run_frame_t *frame)
{
    const char *why = NULL;
    if (a.planned || a.job_frame.data)
        return "a second job";
    unsigned char *copy = malloc(frame->bytes + 1);
    if (!copy)
        return "out of memory";
    memcpy(copy, frame->data, frame->bytes);
    a.job_frame = (run_frame_t){frame->kind, copy, frame->bytes};
    if (!run_wire_job(&a.job_frame, &a.wire, &why))
        return why;
    expect(a.wire.silence_ms / 1e3); /* from the first word on: another one may never come */
    a.holding = 1;
    int rc = plan();
    if (rc)
        refuse(rc);
    release_held();
    a.holding = 0;
    return NULL;
}

static void tell_started(void)
{
    for (int i = 0; i < a.job.ranks; i++) {
        uint32_t numbers[] = {(uint32_t)a.job.rank[i].number, (uint32_t)a.job.rank[i].pid};
        sent(run_wire_put_numbers(&a.out, RUN_WIRE_STARTED, numbers, 2, NULL));
    }
}

static const char *on_go(const run_frame_t *frame)
{
    const char *root;
    if (!a.planned || a.started)
        return "GO without a job that waits for it";
    if (!run_wire_root(frame, &root, &a.job.master_port))
        return "a malformed GO";
    snprintf(a.job.root, sizeof a.job.root, "%s", root);
    a.started = 1;
    a.holding = 1;
    int rc = run_spawn_all(&a.job);
    if (a.job.root_fd >= 0)
        close(a.job.root_fd); /* rank 0 has it: when rank 0 dies the port must not answer */
    a.job.root_fd = -1;
    if (rc) {
        refuse(rc);
        run_kill_all(&a.job, SIGKILL);
    } else {
        release_held();
        tell_started();
    }
    a.holding = 0;
    return NULL;
}

static const char *on_signal(const run_frame_t *frame)
{
    int number, alone;
    if (!run_wire_signal(frame, &number, &alone))
        return "a malformed SIGNAL";
    /* As when the launcher is gone it waits for a checkpoint; the second one does not. */
    if (number == SIGKILL && !a.kill_asked && a.life < LIFE_KILL && a.wire.grace_ms > 0) {
        a.kill_asked = 1;
        a.life = LIFE_TERM; /* the launcher has sent TERM, if it wanted any */
        a.next = base_now();
        return NULL;
    }
    for (int i = 0; i < a.job.ranks; i++)
        if (a.job.rank[i].alive)
            kill(alone ? a.job.rank[i].pid : -a.job.rank[i].pid, number);
    if (number == SIGTSTP)
        expect(SUSPENDED_SECONDS); /* the launcher stops itself, too, and is silent until it goes on */
    return NULL;
}

static void on_ask(void)
{
    for (int i = 0; i < a.job.ranks; i++) {
        char text[800];
        uint32_t number = (uint32_t)a.job.rank[i].number;
        if (!a.job.rank[i].alive)
            continue;
        run_report_now(&a.job.slots[i], text, sizeof text);
        sent(run_wire_put_numbers(&a.out, RUN_WIRE_DOING, &number, 1, text));
    }
}

static const char *on_close(const run_frame_t *frame)
{
    int to;
    if (!run_wire_close(frame, &to))
        return "a malformed CLOSE";
    if (a.planned)
        run_capture_stop(to);
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *on_frame(const run_frame_t *frame)
{
    switch (frame->kind) {
    case RUN_WIRE_JOB:
        return on_job(frame);
    case RUN_WIRE_GO:
        return on_go(frame);
    case RUN_WIRE_SIGNAL:
        return on_signal(frame);
    case RUN_WIRE_CLOSE:
        return on_close(frame);
    case RUN_WIRE_INPUT:
        if (!a.started || a.owes_taken)
            return "INPUT that nobody asked for";
        run_input_feed((const char *)frame->data, frame->bytes);
        a.owes_taken = 1;
        return NULL;
    case RUN_WIRE_ASK:
        on_ask();
        return NULL;
    case RUN_WIRE_PING:
        sent(run_wire_put(&a.out, RUN_WIRE_PONG, NULL, 0));
        return NULL;
    default:
        return "a frame of an unknown kind";
    }
}

/* --- the end --- */

static void kill_ranks(void)
{
    a.life = LIFE_KILL;
    a.next = BASE_TIME_NEVER;
    run_kill_all(&a.job, SIGKILL);
}

/* TERM, if they did not get it before, and KILL after `grace_ms` at the latest. */
static void end_ranks(uint32_t grace_ms)
{
    base_time_t kill_at = base_now() + grace_ms * BASE_MS;
    if (a.life == LIFE_WORKING && grace_ms > 0) {
        a.life = LIFE_TERM;
        run_kill_all(&a.job, SIGCONT); /* a stopped rank would not get it */
        run_kill_all(&a.job, SIGTERM);
    }
    if (a.life == LIFE_TERM && kill_at < a.next)
        a.next = kill_at;
    if (a.life == LIFE_WORKING)
        kill_ranks();
}

static void launcher_gone(void)
{
    a.input_open = 0;
    end_ranks(a.wire.grace_ms);
}

static void garbled(const char *why)
{
    fprintf(stderr, "ucx-run agent on %s: the launcher sent %s\n", run_hostname(), why);
    a.rc = RUN_RC_SYSTEM;
    launcher_gone();
}

static void read_launcher(void)
{
    run_frame_t frame;
    const char *why = NULL;
    if (!run_buffer_reserve(&a.in, READ_BYTES)) {
        garbled("more than there is memory for");
        return;
    }
    ssize_t n = read(STDIN_FILENO, a.in.data + a.in.tail, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        launcher_gone();
        return;
    }
    a.in.tail += (size_t)n;
    expect(a.wire.silence_ms ? a.wire.silence_ms / 1e3 : JOB_SECONDS);
    long bytes;
    while (a.input_open && (bytes = run_wire_next(run_buffer_front(&a.in), run_buffer_length(&a.in),
                                                  RUN_WIRE_TO_AGENT, &frame, &why)) != 0) {
        if (bytes > 0)
            why = on_frame(&frame);
        if (why) {
            garbled(why);
            return;
        }
        a.in.head += (size_t)bytes;
    }
    /* the time that this agent needed for the order does not count as the launcher's silence */
    expect(a.patience);
}

/* Never blocks: a launcher that does not read must not keep the agent from noticing that it is gone. */
static void speak(void)
{
    while (run_buffer_length(&a.out) > 0) {
        struct pollfd ready = {.fd = STDOUT_FILENO, .events = POLLOUT};
        size_t n = run_buffer_length(&a.out);
        if (poll(&ready, 1, 0) <= 0)
            return;
        ssize_t wrote = write(STDOUT_FILENO, run_buffer_front(&a.out), n < PIPE_BUF ? n : PIPE_BUF);
        if (wrote > 0) {
            a.out.head += (size_t)wrote;
        } else if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
            broken();
            launcher_gone();
        }
    }
}

static void tell_exit(int i)
{
    const comm_recorder_slot_t *slot = &a.job.slots[i];
    uint32_t numbers[] = {(uint32_t)a.job.rank[i].number, (uint32_t)a.job.rank[i].status,
                          atomic_load_explicit(&slot->state, memory_order_acquire) & 255};
    char doing[700];
    run_report_doing(slot, doing, sizeof doing);
    run_capture_drain(i); /* its output comes before its end */
    if (!a.output_broken)
        sent(run_wire_put_numbers(&a.out, RUN_WIRE_EXIT, numbers, 3, doing));
}

static void reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < a.job.ranks; i++)
            if (a.job.rank[i].alive && a.job.rank[i].pid == pid) {
                run_leash_remove(pid);
                a.job.rank[i].alive = 0;
                a.job.rank[i].status = status;
                a.job.alive--;
                a.job.failed |= status != 0;
                comm_recorder_note_end(&a.job.slots[i], status);
                tell_exit(i);
            }
}

/* A signal has come, but not from the launcher. */
static void stop(int signal)
{
    char name[16];
    if (a.input_open && a.life == LIFE_WORKING && a.job.alive > 0 && !a.output_broken) {
        run_say("ucx-run: %s to the agent on %s: its ranks get SIGTERM", run_signal_name(signal, name),
                run_hostname());
        sent(run_wire_put(&a.out, RUN_WIRE_STOPPED, NULL, 0));
    }
    end_ranks(a.wire.stop_ms);
}

static void on_signals(void)
{
    struct signalfd_siginfo info;
    while (read(run_signals_fd(), &info, sizeof info) == (ssize_t)sizeof info)
        switch (info.ssi_signo) {
        case SIGCHLD:
            reap();
            break;
        case SIGTERM:
        case SIGINT:
        case SIGHUP:
        case SIGQUIT:
            if (a.started)
                stop((int)info.ssi_signo);
            else
                launcher_gone();
            break;
        default: /* those that the ranks shall have come through the launcher */
            break;
        }
}

static void turn(struct pollfd *fds)
{
    size_t n = 0, input, capture;
    int room = run_buffer_length(&a.out) < OUT_MAX_BYTES;
    fds[n++] = (struct pollfd){.fd = run_signals_fd(), .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = a.input_open ? STDIN_FILENO : -1, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = run_buffer_length(&a.out) > 0 ? STDOUT_FILENO : -1, .events = POLLOUT};
    capture = n;
    if (a.planned)
        n += run_capture_poll(fds + n, (const int[2]){room, room});
    input = n;
    if (a.planned)
        n += run_input_poll(fds + n, &(base_time_t){0});
    base_time_t next = a.input_open && a.silent < a.next ? a.silent : a.next;
    if (poll(fds, n, base_poll_ms(next)) < 0)
        return; /* EINTR: around again */
    if (fds[0].revents)
        on_signals();
    if (fds[1].revents && a.input_open)
        read_launcher();
    for (size_t i = capture; i < n; i++)
        if (fds[i].revents && i < input)
            run_capture_event(&fds[i]);
        else if (fds[i].revents)
            run_input_event(&fds[i]);
    if (a.owes_taken && run_input_taken()) {
        a.owes_taken = 0;
        sent(run_wire_put(&a.out, RUN_WIRE_TAKEN, NULL, 0));
    }
    speak();
    base_time_t now = base_now();
    if (a.input_open && now >= a.silent) {
        fprintf(stderr, "ucx-run agent on %s: no word from the launcher for %g s: ending %d rank%s\n",
                run_hostname(), a.patience, a.job.alive, a.job.alive == 1 ? "" : "s");
        launcher_gone();
    }
    if (now >= a.next && !run_kill_waits(&a.unfinished, &a.job, &a.next))
        kill_ranks();
}

/* Sends what is left, if the launcher still reads. */
static void say_the_rest(void)
{
    base_time_t end = base_deadline(2.0);
    speak();
    while (run_buffer_length(&a.out) > 0 && base_poll_ms(end) > 0) {
        struct pollfd ready = {.fd = STDOUT_FILENO, .events = POLLOUT};
        poll(&ready, 1, base_poll_ms(end));
        speak();
    }
}

int run_agent(void)
{
    uint32_t numbers[] = {RUN_WIRE_VERSION, (uint32_t)getpid()};
    struct pollfd *fds = NULL;
    int room = -1;
    a.input_open = 1;
    a.next = BASE_TIME_NEVER;
    expect(JOB_SECONDS);
    a.job.root_fd = a.job.recorder.fd = -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    run_say_to(say);
    if (sodium_init() < 0 || run_signals_open() != 0)
        return RUN_RC_SYSTEM;
    sent(run_buffer_add(&a.out, RUN_WIRE_MAGIC, sizeof RUN_WIRE_MAGIC - 1) &&
         run_wire_put_numbers(&a.out, RUN_WIRE_HELLO, numbers, 2, run_hostname()));
    while (a.input_open || a.job.alive > 0) {
        if (!fds || room != a.job.ranks) { /* once at the beginning and once when the job has come */
            free(fds);
            room = a.job.ranks;
            fds = calloc(4 + 3 * (size_t)room, sizeof *fds);
            if (!fds) {
                fprintf(stderr, "ucx-run agent on %s: out of memory\n", run_hostname());
                run_kill_all(&a.job, SIGKILL);
                return RUN_RC_SYSTEM;
            }
        }
        turn(fds);
    }
    run_leash_close();
    run_sweep();
    if (a.planned)
        run_capture_finish();
    if (a.job.failed && a.job.recorder.path)
        run_say("ucx-run: the flight recorder of %s is kept: gyre-doctor --job %s", run_hostname(),
                a.job.recorder.path);
    if (!a.output_broken)
        say_the_rest();
    free(fds);
    run_capture_close();
    run_input_close();
    run_job_close(&a.job);
    run_job_unplan(&a.job);
    run_wire_job_free(&a.wire);
    free((void *)(uintptr_t)a.job_frame.data);
    run_buffer_free(&a.in);
    run_buffer_free(&a.out);
    run_signals_close();
    return a.rc;
}
