/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/fault.c: GYRE_FAULT=rank:op:kind: this rank meets a mishap at its op-th collective of the
 * job's communicator, counted from 1. For tests of programs that want to survive one, and of Gyre itself;
 * costs one comparison per call. */
#include "collectives/run/communicator.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"

typedef enum { FAULT_KILL, FAULT_CRASH, FAULT_STOP, FAULT_EXIT, FAULT_STUCK, FAULT_DISAGREE } fault_t;

static const struct {
    const char *name;
    fault_t kind;
} kinds[] = {
    {"kill", FAULT_KILL}, {"crash", FAULT_CRASH}, {"stop", FAULT_STOP},
    {"exit", FAULT_EXIT}, {"stuck", FAULT_STUCK}, {"disagree", FAULT_DISAGREE},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

gyre_status_t coll_fault_arm(gyre_comm_t *comm)
{
    const char *text = base_setting_string(SET_FAULT);
    int rank, used = 0;
    unsigned op;
    if (*text == '\0')
        return GYRE_OK;
    if (sscanf(text, "%d:%u:%n", &rank, &op, &used) == 2 && used > 0 && op > 0)
        for (int k = 0; k < KINDS; k++)
            if (strcmp(text + used, kinds[k].name) == 0) {
                if (rank == comm->rank) {
                    comm->fault_at = op;
                    comm->fault = (int)kinds[k].kind;
                    log_warning(
                        "GYRE_FAULT: \"%s\" strikes here at collective #%u of the job's first communicator",
                        kinds[k].name, op);
                }
                return GYRE_OK;
            }
    return gyre_fail(
        GYRE_ERR_INVALID,
        "GYRE_FAULT=\"%.80s\" is malformed: it must be rank:op:kind with a kind of kill, crash, stop, "
        "exit, stuck, disagree",
        text);
}

void coll_fault_strike(gyre_comm_t *comm, coll_shape_t *shape, const void **send, void **recv)
{
    static double waste;
    fault_t kind = (fault_t)comm->fault;
    log_warning("GYRE_FAULT: %s in %s, collective #%u of the job's first communicator", kinds[kind].name,
                coll_op_name(shape->op), comm->fault_at);
    comm->fault_at = 0;
    switch (kind) {
    case FAULT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case FAULT_CRASH:
        abort();
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_EXIT:
        exit(0);
    case FAULT_STUCK:
        for (;;)
            pause();
    case FAULT_DISAGREE: /* something that touches none of the caller's memory */
        if (shape->op != COLL_BARRIER) {
            *shape = (coll_shape_t){.op = COLL_BARRIER, .root = -1};
        } else {
            *shape = (coll_shape_t){.op = COLL_ALL_REDUCE,
                                    .type = GYRE_FLOAT64,
                                    .redop = GYRE_SUM,
                                    .root = -1,
                                    .in_place = 1,
                                    .count = 1};
            *send = *recv = &waste;
        }
        break;
    }
}
