/* tools/ucx-run/run.h: the parts of ucx-run and what they hand each other.
 *
 *     options   command line, host lists  ->  run_options_t
 *     job       identity of one attempt: secret, listening socket, recorder; the environment of each rank
 *     spawn     one rank: fork, bind, exec
 *     output    lines of ranks to our own stdout and stderr, whole lines only, never blocking
 *     input     our stdin to the ranks that shall have it
 *     leash     a second process that ends the ranks should this one be killed
 *     supervise the event loop: signals, deaths, deadlines
 *     report    what a rank was doing, from the flight recorder
 *
 * ucx-run has one thread and sleeps in poll(2) without a timeout while nothing happens. It makes no files. */
#ifndef UCX_RUN_H
#define UCX_RUN_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "comm/recorder_file.h"
#include "topo/topo.h"

enum {
    RUN_RC_USAGE = 2,          /* the command line is wrong */
    RUN_RC_SYSTEM = 1,         /* the operating system refused something that ucx-run itself needs */
    RUN_RC_TIMEOUT = 124,      /* --timeout passed */
    RUN_RC_NOT_RUNNABLE = 126, /* the program was found but cannot be executed */
    RUN_RC_NOT_FOUND = 127     /* there is no such program */
};
enum { RUN_STDIN_NONE = -1, RUN_STDIN_ALL = -2 };
enum { RUN_MAX_RANKS = 65536 };

typedef struct {
    int ranks;
    char **program; /* argv of the ranks, NULL at the end; borrowed from main */
    topo_bind_t bind;
    int bind_given; /* 0: core */
    int tag;
    double timeout_s;    /* 0: none */
    double kill_grace_s; /* what the others get to end by themselves after a failure */
    int max_restarts;
    const char **exports; /* [nexports], "K" or "K=V"; the array is owned, the strings are not */
    int nexports;
    const char *wdir;
    const char *output_dir;
    int stdin_to; /* rank, RUN_STDIN_NONE or RUN_STDIN_ALL */
    int report_bindings;
    int dry_run;
} run_options_t;

/* Fills *options. Returns -1 to go on, else the exit code (0 after --help and --version). */
int run_options_parse(int argc, char **argv, run_options_t *options);
void run_options_free(run_options_t *options);
const char *run_hostname(void);

typedef struct {
    pid_t pid;
    int alive;  /* started and not yet reaped */
    int status; /* as waitpid gives it, once reaped */
    int core;   /* from the binding plan; -1: unbound */
} run_rank_t;

/* One attempt at running all ranks. */
typedef struct {
    const run_options_t *options;
    topo_t *topo; /* NULL: nobody is bound */
    run_rank_t *rank;
    int alive;
    char id[24];
    char secret[65];
    char root[32];               /* 127.0.0.1:port */
    int master_port;             /* a port that was free a moment ago, for torch-style programs */
    int root_fd;                 /* listening */
    comm_recorder_t recorder;    /* memory, or a file with --record */
    comm_recorder_slot_t *slots; /* [ranks]: the recorder's */
    int failed;                  /* a recorder in a file stays */
    int attempt;                 /* 0-based */
    base_time_t deadline;        /* --timeout, of all attempts together */
} run_job_t;

/* Plans the binding once, for all attempts. 0, or an exit code. */
int run_job_plan(run_job_t *job, const run_options_t *options);
void run_job_unplan(run_job_t *job);
/* Fresh secret, socket and recorder. 0, or an exit code. */
int run_job_open(run_job_t *job);
void run_job_close(run_job_t *job);
/* The environment of a rank, NULL at the end; `mask` hides the secret. NULL if memory is exhausted. */
char **run_job_environment(const run_job_t *job, int rank, int mask);
void run_job_environment_free(char **environment);
int run_job_dry(const run_job_t *job);

/* Descriptors that a rank starts with; -1 for `in`: /dev/null. */
typedef struct {
    int in, out, err;
} run_stdio_t;
/* What the process was given and the ranks get back: signal mask, descriptor limit. */
typedef struct {
    sigset_t mask;
    unsigned long nofile;
} run_inherited_t;
extern run_inherited_t run_inherited;
/* Starts one rank; returns when its program runs. 0, or an exit code with the reason said. */
int run_spawn(run_job_t *job, int rank, const run_stdio_t *stdio);

/* --- output --- */
int run_output_open(const run_options_t *options);
/* Gives `stdio` the rank's out and err; the caller closes what run_output_given says is new. */
int run_output_attach(int rank, int attempt, run_stdio_t *stdio);
void run_output_attached(run_stdio_t *stdio);
/* Our own lines, in order with those of the ranks. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct pollfd;
size_t run_output_poll(struct pollfd *fds); /* room for 2 * ranks + 2 */
size_t run_output_poll_max(void);
void run_output_event(const struct pollfd *fd);
void run_output_finish(void); /* all ranks are gone: takes what still lies in the pipes and closes them */
int run_output_pending(void);
void run_output_close(void);

/* --- input --- */
int run_input_open(const run_options_t *options);
int run_input_attach(int rank, run_stdio_t *stdio);
void run_input_attached(run_stdio_t *stdio);
size_t run_input_poll(struct pollfd *fds); /* room for ranks + 1 */
void run_input_event(const struct pollfd *fd);
void run_input_close(void);

/* --- leash --- */
int run_leash_open(void);
void run_leash_add(pid_t pid);
void run_leash_remove(pid_t pid);
void run_leash_close(void);

/* --- supervise --- */
typedef struct {
    int rc;
    int stopped; /* asked to end from outside (signal or --timeout): no restart */
} run_result_t;
int run_signals_open(void); /* blocks what is forwarded and makes the signalfd */
void run_signals_close(void);
void run_supervise(run_job_t *job, run_result_t *result);
void run_kill_all(run_job_t *job, int signal);

/* --- report --- */
const char *run_signal_name(int signal, char text[16]);
/* "in all_reduce #12 (count 4096, float, sum)", or "" where nothing is known. */
void run_report_doing(const comm_recorder_slot_t *slot, char *text, size_t bytes);
void run_report_end(const run_job_t *job, int rank);
void run_report_all(const run_job_t *job);

#endif
