/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/layout.c: the rules of layouts, and the search for the nearest one that keeps them. */
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "pipeline/plan/layout.h"
#include "pipeline/schedules/kinds.h"

size_t pipe_layout_longest(const pipe_layout_t *layout, const optim_batch_t *batch)
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t longest = 0;
    for (size_t d = 0; d < layout->dp; d++) {
        size_t first, share;
        optim_batch_share(&b, layout->dp, d, &first, &share);
        longest = base_max_size(longest, share);
    }
    return longest;
}

int pipe_layout_equal(const pipe_layout_t *layout, const optim_batch_t *batch)
{
    return batch->batch % layout->dp == 0 && pipe_layout_longest(layout, batch) == batch->batch / layout->dp;
}

size_t pipe_layout_context(const pipe_layout_t *layout)
{
    return base_max_size(1, layout->cp);
}

size_t pipe_layout_experts(const pipe_layout_t *layout)
{
    return base_max_size(1, layout->ep);
}

size_t pipe_layout_replicas(const pipe_layout_t *layout)
{
    return layout->dp * pipe_layout_context(layout);
}

int pipe_layout_spreads(const pipe_layout_t *layout, const optim_batch_t *batch)
{
    const optim_part_t part = optim_batch_part(batch, layout->dp, 0, 1);
    int wanted = pipe_layout_context(layout) > 1 || (layout->zero > 0 && batch->lanes > 0);
    return wanted && part.run < part.count;
}

optim_part_t pipe_layout_part(const pipe_layout_t *layout, const optim_batch_t *batch, size_t dp, int spread)
{
    optim_part_t part = optim_batch_part(batch, layout->dp, dp, spread);
    part.parts = base_max_size(1, batch->parts) / pipe_layout_context(layout);
    return part;
}

optim_part_t pipe_layout_most(const pipe_layout_t *layout, const optim_batch_t *batch)
{
    int spread = pipe_layout_spreads(layout, batch);
    optim_part_t most = {0};
    for (size_t d = 0; d < layout->dp; d++) {
        const optim_part_t part = pipe_layout_part(layout, batch, d, spread);
        most = d == 0 || part.count > most.count ? part : most;
    }
    return most;
}

pipe_layout_t pipe_layout_complete(const pipe_layout_t *layout, size_t ranks, const pipe_load_t *load)
{
    pipe_layout_t l = *layout;
    l.tp = l.tp ? l.tp : 1;
    l.pp = l.pp ? l.pp : 1;
    l.cp = pipe_layout_context(&l);
    l.ep = pipe_layout_experts(&l);
    if (l.dp == 0)
        l.dp =
            base_max_size(1, l.tp > ranks || l.pp > ranks || l.cp > ranks ? 1 : ranks / (l.tp * l.cp * l.pp));
    if (l.chunks == 0)
        l.chunks = (size_t)pipe_kind_chunks(l.schedule);
    if (l.micro_batch == 0)
        l.micro_batch = load ? pipe_layout_together(&l, load) : 1;
    return l;
}

size_t pipe_layout_stages(const pipe_layout_t *layout)
{
    return layout->pp * layout->chunks;
}

void pipe_layout_layers(const pipe_layout_t *layout, size_t layers, size_t stage, size_t *first,
                        size_t *count)
{
    size_t stages = pipe_layout_stages(layout), ends = layout->balance && stages > 1 ? 1 : 0;
    size_t slots = layers + 2 * ends, each = slots / stages, more = slots % stages;
    size_t begin = stage * each + base_min_size(stage, more), end = begin + each + (stage < more ? 1 : 0);
    /* the first slot and the last are no layers */
    *first = begin > ends ? begin - ends : 0;
    *count = base_min_size(end - ends, layers) - *first;
}

pipe_place_t pipe_layout_place(const pipe_layout_t *layout, size_t rank)
{
    const size_t cp = pipe_layout_context(layout), column = rank / layout->tp;
    return (pipe_place_t){.tp = rank % layout->tp,
                          .cp = column % cp,
                          .dp = column / cp % layout->dp,
                          .pp = column / cp / layout->dp};
}

