/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/recipe_output.c: a recipe as lines and as JSON, which the answers about it begin with. */
#include <stdio.h>

#include <gyre/gyre.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/text/json.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/recipe.h"

void plan_print_recipe(const pipe_recipe_t *r, const plan_base_t *base)
{
    const pipe_layout_t *l = &r->layout;
    size_t active = model_count_active(&base->count), total = model_count_total(&base->count);
    printf("%s: %zu parameters", r->name, total);
    if (active != total)
        printf(" (%zu meet a token)", active);
    printf(", %zu layers, hidden %zu, %zu heads, sequences of %zu\n", r->model.layers, r->model.hidden,
           r->model.heads, r->model.seq);
    const size_t ranks = l->tp * l->pp * pipe_layout_replicas(l);
    printf("%zu rank%s: tp %zu%s x ", ranks, ranks == 1 ? "" : "s", l->tp,
           l->sequence ? " with sequence" : "");
    if (l->cp > 1)
        printf("cp %zu%s x ", l->cp, l->ring ? " in a ring" : "");
    printf("pp %zu (%s", l->pp, pipe_kind_name(l->schedule));
    if (l->chunks > 1)
        printf(", %zu chunks", l->chunks);
    printf(") x dp %zu, ", l->dp);
    if (l->ep > 1)
        printf("of which %zu share experts, ", l->ep);
    printf("ZeRO %d; %zu sequences in micro-batches of %zu, ", l->zero, r->batch.batch, l->micro_batch);
    if (r->batch.leaf > 1)
        printf("%zu to a gradient, ", r->batch.leaf);
    if (r->batch.parts > 1)
        printf("in %zu parts, ", r->batch.parts);
    if (optim_batch_rounds(&r->batch) > 1)
        printf("rounds of %zu gradients, ", r->batch.lanes);
    printf("recompute %s, %s, gradients %s\n", pipe_recompute_name(r->recompute),
           pipe_precision_name(r->precision.type), pipe_precision_name(r->precision.grad));
}

json_t *plan_json_recipe(const pipe_recipe_t *r, const plan_base_t *base)
{
    const pipe_layout_t *l = &r->layout;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:s, "
        "s:s, "
        "s:s}",
        "version", GYRE_VERSION, "recipe", r->name, "parameters", (json_int_t)model_count_total(&base->count),
        "active_parameters", (json_int_t)model_count_active(&base->count), "dp", (json_int_t)l->dp, "tp",
        (json_int_t)l->tp, "cp", (json_int_t)pipe_layout_context(l), "ep", (json_int_t)pipe_layout_experts(l),
        "pp", (json_int_t)l->pp, "chunks", (json_int_t)l->chunks, "schedule", pipe_kind_name(l->schedule),
        "zero", l->zero, "sequence_parallel", l->sequence, "micro_batch", (json_int_t)l->micro_batch,
        "micro_batches", (json_int_t)base->micro_batches, "global_batch", (json_int_t)r->batch.batch,
        "grad_sequences", (json_int_t)optim_batch_complete(&r->batch).leaf, "sequence_parts",
        (json_int_t)base_max_size(1, r->batch.parts), "lanes", (json_int_t)r->batch.lanes, "recompute",
        pipe_recompute_name(r->recompute), "dtype", pipe_precision_name(r->precision.type), "grad_dtype",
        pipe_precision_name(r->precision.grad));
}

int plan_json_write(const plan_question_t *q, json_t *root)
{
    gyre_status_t status = GYRE_OK;
    if (q->json)
        status = root ? base_json_write(q->json, root)
                      : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the results");
    json_decref(root);
    return status == GYRE_OK ? PLAN_OK : PLAN_FAILED;
}
