/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/time.c: seconds per step, and what travels. */
#include <math.h>

#include "base/checked.h"
#include "pipeline/plan/estimate.h"
#include "pipeline/plan/work.h"
#include "pipeline/schedules/kinds.h"

/* Bytes of the residual stream of one micro-batch. */
static double stream(const pipe_recipe_t *r)
{
    return (double)plan_tokens(r) * (double)(r->model.hidden * pipe_precision_bytes(r->precision.type));
}

/* Bytes that a rank sends for one layer and micro-batch in its tensor-parallel group.
 *
 * An all-reduce of n bytes costs each rank 2 n (t-1)/t. Sequence parallelism makes it a reduce-scatter and an
 * all-gather, which together cost the same. Forward has two all-reduces: after attention and after the MLP (a
 * parallel block has one). Backward has as many, and full recomputation repeats those of forward. The sum is
 * 8 b s h (t-1)/t elements, or 12 with recomputation. A mixture of experts has no all-reduce for the MLP: it
 * sends each token's copies to their experts and back; shared experts have one. */
static double layer_tp(const pipe_recipe_t *r)
{
    const double t = (double)r->layout.tp, passes = r->recompute == MODEL_RECOMPUTE_FULL ? 3.0 : 2.0;
    const double reduce = 2.0 * stream(r) * (t - 1.0) / t;
    double sum = r->model.parallel ? reduce : 2.0 * reduce;
    if (r->model.experts > 0)
        sum = reduce * (r->model.shared_ffn > 0 ? 2.0 : 1.0) +
              2.0 * stream(r) * (double)r->model.top_k / t * (t - 1.0) / t;
    return passes * sum;
}

/* Heads of keys and values of a tensor-parallel rank, with the copies that leaves have. */
static double heads_of_keys(const pipe_recipe_t *r)
{
    return (double)model_config_key_heads(&r->model) / (double)r->layout.tp;
}

/* Bytes that a rank sends for one layer and micro-batch to those that share its sequences
 * (model/network/stage/context.inc). Forward: q, k and v, the outputs. Backward: q, k and v, and the
 * gradients of all. Full recomputation repeats those of forward. In a ring (ring.inc) keys and values pass
 * through all ranks but one, and in backward also q and the gradients of the outputs, in the other
 * direction: at most, as the most of each direction is another rank's; without windows. */
static double layer_cp(const pipe_recipe_t *r)
{
    const double c = (double)pipe_layout_context(&r->layout), d = (double)r->model.head_dim;
    const double q = (double)r->model.heads / (double)r->layout.tp * d, kv = heads_of_keys(r) * d;
    const double forward = r->layout.ring ? 2.0 * kv * c : 2.0 * q + 2.0 * kv,
                 backward = r->layout.ring ? 2.0 * (q + kv) * c : 3.0 * q + 4.0 * kv;
    const double again = r->recompute == MODEL_RECOMPUTE_FULL ? forward : 0.0;
    return (double)plan_tokens(r) * (double)pipe_precision_bytes(r->precision.type) *
           (forward + again + backward) * (c - 1.0) / c;
}

/* Bytes that a rank sends for one layer and micro-batch to those that share its experts: the copies of tokens
 * for the experts of its leaves go to their owners and come back, forward and backward. */
static double layer_ep(const pipe_recipe_t *r)
{
    const double e = (double)pipe_layout_experts(&r->layout),
                 passes = r->recompute == MODEL_RECOMPUTE_FULL ? 3.0 : 2.0;
    return passes * 2.0 * stream(r) * (double)r->model.top_k / (double)r->layout.tp * (e - 1.0) / e;
}

/* The embedding's sum over vocabulary blocks forward; the head's input gradient backward, and its three
 * sums per token. */
static double end_tp(const pipe_recipe_t *r, const model_holds_t *holds)
{
    const double t = (double)r->layout.tp, reduce = 2.0 * stream(r) * (t - 1.0) / t;
    const double sums = 2.0 * 3.0 * 4.0 * (double)plan_tokens(r) * (t - 1.0) / t;
    return (holds->embed ? reduce : 0.0) + (holds->head ? reduce + sums : 0.0);
}

static double hop(const pipe_recipe_t *r)
{
    return stream(r) / (r->layout.sequence ? (double)r->layout.tp : 1.0);
}

/* Rajbhandari et al. 2020, section 7: gradients meet once per step, 2 psi (n-1)/n as an all-reduce, or psi as
 * a reduce-scatter and psi to gather the weights; stage 3 gathers them for every pass over a micro-batch
 * instead. With lanes gradients meet as often as gyre-train reduces them (optim_batch_part). Experts have
 * fewer replicas with expert parallelism. */