size_t pipe_layout_micro_batches(const pipe_layout_t *layout, const optim_batch_t *batch, size_t dp)
{
    size_t first, share;
    optim_batch_share(batch, layout->dp, dp, &first, &share);
    return (share + layout->micro_batch - 1) / layout->micro_batch;
}

pipe_shape_t pipe_layout_shape(const pipe_layout_t *layout, size_t micro_batches, int forward_only)
{
    return (pipe_shape_t){.kind = layout->schedule,
                          .ranks = (int)layout->pp,
                          .chunks = (int)layout->chunks,
                          .micro_batches = (int)micro_batches,
                          .forward_only = forward_only};
}

size_t pipe_layout_evaluated_together(const pipe_layout_t *l)
{
    return l->zero == 3 ? base_min_size(l->micro_batch, PIPE_EVALUATED) : 1;
}

size_t pipe_layout_rounds(const pipe_layout_t *layout, const optim_batch_t *batch)
{
    return (pipe_layout_longest(layout, batch) + layout->micro_batch - 1) / layout->micro_batch;
}

size_t pipe_layout_uneven(const pipe_layout_t *layout, const optim_batch_t *batch, const optim_ramp_t *ramp,
                          size_t *rounds)
{
    const size_t sizes = pipe_kind_row(layout->schedule)->grouped ? optim_ramp_sizes(ramp) : 0;
    for (size_t i = 0; i + 1 < sizes; i++) {
        const optim_batch_t sized = optim_batch_sized(batch, optim_ramp_size(ramp, i));
        *rounds = pipe_layout_rounds(layout, &sized);
        if (*rounds % layout->pp != 0)
            return sized.batch;
    }
    return 0;
}

size_t pipe_layout_unequal(const pipe_layout_t *layout, const optim_batch_t *batch, const optim_ramp_t *ramp)
{
    const size_t sizes = pipe_layout_experts(layout) > 1 ? optim_ramp_sizes(ramp) : 0;
    for (size_t i = 0; i < sizes; i++) {
        const optim_batch_t sized = optim_batch_sized(batch, optim_ramp_size(ramp, i));
        if (!pipe_layout_equal(layout, &sized))
            return sized.batch;
    }
    return 0;
}

/* ---- the rules: each returns 0 and says in `why` what is broken ---------------------------------------- */

#define WHY PIPE_LAYOUT_WHY
_Static_assert((int)WHY >= (int)OPTIM_BATCH_WHY, "a reason of the batch's fits");
#define MOST_LEAVES 64 /* that gyre-train's --leaves takes */

static int check_degrees(const pipe_layout_t *l, size_t ranks, char why[WHY])
{
    size_t product;
    char context[32] = "";
    int fits = base_mul(l->tp, l->pp, &product) && base_mul(product, pipe_layout_context(l), &product) &&
               base_mul(product, l->dp, &product);
    if (fits && product == ranks)
        return 1;
    if (pipe_layout_context(l) > 1)
        snprintf(context, sizeof context, "cp %zu x ", l->cp);
    int n = snprintf(why, WHY, "tp %zu x %spp %zu x dp %zu does not make %zu rank%s", l->tp, context, l->pp,
                     l->dp, ranks, ranks == 1 ? "" : "s");
    if (ranks == 1 && n > 0 && n < WHY && fits)
        snprintf(why + n, WHY - (size_t)n, ": start %zu ranks, with ucx-run -n %zu", product, product);
    return 0;
}

static int check_tensor(const pipe_layout_t *l, const model_config_t *model, char why[WHY])
{
    const model_config_t c = model_config_complete(model);
    if (c.leaves % l->tp != 0) {
        snprintf(why, WHY,
                 "tp %zu does not divide the %zu leaves of every sum (heads, MLP and vocabulary are cut in "
                 "leaves)",
                 l->tp, c.leaves);
        return 0;
    }
    return 1;
}

