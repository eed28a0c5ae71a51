/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/generate.c: the generators: in which order a rank computes. Pure functions of the shape
 * and the rank.
 *
 * p ranks, v chunks per rank, m micro-batches, r this rank. In the pictures F, B, W are forward, backward (of
 * the input) and weight gradient; a number is a micro-batch. */
#include "base/checked.h"
#include "pipeline/schedules/generate.h"

static void put(pipe_writer_t *w, pipe_op_t op, int chunk, int micro_batch)
{
    *w->next++ = (pipe_action_t){.op = op, .chunk = chunk, .micro_batch = micro_batch, .peer = -1};
}

/* The next micro-batch of that kind. Micro-batches after the last of the batch are counted and left out. A
 * schedule without all actions of one micro-batch is a schedule, so short batches follow the order of long
 * ones. */
static void put_next(pipe_writer_t *w, pipe_op_t op, int chunk)
{
    int micro_batch = w->done[op][chunk]++;
    if (micro_batch < w->shape->micro_batches)
        put(w, op, chunk, micro_batch);
}

/* GPipe (Huang et al. 2019): everything forward, then everything backward. Here the backward passes come in
 * the order of the forward ones, not in reverse: pipeline/schedules/schedule.h says why.
 *
 *   F0 F1 F2 F3             B0 B1 B2 B3 */
void pipe_order_gpipe(pipe_writer_t *w, int rank)
{
    int m = w->shape->micro_batches;
    (void)rank;
    for (int i = 0; i < m; i++)
        put(w, PIPE_FORWARD, 0, i);
    for (int i = 0; i < m; i++)
        put(w, PIPE_BACKWARD, 0, i);
}

int pipe_held_gpipe(const pipe_shape_t *s, int rank)
{
    (void)rank;
    return s->micro_batches;
}

/* 1F1B with flushes (Narayanan et al. 2021a, PipeDream-2BW, section 3.2; 2021b, section 2.2.1): as many
 * forward passes ahead as there are stages after this one, then one forward, one backward, then what is
 * left backward. */
void pipe_order_1f1b(pipe_writer_t *w, int rank)
{
    int m = w->shape->micro_batches, ahead = base_min_int(m, w->shape->ranks - rank - 1);
    for (int i = 0; i < ahead; i++)
        put(w, PIPE_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        if (ahead + i < m)
            put(w, PIPE_FORWARD, 0, ahead + i);
        put(w, PIPE_BACKWARD, 0, i);
    }
}

int pipe_held_1f1b(const pipe_shape_t *s, int rank)
{
    return base_min_int(s->micro_batches, s->ranks - rank);
}

/* The k-th of a rank's m*v passes in Megatron-LM's order: groups of p micro-batches go through all chunks,
 * the next group follows. Chunk as counted in the direction of the pass. */
static void interleaved_place(const pipe_shape_t *shape, int k, int *chunk, int *micro_batch)
{
    int p = shape->ranks, group = p * shape->chunks;
    *chunk = k % group / p;
    *micro_batch = k / group * p + k % p;
}

static void interleaved_forward(pipe_writer_t *w, int k)
{
    int chunk, micro_batch;
    interleaved_place(w->shape, k, &chunk, &micro_batch);
    if (micro_batch < w->shape->micro_batches)
        put(w, PIPE_FORWARD, chunk, micro_batch);
}

/* Interleaved 1F1B (Narayanan et al. 2021b, section 2.2.2). The first backward pass of rank r can start when
 * micro-batch 0 went through all v chunks of all ranks: (v - 1)p passes, and as in 1F1B two for each rank
 * after this one. */
void pipe_order_interleaved(pipe_writer_t *w, int rank)
{
    const pipe_shape_t *shape = w->shape;
    int p = shape->ranks, v = shape->chunks, all = shape->micro_batches * v;
    int ahead = base_min_int(all, 2 * (p - rank - 1) + (v - 1) * p);
    for (int k = 0; k < ahead; k++)
        interleaved_forward(w, k);
    for (int k = 0; k < all; k++) {
        int chunk, micro_batch;
        if (ahead + k < all)
            interleaved_forward(w, ahead + k);
        interleaved_place(shape, k, &chunk, &micro_batch);
        put(w, PIPE_BACKWARD, v - 1 - chunk, micro_batch);
    }
}

int pipe_held_interleaved(const pipe_shape_t *s, int rank)
{
    int p = s->ranks, v = s->chunks;
    return base_min_int(s->micro_batches * v, 2 * (p - rank - 1) + (v - 1) * p + 1);
}

/* ZB-H1 (Qi et al. 2023, section 2.1): 1F1B whose backward passes postpone the weight gradients. Rank r
 * postpones r of them. So gradients of inputs run ahead towards the first rank, where the bubble would be. No
 * rank holds more than p activations, as the first rank of 1F1B does.
 *
 *   p = 3   r = 0   F0 F1 F2    B0 W0 F3 B1 W1 ...
 *           r = 1      F0 F1 B0 F2 B1 W0 F3 ...
 *           r = 2         F0 B0 F1 B1 F2 B2 W0 F3 ... W1 W2 */