static double dp_volume(const pipe_recipe_t *r, const plan_base_t *base, const model_holds_t *holds)
{
    const size_t tp = r->layout.tp, ep = pipe_layout_experts(&r->layout),
                 experts = model_count_experts(&base->count, holds, tp, ep),
                 others = model_count_rank(&base->count, holds, tp, ep) - experts;
    const double n = (double)pipe_layout_replicas(&r->layout), alike = n / (double)ep,
                 psi = (double)others * (n - 1.0) / n + (double)experts * (alike - 1.0) / alike;
    const double grad = (double)pipe_precision_bytes(r->precision.grad),
                 weight = (double)pipe_precision_bytes(r->precision.type);
    const optim_part_t part = pipe_layout_most(&r->layout, &r->batch);
    const double times = part.run ? (double)(part.count / part.run) : 1.0;
    if (r->layout.zero == 0)
        return 2.0 * psi * grad * times;
    return psi * grad * times + psi * weight * (r->layout.zero < 3 ? 1.0 : 2.0 * (double)base->micro_batches);
}

void plan_sides(const pipe_recipe_t *r, const plan_base_t *base, size_t rank, size_t *lefts, size_t *rights)
{
    const size_t stages = pipe_layout_stages(&r->layout);
    *lefts = *rights = 0;
    for (size_t c = 0; c < r->layout.chunks && r->layout.pp > 1; c++) {
        size_t stage = (size_t)pipe_stage_of(&base->shape, (int)rank, (int)c);
        int left = -1, right = -1;
        if (stage > 0)
            pipe_place_of(&base->shape, (int)stage - 1, &left, NULL);
        if (stage + 1 < stages)
            pipe_place_of(&base->shape, (int)stage + 1, &right, NULL);
        *lefts += left >= 0 && left != (int)rank;
        *rights += right >= 0 && right != (int)rank;
    }
}

plan_volume_t plan_volume(const pipe_recipe_t *r, const plan_base_t *base, size_t rank)
{
    const model_holds_t holds = plan_holds(r, base, rank);
    const double m = (double)base->micro_batches;
    size_t lefts, rights;
    plan_sides(r, base, rank, &lefts, &rights);
    return (plan_volume_t){
        .tp = m * ((double)holds.layers * layer_tp(r) + end_tp(r, &holds)),
        .cp = m * (double)holds.layers * layer_cp(r),
        .pp = m * (double)(lefts + rights) * hop(r),
        .ep = m * (double)(holds.layers - holds.dense) * layer_ep(r),
        .dp = dp_volume(r, base, &holds),
    };
}

/* What a rank sends in a ring of `size` ranks that lie `apart` ranks from each other. A ring leaves a node
 * over the parts of the network of all its ranks there. */
static double rate(const plan_machine_t *machine, size_t size, size_t apart)
{
    const size_t node = (size_t)machine->per_node;
    if (size * apart <= node)
        return machine->intra;
    const double here = apart < node ? (double)(node / apart) : 1.0;
    return fmin(machine->intra, machine->inter * here);
}

/* Slots of a step: m, and what the pipeline takes to fill and to drain, in slots of the slowest stage: p - 1
 * (Narayanan et al. 2021, section 2.2.1), over v with v chunks. Zero bubble leaves a third of it (Qi et al.
 * 2023, table 1), as a V a sixth, where F = W = 1 and B = 2. With full recomputation F = W = 1 and B = 3:
 * zb-h1 is idle for I = 2 of a slot of 4 (pipe_bubble_formula), a half; as a V it is a quarter, as
 * pipe_simulate says. */
static double slots(const pipe_recipe_t *r, double m, double others)
{
    const double fill = pipe_kind_row(r->layout.schedule)->fill,
                 part = r->recompute == MODEL_RECOMPUTE_FULL ? 2.0 / 3.0 : 1.0;
    return m + others / (fill > 0.0 ? fill * part : (double)r->layout.chunks);
}

/* Collectives of one layer's tensor-parallel group: see layer_tp. With sequence parallelism each is two. */
static double layer_collectives(const pipe_recipe_t *r)
{
    const double passes = r->recompute == MODEL_RECOMPUTE_FULL ? 3.0 : 2.0;
    const double each = r->model.parallel ? 1.0 : 2.0;
    return r->layout.tp > 1 ? passes * each * (r->layout.sequence ? 2.0 : 1.0) : 0.0;
}

/* The same of the ranks that share sequences: layer_cp, for one head of keys and values of each of them at a
 * time. In a ring c - 1 messages for each head of keys and pass, and in backward for each head of queries. */
static double layer_exchanges(const pipe_recipe_t *r)
{
    const double c = (double)pipe_layout_context(&r->layout), full = r->recompute == MODEL_RECOMPUTE_FULL,
                 each = full ? 7.0 : 5.0, queries = (double)r->model.heads / (double)r->layout.tp;
    if (r->layout.ring)
        return (c - 1.0) * ((2.0 + full) * heads_of_keys(r) + queries);
    return c > 1.0 ? each * heads_of_keys(r) / c : 0.0;
}

/* And of the ranks that share experts: to the owners and back, and once how many they are, in each pass. */
static double layer_trips(const pipe_recipe_t *r, const model_holds_t *holds)
{
    const double forward = r->recompute == MODEL_RECOMPUTE_FULL ? 2.0 : 1.0;
    return pipe_layout_experts(&r->layout) > 1
               ? (double)(holds->layers - holds->dense) * (3.0 * forward + 2.0)
               : 0.0;
}