/* Whatever the layout: whether sequences of this model can be cut into the batch's parts. */
static int check_parts(const model_config_t *model, const optim_batch_t *batch, char why[WHY])
{
    const size_t parts = base_max_size(1, batch->parts);
    *why = 0;
    if (parts > MODEL_SEQUENCE_PARTS || (parts & (parts - 1)) != 0)
        snprintf(why, WHY, "--sequence-parts %zu: it must be a power of two up to %d", parts,
                 MODEL_SEQUENCE_PARTS);
    else if (model->seq < parts)
        snprintf(why, WHY, "--sequence-parts %zu does not divide seq %zu: take --seq %zu", parts, model->seq,
                 parts);
    else if (model->seq % parts != 0) /* a loaded model may have no more positions */
        snprintf(why, WHY, "--sequence-parts %zu does not divide seq %zu: take --seq %zu or %zu", parts,
                 model->seq, model->seq - model->seq % parts, base_round_up(model->seq, parts));
    else if (parts > 1 && (model->prefix || model->top_query || model->kv_latent))
        snprintf(why, WHY, "--sequence-parts %zu is not for a model with %s: take --sequence-parts 1", parts,
                 model->prefix      ? "prefixes"
                 : model->top_query ? "a layer of queries on top"
                                    : "latent attention (kv_latent)");
    return *why == 0;
}

static int check_context(const pipe_layout_t *l, const model_config_t *model, const optim_batch_t *batch,
                         char why[WHY])
{
    const model_config_t c = model_config_complete(model);
    const size_t cp = pipe_layout_context(l), parts = base_max_size(1, batch->parts),
                 heads = model_config_key_heads(&c) / l->tp;
    if (l->sequence && l->tp > 1 && c.seq / parts % l->tp != 0) {
        snprintf(why, WHY, "sequence parallelism: %s %zu is not divisible by tp %zu",
                 parts > 1 ? "a part (--sequence-parts) of" : "seq", c.seq / parts, l->tp);
        return 0;
    }
    if ((cp & (cp - 1)) != 0) {
        snprintf(why, WHY, "cp %zu is no power of two, as the parts of a sequence are", cp);
        return 0;
    }
    if (parts % cp != 0) {
        snprintf(
            why, WHY,
            "cp %zu does not divide the %zu part%s of each sequence: with --sequence-parts %zu (other bits) "
            "it could",
            cp, parts, parts == 1 ? "" : "s", cp);
        return 0;
    }
    if (!l->ring && heads % cp != 0) {
        int n = snprintf(why, WHY,
                         "cp %zu does not divide the %zu key and value heads of a tensor rank: with "
                         "--cp-attention ring it could",
                         cp, heads);
        model_config_t other = c;
        other.leaves = cp * l->tp;
        other.vocab_padded = 0;
        if (other.leaves <= MOST_LEAVES && model_config_works(&other))
            snprintf(why + n, WHY - (size_t)n, ", or with --leaves %zu (other bits)", other.leaves);
        return 0;
    }
    if (cp > 1 && batch->batch >= l->dp && !optim_batch_deals(batch, l->dp)) {
        int n = snprintf(why, WHY, "cp %zu: dp %zu does not deal the %zu sequences of a batch out one by one",
                         cp, l->dp, batch->batch);
        optim_batch_t other = *batch;
        other.lanes = batch->batch & -batch->batch; /* the largest power of two that divides it */
        other.groups = 0;
        if (optim_batch_deals(&other, l->dp))
            snprintf(why + n, WHY - (size_t)n, ": with --lanes %zu (other bits) it could", other.lanes);
        return 0;
    }
    return 1;
}

/* Which batch, and which groups of it, have equal shares. */
static void unequal(const pipe_layout_t *l, const optim_batch_t *batch, char why[WHY])
{
    int n = snprintf(why, WHY, "ep %zu: a batch of %zu has no equal shares for dp %zu: take", l->ep,
                     batch->batch, l->dp);
    optim_batch_t other = *batch;
    other.batch = (batch->batch + l->dp - 1) / l->dp * l->dp;
    if (other.batch != batch->batch)
        n += snprintf(why + n, WHY - (size_t)n, " a batch of %zu%s", other.batch,
                      pipe_layout_equal(l, &other) ? "" : " with");
    if (!pipe_layout_equal(l, &other))
        snprintf(why + n, WHY - (size_t)n, " --groups %zu (other bits)", l->dp);
}

