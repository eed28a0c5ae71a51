/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/wire.h: the messages between the launcher and its agents on other hosts.
 *
 * The agent is ucx-run itself, started on each host through ssh or srun. The two communicate over its
 * standard input and output. The first bytes from the agent's host may be anything that the host's shell
 * prints at login; RUN_WIRE_MAGIC ends them. Then both ways frames, little-endian:
 *
 *     u32 bytes of the payload, u8 kind, u8 zero, u16 RUN_WIRE_MARK, payload
 *
 *     launcher                                   agent
 *                                     <-  magic, HELLO   version, process id, host name
 *     JOB        all that is to be run ->
 *                                     <-  ROOT           rank 0's host only: the listening address
 *     GO         the root's address    ->
 *                                     <-  STARTED        per rank, or REFUSED: nothing runs here
 *     INPUT, SIGNAL, ASK, CLOSE        -> <-  OUTPUT, TAKEN, DOING, NOTE, STOPPED
 *                                     <-  EXIT           per rank
 *     PING, each second                -> <-  PONG
 *
 * The end of its input, or silence for longer than JOB allows, makes the agent end its ranks and itself.
 * Texts in payloads are a u32 length with their NUL counted, and the bytes.
 *
 * All of this is pure: bytes in, values or a complaint out. Nothing is trusted: lengths are limited per kind,
 * texts end inside their payload, numbers are in range. The caller checks that a rank belongs to the host. */
#ifndef TOOLS_UCX_RUN_HOSTS_WIRE_H
#define TOOLS_UCX_RUN_HOSTS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "tools/ucx-run/hosts/buffer.h"

#define RUN_WIRE_MAGIC "\n%gyre-agent%\n" /* without its NUL */
enum {
    RUN_WIRE_VERSION = 2,
    RUN_WIRE_MARK = 0x4759,
    RUN_WIRE_HEAD = 8,
    RUN_WIRE_NOISE_MAX = 64 * 1024, /* bytes that may come before the magic */
    RUN_WIRE_DATA_MAX = 64 * 1024,  /* of one INPUT or OUTPUT */
    RUN_WIRE_JOB_MAX = 16 * 1024 * 1024,
    RUN_WIRE_RANKS_MAX = 65536
};

typedef enum {
    RUN_WIRE_JOB = 1,    /* run_wire_job_t */
    RUN_WIRE_GO = 2,     /* text root, u32 master port */
    RUN_WIRE_SIGNAL = 3, /* u32 signal, u32 1: to the ranks alone, not what they have started */
    RUN_WIRE_INPUT = 4,  /* bytes; none: the end */
    RUN_WIRE_ASK = 5,    /* the state of every rank: one DOING for each living rank */
    RUN_WIRE_PING = 6,
    RUN_WIRE_CLOSE = 7,    /* u32 0: stdout, 1: stderr: no reader any more */
    RUN_WIRE_HELLO = 32,   /* u32 version, u32 pid, text host name */
    RUN_WIRE_ROOT = 33,    /* text host:port, u32 master port */
    RUN_WIRE_STARTED = 34, /* u32 rank, u32 pid */
    RUN_WIRE_REFUSED = 35, /* u32 exit code, text */
    RUN_WIRE_OUTPUT = 36,  /* u32 rank, u32 0: stdout, 1: stderr, bytes; none: it was closed */
    RUN_WIRE_TAKEN = 37,   /* all have read the last INPUT */
    RUN_WIRE_EXIT = 38, /* u32 rank, u32 status as of waitpid, u32 state in the flight recorder, text doing */
    RUN_WIRE_DOING = 39, /* u32 rank, text */
    RUN_WIRE_NOTE = 40,  /* text: a line for the launcher's stderr */
    RUN_WIRE_PONG = 41,
    RUN_WIRE_STOPPED = 42 /* a signal asked the agent to end its ranks */
} run_wire_kind_t;

