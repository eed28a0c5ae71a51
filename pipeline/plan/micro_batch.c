/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/micro_batch.c: how many sequences go through the layers together where weights are
 * gathered for each micro-batch. */
#include "base/checked.h"
#include "optim/store/zero.h"
#include "pipeline/plan/layout.h"

/* Of a gradient bucket, wherever it is: how a run cuts its buckets is no reason for other micro-batches. */
#define BUCKET ((size_t)512 << 10)

static size_t held(const size_t bytes[OPTIM_MEMORY_KINDS])
{
    size_t sum = 0;
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        sum += bytes[k];
    return sum;
}

/* Bytes that stage 3 saves against stage 0 on the rank with the largest shards; 0 where it takes more. */
static gyre_status_t saved(const pipe_layout_t *l, const pipe_load_t *load, size_t *out)
{
    size_t bytes[OPTIM_MEMORY_KINDS];
    pipe_layout_t without = *l;
    without.zero = 0;
    const optim_part_t most = pipe_layout_most(l, &load->batch),
                       whole_most = pipe_layout_most(&without, &load->batch);
    optim_zero_config_t zero = {.bucket_bytes = BUCKET,
                                .precision = load->precision,
                                .grad16 = load->grad16,
                                .ep = l->ep,
                                .offload = load->offload ? "." : NULL};
    const model_slice_t slice = {.tp_size = l->tp, .ep_size = l->ep, .embed = 1, .head = 1};
    model_params_t *whole = NULL, *local = NULL;
    gyre_status_t status = model_params_create(&load->model, &whole);
    if (status == GYRE_OK)
        status = model_params_slice(whole, &slice, &local);
    optim_zero_share(&zero, &load->batch, &whole_most);
    if (status == GYRE_OK)
        status = optim_zero_predict(local, &zero, pipe_layout_replicas(l), 0, 1, bytes, NULL);
    size_t all = status == GYRE_OK ? held(bytes) : 0;
    zero.stage = 3;
    optim_zero_share(&zero, &load->batch, &most);
    if (status == GYRE_OK)
        status = optim_zero_predict(local, &zero, pipe_layout_replicas(l), 0, 1, bytes, NULL);
    *out = status == GYRE_OK && all > held(bytes) ? all - held(bytes) : 0;
    model_params_destroy(local);
    model_params_destroy(whole);
    return status;
}

/* Bytes of activations of one sequence. */
static gyre_status_t activations(const pipe_layout_t *l, const pipe_load_t *load, size_t *out)
{
    const model_config_t model = model_config_complete(&load->model);
    const model_tp_t tp = {.size = l->tp, .sequence = l->sequence};
    const size_t here = base_max_size(1, load->batch.parts) / pipe_layout_context(l);
    const model_stage_config_t stage = {.layers = model.layers,
                                        .embed = 1,
                                        .head = 1,
                                        .slots = 1,
                                        .together = 1,
                                        .recompute = load->recompute,
                                        .precision = load->precision,
                                        .split = pipe_kind_splits(l->schedule),
                                        .parts = load->batch.parts,
                                        .parts_here = here,
                                        .ring = l->ring,
                                        .ep = l->ep};
    gyre_status_t status = model_stage_slot_bytes_f32(&model, &tp, &stage, out);
    *out *= here;
    return status;
}

size_t pipe_layout_together(const pipe_layout_t *l, const pipe_load_t *load)
{
    char why[PIPE_LAYOUT_WHY];
    pipe_layout_t one = *l;
    size_t leaf = base_max_size(1, load->batch.leaf);
    one.micro_batch = leaf;
    if (l->zero != 3 || pipe_layout_replicas(l) < 2 || l->pp != 1 || load->keep || load->batch.batch < 1 ||
        !model_config_works(&load->model) ||
        !pipe_layout_works(&one, &load->model, l->tp * pipe_layout_replicas(l), &load->batch, why))
        return leaf;
    size_t longest = pipe_layout_longest(l, &load->batch), spare, each, most;
    if (longest <= leaf || saved(l, load, &spare) != GYRE_OK || activations(l, load, &each) != GYRE_OK)
        return leaf; /* an estimate that failed has reported its error */
    longest /= leaf; /* from here on in leaves, which are whole */
    most = base_min_size(longest, base_max_size(1, (1 + spare / 2 / base_max_size(1, each)) / leaf));
    size_t count = (longest + most - 1) / most;
    return (longest + count - 1) / count * leaf;
}
