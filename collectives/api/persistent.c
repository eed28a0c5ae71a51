/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/persistent.c: persistent operations: a call's checks, its schedule and what the other ranks
 * see of it are kept, and each start only runs them.
 *
 * The schedule is not one of the communicator's cache, so nothing evicts it, and it stays as it was made when
 * the communicator's choices change; gyre_plan_set exchanges it. On device memory the kept call takes the way
 * of a plain one. An exchange with neighbours has no schedule, either: its messages are kept. */
#include "collectives/api/persistent.h"

#include <stdlib.h>
#include <string.h>

#include "base/defined.h"
#include "base/error.h"
#include "collectives/api/comm.h"
#include "collectives/api/start.h"
#include "collectives/gpu/gpu.h"

struct gyre_plan {
    gyre_comm_t *comm;          /* NULL: it has ended */
    _Atomic uint32_t under_way; /* 1: a request of it was not waited for */
    coll_plan_t *schedule;      /* NULL: on a device, or messages */
    coll_neighbors_t *messages; /* NULL: a collective */
    coll_call_t args;           /* its arrays are `arrays` */
    size_t *arrays;             /* [4 * n] or NULL: the call's counts and displs */
    gyre_plan_t *next;
};

gyre_status_t coll_check_plan(const char *name, gyre_plan_t **plan)
{
    if (!plan)
        return coll_refuse(gyre_fail(GYRE_ERR_INVALID, "%s: plan is NULL", name));
    return GYRE_OK;
}

/* The caller's arrays may be gone when the operation starts. */
static gyre_status_t keep_arrays(gyre_plan_t *p)
{
    const size_t n = (size_t)p->comm->n;
    coll_shape_t *s = &p->args.shape;
    const size_t **array[4] = {&s->counts, &s->displs, &s->rcounts, &s->rdispls};
    if (!s->counts && !s->displs && !s->rcounts && !s->rdispls)
        return GYRE_OK;
    p->arrays = calloc(n, 4 * sizeof *p->arrays);
    if (!p->arrays)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for a plan of %zu ranks", p->args.name, n);
    for (size_t i = 0; i < 4; i++)
        if (*array[i])
            *array[i] = memcpy(p->arrays + i * n, *array[i], n * sizeof *p->arrays);
    return GYRE_OK;
}

static void drop(gyre_plan_t *p)
{
    if (p->schedule)
        coll_plan_free(p->schedule);
    free(p->messages);
    free(p->arrays);
    free(p);
}

/* The schedule of an operation on host memory, and the communicator knows of the plan. */
static gyre_status_t hold(gyre_plan_t *p)
{
    gyre_comm_t *comm = p->comm;
    gyre_status_t st = GYRE_OK;
    coll_drive(comm);
    if (!p->messages && !coll_call_on_device(&p->args))
        st = coll_plan_make(comm, &comm->options, &p->args.shape, &p->schedule);
    if (st == GYRE_OK) {
        p->next = comm->held;
        comm->held = p;
        comm->held_bytes += p->schedule ? p->schedule->bytes : 0;
    }
    coll_stop_driving(comm);
    return st;
}

