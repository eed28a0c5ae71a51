/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 4, guard: 2 */
/* tests/gpu/ranks/mp_stage_cuda.c: bits of a stage on the GPU do not depend on its layout: all ranks are one
 * tensor-parallel group; with and without sequence parallelism, stages, recomputation and split backward, in
 * fp32 and bf16, each rank compares what it has with what rank 0 computes alone. The ranks share the GPU. */
#include "tests/gpu/stages.h"
#include "tests/support/mp.h"

static const layout_t layouts[] = {
    {.stages = 1},
    {.stages = 2, .sequence = 1, .graphs = MODEL_GRAPHS_ON},
    {.stages = 1, .sequence = 1, .split = 1, .recompute = MODEL_RECOMPUTE_FULL}};

/* Rows that this rank has some of: the rest of `got` is what it was. */
static void same_bits(const whole_t *w, const result_t *want, const result_t *got, const model_tp_t *tp,
                      const char *what)
{
    MP_CHECK(memcmp(want->loss, got->loss, sizeof want->loss) == 0, "%s: losses %a %a, alone they are %a %a",
             what, got->loss[0], got->loss[1], want->loss[0], want->loss[1]);
    MP_CHECK(memcmp(want->routed, got->routed, sizeof want->routed) == 0, "%s: other choices than alone",
             what);
    for (size_t i = 0; i < SEQUENCES; i++)
        for (size_t r = 0; r < w->params->rows; r++) {
            const model_param_t *row = &w->params->row[r];
            size_t count = row->cut < 0 ? row->count : row->count / tp->size,
                   first = row->cut < 0 ? 0 : tp->rank * count;
            const float *a = want->grads[i] + row->grad + first, *b = got->grads[i] + row->grad + first;
            for (size_t e = 0; e < count; e++)
                MP_CHECK(memcmp(a + e, b + e, sizeof *a) == 0,
                         "%s: sequence %zu: gradient of %s[%zu]: %a, alone it is %a", what, i, row->name,
                         first + e, (double)b[e], (double)a[e]);
        }
}

/* What rank 0 computes alone, on all ranks. */
static result_t make_reference(const whole_t *w, model_precision_t precision, const model_tp_t *group)
{
    const model_tp_t alone = {.size = 1};
    model_traffic_t traffic;
    result_t one = make_result(w);
    if (group->rank == 0)
        run_gpu(w, &alone, &(layout_t){.stages = 1, .precision = precision}, &one, &traffic);
    mp_wait_for_0(group->comm);
    MP_OK(gyre_broadcast(one.loss, one.loss, sizeof one.loss, GYRE_UINT8, 0, group->comm));
    MP_OK(gyre_broadcast(one.routed, one.routed, sizeof one.routed, GYRE_UINT8, 0, group->comm));
    for (size_t i = 0; i < SEQUENCES; i++)
        MP_OK(
            gyre_broadcast(one.grads[i], one.grads[i], w->params->grad_total, GYRE_FLOAT32, 0, group->comm));
    return one;
}

static void check_shape(const shape_t *shape, model_precision_t precision, const model_tp_t *group)
{
    whole_t w;
    model_traffic_t traffic;
    make_whole(&w, &shape->config, precision);
    result_t one = make_reference(&w, precision, group);
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        layout_t layout = layouts[k];
        model_tp_t tp = *group;
        result_t other = make_result(&w);
        char what[160];
        layout.precision = precision;
        tp.sequence = layout.sequence;
        run_gpu(&w, &tp, &layout, &other, &traffic);
        snprintf(what, sizeof what, "%s, layout %zu, precision %d", shape->name, k, (int)precision);
        same_bits(&w, &one, &other, &tp, what);
        MP_CHECK((traffic.all_reduce == 0) == (layout.sequence == 1), "%s: %zu elements all-reduced", what,
                 (size_t)traffic.all_reduce);
        MP_CHECK(traffic.loss == SEQUENCES * 3 * w.params->config.seq, "%s: %zu elements for the loss", what,
                 (size_t)traffic.loss);
        free_result(&other);
    }
    free_result(&one);
    free_whole(&w);
}

int main(void)
{
    gyre_comm_t *world;
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    if (gyre_comm_size(world) < 2) {
        printf("skipped: one rank has no group: start it with 2 or 4\n");
        return 77;
    }
    size_t ranks = (size_t)gyre_comm_size(world), size = ranks >= 4 ? 4 : 2;
    int rank = gyre_comm_rank(world), in = (size_t)rank < size;
    model_tp_t tp = {.rank = (size_t)rank, .size = size};
    MP_OK(gyre_comm_split(world, in ? 0 : -1, rank, &tp.comm));
    /* vocabulary with padding; dropout, a norm after the embedding; experts; queries of their own; halves of
     * a gate, prefixes; experts */
    static const size_t tried[] = {0, 2, 7, 6, 5, 7};
    for (size_t i = 0; in && i < sizeof tried / sizeof *tried; i += size / 2)
        check_shape(&shapes[tried[i]], i % 2 == 0 ? MODEL_FLOAT32 : MODEL_BFLOAT16, &tp);
    if (tp.comm)
        MP_OK(gyre_comm_destroy(tp.comm));
    MP_OK(gyre_finalize(world));
    return 0;
}
