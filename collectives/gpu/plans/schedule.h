/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/plans/schedule.h: data that host and device share for schedules that run in a kernel
 * (collectives/gpu/plans/schedule.cu): lists of actions, made of the steps of
 * collectives/schedules/schedule.h by collectives/gpu/plans/lower.c.
 *
 * The vector (each block of ranks) is cut into *segments*, as for the host. A block of the kernel works
 * through segments of its own, one after the other, with the blocks of its number on the other ranks. If a
 * schedule has two channels (trees), blocks take turns in serving one.
 *
 * A *link* leads from a rank to another. Its messages are pushed into slots in the receiver's region
 * (peers.h), `depth` of them in turns, and counted: `came` at the receiver, written by the sender after the
 * message; `room` at the sender, written by the receiver when slots have been read. An operation begins with
 * a sync of all ranks, of the same flags as every other operation. From there on no rank reads regions for
 * earlier operations: slots may lie there, and counters, which their owner cleared before it, start at zero.
 * `room` is written only as far as the sender will ask for it: so nothing of an operation is on its way any
 * more when both have ended it. */
#ifndef COLLECTIVES_GPU_PLANS_SCHEDULE_H
#define COLLECTIVES_GPU_PLANS_SCHEDULE_H

#include "collectives/gpu/shots/peers.h"

enum {
    COLL_CUDA_LANES = 2,  /* channels of a schedule */
    COLL_CUDA_LINKS = 16, /* of a rank and lane, at most, each way */
    COLL_CUDA_NO_LINK = 255
};

/* The places that an action reads and writes. The first three as in coll_buf_t. */
enum { COLL_CUDA_IN = 0, COLL_CUDA_OUT, COLL_CUDA_TMP, COLL_CUDA_SLOT, COLL_CUDA_NOWHERE };

/* Reads from[0], or from[0] + from[1], and writes `to` and a slot of the peer of to_link. All sizes in bytes.
 * Messages are numbered per link and segment, from 0 on. 64 bytes, so that they are read whole. */
typedef struct {
    uint64_t from_at[2]; /* from the start of the segment in its buffer; SLOT: within the message */
    uint64_t to_at;
    uint32_t bytes;
    uint32_t push;      /* the message that goes to to_link */
    uint32_t number[2]; /* SLOT: which message is read */
    uint32_t freed[2];  /* messages of free_link that are not read any more after this */
    uint8_t from[2], from_link[2];
    uint8_t to, to_link;
    uint8_t free_link[2];
    uint8_t final; /* elements are complete: an average is divided here */
    uint8_t pad[7];
} coll_cuda_action_t;

/* A block's work for a segment of one form. */
typedef struct {
    uint32_t first, actions;                                   /* in the list of actions */
    uint32_t sent[COLL_CUDA_LINKS], received[COLL_CUDA_LINKS]; /* messages */
} coll_cuda_program_t;

/* The links of this rank's blocks of one lane. */
typedef struct {
    uint16_t from[COLL_CUDA_LINKS], to[COLL_CUDA_LINKS]; /* ranks */
    uint32_t place
        /* of the slots of link `to` in that rank's region; link i's own: i * depth * slot */
        [COLL_CUDA_LINKS];
} coll_cuda_lane_t;

typedef struct {
    coll_cuda_op_t op; /* of it: all but publishing and taking */
    /* in device memory, of this rank alone: */
    const uint32_t *form_of;             /* [segments] */
    const coll_cuda_program_t *programs; /* [forms][lanes] */
    const coll_cuda_action_t *actions;
    const uint32_t *expected; /* [blocks][COLL_CUDA_LINKS]: messages of the whole operation */
    uint64_t shift;           /* of IN and OUT from one segment to the next */
    uint32_t segments, lanes, depth, slot;
    uint32_t tmp_at; /* of TMP in the region */
    coll_cuda_lane_t lane[COLL_CUDA_LANES];
} coll_cuda_schedule_t;

#ifdef __cplusplus
extern "C" {
#endif

/* blocks: a multiple of s->lanes. An operation that reduces: the caller has asked coll_cuda_can_add. */
cudaError_t coll_cuda_launch_schedule(const coll_cuda_schedule_t *s, int blocks, cudaStream_t stream);
/* As coll_cuda_load. */
cudaError_t coll_cuda_load_schedule(void);

#ifdef __cplusplus
}
static_assert(sizeof(coll_cuda_action_t) == 64, "read in vectors");
#endif
#endif
