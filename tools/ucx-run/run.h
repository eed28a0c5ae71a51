/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/run.h: the interfaces between the parts of ucx-run.
 *
 *     options.c                command line  ->  run_options_t
 *     dry.c, help.c            --dry-run; --help
 *     engines/engine.c         which engine starts the ranks
 *     engines/foreign.c        mpirun, mpiexec.hydra or prterun start the ranks; engines/supervise.c
 *                              supervises them
 *     hosts/hostlist.c         host lists, the host of each rank (pure)
 *     hosts/remote.c           the hosts of a job on other hosts: an agent on each, through ssh or srun
 *                              (hosts.h: its parts)
 *     hosts/agent_command.c    the command that starts an agent
 *     hosts/agent.c            the same program on those hosts: ranks for a launcher on another host
 *     hosts/wire.c             the messages of launcher and agent (pure)
 *     hosts/address.c          the address at which the host of rank 0 is reached
 *     ranks/job.c              identity of one attempt: secret, listening socket, recorder, binding
 *     ranks/environ.c          the environment of each rank
 *     ranks/spawn.c            one rank of this host: fork, bind, exec
 *     ranks/capture.c          the output of the ranks of this host; ranks/input.c: their input
 *     ranks/output.c           lines of ranks to stdout and stderr, whole lines only, never blocking
 *     ranks/parent_death.c     the leash: a second process that ends the ranks if this one is killed
 *     ranks/supervise.c        the event loop: signals, deaths, deadlines
 *     ranks/cleanup.c          the end of what the ranks have left running
 *     ranks/report.c           a rank's present call, from the flight recorder
 *
 * ucx-run has one thread and sleeps in poll(2) without a timeout while nothing happens. It wakes once a
 * second with agents, to show that it lives, and in the background of a terminal whose input the ranks want.
 * It makes no files except those of --output-filename. */
#ifndef UCX_RUN_H
#define UCX_RUN_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/clock.h"
#include "comm/recorder/file.h"
#include "tools/ucx-run/hosts/hostlist.h"
#include "topo/topo.h"

enum {
    RUN_RC_USAGE = 2,          /* the command line is wrong */
    RUN_RC_SYSTEM = 1,         /* the operating system refused something that ucx-run itself needs */
    RUN_RC_TIMEOUT = 124,      /* --timeout passed */
    RUN_RC_LOST = 125,         /* a host was lost */
    RUN_RC_NOT_RUNNABLE = 126, /* the program was found but cannot be executed */
    RUN_RC_NOT_FOUND = 127     /* there is no such program */
};
enum { RUN_STDIN_NONE = -1, RUN_STDIN_ALL = -2 };
enum { RUN_MAX_RANKS = 65536 };
enum { RUN_INPUT_BYTES = 1 << 16, RUN_CAPTURE_BYTES = 1 << 16 };

typedef enum {
    RUN_ENGINE_AUTO,
    RUN_ENGINE_FORK,
    RUN_ENGINE_SSH,
    RUN_ENGINE_SLURM,
    RUN_ENGINE_OPENMPI,
    RUN_ENGINE_HYDRA,
    RUN_ENGINE_PRRTE
} run_engine_t;

typedef struct {
    int ranks;            /* of the whole job */
    int ranks_given;      /* by -n */
    char **program;       /* argv of the ranks, NULL at the end; borrowed from main */
    run_hostlist_t hosts; /* empty: this one */
    int hosts_given;      /* by -H or --hostfile */
    int per_node;         /* -N; 0: by slots */
    run_map_t map;
    run_engine_t engine;
    const char *rsh;           /* instead of ssh */
    const char *agent;         /* this program's path on other hosts; NULL: the same as here */
    const char *launcher_args; /* further words for the engine; NULL: none */
    double lost_after_s;       /* a host that is silent for so long is lost */
    int lost_after_given;
    topo_bind_t bind;
    int bind_given; /* 0: core */
    int tag;
    double timeout_s;    /* 0: none */
    double kill_grace_s; /* time for the others to end by themselves after a failure */
    int kill_grace_given;
    int max_restarts;
    int keep_going;       /* --no-kill-on-bad-exit: ranks that fail do not end the others */
    const char **exports; /* [nexports], "K", "K=V" or a pattern; the array is owned, the strings are not */
    int nexports;
    const char *wdir;
    const char *output_dir;
    int stdin_to; /* rank, RUN_STDIN_NONE or RUN_STDIN_ALL */
    int report_bindings;
    int dry_run;
} run_options_t;

/* Seconds from a TERM that is passed on to KILL. */
static inline double run_stop_seconds(const run_options_t *options)
{
    return options->kill_grace_given ? options->kill_grace_s : 30.0;
}

