/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/mail/mail.h: data that host and device share for messages between ranks that map each
 * other's device memory.
 *
 * After the part of collectives, every rank's arena (collectives/gpu/shots/peers.h) has a head for messages
 * and a ring of bytes for each peer:
 *
 *     arena   | ... | came, taken, letters | ring to rank 0 | ring to rank 1 | ...      equal rings, none to
 *             oneself
 *
 * A piece of a message goes from the sender's buffer to the sender's ring, and the receiver fetches it from
 * there. The sender copies within its device, and the receiver reads over the link between the devices.
 * Pieces between two ranks are numbered from 1. A piece's place in the ring follows from the lengths of the
 * pieces before it (collectives/gpu/mail/ring.h). Both sides know these, so either can enqueue its copies
 * before the other has called at all.
 *
 *     sender      waits until enough are `taken`; copies; writes the letter, then `came`, into the receiver's
 *                 memory
 *     receiver    waits for `came`; compares the letter; copies; writes `taken` into the sender's memory
 *
 * Both words only grow, and each is written by one rank and waited for in the waiter's own memory. */
#ifndef COLLECTIVES_GPU_MAIL_MAIL_H
#define COLLECTIVES_GPU_MAIL_MAIL_H

#include "collectives/gpu/shots/peers.h"
#include "collectives/gpu/mail/ring.h"

enum {
    COLL_CUDA_SHORT =
        64 << 10, /* bytes up to which one block of a kernel moves a piece; beyond it copy engines do */
    COLL_CUDA_MAIL = 128 << 10 /* bytes before the first ring */
};

/* What the receiver compares with its own call. */
typedef struct {
    uint64_t bytes; /* of the whole message */
    uint32_t piece; /* of it: 0, 1, ... */
    uint32_t pad;
} coll_cuda_letter_t;

typedef struct {
    uint32_t came[COLL_CUDA_RANKS];  /* by each rank: pieces that it has sent here */
    uint32_t taken[COLL_CUDA_RANKS]; /* by each rank: pieces sent from here that it has fetched */
    coll_cuda_letter_t letters[COLL_CUDA_RANKS]
                              [COLL_MAIL_LETTERS]; /* by each rank: of piece q at [q % LETTERS] */
} coll_cuda_mail_head_t;

/* In pinned host memory: the progress of this rank's messages. */
typedef struct {
    uint32_t began, ended; /* turn that waits or moves, and the last that is over */
    /* 1 + rank whose letter was another than this rank's call; 0: all letters matched */
    uint32_t wrong;
    uint32_t piece; /* that letter */
    uint64_t bytes;
    /* that call's: later ones begin before the host looks, and end at once */
    uint32_t turn;
} coll_cuda_mail_board_t;

/* One launch: waits (which a stream may have done before), compares, moves, signals. */
typedef struct {
    const uint32_t *wait; /* own memory */
    uint32_t until, turn;
    coll_cuda_letter_t *letter, text; /* receiver: compared; sender: written to the peer's memory */
    char *to;
    const char *from;
    size_t bytes;   /* 0: nothing is moved here */
    uint32_t *tell; /* the peer's memory; NULL: the launch only waits and compares */
    uint32_t number;
    int peer, takes;       /* takes: the receiver's */
    const uint32_t *abort; /* pinned: ends it without a result; */
    uint32_t *over;        /* the same on the device: also, that a message was another than expected */
    coll_cuda_mail_board_t *board;
} coll_cuda_piece_t;

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t coll_cuda_launch_piece(const coll_cuda_piece_t *piece, cudaStream_t stream);
/* Has the driver load the kernel now (coll_cuda_load). */
cudaError_t coll_cuda_load_mail(void);

#ifdef __cplusplus
}
#endif
#endif
