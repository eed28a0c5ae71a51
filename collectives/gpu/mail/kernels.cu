/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/mail/kernels.cu: one piece of a message between ranks that map each other's device memory
 * (mail.h). One block moves a short piece. For a piece that copy engines move, the block waits before it or
 * signals after it.
 *
 * A signal follows its data: the block's stores come before the barrier, and the barrier before the release
 * of the word. Data of copy engines is complete when a kernel after it on the stream begins. Block: THREADS;
 * shared memory: a word. */
#include "collectives/gpu/mail/mail.h"

#include "collectives/gpu/shots/copy.h"
#include "collectives/gpu/shots/over.h"
#include "collectives/gpu/shots/vectors.h"

/* 0: the operation is over. */
static __device__ int wait_for_piece(const coll_cuda_piece_t &p)
{
    if (*(volatile uint32_t *)p.over)
        return 0;
    for (uint32_t looks = 1; (int32_t)(gyre_load_acquire(p.wait) - p.until) < 0; looks++) {
        if (is_over(p.over, p.abort, looks))
            return 0;
        GYRE_SPIN();
    }
    return 1;
}

static __device__ int is_expected(const coll_cuda_piece_t &p)
{
    const volatile coll_cuda_letter_t *letter = p.letter;
    volatile coll_cuda_mail_board_t *board = p.board;
    if (letter->bytes == p.text.bytes && letter->piece == p.text.piece)
        return 1;
    board->bytes = letter->bytes;
    board->piece = letter->piece;
    board->turn = p.turn;
    gyre_store_release(&p.board->wrong, (uint32_t)p.peer + 1);
    *(volatile uint32_t *)p.over = 1;
    return 0;
}

static __global__ void __launch_bounds__(THREADS) piece_kernel(const __grid_constant__ coll_cuda_piece_t p)
{
    __shared__ int goes_on;
    if (threadIdx.x == 0) {
        *(volatile uint32_t *)&p.board->began = p.turn;
        goes_on = wait_for_piece(p) && (!p.takes || is_expected(p));
    }
    __syncthreads();
    if (!goes_on || !p.tell)
        return;
    coll_copy_block(p.to, p.from, p.bytes);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (!p.takes) {
        volatile coll_cuda_letter_t *letter = p.letter;
        letter->bytes = p.text.bytes;
        letter->piece = p.text.piece;
    }
    gyre_store_release(p.tell, p.number);
    gyre_store_release(&p.board->ended, p.turn);
}

extern "C" cudaError_t coll_cuda_load_mail(void)
{
    return gyre_load(piece_kernel);
}

extern "C" cudaError_t coll_cuda_launch_piece(const coll_cuda_piece_t *piece, cudaStream_t stream)
{
    return GYRE_LAUNCH(piece_kernel, dim3(1), dim3(THREADS), 0, stream, *piece);
}