#define RUN_ENGINES "auto|fork|ssh|slurm|openmpi|hydra|prrte"
extern const char *const run_help[]; /* of --help: parts, NULL at the end */
/* Adds the hosts of a hostfile. -1, or an exit code. */
int run_options_hostfile(run_options_t *options, const char *path);
/* Fills *options. Returns -1 to go on, else the exit code (0 after --help and --version). */
int run_options_parse(int argc, char **argv, run_options_t *options);
void run_options_free(run_options_t *options);
const char *run_hostname(void);
/* 1 if `name` is this machine: its whole name, the part before the first dot, or a name of the loopback. */
int run_is_here(const char *name);

/* --- engine --- */
const char *run_engine_name(run_engine_t engine);
int run_engine_parse(const char *word, run_engine_t *engine); /* 0: unknown */
/* Decides which engine starts the ranks, and how many on which hosts, as far as the command line left it
 * open. Returns -1, or an exit code after printing the reason. */
int run_engine_choose(run_options_t *options);
/* 1: the engine starts the ranks itself, and ucx-run only supervises it */
int run_is_foreign(run_engine_t engine);
int run_in_path(const char *program); /* can be executed */
/* prints the text; returns RUN_RC_USAGE */
int run_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct {
    int number;       /* in the job */
    const char *host; /* where it runs; borrowed */
    pid_t pid;
    int alive;      /* started (on other hosts: to be started) and not yet reaped */
    int status;     /* as waitpid gives it, once reaped */
    int core;       /* from the binding plan; -1: unbound */
    int lost;       /* its host was lost, or could not be reached */
    unsigned state; /* ranks elsewhere: that of the flight recorder, at its end */
    char *doing;    /* the same in words; owned; may be NULL */
} run_rank_t;

typedef struct run_remote run_remote_t;

/* One attempt at running all ranks; in an agent, those of its host. */
typedef struct {
    const run_options_t *options;
    topo_t *topo; /* NULL: ranks are not bound */
    run_rank_t *rank;
    int ranks;            /* in `rank` */
    int world;            /* of the job */
    run_remote_t *remote; /* NULL: the ranks are children of this process */
    int alive;
    char id[24];
    char secret[65];
    char root[128];              /* host:port */
    int master_port;             /* a port that was free a moment ago, for torch-style programs */
    int root_fd;                 /* listening; -1: not here */
    comm_recorder_t recorder;    /* memory, or a file with --record */
    comm_recorder_slot_t *slots; /* [ranks]: the recorder's; NULL: the ranks are elsewhere */
    int failed;                  /* a recorder in a file stays */
    int attempt;                 /* 0-based */
    base_time_t deadline;        /* --timeout, of all attempts together */
} run_job_t;

/* Ranks numbered 0, 1, ... on this host, and where each is bound; once, for all attempts. 0, or an exit
 * code. */
int run_job_plan(run_job_t *job, const run_options_t *options);
/* The same for the ranks `number`: [ranks] of a job of `world`, in an agent. */
int run_job_plan_part(run_job_t *job, const run_options_t *options, int ranks, const int *number, int world);
void run_job_unplan(run_job_t *job);
/* Fresh secret and id. */
void run_job_identify(run_job_t *job);
/* Identity, listening socket on the loopback and recorder. 0, or an exit code. */
int run_job_open(run_job_t *job);
/* part: distinguishes it from the recorders of other agents on this host. */
int run_job_open_recorder(run_job_t *job, const char *part);
void run_job_close(run_job_t *job);
/* A port of `address` (text) that is free now, for a listener that comes later: one that the kernel gives to
 * no connection meanwhile, if there are such. 0: none. */
int run_free_port(const char *address);

/* --- environ --- */
/* The environment of rank[i], NULL at the end; `mask` hides the secret. NULL if memory is exhausted. */
char **run_environment(const run_job_t *job, int i, int mask);
/* The variables for ranks on other hosts: UCX_*, GYRE_* except those of a rank's identity, OMP_*, PATH and
 * LD_LIBRARY_PATH, and those of -x without a value. NULL if memory is exhausted. */
char **run_environment_passed(const run_options_t *options);
/* The "K=V" of -x; they override all others. Borrowed strings, owned array. */
char **run_environment_exports(const run_options_t *options);
void run_environment_free(char **environment);
/* Warns of variables of -x K without a value that are not set. */
void run_environment_check(const run_options_t *options);
/* 1 if a variable of this name is part of a rank's identity: it never passes from one job to another. */
int run_environment_is_identity(const char *name, size_t n);
/* Removes these variables from this process's own environment. */
void run_environment_drop_identity(void);

