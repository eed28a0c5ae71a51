/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/meeting.h: how a block of a kernel meets the blocks of its peers with the same
 * number (peers.h), and how an operation begins and ends; for the kernels of rounds.h and schedule.cu. */
#ifndef COLLECTIVES_GPU_SHOTS_MEETING_H
#define COLLECTIVES_GPU_SHOTS_MEETING_H

#include "base/device/kernel.h"
#include "collectives/gpu/shots/over.h"
#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/shots/vectors.h"

/* What a block keeps in shared memory. */
struct state_t {
    uint32_t epoch, rounds;
    int dead; /* the operation is over: an abort, or a rank that does not agree */
};

static __device__ __forceinline__ coll_cuda_head_t *head_of(const coll_cuda_op_t &op, int rank)
{
    return (coll_cuda_head_t *)op.arena[rank];
}

/* This rank's operations are over: that peer made another call. */
static __device__ __forceinline__ void disagree(coll_cuda_head_t *head, coll_cuda_board_t *board, int peer)
{
    *(volatile uint32_t *)&board->mismatch = (uint32_t)peer + 1;
    *(volatile uint32_t *)&head->over = 1;
}

/* Waits for one peer's flag. */
static __device__ void wait_for(const coll_cuda_op_t &op, int peer, uint32_t epoch, state_t *state)
{
    coll_cuda_head_t *head = head_of(op, op.rank);
    coll_cuda_flag_t *flag = &head->flags[blockIdx.x][epoch % 2][peer];
    for (uint32_t looks = 1; (int32_t)(gyre_load_acquire(&flag->epoch) - epoch) < 0; looks++) {
        if (is_over(&head->over, &op.board->abort, looks)) {
            state->dead = 1;
            return;
        }
        if (looks == LOOKS_BEFORE_LATE)
            *(volatile uint32_t *)&op.board->late = (uint32_t)peer + 1;
        GYRE_SPIN();
    }
    const volatile coll_cuda_flag_t *seen = flag;
    if (seen->sig != op.sig) {
        disagree(head, op.board, peer);
        state->dead = 1;
    }
}

/* This block signals its peers that it has come to sync number state->epoch + 1. What it wrote before is
 * seen by a peer that waits for that: the barrier orders it before the release of the flags, on which the
 * others' acquire and barrier follow. */
static __device__ APART void tell(const coll_cuda_op_t &op, const state_t *state)
{
    __syncthreads();
    const uint32_t epoch = state->epoch + 1;
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        if (peer != op.rank) {
            coll_cuda_flag_t *flag = &head_of(op, peer)->flags[blockIdx.x][epoch % 2][op.rank];
            ((volatile coll_cuda_flag_t *)flag)->sig = op.sig;
            ((volatile coll_cuda_flag_t *)flag)->rounds = op.rounds;
            if (op.registered) {
                ((volatile coll_cuda_flag_t *)flag)->places[0] = op.places[0];
                ((volatile coll_cuda_flag_t *)flag)->places[1] = op.places[1];
            }
            gyre_store_release(&flag->epoch, epoch);
        }
}

/* All ranks' blocks with this number have come to that sync. */
static __device__ APART void meet(const coll_cuda_op_t &op, state_t *state)
{
    const uint32_t epoch = state->epoch + 1;
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        if (peer != op.rank)
            wait_for(op, peer, epoch, state);
    __syncthreads();
    if (threadIdx.x == 0)
        state->epoch = epoch;
    __syncthreads();
}

/* What every kernel of an operation begins with, by all threads of the block. */
static __device__ void begin(const coll_cuda_op_t &op, state_t *state)
{
    const coll_cuda_head_t *head = head_of(op, op.rank);
    if (threadIdx.x == 0) {
        volatile coll_cuda_board_t *board = op.board;
        state->epoch = head->epochs[blockIdx.x];
        state->rounds = op.end_round;
        state->dead = *(const volatile uint32_t *)&head->over != 0;
        if (blockIdx.x == 0 && op.begins) {
            board->late = 0;
            board->call = op.call;
            board->started = head->operations + 1;
        }
    }
    __syncthreads();
}

/* Notes are the operation's, or its last block's: thread 0 of each block, at the end. */
static __device__ void leave(const coll_cuda_op_t &op, const state_t *state)
{
    coll_cuda_head_t *head = head_of(op, op.rank);
    head->epochs[blockIdx.x] = state->epoch;
    if (gyre_add_acq_rel(&head->left, 1) + 1 != gridDim.x)
        return;
    head->left = 0;
    if (op.phase)
        for (int peer = 0; peer < op.n; peer++)
            if (peer != op.rank)
                gyre_store_release(&head_of(op, peer)->phases[op.rank], op.phase);
    if (!op.ends)
        return;
    head->operations++;
    gyre_store_release(&op.board->finished, head->operations);
}

#endif