gyre_status_t coll_persistent_make(const coll_call_t *c)
{
    gyre_plan_t *p = calloc(1, sizeof *p);
    if (!p)
        return coll_refuse(gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for a plan", c->name));
    p->comm = c->comm;
    p->args = *c;
    p->args.plan = NULL;
    p->args.under_way = &p->under_way;
    gyre_status_t st = keep_arrays(p);
    if (st == GYRE_OK)
        st = hold(p);
    if (st != GYRE_OK) {
        drop(p);
        return coll_refuse(st);
    }
    base_redop_hold(p->args.shape.redop);
    base_type_hold(p->args.shape.type);
    *c->plan = p;
    return GYRE_OK;
}

gyre_status_t coll_persistent_make_neighbors(const char *name, gyre_type_t type, gyre_comm_t *comm,
                                             coll_neighbors_t *exchange, gyre_plan_t **plan)
{
    gyre_plan_t *p = calloc(1, sizeof *p);
    if (!p) {
        free(exchange);
        return coll_refuse(gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for a plan", name));
    }
    p->comm = comm;
    p->args = (coll_call_t){
        .name = name, .comm = comm, .shape = {.op = COLL_SENDRECV, .type = type}, .tag = comm->options.tag};
    p->messages = exchange;
    (void)hold(p); /* it has no schedule, whose making could fail */
    base_type_hold(type);
    *plan = p;
    return GYRE_OK;
}

void coll_persistent_end(gyre_comm_t *comm)
{
    for (gyre_plan_t *p = comm->held; p; p = p->next) {
        p->comm = NULL;
        if (p->schedule)
            coll_plan_free(p->schedule);
        p->schedule = NULL;
    }
    comm->held = NULL;
}

/* What stands in the way of the call `name`; OK: nothing. */
static gyre_status_t check_idle(const char *name, const gyre_plan_t *p)
{
    if (!p)
        return gyre_fail(GYRE_ERR_INVALID, "%s: plan is NULL", name);
    if (!p->comm)
        return gyre_fail(GYRE_ERR_INVALID, "%s: the communicator of the %s has ended", name, p->args.name);
    gyre_status_t st = coll_check_comm(p->args.name, p->comm);
    if (st == GYRE_OK && atomic_load_explicit(&p->under_way, memory_order_acquire))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: the %s is under way: wait for its request first", name,
                       p->args.name);
    return st;
}

/* As a plain call would begin: of messages, on a device, or where GYRE_FAULT strikes. */
static gyre_status_t start_as_call(gyre_plan_t *p)
{
    if (p->messages)
        return coll_neighbors_start(p->messages, p->args.tag, &p->under_way, p->args.request);
    coll_call_t call = p->args;
    return coll_call_start(&call);
}

gyre_status_t gyre_start(gyre_plan_t *plan, gyre_request_t **request)
{
    gyre_status_t st = check_idle("gyre_start", plan);
    if (st != GYRE_OK)
        return coll_refuse(st);
    const uint32_t fault_at = plan->comm->fault_at;
    plan->args.request = request;
    if (!plan->schedule || (fault_at && plan->comm->seq + 1 >= fault_at))
        return start_as_call(plan);
    coll_drive(plan->comm);
    return coll_call_run(&plan->args, plan->schedule);
}

static const char SET[] = "gyre_plan_set";

/* Leaves are the communicator's, whose numbers of all ranks a plan does not know; so is the deadline. */
static gyre_status_t check_set(const gyre_plan_t *p, const coll_asked_t *o)
{
    if (o->leaves != 1 || o->timeout_s > 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: leaves is %d and timeout_s %g: a plan has those of its communicator "
                         "(gyre_comm_set); leave them at 1 and 0",
                         SET, o->leaves, o->timeout_s);
    if (!p->schedule)
        return o->chooses
                   ? gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: %s %s has no order, algorithm or chunk, only a tag",
                               SET, p->messages ? "a" : "on device memory", p->args.name)
                   : GYRE_OK;
    if (coll_op_reduces(p->args.shape.op) && (p->comm->leaves || p->schedule->algo == COLL_LEAVES))
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: the communicator of the %s has leaves, or had them", SET,
                         p->args.name);
    return GYRE_OK;
}

gyre_status_t gyre_plan_set(gyre_plan_t *plan, const gyre_options_t *options)
{
    coll_asked_t o;
    gyre_status_t st = check_idle(SET, plan);
    if (st == GYRE_OK)
        st = coll_options_read(SET, options, &o);
    if (st == GYRE_OK && !options)
        o.chooses = 1; /* those of the communicator */
    if (st == GYRE_OK)
        st = check_set(plan, &o);
    if (st != GYRE_OK)
        return st;
    if (!plan->schedule) {
        plan->args.tag = o.options.tag;
        return GYRE_OK;
    }
    gyre_comm_t *comm = plan->comm;
    coll_call_t args = plan->args;
    coll_plan_t *schedule;
    const coll_options_t with = options ? o.options : comm->options;
    st = coll_call_order(&args, with.order);
    args.tag = with.tag;
    if (st != GYRE_OK)
        return st;
    coll_drive(comm);
    st = coll_plan_make(comm, &with, &args.shape, &schedule);
    if (st == GYRE_OK) {
        comm->held_bytes += schedule->bytes - plan->schedule->bytes;
        coll_plan_free(plan->schedule);
        plan->schedule = schedule;
        plan->args = args;
    }
    coll_stop_driving(comm);
    return st;
}

static void forget(gyre_plan_t *p)
{
    gyre_comm_t *comm = p->comm;
    /* in a child of fork nobody drives, and the parent's thread that did is not there */
    const int child = atomic_load(&comm->error) == GYRE_ERR_INVALID;
    if (!child)
        coll_drive(comm);
    gyre_plan_t **at = &comm->held;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    comm->held_bytes -= p->schedule ? p->schedule->bytes : 0;
    if (!child)
        coll_stop_driving(comm);
}

gyre_status_t gyre_plan_free(gyre_plan_t **plan)
{
    if (!plan)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_plan_free: plan is NULL");
    gyre_plan_t *p = *plan;
    if (!p)
        return GYRE_OK;
    if (atomic_load_explicit(&p->under_way, memory_order_acquire))
        return gyre_fail(GYRE_ERR_INVALID, "gyre_plan_free: the %s is under way: wait for its request first",
                         p->args.name);
    if (p->comm)
        forget(p);
    base_redop_release(p->args.shape.redop);
    base_type_release(p->args.shape.type);
    drop(p);
    *plan = NULL;
    return GYRE_OK;
}