/* Raises this process's soft limit of open files to `need`; the ranks get the old one back. 0, or an exit
 * code. */
int run_have_descriptors(unsigned long need);

/* --- dry run --- */
int run_dry(const run_job_t *job);
void run_print_quoted(FILE *out, const char *text); /* as a word of the shell */

/* Descriptors that a rank starts with; -1 for `in`: /dev/null. */
typedef struct {
    int in, out, err;
} run_stdio_t;
/* The process's signal mask and descriptor limit at its start, which the ranks get back. */
typedef struct {
    sigset_t mask;
    unsigned long nofile;
} run_inherited_t;
extern run_inherited_t run_inherited;
/* In a child that is about to exec: restores those. */
void run_undo_launcher(void);
/* Starts all ranks of `job`, which the caller then supervises or kills. 0, or an exit code after printing the
 * reason. */
int run_spawn_all(run_job_t *job);

/* --- capture --- */
typedef struct {
    int ranks;              /* of this host */
    const char *output_dir; /* NULL: none */
    int direct;             /* the rank has our own descriptors */
    int terminal[2];        /* stdout, stderr shall be terminals ... */
    int columns, rows;      /* ... of this size; 0: not known */
    /* Output of rank[i]; n = 0: it has closed `to` (0: stdout, 1: stderr). */
    void (*take)(int i, int to, const char *data, size_t n);
} run_capture_t;
int run_capture_open(const run_capture_t *how);
/* Sets the rank's out and err in `stdio`; run_capture_attached closes the ends that are new. */
int run_capture_attach(int i, int number, int attempt, run_stdio_t *stdio);
void run_capture_attached(run_stdio_t *stdio);
/* Room for 2 * ranks. room[to]: more of it may be read. */
size_t run_capture_poll(struct pollfd *fds, const int room[2]);
void run_capture_event(const struct pollfd *fd);
void run_capture_resize(const run_capture_t *size); /* of terminals: its columns and rows */
void run_capture_drain(int i);                      /* takes what rank[i] has written so far */
void run_capture_stop(int to);                      /* the output has no reader any more */
void run_capture_finish(void); /* all ranks are gone: reads the rest of the pipes and closes them */
void run_capture_close(void);

/* --- output --- */
int run_output_open(int ranks, int tag);
void run_output_take(int rank, int to, const char *data, size_t n); /* n = 0: the end */
void run_output_terminals(run_capture_t *capture);                  /* fills terminal, columns, rows */
/* ucx-run's own lines, in order with those of the ranks. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void run_say_to(void (*to)(const char *line)); /* from now on; NULL: stderr */
size_t run_output_poll(struct pollfd *fds);    /* room for 2 */
void run_output_event(const struct pollfd *fd);
int run_output_room(int to);
int run_output_broken(int to); /* 1: the output has no reader any more */
int run_output_failed(void);   /* 1: some of it could not be written, although it has a reader */
void run_output_give_up(void); /* stops waiting for a reader that is far too slow */
void run_output_finish(void);  /* unfinished lines end here */
int run_output_pending(void);
void run_output_close(void);

/* --- input --- */
typedef struct {
    int ranks; /* of this host */
    int to;    /* rank of the job, RUN_STDIN_NONE or RUN_STDIN_ALL */
    int fed;   /* the input comes by run_input_feed */
    /* The readers are on other hosts: have they taken all so far? And the next bytes (n = 0: the end). */
    int (*ready)(void);
    void (*pass)(const char *data, size_t n);
} run_input_t;
int run_input_open(const run_input_t *how);
int run_input_attach(int i, int number, run_stdio_t *stdio);
void run_input_attached(run_stdio_t *stdio);
/* fds: room for ranks + 1. *again: when to call it again, whatever comes: a terminal may be ours to read by
 * then. */
size_t run_input_poll(struct pollfd *fds, base_time_t *again);
void run_input_event(const struct pollfd *fd);
void run_input_feed(const char *data, size_t n); /* n <= RUN_INPUT_BYTES; 0: the end */
int run_input_ended(void);                       /* there is no more */
int run_input_taken(void);                       /* all have what was fed */
void run_input_close(void);

/* --- leash --- */
typedef enum {
    RUN_LEASH_KILL, /* at once */
    RUN_LEASH_TERM  /* TERM first, and some seconds for it */
} run_leash_t;
int run_leash_open(run_leash_t how);
void run_leash_add(pid_t pid);
void run_leash_remove(pid_t pid);
void run_leash_close(void);

