/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/callbacks.c: what the executor calls back for: a micro-batch forward, backward, and its
 * weights' gradients. */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "pipeline/train/engine.h"

/* Sequences of micro-batch mb, idle ones included. */
static size_t sequences_of(const pipe_train_t *train, int mb)
{
    size_t from = (size_t)mb * train->work.micro;
    return base_min_size(train->work.micro, train->longest - base_min_size(from, train->longest));
}

static size_t slot_of(const pipe_train_t *train, const chunk_t *chunk, int mb, size_t j)
{
    return ((size_t)mb % chunk->in_flight * train->work.micro + j) * train_parts_here(train);
}

/* How many of a micro-batch's n sequences, the first ones, this column does not have: columns with fewer
 * sequences are idle in the first ones, so that all end together (optim_zero_idle). */
static size_t lacking_of(const pipe_train_t *train, int mb, size_t n)
{
    size_t from = (size_t)mb * train->work.micro, idle = train->longest - train->work.part.count;
    return base_min_size(n, idle - base_min_size(idle, from));
}

/* In how many of them it computes nothing. With expert parallelism there are none: others need it at each
 * layer, and it computes blank ones, in evaluations only. */
static size_t idle_of(const pipe_train_t *train, int mb, size_t n)
{
    return train->layout.ep > 1 ? 0 : lacking_of(train, mb, n);
}

/* Bytes of j sequences between stages. */
static size_t edge_bytes(const pipe_train_t *train, size_t j)
{
    return j * train->boundary * gyre_type_size(train->type);
}

static const void *part(const void *tensor, const pipe_train_t *train, size_t j)
{
    return tensor ? (const char *)tensor + edge_bytes(train, j) : NULL;
}

static void *part_out(void *tensor, const pipe_train_t *train, size_t j)
{
    return tensor ? (char *)tensor + edge_bytes(train, j) : NULL;
}

/* Zeros in place j of those of a micro-batch. */
static void blank_sequence(pipe_train_t *train, size_t j)
{
    const size_t seq = train->whole->config.seq;
    memset(train->tokens + j * seq, 0, seq * sizeof *train->tokens);
    memset(train->targets + j * seq, 0, seq * sizeof *train->targets);
    if (train->positions)
        memset(train->positions + j * seq, 0, seq * sizeof *train->positions);
    if (train->documents)
        memset(train->documents + j * seq, 0, seq * sizeof *train->documents);
}

/* Sequence `index` into place j of those of a micro-batch. What cannot be read is zeros, so that this rank
 * goes on with the others until all hear of it. */
static void read_sequence(pipe_train_t *train, size_t index, size_t j)
{
    size_t seq = train->whole->config.seq;
    model_example_t example = {.tokens = train->tokens + j * seq,
                               .targets = train->targets + j * seq,
                               .positions = train->positions ? train->positions + j * seq : NULL,
                               .documents = train->documents ? train->documents + j * seq : NULL};
    /* the error of one that cannot be read is logged; the step is lost, and others would only repeat it */
    gyre_status_t status =
        train->unread == GYRE_OK ? train->work.fetch(train->work.user, index, &example) : train->unread;
    if (status != GYRE_OK) {
        blank_sequence(train, j);
        example.prefix = 0;
        train->unread = status;
    }
    model_sequence_t *sequence = &train->sequence[j];
    sequence->tokens = example.tokens;
    sequence->targets = example.targets;
    sequence->positions = example.positions;
    sequence->documents = example.documents;
    sequence->prefix = example.prefix;
}

/* A sequence of zeros in place j, which nobody has. */
static void put_blank(pipe_train_t *train, size_t j)
{
    const size_t seq = train->whole->config.seq;
    blank_sequence(train, j);
    train->sequence[j] = (model_sequence_t){.tokens = train->tokens + j * seq,
                                            .targets = train->targets + j * seq,
                                            .positions = train->positions ? train->positions + j * seq : NULL,
                                            .evaluate = train->work.evaluate};
}

/* Of a ring, documents decide who sends how much to whom: what one of its ranks could not read is zeros on
 * all. */
static gyre_status_t agree_on_sequence(pipe_train_t *train, size_t j)
{
    int32_t missing = train->unread != GYRE_OK;
    if (!train->layout.ring || !train->config.documents)
        return GYRE_OK;
    gyre_status_t status = gyre_all_reduce(&missing, &missing, 1, GYRE_INT32, GYRE_OP(GYRE_MAX), train->cp);
    if (status == GYRE_OK && missing)
        blank_sequence(train, j);
    return status;
}

/* Positions of the sequence in place j that are learned, of the parts here. With prefixes all count: a
 * sequence's loss is a mean over those after its prefix. */
static size_t learned_of(const pipe_train_t *train, size_t j)
{
    const size_t here = train->whole->config.seq / train->layout.cp, first = train->place.cp * here;
    size_t learned = 0;
    for (size_t t = first; t < first + here; t++)
        learned += train->sequence[j].targets[t] != MODEL_IGNORED;
    return learned;
}