static int check_experts(const pipe_layout_t *l, const model_config_t *model, const optim_batch_t *batch,
                         char why[WHY])
{
    const size_t ep = pipe_layout_experts(l);
    *why = 0;
    if (ep == 1)
        return 1;
    if (model->experts == 0)
        snprintf(why, WHY, "ep %zu: the model has no experts", ep);
    else if ((ep & (ep - 1)) != 0 || l->dp % ep != 0)
        snprintf(why, WHY, "ep %zu must be a power of two that divides dp %zu", ep, l->dp);
    else if (model->experts % (l->tp * ep) != 0)
        snprintf(why, WHY, "ep %zu x tp %zu does not divide the %zu experts", ep, l->tp, model->experts);
    else if (batch->parts > 1)
        snprintf(why, WHY, "ep %zu does not go with --sequence-parts %zu: leave one out", ep, batch->parts);
    else if (batch->leaf > 1)
        snprintf(why, WHY, "ep %zu does not go with --grad-sequences %zu: leave one out", ep, batch->leaf);
    else if (optim_batch_dealt(batch, l->dp, why) && !pipe_layout_equal(l, batch))
        unequal(l, batch, why);
    return *why == 0;
}

static int check_pipeline(const pipe_layout_t *l, const model_config_t *model, const optim_batch_t *batch,
                          char why[WHY])
{
    size_t stages = pipe_layout_stages(l);
    if (stages > model->layers) {
        snprintf(why, WHY, "pp %zu x chunks %zu are %zu stages, but the model has %zu layers", l->pp,
                 l->chunks, stages, model->layers);
        return 0;
    }
    if (l->balance && stages > 1 && model->layers + 2 < 2 * stages) {
        snprintf(why, WHY, "balance: embedding, head and %zu layers leave one of %zu stages without a layer",
                 model->layers, stages);
        return 0;
    }
    const pipe_kind_row_t *row = pipe_kind_row(l->schedule);
    size_t chunks = (size_t)row->chunks;
    if (row->any_chunks ? l->chunks < chunks : l->chunks != chunks) {
        snprintf(why, WHY, "%s has %s per rank, not %zu (interleaved has 2 or more, zb-v 2, the others 1)",
                 row->name, chunks == 1 ? "one chunk" : "2 chunks", l->chunks);
        return 0;
    }
    size_t micro = row->grouped ? pipe_layout_rounds(l, batch) : 0;
    if (micro % l->pp != 0) {
        snprintf(why, WHY, "%s needs a multiple of pp %zu micro-batches, not %zu", row->name, l->pp, micro);
        return 0;
    }
    return 1;
}

static int check_data(const pipe_layout_t *l, const optim_batch_t *batch, char why[WHY])
{
    size_t leaf = base_max_size(1, batch->leaf), leaves = batch->batch / leaf;
    if (leaf > 1 && leaves < l->dp && batch->batch >= l->dp) {
        snprintf(why, WHY,
                 "a batch of %zu sequences in gradients of %zu (--grad-sequences) cannot feed dp %zu, of %zu "
                 "(other "
                 "bits) it could",
                 batch->batch, leaf, l->dp, optim_batch_nearest_leaf(batch, l->dp));
        return 0;
    }
    if (!optim_batch_dealt(batch, l->dp, why))
        return 0;
    if (l->micro_batch % leaf != 0) {
        snprintf(why, WHY, "micro-batches of %zu sequences are no whole gradients of %zu (--grad-sequences)",
                 l->micro_batch, leaf);
        return 0;
    }
    if (batch->batch < l->dp) {
        snprintf(why, WHY, "a batch of %zu sequences cannot feed dp %zu", batch->batch, l->dp);
        return 0;
    }
    if (l->zero < 0 || l->zero > 3) {
        snprintf(why, WHY, "zero %d: the stages are 0, 1, 2 and 3", l->zero);
        return 0;
    }
    return 1;
}

int pipe_layout_works(const pipe_layout_t *l, const model_config_t *model, size_t ranks,
                      const optim_batch_t *batch, char why[WHY])
{
    return check_parts(model, batch, why) && check_degrees(l, ranks, why) && check_tensor(l, model, why) &&
           check_context(l, model, batch, why) && check_data(l, batch, why) &&
           check_experts(l, model, batch, why) && check_pipeline(l, model, batch, why);
}