void pipe_order_zb_h1(pipe_writer_t *w, int rank)
{
    int m = w->shape->micro_batches, p = w->shape->ranks, ahead = base_min_int(m, p - rank);
    for (int i = 0; i < ahead; i++)
        put(w, PIPE_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        put(w, PIPE_BACKWARD_INPUT, 0, i);
        if (i >= rank)
            put(w, PIPE_BACKWARD_WEIGHT, 0, i - rank);
        if (ahead + i < m)
            put(w, PIPE_FORWARD, 0, ahead + i);
    }
    for (int i = m > rank ? m - rank : 0; i < m; i++)
        put(w, PIPE_BACKWARD_WEIGHT, 0, i);
}

int pipe_held_zb_h1(const pipe_shape_t *s, int rank)
{
    (void)rank;
    return base_min_int(s->micro_batches, s->ranks);
}

int pipe_left_zb_h1(const pipe_shape_t *s, int rank)
{
    return base_min_int(s->micro_batches, rank + 1);
}

static void put_all_three(pipe_writer_t *w, int chunk)
{
    put_next(w, PIPE_FORWARD, chunk);
    put_next(w, PIPE_BACKWARD_INPUT, chunk);
    put_next(w, PIPE_BACKWARD_WEIGHT, chunk);
}

/* ZB-V (Qi et al. 2023, section 6; 2024, section 3): rank r holds stages r and 2p - 1 - r. So the last rank
 * hands over to itself, the first rank sees the loss, and no rank waits long for its first gradient. Three
 * phases lead in. One phase repeats: six actions per micro-batch, none of which waits if all last equally
 * long. Two phases lead out, in which the postponed weight gradients fill the gaps. The form with all counts
 * is for batches of 2p micro-batches and more; shorter batches leave actions out. */
void pipe_order_zb_v(pipe_writer_t *w, int rank)
{
    int p = w->shape->ranks, m = w->shape->micro_batches, long_enough = m > 2 * p ? m : 2 * p;
    int *forward = w->done[PIPE_FORWARD], *input = w->done[PIPE_BACKWARD_INPUT];
    for (int i = 0; i < 2 * (p - rank) - 1; i++)
        put_next(w, PIPE_FORWARD, 0);
    for (int i = 0; i < rank; i++) {
        put_next(w, PIPE_FORWARD, 1);
        put_next(w, PIPE_FORWARD, 0);
    }
    for (int i = 0; i < p - rank; i++)
        put_all_three(w, 1);
    while (forward[1] < long_enough) {
        if (forward[0] < long_enough)
            put_next(w, PIPE_FORWARD, 0);
        put_next(w, PIPE_BACKWARD_INPUT, 0);
        put_next(w, PIPE_BACKWARD_WEIGHT, 0);
        put_all_three(w, 1);
    }
    while (input[1] < long_enough) {
        put_next(w, PIPE_BACKWARD_INPUT, 0);
        put_next(w, PIPE_BACKWARD_INPUT, 1);
    }
    while (input[0] < long_enough) {
        put_next(w, PIPE_BACKWARD_INPUT, 0);
        put_next(w, PIPE_BACKWARD_WEIGHT, 0);
    }
    while (w->done[PIPE_BACKWARD_WEIGHT][1] < long_enough)
        put_next(w, PIPE_BACKWARD_WEIGHT, 1);
    while (w->done[PIPE_BACKWARD_WEIGHT][0] < long_enough)
        put_next(w, PIPE_BACKWARD_WEIGHT, 0);
}

int pipe_held_zb_v(const pipe_shape_t *s, int rank)
{
    (void)rank;
    return base_min_int(2 * s->micro_batches, 2 * s->ranks);
}

int pipe_left_zb_v(const pipe_shape_t *s, int rank)
{
    return base_min_int(2 * s->micro_batches, 2 * rank + 1);
}

/* Evaluation: the forward passes in the order that fits where the stages lie. Along a V, chunk 1 of
 * micro-batch 0 comes to rank r when 2(p - r) - 1 of chunk 0 went by, and from then on they take turns. */
static void forward_only(pipe_writer_t *w, int rank)
{
    const pipe_shape_t *shape = w->shape;
    int p = shape->ranks, m = shape->micro_batches;
    if (pipe_kind_row(shape->kind)->folded) {
        for (int i = 0; i < 2 * (p - rank) - 1; i++)
            put_next(w, PIPE_FORWARD, 0);
        for (int i = 0; i < m; i++) {
            put_next(w, PIPE_FORWARD, 1);
            put_next(w, PIPE_FORWARD, 0);
        }
        return;
    }
    int groups = (m + p - 1) / p;
    for (int k = 0; k < groups * p * shape->chunks; k++)
        interleaved_forward(w, k);
}

size_t pipe_order_length(const pipe_shape_t *shape)
{
    size_t each = shape->forward_only ? 1 : pipe_kind_splits(shape->kind) ? 3 : 2;
    return (size_t)shape->micro_batches * (size_t)shape->chunks * each;
}

void pipe_order(const pipe_shape_t *shape, int rank, pipe_action_t *action)
{
    pipe_writer_t w = {.shape = shape, .next = action};
    if (shape->forward_only)
        forward_only(&w, rank);
    else
        pipe_kind_row(shape->kind)->order(&w, rank);
}