/* --- supervise --- */
typedef struct {
    int rc;
    int stopped; /* asked to end from outside (signal or --timeout): no restart */
    int refused; /* the program cannot be run, or a host cannot be reached at the first start: no restart */
    /* with --no-kill-on-bad-exit: some rank ended with 0, so the job went on to its end: no restart */
    int survived;
} run_result_t;
int run_signals_open(void); /* blocks the signals that are passed on and makes the signalfd */
void run_signals_close(void);
int run_signals_fd(void);
void run_supervise(run_job_t *job, run_result_t *result);
void run_kill_all(run_job_t *job, int signal);

/* --- unfinished --- */
typedef struct {
    base_time_t until; /* when KILL comes whatever ranks write; 0: it has not waited yet */
    base_time_t end;   /* the same when they have finished; 0: they have not */
} run_unfinished_t;
/* KILL is due for the ranks of this host. 1: not yet, since some write what must be finished (the first time,
 * a line says so): asks to be called again at *due. Begin with *u zero. */
int run_kill_waits(run_unfinished_t *u, const run_job_t *job, base_time_t *due);

/* --- sweep --- */
/* Notes the children that exist before the first start: run_sweep leaves them alone. 0, or an exit code. */
int run_sweep_spare(void);
/* Kills and reaps what the ranks left running. */
void run_sweep(void);

/* --- remote --- */
/* Places the ranks on options->hosts. 0, or an exit code after printing the reason. */
int run_remote_plan(run_job_t *job, const run_options_t *options);
void run_remote_unplan(run_job_t *job);
/* Begins an attempt: run_remote_event then calls agents and starts ranks. */
int run_remote_start(run_job_t *job);
/* Asks all agents to end their ranks and go; their last messages are read until run_remote_gone. */
void run_remote_stop(run_job_t *job);
int run_remote_gone(const run_job_t *job);
void run_remote_hang_up(run_job_t *job); /* kills the connections that are left */
/* After an attempt: takes lost hosts out, places the ranks anew. 0, or an exit code if nothing is left. */
int run_remote_regroup(run_job_t *job);
int run_remote_running(const run_job_t *job); /* all ranks have been started */
/* Sends a signal to the ranks of all hosts that have any; TSTP also to the agents of the others, which then
 * accept the launcher's silence. */
void run_remote_signal(run_job_t *job, int signal, int alone);
/* Sends the frames that are left, for so long at most. */
void run_remote_flush(run_job_t *job, double seconds);
void run_remote_close_stream(run_job_t *job, int to);
/* From now on a reader of the output that stalls does not delay the agents' messages: output beyond the
 * buffer for that reader is lost. */
void run_remote_drop_output(run_job_t *job);
/* Asks every agent for the calls of its ranks; the answers are stored in rank[].doing. 1 once all have
 * come. */
void run_remote_ask(run_job_t *job);
int run_remote_answered(const run_job_t *job);
size_t run_remote_poll_max(const run_job_t *job);
size_t run_remote_poll(run_job_t *job, struct pollfd *fds);
void run_remote_event(run_job_t *job, const struct pollfd *fds, size_t n);
void run_remote_reaped(run_job_t *job, pid_t pid, int status);
base_time_t run_remote_deadline(const run_job_t *job);
void run_remote_tick(run_job_t *job);           /* heartbeats and silences */
int run_remote_died(run_job_t *job);            /* a rank that has ended since; -1: none */
int run_remote_stillborn(const run_job_t *job); /* a host was lost before any rank was started */
int run_remote_stopped(run_job_t *job);         /* since the last call a signal came to an agent */
int run_remote_refused(const run_job_t *job, int *rc);
void run_remote_ping(run_job_t *job); /* asks all hosts for a sign of life, out of turn */
/* A host with living ranks has been silent since then, and may be lost. */
int run_remote_doubtful(const run_job_t *job, base_time_t since);
int run_remote_input_ready(void);
void run_remote_input(const char *data, size_t n);
/* The command line of host i's agent: argv, NULL at the end, owned by the caller (run_words_free). NULL: no
 * memory. */
char **run_remote_command(const run_options_t *options, const char *host);
int run_remote_dry(const run_job_t *job);

/* --- agent --- */
#define RUN_AGENT_FLAG "--as-agent"
int run_agent(void); /* the whole life of an agent: its exit code */

/* --- report --- */
const char *run_signal_name(int signal, char text[16]);
/* "in all_reduce #12 (count 4096, float, sum)", or "" if unknown. */
void run_report_doing(const comm_recorder_slot_t *slot, char *text, size_t bytes);
/* A living rank's present call, and for how long. */
void run_report_now(const comm_recorder_slot_t *slot, char *text, size_t bytes);
void run_report_end(const run_job_t *job, int i);
void run_report_all(const run_job_t *job);

#endif
