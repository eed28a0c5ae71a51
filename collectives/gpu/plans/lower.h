/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/lower.h: a rank's schedule as lists of actions for a kernel
 * (collectives/gpu/plans/schedule.h), and the proof that such lists come to an end. Host code without any
 * call of CUDA. */
#ifndef COLLECTIVES_GPU_PLANS_LOWER_H
#define COLLECTIVES_GPU_PLANS_LOWER_H

#include "collectives/schedules/schedule.h"

#ifdef GYRE_CUDA

#include "collectives/gpu/plans/schedule.h"

/* The actions of one lane of a rank, in the schedule's order. Links are numbered in the order of their first
 * message, unless the caller numbered some before. */
typedef struct {
    coll_cuda_action_t *actions;
    uint32_t count;
    uint16_t from[COLL_CUDA_LINKS], to[COLL_CUDA_LINKS]; /* ranks */
    uint32_t received[COLL_CUDA_LINKS], sent[COLL_CUDA_LINKS];
    uint32_t nfrom, nto;
    size_t message; /* bytes of the longest that goes out */
    size_t tmp;     /* bytes of TMP that are in use, packed */
} coll_cuda_lowered_t;

/* Lowers channel `channel` of a schedule made for `args`. out->from, to, nfrom and nto are kept; the rest is
 * set; out->actions are the arena's. UNSUPPORTED, quietly: a schedule that a kernel cannot run: JOINT steps,
 * sums of more than two, channels that wait for each other, more than COLL_CUDA_LINKS neighbours, messages
 * of 4 GiB. NO_MEMORY. */
gyre_status_t coll_cuda_lower(const coll_schedule_t *s, const coll_args_t *args, int channel, size_t esize,
                              base_arena_t *arena, coll_cuda_lowered_t *out);

/* 1: with `depth` slots per link the ranks' lists of one lane (lanes[rank * stride]) come to their end, in
 * any order of blocks. memory: [2 * n * n]. */
int coll_cuda_ends(const coll_cuda_lowered_t *lanes, size_t stride, int n, uint32_t depth, uint32_t *memory);

#endif
#endif
