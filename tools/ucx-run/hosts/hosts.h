/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/hosts.h: the hosts of a job on other hosts, as the launcher's parts share them.
 *
 *     hosts.c       the hosts, and the ranks on each
 *     connection.c  one host's agent: calling it, writing to it, losing it
 *     events.c      the agents' messages, until all ranks run and while they do
 *     remote.c      all hosts together: the event loop's side, signs of life, messages to every agent
 *
 * On each host an agent (agent.c) is called through ssh or srun; wire.h has the messages. No rank starts
 * before every host has answered: a host that cannot be reached costs nothing but the wait.
 *
 *     QUEUED -> CALLING --hello--> PLANNING --ready--> (all hosts are) STARTING --all ranks--> RUNNING ->
 *     ENDING -> GONE
 *
 * A host is lost, with its ranks, if its connection ends early or it sends nothing for --lost-after seconds
 * (an agent answers a PING each second). */
#ifndef TOOLS_UCX_RUN_HOSTS_HOSTS_H
#define TOOLS_UCX_RUN_HOSTS_HOSTS_H

#include <limits.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ucx-run/hosts/buffer.h"
#include "tools/ucx-run/hosts/hostlist.h"
#include "tools/ucx-run/run.h"
#include "tools/ucx-run/hosts/wire.h"

typedef enum {
    NODE_QUEUED,
    NODE_CALLING,
    NODE_PLANNING,
    NODE_STARTING,
    NODE_RUNNING,
    NODE_ENDING,
    NODE_GONE
} run_node_state_t;

/* A host of the job, and the connection to its agent. */
typedef struct {
    const char *name;
    int listed; /* its place in remote->left */
    run_node_state_t state;
    pid_t pid; /* of ssh, srun, or the agent itself on this host; 0: not started or reaped */
    int status;
    int in, out, err; /* its standard descriptors, the launcher's ends; -1: closed */
    run_buffer_t to, from, errors;
    int greeted; /* the magic has come */
    int ranks, started, alive;
    int ready;          /* can take GO */
    int owes;           /* has not yet taken the last INPUT */
    int lost;           /* gone without having been asked to go */
    base_time_t heard;  /* last sign of life */
    base_time_t closed; /* its output has ended; time to read the rest until then */
    size_t polled;      /* place of its first pollfd */
} run_node_t;

struct run_remote {
    run_hostlist_t left; /* hosts that have not been lost */
    int *of;             /* [world] place in host */
    run_node_t *host;    /* [hosts] those that have ranks */
    int hosts;
    /* [world] ranks whose end was not yet reported by run_remote_died */
    int *died;
    int ndied;
    int refused;   /* exit code; 0: not */
    int gone;      /* GO went out */
    int stillborn; /* it never will: a host was lost before */
    int stopping;
    int stopped; /* an agent got a signal; not yet reported by run_remote_stopped */
    /* the ranks are being ended: their output must not delay the agents' messages */
    int dropping;
    int dropped[2];           /* stdout, stderr: some was, so the rest is as well */
    base_time_t tick, ticked; /* the next one is due; the last one was */
    char **passed, **exports; /* environment */
    char wdir[PATH_MAX], output_dir[PATH_MAX];
};

static inline void run_node_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* --- connection --- */
/* Calls as many of the queued hosts as may be called at a time. */
void run_node_call_more(run_job_t *job);
/* Its agent is ready to receive frames. */
int run_node_can_hear(const run_node_t *h);
/* Sends what goes without blocking. The reading side notices a connection that has ended. */
void run_node_flush(run_node_t *h);
/* Sends the frame that a run_wire_put... has put into h->to; what that returned is `ok`. */
void run_node_put(run_job_t *job, run_node_t *h, int ok);
void run_node_send(run_job_t *job, run_node_t *h, run_wire_kind_t kind); /* a frame without content */
/* Reads the standard error of ssh, srun or the agent and prints its whole lines. */
void run_node_read_errors(run_node_t *h);
/* ... and what is left of it: unfinished lines, too. */
void run_node_last_errors(run_node_t *h);
/* Notes that rank r has ended; the status is waitpid's. */
void run_node_push_died(run_job_t *job, int r, int status);
/* Counts its ranks as lost: no further messages about them come. */
void run_node_give_up(run_job_t *job, run_node_t *h);
/* Ends the connection now, and kills the process that held it. Its ranks are not given up. */
void run_node_hang_up(run_node_t *h);
/* The same for a host that should have gone on, with its ranks. Prints the reason unless the host was about
 * to go anyway. */
void run_node_lose(run_job_t *job, run_node_t *h, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ... because the process that held the connection ended. */
void run_node_lose_by_status(run_job_t *job, run_node_t *h);

/* --- events --- */
/* Reads a host's bytes and acts on whole frames. */
void run_node_read(run_job_t *job, run_node_t *h);

#endif
