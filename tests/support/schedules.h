/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/schedules.h: builds the schedules of all ranks for one case, for the tests of generators and
 * checker. */
#ifndef TESTS_SUPPORT_SCHEDULES_H
#define TESTS_SUPPORT_SCHEDULES_H

#include "base/arena.h"
#include "collectives/schedules/schedule.h"

typedef enum { PLACE_OUT, PLACE_IN, PLACE_MIXED, PLACE_END } place_t;
typedef enum {
    HOSTS_ONE,
    HOSTS_BLOCKS,
    HOSTS_ROUND_ROBIN,
    HOSTS_UNEVEN,
    HOSTS_SCATTERED,
    HOSTS_EACH,
    HOSTS_END
} hosts_t;

/* coll_args_t.order: none; host by host; or others */
typedef enum { ORDER_RANK, ORDER_HOSTS, ORDER_BACKWARDS, ORDER_RANDOM, ORDER_END } order_t;

typedef struct {
    coll_algo_t algo;
    coll_op_t op;
    int n, root;
    size_t count; /* of the vector, or of each block; ragged: about */
    int ragged;   /* block sizes differ, displacements have gaps and are out of order */
    place_t place;
    int fast;
    size_t chunk;
    int one_shot;
    hosts_t hosts;
    order_t order;
    unsigned seed;
} sched_case_t;

typedef struct {
    coll_args_t *args;          /* [n] */
    coll_schedule_t *schedules; /* [n] */
    int n;
    base_arena_t arena;
} sched_world_t;

/* 0 if some rank's schedule could not be built (status in *status). */
int sched_world_build(sched_world_t *world, const sched_case_t *c, gyre_status_t *status);
void sched_world_free(sched_world_t *world);
/* 1 if the algorithm serves the case. */
int sched_case_served(const sched_case_t *c);
void sched_case_print(const sched_case_t *c, char *text, size_t bytes);
unsigned sched_random(unsigned *state);

#endif