/* The n sequences of a pass, cut into the parts that this rank has of each. */
static void cut_sequences(pipe_train_t *train, size_t n)
{
    const size_t here = train_parts_here(train);
    for (size_t j = n; j-- > 0;)
        for (size_t k = here; k-- > 0;) {
            train->sequence[j * here + k] = train->sequence[j];
            train->sequence[j * here + k].part = train->place.cp * here + k;
        }
}

/* This rank's error, or that of others, which they have logged. */
gyre_status_t train_unread(pipe_train_t *train, double ranks)
{
    train->missed = ranks > 0.0;
    if (train->unread != GYRE_OK || ranks == 0.0)
        return train->unread;
    return gyre_fail_quiet(GYRE_ERR_FORMAT, "%g ranks could not read their sequences", ranks);
}

/* Adds it to two words whose sums are exact. */
static void add_exactly(double word[2], double value)
{
    double units = value < 0x1p12 ? nearbyint(value / AUXILIARY_UNIT) : (double)NAN;
    double high = floor(units / AUXILIARY_SPLIT);
    word[0] += high;
    word[1] += units - high * AUXILIARY_SPLIT;
}

/* Notes the z-loss of a sequence's logits. */
void train_on_z_loss(void *user, double z)
{
    add_exactly(train_words(user) + WORD_Z, z);
}

/* Notes what the router of a layer has done with a sequence; all ranks of its tensor-parallel group know
 * the same. */
void train_on_routing(void *user, const model_routed_t *routed)
{
    pipe_train_t *train = user;
    double *word = train_words(train);
    add_exactly(word + WORD_BALANCE, routed->balance);
    add_exactly(word + WORD_ROUTER_Z, routed->z);
    word[WORD_DROPPED] += (double)routed->dropped;
}

/* The first of this column's sequences in a micro-batch, which has `lacking` that this column does not
 * have. */
static size_t first_of(const pipe_train_t *train, int mb, size_t lacking)
{
    return (size_t)mb * train->work.micro + lacking - (train->longest - train->work.part.count);
}

/* Where the losses of a micro-batch go. */
static double *losses_of(const pipe_train_t *train, int mb, size_t idle)
{
    size_t first = (size_t)mb * train->work.micro + idle;
    return train->place.tp == 0 ? train->work.loss + first * train_parts_here(train) : NULL;
}

gyre_status_t train_on_forward(void *user, int chunk_index, int mb, const void *in, void *out)
{
    pipe_train_t *train = user;
    const work_t *work = &train->work;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    gyre_status_t status =
        out && idle > 0 ? pipe_gpu_zero(train->gpu, out, edge_bytes(train, idle)) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    if (idle == n)
        return n ? train_idle(train, chunk, OPTIM_PASS_FORWARD) : GYRE_OK;
    const size_t lacking = lacking_of(train, mb, n), blank = lacking - idle;
    for (size_t j = 0; j < blank; j++)
        put_blank(train, j);
    const size_t first = first_of(train, mb, lacking);
    for (size_t j = blank; j < n - idle; j++) {
        size_t index = optim_part_index(&work->part, first + j - blank);
        train->sequence[j] =
            (model_sequence_t){.sequence = index, .step = work->number, .evaluate = work->evaluate};
        if (chunk->embed || chunk->head || train->whole->config.prefix || train->config.documents)
            read_sequence(train, index, j);
        if ((status = agree_on_sequence(train, j)) != GYRE_OK)
            return status;
        if (chunk->head && train->place.tp == 0)
            *work->learned += (double)learned_of(train, j);
    }
    const size_t here = train_parts_here(train);
    cut_sequences(train, n - idle);
    return pipe_worker_forward(chunk->worker, slot_of(train, chunk, mb, idle), (n - idle) * here,
                               train->sequence, part(in, train, idle), part_out(out, train, idle),
                               losses_of(train, mb, idle), 1);
}

gyre_status_t train_on_backward(void *user, int chunk_index, int mb, const void *d_out, void *d_in,
                                unsigned flags)
{
    pipe_train_t *train = user;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    (void)flags; /* the stage has known since its creation whether passes are split */
    gyre_status_t status =
        d_in && idle > 0 ? pipe_gpu_zero(train->gpu, d_in, edge_bytes(train, idle)) : GYRE_OK;
    if (status != GYRE_OK)
        return status;
    if (idle == n)
        return n ? train_idle(train, chunk, OPTIM_PASS_BACKWARD) : GYRE_OK;
    return pipe_worker_backward(chunk->worker, slot_of(train, chunk, mb, idle),
                                (n - idle) * train_parts_here(train), train->work.scale,
                                part(d_out, train, idle), part_out(d_in, train, idle),
                                losses_of(train, mb, idle), 1);
}

gyre_status_t train_on_backward_weight(void *user, int chunk_index, int mb, unsigned flags)
{
    pipe_train_t *train = user;
    const chunk_t *chunk = &train->chunk[chunk_index];
    size_t n = sequences_of(train, mb), idle = idle_of(train, mb, n);
    (void)flags;
    if (idle == n)
        return n ? train_idle(train, chunk, OPTIM_PASS_BACKWARD_WEIGHT) : GYRE_OK;
    return pipe_worker_backward_weight(chunk->worker, slot_of(train, chunk, mb, idle),
                                       (n - idle) * train_parts_here(train));
}
