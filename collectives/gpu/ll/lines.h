/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/ll/lines.h: what host and device share of short operations between ranks that map each
 * other's device memory ("LL", low latency, as NCCL calls its protocol): the lines in which data and flag
 * travel in one store, and the description of one operation.
 *
 *     line   | data, 4 bytes | flag | data, 4 bytes | flag |      16 bytes, 8 of them data
 *
 * A rank pushes its lines into the memory of the ranks that need them, and polls those that the others push
 * into its own. A line is two words of 8 bytes, and CUDA's memory model keeps a word of 8 bytes whole
 * (a vector of two such words is two operations), so a word whose flag is the operation's has the
 * operation's data: no fence, no acknowledgement, and nobody reads across a link. Half of what travels is
 * flags; a flag for 8 or 12 bytes of data would need stores of 16 bytes that no link may split.
 *
 *     area   | half 0 | half 1 |                in every arena, after the plans
 *     half   | block 0 | block 1 | ...          of the kernel: 4 with up to 8 ranks, fewer with more
 *     block  | from rank 0 | from rank 1 | ...  COLL_LL_LINES lines each: one for each thread
 *
 * *Number and flag.* Each block counts its LL operations: `number` in its head, the same on all ranks, as
 * all launch the same blocks. Operation s uses half s % 2 and flag s + 1, and counts again from 0 after
 * COLL_LL_PERIOD operations.
 *
 * *Two halves are enough.* In operation s each block waits for a word of every peer that says that the
 * peer's block has come to s (the flags of peers.h: an LL operation is one of their syncs). Rank A writes to
 * half s % 2 of rank B again in operation s + 2, after its operation s + 1 has ended. That one waited for B's
 * word of s + 1, which B's kernel of s + 1 wrote, which began after B's kernel of s had ended, as the
 * operations of a communicator run in the order of its calls; and B had read all of its lines by then. So no
 * rank is ever more than one operation ahead of a peer, and a third half would have no use.
 *
 * *What is pushed is read.* A rank pushes a line only to ranks that take it in the same operation. So no line
 * is on its way after the operation, in which its receiver has seen it.
 *
 * *Numbers that come again.* A line keeps its flag until it is written again, and short operations leave the
 * lines of longer ones alone. So operation 0 of each count begins by sweeping: the block zeroes its own lines
 * of both halves, and all ranks meet, by a release and an acquire, before the first line is pushed. Flag 0
 * is used by no operation. No peer pushes at that time: it has passed operation COLL_LL_PERIOD - 1 at most,
 * all lines of which are read. Thereby also what an arena's earlier communicator left is gone. */
#ifndef COLLECTIVES_GPU_LL_LINES_H
#define COLLECTIVES_GPU_LL_LINES_H

#include "collectives/gpu/shots/peers.h"

enum {
    COLL_LL_RANKS = 32,                                 /* at most, of a communicator */
    COLL_LL_LINES = 512,                                /* from each rank, of a block */
    COLL_LL_DATA = 8,                                   /* bytes of data in a line */
    COLL_LL_BLOCK = COLL_LL_LINES * COLL_LL_DATA,       /* bytes of a part that a block moves */
    COLL_LL_BLOCKS = 4,                                 /* at most, */
    COLL_LL_PIECES = 32,                                /* and blocks times ranks */
    COLL_LL_MOST = COLL_LL_BLOCKS * COLL_LL_BLOCK,      /* bytes of a part: 16 KiB */
    COLL_LL_HALF = COLL_LL_PIECES * COLL_LL_LINES * 16, /* bytes, and */
    COLL_LL_AREA = 2 * COLL_LL_HALF,
#ifdef GYRE_EMULATED
    COLL_LL_PERIOD = 64 /* so that tests come around; even */
#else
    COLL_LL_PERIOD = 1 << 30
#endif
};

/* Reductions, as coll_do_NAME of arithmetic.h. */
enum { COLL_LL_sum, COLL_LL_prod, COLL_LL_first, COLL_LL_none };

/* One operation of one rank. A part is what one rank has for another: `bytes`, the same for all. */
typedef struct {
    char *arena[COLL_LL_RANKS]; /* in this process's addresses */
    coll_cuda_board_t *board;
    const char *in;
    char *out;
    double scale;
    uint64_t whole; /* the integer factor of a scaled sum */
    uint64_t sign;  /* the sign bit of a signed integer type, else 0 */
    uint64_t at;    /* of the area, in every arena */
    uint32_t sig, call, bytes;
    uint16_t divisor; /* of an average */
    uint8_t n, rank;
    uint8_t to, to_end;     /* ranks that get a part from this one */
    uint8_t from, from_end; /* ranks of which this one gets a part: all, one or none */
    uint8_t each;           /* rank r gets part r of `in`; 0: all get the same */
    uint8_t sums;           /* `out` is the sum of the parts; 0: it is the parts, one after the other */
    uint8_t type, redop, does, average, scaled;
} coll_cuda_ll_t;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the operation; returns cudaErrorInvalidValue for a reduction that has no kernel. */
cudaError_t coll_cuda_launch_ll(const coll_cuda_ll_t *op, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