static double apart(size_t a, size_t b)
{
    return fabs(log2((double)base_max_size(1, a)) - log2((double)base_max_size(1, b)));
}

/* Schedules that may stand in for the one that is asked for, with the chunks that they take. */
enum { FORMS = 3 };
static void stand_ins(const pipe_layout_t *l, pipe_layout_t out[FORMS])
{
    out[0] = out[1] = out[2] = *l;
    out[1].chunks = (size_t)pipe_kind_chunks(l->schedule);
    out[2].schedule = PIPE_1F1B;
    out[2].chunks = 1;
    for (int f = 0; f < FORMS; f++)
        out[f].zero = l->zero < 0 ? 0 : l->zero > 3 ? 3 : l->zero;
}

/* Each halving or doubling of a degree counts one, and so do another schedule and leaving sequence
 * parallelism out; smaller micro-batches and another balance, which change nothing but the speed, count
 * half. */
static double distance(const pipe_layout_t *l, const pipe_layout_t *asked)
{
    return apart(l->tp, asked->tp) + apart(l->cp, asked->cp) + apart(l->pp, asked->pp) +
           apart(l->dp, asked->dp) + apart(l->ep, asked->ep) +
           (l->schedule != asked->schedule || l->chunks != asked->chunks) + (l->sequence != asked->sequence) +
           0.5 * (l->balance != asked->balance) + 0.5 * apart(l->micro_batch, asked->micro_batch);
}

/* The best of `l` with micro-batches as they are, up to whole gradients, and smaller (which only a schedule
 * that counts them minds), and with either balance. */
static void try_cuts(pipe_layout_t l, const pipe_layout_t *asked, const model_config_t *model, size_t ranks,
                     const optim_batch_t *batch, double *least, pipe_layout_t *best)
{
    char why[WHY];
    size_t leaf = base_max_size(1, batch->leaf);
    for (size_t leaves = (asked->micro_batch + leaf - 1) / leaf; leaves >= 1; leaves /= 2) {
        l.micro_batch = leaves * leaf;
        for (int other = 0; other < 2; other++) {
            l.balance = asked->balance != other;
            double d = distance(&l, asked);
            if (d < *least && pipe_layout_works(&l, model, ranks, batch, why)) {
                *least = d;
                *best = l;
            }
        }
        if (!pipe_kind_row(l.schedule)->grouped)
            break;
    }
}

/* The legal layout with the fewest changes: degrees, schedule, sequence parallelism, micro-batches,
 * balance. 1, or 0: none. */
static int pipe_layout_nearest(const pipe_layout_t *asked, const model_config_t *model, size_t ranks,
                               const optim_batch_t *batch, pipe_layout_t *best)
{
    double least = INFINITY;
    pipe_layout_t form[FORMS];
    stand_ins(asked, form);
    for (int f = 0; f < FORMS * (asked->sequence ? 2 : 1); f++)
        for (size_t cp = 1; cp <= base_max_size(1, batch->parts); cp *= 2)
            for (size_t tp = 1; tp * cp <= ranks; tp *= 2)
                for (size_t pp = 1; tp * cp * pp <= ranks && pp <= model->layers; pp++) {
                    if (ranks % (tp * cp * pp) != 0)
                        continue;
                    pipe_layout_t l = form[f % FORMS];
                    l.sequence = asked->sequence && f < FORMS;
                    l.tp = tp;
                    l.cp = cp;
                    l.pp = pp;
                    l.dp = ranks / (tp * cp * pp);
                    for (l.ep = 1; l.ep <= pipe_layout_experts(asked); l.ep *= 2)
                        try_cuts(l, asked, model, ranks, batch, &least, best);
                }
    return least < INFINITY;
}

/* ---- what a refusal says ------------------------------------------------------------------------------- */

enum { ADVICE = 200 };

