/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/peers.h: what host and device share of collectives between ranks that reach each
 * other's device memory: the layout of the memory that they map, and the description of one operation.
 *
 * Every rank owns an *arena* in the memory of its device, mapped by all ranks: a head with flags, then one
 * region for each block of a kernel. Block b of one rank works with block b of the others and with no
 * other block, through the regions with number b; so blocks need not run at the same time, and ranks that
 * use grids of different sizes from one operation to the next stay in step, as all of them use the same.
 *
 *     arena   | head: flags | region 0 | region 1 | ... | 2 halves for copy engines | plans (schedule.h),
 *               which the owner alone reads | lines of short operations (collectives/gpu/ll/lines.h)
 *     region  | half 0 | half 1 |          half = slots of equal size, one per part that is published
 *
 * A block and its peers meet in *syncs*, numbered by an epoch per block that only grows. What a rank
 * writes before sync e goes to half e % 2; it is read by the others between their syncs e and e + 1. Half
 * e % 2 is written again before sync e + 2, that is after this rank passed sync e + 1, when all have read
 * it. So one flag per sync suffices, and nobody acknowledges anything: the way of all low-latency kernels
 * (NCCL's LL protocols, one-shot all-reduces of inference servers). Epochs live in device memory, so that
 * a captured kernel may run any number of times. */
#ifndef COLLECTIVES_GPU_SHOTS_PEERS_H
#define COLLECTIVES_GPU_SHOTS_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include <gyre/cuda.h>

enum {
    COLL_CUDA_RANKS = 64,  /* at most, of a communicator: what the arguments of a kernel hold */
    COLL_CUDA_BLOCKS = 64, /* at most, of a kernel */
    COLL_CUDA_ALIGN = 16,  /* slots, and the vectors in which memory is moved */
    /* the program's buffers that ranks read directly (collectives/gpu/shots/registered.c): a place in one
     * is given as (number of the registration + 1) << PLACE_BITS | bytes from its beginning */
    COLL_CUDA_REGISTERED = 256,
    COLL_CUDA_PLACE_BITS = 48
};

/* Written by one peer for one block and parity. */
typedef struct {
    uint32_t epoch;  /* last: what comes with it is then there */
    uint32_t sig;    /* what the ranks must agree on */
    uint32_t rounds; /* that this peer needs */
    uint32_t pad;
    uint64_t places[2]; /* of this peer's input and output, for operations on registered buffers */
} coll_cuda_flag_t;

typedef struct {
    coll_cuda_flag_t flags[COLL_CUDA_BLOCKS][2][COLL_CUDA_RANKS]; /* [block][epoch % 2][who wrote it] */
    uint64_t lengths[COLL_CUDA_BLOCKS][2]
                    [COLL_CUDA_RANKS]; /* bytes meant for each rank, uneven operations only */
    uint32_t epochs[COLL_CUDA_BLOCKS]; /* syncs passed so far */
    uint32_t operations;               /* finished so far */
    uint32_t left;                     /* blocks of the running kernel that have ended */
    uint32_t phases[COLL_CUDA_RANKS];  /* of operations in phases: that rank has come so far */
    uint32_t goodbye[COLL_CUDA_RANKS]; /* 1: that rank reads here no more */
    /* 1: kernels end without a result, now and from here on: the board's abort, which the host copies here,
     * or its mismatch */
    uint32_t over;
    uint32_t ll[COLL_CUDA_BLOCKS]; /* LL operations of each block (collectives/gpu/ll/lines.h) */
    /* of schedules (schedule.h), by block and rank: messages that came from it, and of those to it that it
     * has read */
    uint32_t came[COLL_CUDA_BLOCKS][COLL_CUDA_RANKS], room[COLL_CUDA_BLOCKS][COLL_CUDA_RANKS];
    uint64_t registered[COLL_CUDA_REGISTERED]
                       [COLL_CUDA_RANKS]; /* where each rank's begins, in addresses of this arena's owner */
    /* of the program's own kernels (gyre/device.cuh), by slot and rank: signals that came from it, and the
     * numbers of those sent to it and waited for. ABI: those kernels have this array's layout compiled in,
     * and what they do with it and with `over` (docs/abi.md) */
    uint32_t kernels[3][GYRE_PEERS_SLOTS][GYRE_PEERS_MOST];
} coll_cuda_head_t;
enum { COLL_CUDA_HEAD = 512 << 10 }; /* bytes before the first region */

/* In pinned host memory: how host and device of one rank tell each other. */
typedef struct {
    uint32_t abort;    /* by the host: 1: kernels end without a result, now and from here on */
    uint32_t mismatch; /* by the device: 1 + rank whose flag came with another sig or length; 0: none */
    uint32_t started;  /* by the device: operations begun, */
    uint32_t finished; /* and ended */
    uint32_t call;     /* number of the call on its communicator that began last */
    uint32_t late;     /* 1 + rank for which a block has been waiting for long; 0: none */
} coll_cuda_board_t;

/* One operation of one rank. Sizes and places in bytes. A part that is longer than the slots of all blocks
 * goes through in rounds: in round i block b moves bytes [(i * blocks + b) * slot, + slot) of every part. */
typedef struct {
    char *arena[COLL_CUDA_RANKS]; /* in this process's addresses */
    coll_cuda_board_t *board;
    const char *in;
    char *out;
    double scale;
    uint64_t whole; /* the integer factor of a scaled sum */
    uint64_t sign;  /* the sign bit of a signed integer type, else 0 */
    size_t region, slot;
    size_t sum_bytes; /* this rank's share of the reduction; 0: it reduces nothing */
    char *sum_to;     /* NULL: to be published (two shots) */
    uint32_t sig, call, rounds;
    /* What of it this launch does: rounds [first_round, end_round), in each the phases [first_phase,
     * end_phase): 0: publish; 1: add up, or take; 2: take the published sums. A kernel that does all of it
     * waits for the peers' blocks between phases; where streams wait, each launch is one phase of one
     * round, and all peers get `phase` when its last block has ended. */
    uint32_t first_round, end_round, phase;
    uint8_t first_phase, end_phase;
    uint8_t begins, ends; /* this launch is the operation's first, last */
    uint16_t n, rank;
    uint16_t divisor;   /* of an average */
    uint16_t parts;     /* that this rank publishes; 0: none */
    uint16_t sum_slot;  /* part of every rank that is added up */
    uint16_t take_slot; /* part of every rank that is copied to `out` */
    uint8_t reduces; /* 0: nobody reduces; 1: the sum is this rank's result; 2: it is published, then taken */
    uint8_t type, redop, average, scaled;
    uint8_t exact; /* a sum or average that is rounded once */
    /* Nothing is published: all read the others' buffers, whose places come with the flags. Phases:
     * 0: signal; 1: add up, or take, from inputs; 2: take the sums from outputs (two shots); last: meet. */
    uint8_t registered;
    uint8_t uneven;     /* ranks know only their own lengths: rounds are agreed on in the first sync */
    uint64_t places[2]; /* of `in` and `out`, if they are registered */
    size_t read_at;     /* registered: what is added up or taken begins there in every input */
    size_t part_at[COLL_CUDA_RANKS], part_bytes[COLL_CUDA_RANKS]; /* of `in`: to slot i */
    size_t take_at[COLL_CUDA_RANKS],
        take_bytes[COLL_CUDA_RANKS]; /* of `out`: from rank i; 0 bytes: nothing */
} coll_cuda_op_t;

#ifdef __cplusplus
extern "C" {
#endif

/* 1: `type` and `redop` are values that device code has kernels for. Where they are not, a launch of a
 * reduction returns cudaErrorInvalidValue. */
int coll_cuda_can_add(const coll_cuda_op_t *op);
int coll_cuda_has_kernel(gyre_redop_kind_t redop, gyre_type_t type);
/* Enqueues the operation on `blocks` blocks. */
cudaError_t coll_cuda_launch_peers(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
/* Has the driver load the kernels of shots now: later it might wait for a kernel that waits for a peer. */
cudaError_t coll_cuda_load(void);
cudaError_t coll_cuda_load_signals(void); /* part of it: signals.cu */
/* How many blocks of any of those kernels one multiprocessor of the current device holds at once. */
cudaError_t coll_cuda_blocks_held(int *blocks);
/* Writes to every peer that this rank reads its arena no more. */
cudaError_t coll_cuda_launch_goodbye(const coll_cuda_op_t *op, cudaStream_t stream);

/* Between hosts: sum_to[0..sum_bytes) = the sum of as many bytes at arena[0], ..., arena[n - 1], which are
 * aligned to 16 bytes and may be read to the end of the last 16; sum_to may be one of them. */
cudaError_t coll_cuda_launch_add(const coll_cuda_op_t *op, int blocks, cudaStream_t stream);
/* out[0..bytes) = in times the factor of a scaled sum; out is aligned to 16 bytes. */
cudaError_t coll_cuda_launch_scale(const coll_cuda_op_t *op, size_t bytes, int blocks, cudaStream_t stream);

/* For staging through the host: `*word` becomes `value`, after all that the stream did before. */
cudaError_t coll_cuda_launch_post(uint32_t *word, uint32_t value, cudaStream_t stream);
/* The stream goes on once `*word` has reached `value` (compared as numbers on a circle), or *abort is set. */
cudaError_t coll_cuda_launch_await(const uint32_t *word, uint32_t value, const uint32_t *abort,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