typedef enum { RUN_WIRE_TO_AGENT, RUN_WIRE_TO_LAUNCHER } run_wire_way_t;

typedef struct {
    run_wire_kind_t kind;
    const unsigned char *data; /* borrowed from the input */
    size_t bytes;
} run_frame_t;

/* The first frame in data[0, n) in direction `way`. Returns the bytes that it takes; 0: more are needed; -1:
 * malformed, and *why is a static text. */
long run_wire_next(const void *data, size_t n, run_wire_way_t way, run_frame_t *frame, const char **why);
/* The position in data[0, n) after the magic; -1: it has not come yet. */
long run_wire_find_magic(const void *data, size_t n);

/* Payloads. Each returns 1, or 0 if the payload is malformed; texts are borrowed from it. */
int run_wire_hello(const run_frame_t *frame, uint32_t *version, uint32_t *pid, const char **host);
int run_wire_root(const run_frame_t *frame, const char **root, int *master_port); /* ROOT and GO */
int run_wire_signal(const run_frame_t *frame, int *signal, int *alone);
int run_wire_close(const run_frame_t *frame, int *to);
int run_wire_started(const run_frame_t *frame, int *rank, int *pid);
int run_wire_refused(const run_frame_t *frame, int *rc, const char **text);
int run_wire_output(const run_frame_t *frame, int *rank, int *to, const char **data, size_t *n);
int run_wire_exit(const run_frame_t *frame, int *rank, int *status, unsigned *state, const char **doing);
int run_wire_doing(const run_frame_t *frame, int *rank, const char **text);
int run_wire_note(const run_frame_t *frame, const char **text);

/* The content of JOB. */
typedef struct {
    int world;           /* ranks of the job */
    int ranks;           /* of them on this host */
    int *number;         /* [ranks] theirs in the job, ascending */
    int node, nodes;     /* this host among those of the job */
    int attempt;         /* 0-based */
    int bind;            /* topo_bind_t */
    int bind_given;      /* it was asked for: complain if it is not possible */
    int report_bindings; /* say where each rank was bound */
    int stdin_to;        /* rank, RUN_STDIN_NONE or RUN_STDIN_ALL */
    int terminal[2];     /* stdout, stderr of the ranks shall be terminals */
    int columns, rows;   /* of these; 0: not known */
    uint32_t silence_ms; /* the launcher counts as lost after so long without a word; 0: never */
    uint32_t grace_ms;   /* between TERM and KILL when it is lost */
    uint32_t stop_ms;    /* the same after a signal to the agent */
    const char *id, *secret, *wdir, *output_dir, *peer; /* empty: none; peer: another host of the job */
    char **program;                                     /* [.. NULL] */
    char **environment;                                 /* [.. NULL] "K=V", on top of what the host has */
    char **exports; /* [.. NULL] "K=V", on top even of what ucx-run sets itself */
} run_wire_job_t;
/* Allocates number, program, environment and exports; the texts are borrowed from the payload. 0: malformed
 * or no memory, and *why is a static text. */
int run_wire_job(const run_frame_t *frame, run_wire_job_t *job, const char **why);
void run_wire_job_free(run_wire_job_t *job);

/* Building frames at the end of `to`. All return 0 if memory is exhausted or the payload would be longer than
 * its kind allows, and the frame is then left out whole. */
int run_wire_put(run_buffer_t *to, run_wire_kind_t kind, const void *data, size_t n);
int run_wire_put_job(run_buffer_t *to, const run_wire_job_t *job);
int run_wire_put_numbers(run_buffer_t *to, run_wire_kind_t kind, const uint32_t *numbers, int count,
                         const char *text); /* text may be NULL: none */
int run_wire_put_root(run_buffer_t *to, run_wire_kind_t kind, const char *root, int master_port);
int run_wire_put_output(run_buffer_t *to, int rank, int stream, const char *data, size_t n);

#endif