/* `near` as flags, in the place of those that asked for `layout`. */
static void flags_of(const pipe_layout_t *near, const pipe_layout_t *layout, char text[ADVICE])
{
    size_t n = 0;
#define SAY(...) (n += (size_t)snprintf(text + n, n < ADVICE ? ADVICE - n : 0, __VA_ARGS__))
    SAY("--tp %zu", near->tp);
    if (near->cp > 1 || layout->cp > 1)
        SAY(" --cp %zu", near->cp);
    SAY(" --pp %zu --dp %zu", near->pp, near->dp);
    if (near->ep > 1 || layout->ep > 1)
        SAY(" --ep %zu", near->ep);
    if (near->schedule != layout->schedule || near->chunks != layout->chunks)
        SAY(" --schedule %s --chunks %zu", pipe_kind_name(near->schedule), near->chunks);
    if (near->micro_batch != layout->micro_batch)
        SAY(" --micro-batch %zu", near->micro_batch);
    if (near->balance != layout->balance)
        SAY(" --balance %s", near->balance ? "embedding" : "layers");
    if (near->zero != layout->zero)
        SAY(" --zero %d", near->zero);
    if (near->sequence != layout->sequence)
        SAY(", without --sequence-parallel");
#undef SAY
}

/* Where more leaves would do: "; or --leaves N". `model` has the leaves that were found for it or asked
 * for. */
static void advise_leaves(const pipe_layout_t *l, const model_config_t *model, size_t ranks,
                          const optim_batch_t *batch, char text[ADVICE])
{
    char why[WHY];
    model_config_t c = *model;
    *text = 0;
    if (model_config_complete(model).leaves % l->tp == 0)
        return;
    c.leaves = l->tp;
    c.vocab_padded = 0; /* anew, for these leaves */
    if (l->tp <= MOST_LEAVES && model_config_works(&c) && pipe_layout_works(l, &c, ranks, batch, why))
        snprintf(text, ADVICE, ", or --leaves %zu (other bits)", c.leaves);
}

/* No layout on so many ranks: the most below that have one, and the batch that would feed them all. */
static gyre_status_t nothing_fits(const pipe_layout_t *layout, const model_config_t *model, size_t ranks,
                                  const optim_batch_t *batch, const char *why)
{
    enum { TRIES = 1024 };
    pipe_layout_t near;
    size_t fewer = ranks, most;
    /* no more than leaves x layers x sequences x parts of them have something to do */
    if (base_mul(model_config_complete(model).leaves, model->layers, &most) &&
        base_mul(most, batch->batch, &most) && base_mul(most, base_max_size(1, batch->parts), &most))
        fewer = base_min_size(fewer, most + 1);
    for (int i = 0; i < TRIES && fewer > 1; i++) {
        char flags[ADVICE];
        if (!pipe_layout_nearest(layout, model, --fewer, batch, &near))
            continue;
        flags_of(&near, layout, flags);
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s; no layout of this model and a batch of %zu fits %zu ranks: take %zu ranks "
                         "(%s)%s or a larger batch",
                         why, batch->batch, ranks, fewer, flags,
                         batch->leaf > 1 ? ", a smaller --grad-sequences (other bits)" : "");
    }
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s; no layout of this model and a batch of %zu fits %zu ranks: take fewer ranks or a "
                     "larger batch",
                     why, batch->batch, ranks);
}

gyre_status_t pipe_layout_check(const pipe_layout_t *layout, const model_config_t *model, size_t ranks,
                                const optim_batch_t *batch)
{
    char why[WHY], leaves[ADVICE], flags[ADVICE];
    pipe_layout_t near;
    /* whatever the layout */
    gyre_status_t status = batch->leaf > 1 ? optim_batch_check(batch, 1) : GYRE_OK;
    if (status == GYRE_OK && !check_parts(model, batch, why))
        status = gyre_fail(GYRE_ERR_INVALID, "%s", why);
    if (status != GYRE_OK || pipe_layout_works(layout, model, ranks, batch, why))
        return status;
    if (!pipe_layout_nearest(layout, model, ranks, batch, &near))
        return nothing_fits(layout, model, ranks, batch, why);
    flags_of(&near, layout, flags);
    advise_leaves(layout, model, ranks, batch, leaves);
    return gyre_fail(GYRE_ERR_INVALID, "%s; the nearest that works on %zu ranks: %s%s", why, ranks, flags,
                     leaves);
}
