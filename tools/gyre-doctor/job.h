/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/job.h: gyre-doctor --job: the present calls of the ranks of a live or dead job, and which
 * of them is to blame.
 *
 *     job_find     flight recorders: of this host's processes (/proc/PID/fd), and in files  ->  recorders_t
 *     job_look     recorders of one job, looked at twice, and /proc  ->  job_t
 *     job_blame    which rank waits for which; one sentence: pure functions of a job_t
 *     job_print    text and JSON
 *
 * Nothing is stopped or attached to: the ranks do not notice. Only root sees processes of other users. */
#ifndef GYRE_DOCTOR_JOB_H
#define GYRE_DOCTOR_JOB_H

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

#include "comm/recorder/file.h"

/* A process that has a recorder open. */
typedef struct {
    pid_t pid;    /* as we see it */
    int inner;    /* its number for itself, which differs in a container */
    int recorder; /* index */
    int fd;       /* its number there */
} holder_t;

typedef struct {
    dev_t dev;
    ino_t ino;
    char path[1200]; /* a file; "": memory */
    comm_recorder_head_t head;
} recorder_t;

typedef struct {
    recorder_t *list;
    int n;
    holder_t *holders;
    int holders_n;
    recorder_t *others; /* of other versions: only dev and ino */
    int others_n;
} recorders_t;

/* Recorders of live processes of this host, and files "gyre-*.rec" below `dir` ("": none). A line on stderr
 * for each of another version. 0: out of memory. */
int recorders_find(const char *dir, recorders_t *found);
/* Adds one file and returns its index. -1, and a line on stderr: it cannot be read, or is not a recorder. */
int recorders_add_file(const char *path, recorders_t *found);
void recorders_free(recorders_t *found);
/* The present slots of a recorder, to be freed; NULL: it is gone. */
comm_recorder_slot_t *recorder_slots(const recorders_t *found, int i);

typedef enum {
    LIFE_UNKNOWN,
    LIFE_RUNNING,
    LIFE_SLEEPING,
    LIFE_KERNEL, /* uninterruptible: a disk, a network file system */
    LIFE_STOPPED,
    LIFE_TRACED, /* held by a debugger */
    LIFE_DEAD
} life_t;

typedef struct {
    int known; /* there is a slot */
    life_t life;
    const char *host; /* by its recorder; "" */
    int pid;          /* 0: not started */
    double cpu;       /* share of a core while we looked; < 0: unknown */
    int moved;        /* it made calls while we looked */
    double since;     /* s since its newest call began (dead: until it ended); < 0: unknown */
    char began[32];   /* the same by the clock on the wall, "" if unknown */
    int64_t called;   /* ns by that clock, which hosts share: its newest call began; INT64_MAX: unknown */
    int64_t ended;    /* the same of its end; INT64_MAX: it has not, or unknown */
    const comm_recorder_slot_t *slot; /* never NULL: if there is none, job_no_slot */
} member_t;

typedef struct {
    char id[64];
    int size;                     /* ranks */
    member_t *rank;               /* [size] */
    comm_recorder_slot_t **slots; /* owned: [recorders], what the ranks point into; NULL: of another job */
    int recorders;
    int known, alive; /* ranks with a slot; of these alive */
    double age;       /* s since it was started; < 0: in another boot */
    char began[32];
    int launcher; /* pid of ucx-run; 0: no launcher */
    int launcher_alive;
    int gone;    /* it ended while we looked */
    int twin[2]; /* pids of two live processes of one rank: two jobs of this id; 0: none */
    int twin_rank;
    int files;       /* in which its recorders lie */
    char path[1200]; /* one of them; "" */
    char host[256];  /* this one */
} job_t;

/* Looks at all recorders of job `id` (exact). On success *job is to be freed by job_free, before `found`.
 * 0: out of memory. */
int job_look(const recorders_t *found, const char *id, job_t *job);
void job_free(job_t *job);
extern const comm_recorder_slot_t job_no_slot;

enum { JOB_CALL_TEXT = 192, JOB_BLAME_TEXT = 1600 };
/* The newest call of a rank; NULL: it has made none. */
const comm_call_t *job_call(const member_t *m);
/* The ranks that rank r waits for, into list ([size]); returns how many. */
int job_waits_for(const job_t *job, int r, int *list);
/* What is most probably wrong, in a sentence or two. text: [JOB_BLAME_TEXT]. Returns the rank to blame, or
 * -1. */
int job_blame(const job_t *job, char *text);
/* A process's state, in a word: "stopped". */
const char *job_life_word(life_t life);
/* "0, 3-7": text: [bytes]. */
void job_ranks_text(const int *ranks, int n, char *text, size_t bytes);

void job_print(const job_t *job, FILE *out);
json_t *job_json(const job_t *job); /* a new reference; NULL: no memory */
void job_list_print(const recorders_t *found, FILE *out);
json_t *job_list_json(const recorders_t *found);

#endif
