/* pipeline/layout.c: the rules of layouts, and the search for the nearest one that keeps them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "pipeline/layout.h"

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

pipe_layout_t pipe_layout_complete(const pipe_layout_t *layout, size_t ranks, const optim_batch_t *batch)
{
    pipe_layout_t l = *layout;
    l.tp = l.tp ? l.tp : 1;
    l.pp = l.pp ? l.pp : 1;
    if (l.dp == 0)
        l.dp = base_max_size(1, l.tp > ranks || l.pp > ranks ? 1 : ranks / (l.tp * l.pp));
    if (l.chunks == 0)
        l.chunks = (size_t)pipe_kind_chunks(l.schedule);
    if (l.micro_batch == 0 && batch && l.zero == 3 && l.dp > 1 && l.pp == 1)
        l.micro_batch = pipe_layout_longest(&l, batch);
    l.micro_batch = base_max_size(1, l.micro_batch);
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
    return (pipe_place_t){
        .tp = rank % layout->tp, .dp = rank / layout->tp % layout->dp, .pp = rank / layout->tp / layout->dp};
}

size_t pipe_layout_rank(const pipe_layout_t *layout, pipe_place_t place)
{
    return (place.pp * layout->dp + place.dp) * layout->tp + place.tp;
}

size_t pipe_layout_micro_batches(const pipe_layout_t *layout, const optim_batch_t *batch, size_t dp)
{
    size_t first, share;
    optim_batch_share(batch, layout->dp, dp, &first, &share);
    return (share + layout->micro_batch - 1) / layout->micro_batch;
}

/* ---- the rules: each returns 0 and says in `why` what is broken ------------------------------------------------ */

#define WHY PIPE_LAYOUT_WHY

static int check_degrees(const pipe_layout_t *l, size_t ranks, char why[WHY])
{
    size_t product;
    if (base_mul(l->tp, l->pp, &product) && base_mul(product, l->dp, &product) && product == ranks)
        return 1;
    snprintf(why, WHY, "tp %zu x pp %zu x dp %zu does not make %zu ranks", l->tp, l->pp, l->dp, ranks);
    return 0;
}

static int check_tensor(const pipe_layout_t *l, const model_config_t *model, char why[WHY])
{
    const model_config_t c = model_config_complete(model);
    if (c.leaves % l->tp != 0) {
        snprintf(why, WHY,
                 "tp %zu does not divide the %zu leaves of every sum (heads, MLP and vocabulary are cut in "
                 "leaves; --leaves takes more where they divide)",
                 l->tp, c.leaves);
        return 0;
    }
    if (l->sequence && l->tp > 1 && c.seq % l->tp != 0) {
        snprintf(why, WHY, "sequence parallelism: seq %zu is not divisible by tp %zu", c.seq, l->tp);
        return 0;
    }
    return 1;
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
    size_t most = (size_t)pipe_kind_chunks(l->schedule);
    if (most == 1 ? l->chunks != 1 : l->schedule == PIPE_INTERLEAVED ? l->chunks < 2 : l->chunks != 2) {
        snprintf(why, WHY, "%s has %s per rank, not %zu (interleaved has 2 or more, zb-v 2, the others 1)",
                 pipe_kind_name(l->schedule), most == 1 ? "one chunk" : "2 chunks", l->chunks);
        return 0;
    }
    for (size_t d = 0; l->schedule == PIPE_INTERLEAVED && d < l->dp; d++) {
        size_t micro = pipe_layout_micro_batches(l, batch, d);
        if (micro % l->pp != 0) {
            snprintf(why, WHY, "interleaved needs a multiple of pp %zu micro-batches, not %zu", l->pp, micro);
            return 0;
        }
    }
    return 1;
}

static int check_data(const pipe_layout_t *l, const optim_batch_t *batch, char why[WHY])
{
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
    return check_degrees(l, ranks, why) && check_tensor(l, model, why) && check_data(l, batch, why) &&
           check_pipeline(l, model, batch, why);
}

static double apart(size_t a, size_t b)
{
    return fabs(log2((double)base_max_size(1, a)) - log2((double)base_max_size(1, b)));
}

/* Schedules that may stand in for the one that is asked for, with the chunks that they take. */
static size_t stand_ins(const pipe_layout_t *l, pipe_layout_t out[4])
{
    size_t n = 0;
    out[n++] = *l;
    out[n] = *l;
    out[n++].chunks = (size_t)pipe_kind_chunks(l->schedule);
    out[n] = *l;
    out[n].schedule = PIPE_1F1B;
    out[n++].chunks = 1;
    return n;
}

/* The legal layout with the fewest changes: each halving or doubling of a degree counts one, and so do
 * another schedule and leaving sequence parallelism out. */
static int nearest(const pipe_layout_t *asked, const model_config_t *model, size_t ranks,
                   const optim_batch_t *batch, pipe_layout_t *best)
{
    double least = INFINITY;
    char why[WHY];
    pipe_layout_t form[4];
    size_t forms = stand_ins(asked, form);
    for (size_t f = 0; f < forms * (asked->sequence ? 2 : 1); f++)
        for (size_t tp = 1; tp <= ranks; tp *= 2)
            for (size_t pp = 1; tp * pp <= ranks && pp <= model->layers; pp++) {
                pipe_layout_t l = form[f % forms];
                l.sequence = asked->sequence && f < forms;
                l.tp = tp;
                l.pp = pp;
                l.dp = ranks / (tp * pp);
                l.zero = l.zero < 0 ? 0 : l.zero > 3 ? 3 : l.zero;
                double distance = apart(tp, asked->tp) + apart(pp, asked->pp) + apart(l.dp, asked->dp) +
                                  (l.schedule != asked->schedule || l.chunks != asked->chunks) +
                                  (l.sequence != asked->sequence);
                if (distance < least && pipe_layout_works(&l, model, ranks, batch, why)) {
                    least = distance;
                    *best = l;
                }
            }
    return least < INFINITY;
}

gyre_status_t pipe_layout_check(const pipe_layout_t *layout, const model_config_t *model, size_t ranks,
                                const optim_batch_t *batch)
{
    char why[WHY];
    pipe_layout_t near = *layout;
    if (pipe_layout_works(layout, model, ranks, batch, why))
        return GYRE_OK;
    if (!nearest(layout, model, ranks, batch, &near))
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s; no layout of this model and a batch of %zu fits %zu ranks: take fewer ranks or a "
            "larger batch",
            why, batch->batch, ranks);
    char form[64] = "";
    if (near.schedule != layout->schedule || near.chunks != layout->chunks)
        snprintf(form, sizeof form, " --schedule %s --chunks %zu", pipe_kind_name(near.schedule),
                 near.chunks);
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s; the nearest that works on %zu ranks: --tp %zu --pp %zu --dp %zu%s%s", why, ranks,
                     near.tp, near.pp, near.dp, form,
                     near.sequence != layout->sequence ? ", without --sequence-parallel" : "");
}