typedef struct {
    double compute, memory, tp, cp, ep, overhead, hops;
} slot_t;

static slot_t stage_slot(const pipe_recipe_t *r, const plan_base_t *base, const plan_machine_t *machine,
                         const plan_software_t *software, size_t rank)
{
    const pipe_layout_t *l = &r->layout;
    const model_holds_t holds = plan_holds(r, base, rank);
    const plan_volume_t volume = plan_volume(r, base, rank);
    const plan_work_t layer = plan_work_layer(r, base, software), head = plan_work_head(r, base);
    /* each of ep ranks adds up the gradients of its experts for the sequences of all */
    const size_t parameters = model_count_rank(&base->count, &holds, l->tp, 1);
    const double m = (double)base->micro_batches, layers = (double)holds.layers, top = holds.head ? 1.0 : 0.0;
    const double peak = machine->peak * machine->efficiency,
                 products = (software->fp8 ? machine->peak8 : machine->peak) * machine->efficiency;
    const double bytes = layers * layer.bytes + top * head.bytes + plan_work_sum(r, base, parameters);
    slot_t s = {.compute = layers * layer.products / products +
                           (layers * layer.attention / software->attention + top * head.products) / peak,
                .memory = software->traffic ? bytes / machine->bandwidth : 0.0,
                .tp = volume.tp / m / rate(machine, l->tp, 1) +
                      layers * layer_collectives(r) * software->latency,
                .cp = volume.cp / m / rate(machine, pipe_layout_context(l), l->tp) +
                      layers * layer_exchanges(r) * software->latency,
                .ep = volume.ep / m / rate(machine, pipe_layout_experts(l), l->tp * pipe_layout_context(l)) +
                      layer_trips(r, &holds) * software->latency,
                .hops = l->pp > 1 ? volume.pp / m / rate(machine, 2, l->tp * pipe_layout_replicas(l)) : 0.0};
    const double host = layers * software->host * (r->recompute == MODEL_RECOMPUTE_FULL ? 4.0 / 3.0 : 1.0);
    s.overhead = layers * machine->overhead + fmax(0.0, host - s.compute - s.memory - s.tp - s.cp - s.ep);
    return s;
}

static double sum(slot_t s)
{
    return s.compute + s.memory + s.tp + s.cp + s.ep + s.overhead + s.hops;
}

static double sent(const plan_volume_t *v)
{
    return v->tp + v->cp + v->ep + v->pp + v->dp;
}

void plan_time(const pipe_recipe_t *r, const plan_base_t *base, const plan_machine_t *machine,
               const plan_software_t *software, plan_time_t *out)
{
    const pipe_layout_t *l = &r->layout;
    const double m = (double)base->micro_batches, ranks = (double)(l->tp * l->pp * pipe_layout_replicas(l));
    plan_time_t t = {0};
    slot_t slowest = {0};
    double all = 0.0, dp = 0.0;
    size_t most = 0;
    for (size_t rank = 0; rank < l->pp; rank++) {
        const slot_t s = stage_slot(r, base, machine, software, rank);
        const plan_volume_t volume = plan_volume(r, base, rank);
        const model_holds_t holds = plan_holds(r, base, rank);
        all += sum(s);
        if (rank == 0 || sum(s) > sum(slowest))
            slowest = s;
        dp = fmax(dp, volume.dp);
        /* with ZeRO a rank has its part of the state of all experts in any case */
        most = base_max_size(
            most, model_count_rank(&base->count, &holds, l->tp, l->zero >= 1 ? 1 : pipe_layout_experts(l)));
        if (sent(&volume) > sent(&t.volume))
            t.volume = volume;
    }
    t.compute = slowest.compute;
    t.memory = slowest.memory;
    t.tp = slowest.tp;
    t.cp = slowest.cp;
    t.ep = slowest.ep;
    t.overhead = slowest.overhead;
    t.hops = slowest.hops;
    /* filling and draining goes through every stage once: those that are lighter than the slowest are
     * passed sooner */
    t.slots = slots(r, m, all / sum(slowest) - 1.0);
    double pipeline = t.slots * sum(slowest);
    const size_t replicas = pipe_layout_replicas(l);
    t.dp = replicas > 1 ? (1.0 - machine->overlap) * dp / rate(machine, replicas, l->tp) : 0.0;
    t.update = software->step + (software->traffic ? plan_work_update(r, most) / machine->bandwidth : 0.0);
    t.step = pipeline + t.dp + t.update;
    t.bubble = (t.slots - m) * sum(slowest) / t.step;
    double sequences = (double)r->batch.batch;
    t.model_flops = sequences * model_flops_step(&base->flops, (double)r->model.layers, MODEL_RECOMPUTE_NONE);
    t.hardware_flops = sequences * model_flops_step(&base->flops, (double)r->model.layers, r->recompute);
    t.teraflops = t.hardware_flops / ranks / t.step / 1e12;
    t.mfu = t.model_flops / ranks / t.step / machine->peak;
    t.hfu = t.hardware_flops / ranks / t.step / machine->peak;
    t.tokens = sequences * (double)r->model.seq / t.step;
    *out = t;
}
