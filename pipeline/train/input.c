/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/input.c: what the settings ask of the engine, and whether they fit each other, the model,
 * the data and the ranks, each size of a batch that grows (--batch-rampup) among them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "pipeline/train/run.h"
#include "pipeline/schedules/kinds.h"

pipe_train_config_t train_engine_config(const train_run_t *run)
{
    const train_config_t *o = run->options;
    return (pipe_train_config_t){.model = run->shape,
                                 .layout = {.tp = o->tp,
                                            .cp = o->cp,
                                            .ep = o->ep,
                                            .ring = o->cp_attention,
                                            .pp = o->pp,
                                            .dp = o->dp,
                                            .chunks = o->chunks,
                                            .schedule = (pipe_kind_t)o->schedule,
                                            .zero = (int)o->zero,
                                            .sequence = o->sequence_parallel,
                                            .micro_batch = o->micro_batch,
                                            .balance = o->balance},
                                 .batch = train_config_batch(o),
                                 .zero = {.bucket_bytes = o->bucket_bytes,
                                          .adamw = {.beta1 = o->beta1,
                                                    .beta2 = o->beta2,
                                                    .epsilon = o->epsilon,
                                                    .weight_decay = o->weight_decay},
                                          .muon = o->optimizer,
                                          .momentum = o->momentum,
                                          .clip = o->clip,
                                          .grad16 = o->grad_type,
                                          .keep = o->keep_weights,
                                          .offload = o->offload,
                                          .scaler = {.start = o->loss_scale,
                                                     .min = o->loss_scale_min,
                                                     .max = fmax(o->loss_scale, 0x1p24),
                                                     .interval = o->loss_scale_interval,
                                                     .hysteresis = o->loss_scale_hysteresis}},
                                 .precision = (model_precision_t)o->precision,
                                 .matmul_bf16 = o->matmul_type,
                                 .recompute = (model_recompute_t)o->recompute,
                                 .offload_activations = o->offload_activations,
                                 .graphs = (model_graphs_t)o->cuda_graphs,
                                 .device = run->device,
                                 .threads = o->threads,
                                 .seed = o->seed,
                                 .freeze = o->freeze,
                                 .rates = o->lr_scale,
                                 .decays = o->decay_on,
                                 .lora = {.rank = o->lora, .alpha = o->lora_alpha, .on = o->lora_on},
                                 .documents = model_data_has_documents(run->data)};
}

/* ---- a batch that grows -------------------------------------------------------------------------------- */

/* pipe_layout_uneven with micro-batches of `micro` sequences; 0: those that it takes by itself. */
static size_t uneven_size(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks,
                          size_t micro, size_t *found)
{
    const pipe_load_t load = pipe_train_load(config, ramp->batch);
    pipe_layout_t layout = config->layout;
    layout.micro_batch = micro;
    layout = pipe_layout_complete(&layout, ranks, &load);
    return pipe_layout_uneven(&layout, &load.batch, ramp, found);
}

/* Ranks that share experts have as many sequences each of every size. INVALID. */
static gyre_status_t ramp_check_equal(const optim_ramp_t *ramp, const pipe_train_config_t *config,
                                      size_t ranks)
{
    const pipe_layout_t layout = pipe_layout_complete(&config->layout, ranks, NULL);
    const size_t size = pipe_layout_unequal(&layout, &config->batch, ramp);
    if (size == 0)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "--batch-rampup: %zu of %zu sequences have no equal shares for dp %zu, as --ep %zu "
                     "needs: take %s %zu%s, or --ep 1",
                     size, ramp->batch, layout.dp, layout.ep,
                     size % layout.dp == 0 ? "--groups" : "steps of a multiple of", layout.dp,
                     size % layout.dp == 0 ? " (other bits)" : "");
}

/* Every size on the way is one that this layout can train. INVALID. */
static gyre_status_t ramp_check(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks)
{
    /* of the rules of layouts one only looks at a batch that may be smaller than its ranks: idle ones do
     * no harm for a while */
    size_t found, asked = config->layout.micro_batch, other, leaf = base_max_size(1, config->batch.leaf),
                  micro = asked;
    size_t size = uneven_size(ramp, config, ranks, asked, &found);
    if (size == 0)
        return ramp_check_equal(ramp, config, ranks);
    char way[128] = "--schedule 1f1b --chunks 1";
    do /* whole gradients, which pipe_layout_check asks for */
        micro = micro > leaf ? (micro - 1) / leaf * leaf : 0;
    while (micro > 0 && uneven_size(ramp, config, ranks, micro, &other) != 0);
    const pipe_load_t whole = pipe_train_load(config, ramp->batch);
    pipe_layout_t layout = config->layout;
    layout.micro_batch = micro;
    layout = pipe_layout_complete(&layout, ranks, &whole);
    if (micro > 0 && pipe_layout_rounds(&layout, &whole.batch) % layout.pp == 0)
        snprintf(way, sizeof way, "--micro-batch %zu, or --schedule 1f1b --chunks 1", micro);
    return gyre_fail(GYRE_ERR_INVALID,
                     "--batch-rampup: with %zu of %zu sequences the longest share has %zu micro-batch%s, and "
                     "%s needs a multiple of pp %zu: take %s",
                     size, ramp->batch, found, found == 1 ? "" : "es",
                     pipe_kind_name(config->layout.schedule), layout.pp, way);
}

/* Of dp data-parallel ranks: those without a sequence. */
static size_t ramp_idle(const optim_batch_t *batch, size_t dp)
{
    size_t idle = 0;
    for (size_t d = 0; d < dp; d++) {
        size_t first, count;
        optim_batch_share(batch, dp, d, &first, &count);
        idle += count == 0;
    }
    return idle;
}

/* Logs how many those are, and how long, while a batch that will be `batch` is small. */
static void ramp_tell(const optim_ramp_t *ramp, const optim_batch_t *batch, size_t dp)
{
    size_t sizes = optim_ramp_sizes(ramp), i = 0, last = ramp_idle(batch, dp), most = 0;
    for (; i + 1 < sizes; i++) {
        const optim_batch_t sized = optim_batch_sized(batch, optim_ramp_size(ramp, i));
        size_t idle = ramp_idle(&sized, dp);
        if (idle <= last)
            break;
        most = idle > most ? idle : most;
    }
    if (most == 0)
        return;
    log_warning(
        "--batch-rampup: up to %zu of %zu data-parallel ranks have no sequence until the batch is %zu", most,
        dp, optim_ramp_size(ramp, i));
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

/* Options that contradict one another. */
static gyre_status_t check_precision(const train_config_t *o)
{
    static const char *const scaling[] = {"loss-scale", "loss-scale-interval", "loss-scale-hysteresis",
                                          "loss-scale-min"};
    for (size_t i = 0; i < sizeof scaling / sizeof scaling[0]; i++)
        if (o->precision != MODEL_FLOAT16 && train_config_given(o, scaling[i]))
            return gyre_fail(GYRE_ERR_INVALID, "--%s is for --precision fp16 only", scaling[i]);
    if (o->grad_type && o->precision == MODEL_FLOAT32)
        return gyre_fail(GYRE_ERR_INVALID, "--grad-type 16 needs --precision bf16 or fp16");
    return GYRE_OK;
}

static gyre_status_t check_matmul(const train_config_t *o)
{
    if (!o->matmul_type)
        return GYRE_OK;
    if (o->precision != MODEL_BFLOAT16)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--matmul-type bf16 needs --precision bf16: in fp32 and fp16 tensors hold more bits");
    if (!model_matmul_has_bf16())
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "--matmul-type bf16: %s: take --matmul-type fp32",
                         model_matmul_no_bf16());
    return GYRE_OK;
}

static gyre_status_t check_activations(const train_config_t *o)
{
    if (!o->offload_activations)
        return GYRE_OK;
    if (!o->device)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--offload-activations is for --device cuda: those of the CPU are in "
                         "host memory");
    if (o->recompute != MODEL_RECOMPUTE_FULL)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--offload-activations needs --recompute full: what is kept then, one "
                         "tensor per layer, travels during the layers' work");
    return GYRE_OK;
}

/* 1: the option was given, with another value than its default. */
static int is_asked(const train_config_t *o, const train_config_t *defaults, const char *flag)
{
    char value[64], other[64];
    const char *name = NULL;
    size_t i = 0;
    while (train_config_row(o, i, &name, value, sizeof value) && strcmp(name, flag) != 0)
        i++;
    return train_config_given(o, flag) && train_config_row(defaults, i, &name, other, sizeof other) &&
           strcmp(value, other) != 0;
}

/* Logs what is asked for and has no effect in this layout; not of defaults, which a log's "config" has. */
static void tell_idle(const train_config_t *o, const pipe_layout_t *l)
{
    const int constant = o->lr_schedule == OPTIM_CURVE_CONSTANT;
    const struct {
        const char *flag;
        int idle;
        const char *why;
    } rule[] = {
        {"schedule", l->pp == 1, "--pp is 1"},
        {"sequence-parallel", o->sequence_parallel && l->tp == 1, "--tp is 1"},
        {"cuda-graphs", !o->device, "the CPU computes"},
        {"zero", l->zero > 0 && pipe_layout_replicas(l) == 1, "there is one data-parallel rank"},
        {"momentum", !o->optimizer, "--optimizer is adamw"},
        {"min-lr", constant, "--lr-schedule is constant"},
        {"lr-decay", constant && o->lr_decay > 0, "--lr-schedule is constant"},
        {"lr-decay", o->lr_schedule == OPTIM_CURVE_INVERSE_SQRT && o->lr_decay > 0,
         "--lr-schedule is inverse-sqrt"},
        {"lr-cooldown", o->lr_schedule != OPTIM_CURVE_WSD && o->lr_cooldown > 0, "--lr-schedule is not wsd"},
        {"lr-cooldown", o->lr_schedule == OPTIM_CURVE_WSD && o->lr_cooldown == 1,
         "the first step of a cool-down has the full rate: take 2 steps or more"},
        {"spike-window", o->spike_loss == 0.0 && o->spike_norm == 0.0,
         "there is no --spike-loss and no --spike-norm"},
        {"keep-weights", o->keep_weights && l->zero < 3 && o->precision == MODEL_FLOAT32,
         "only --zero 3 and 16-bit weights gather or expand any"},
    };
    train_config_t defaults;
    const int known = train_config_defaults(&defaults);
    for (size_t i = 0; known && i < sizeof rule / sizeof rule[0]; i++)
        if (rule[i].idle && is_asked(o, &defaults, rule[i].flag))
            log_warning("--%s has no effect here: %s", rule[i].flag, rule[i].why);
    train_config_free(&defaults);
}

/* cuBLASLt may add in another order for another number of rows. */
static void tell_rests(const train_config_t *o, const pipe_layout_t *l, const optim_batch_t *batch)
{
    const optim_batch_t b = optim_batch_complete(batch);
    size_t first, share = 0, micro = base_min_size(l->micro_batch, pipe_layout_longest(l, batch));
    if (!o->device || micro == 0 || strcmp(base_setting_string(SET_CUBLASLT), "off") == 0)
        return;
    for (size_t d = 0; d < l->dp && share % micro == 0; d++)
        optim_batch_share(&b, l->dp, d, &first, &share);
    if (share % micro != 0)
        log_warning("a share of %zu sequences in micro-batches of %zu: with cuBLASLt not the bits of every "
                    "layout; take GYRE_CUBLASLT=off for those, or a --micro-batch that divides all shares",
                    share, micro);
}

/* What ranks that share sequences do not go with. */
static gyre_status_t check_parts(const train_config_t *o)
{
    if (o->cp_attention && o->cp <= 1)
        return gyre_fail(GYRE_ERR_INVALID, "--cp-attention ring is for --cp 2 or more: leave it out");
    if (o->cp > 1 && o->batch_rampup)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--cp %llu with --batch-rampup: ranks that share sequences need a batch that does "
                         "not grow; take --cp 1, or --batch-rampup none",
                         (unsigned long long)o->cp);
    return GYRE_OK;
}

/* Every rank knows the data, and the number of ranks. */
gyre_status_t train_check_input(train_run_t *run)
{
    const pipe_train_config_t config = train_engine_config(run);
    size_t ranks = (size_t)gyre_comm_size(run->comm);
    const pipe_load_t load = pipe_train_load(&config, config.batch.batch);
    const pipe_layout_t layout = pipe_layout_complete(&config.layout, ranks, &load);
    gyre_status_t status = train_config_check_device(run->options);
    if (status == GYRE_OK)
        status = check_precision(run->options);
    if (status == GYRE_OK)
        status = check_matmul(run->options);
    if (status == GYRE_OK)
        status = check_activations(run->options);
    if (status == GYRE_OK)
        status = check_parts(run->options);
    if (status == GYRE_OK)
        status = pipe_layout_check(&layout, &run->shape, ranks, &config.batch);
    if (status == GYRE_OK)
        status = optim_batch_check(&config.batch, layout.dp);
    if (status == GYRE_OK)
        status = train_ramp_read(run->options, &run->ramp);
    if (status == GYRE_OK)
        status = ramp_check(&run->ramp, &config, ranks);
    if (status == GYRE_OK && run->options->precision == MODEL_FLOAT16) {
        const optim_scaler_config_t scaler = optim_scaler_complete(&config.zero.scaler);
        status = optim_scaler_check(&scaler);
    }
    if (status == GYRE_OK && run->options->offload)
        status = optim_offload_check(run->options->offload);
    if (status == GYRE_OK)
        status = model_data_prepare(run->data, run->shape.vocab, run->shape.seq);
    if (status == GYRE_OK)
        status = train_objective_choose(run);
    if (status == GYRE_OK)
        status = train_count_validation(run);
    if (status != GYRE_OK)
        return status;
    tell_idle(run->options, &layout);
    train_recipe_tell(run->options);
    size_t batch = config.batch.batch, idle = ramp_idle(&config.batch, layout.dp),
           longest = pipe_layout_longest(&layout, &config.batch);
    ramp_tell(&run->ramp, &config.batch, layout.dp);
    train_documents_tell(run);
    if (idle > 0)
        log_warning("batch %zu on %zu ranks: %zu of them %s no sequence; %zu ranks are as fast", batch,
                    layout.dp, idle, idle == 1 ? "has" : "have", layout.dp - idle);
    else if (batch % layout.dp == 0 && longest > batch / layout.dp)
        log_warning(
            "batch %zu on %zu data-parallel ranks: the longest share is %zu, so that the bits are those of "
            "every layout; equal shares: --groups %zu (other bits, the same in every layout that it suits) "
            "or --invariant off (bits of this number of ranks alone)",
            batch, layout.dp, longest, layout.dp);
    tell_rests(run->options, &layout, &config.batch);
    if (ranks > 1 && base_setting_string(SET_ORDER)[0] == 'f')
        log_warning("GYRE_ORDER=fast: sums over ranks may have other bits in other layouts; unset it for the "
                    "same bits");
    if (!optim_batch_invariant(&config.batch, layout.dp))
        log_warning("batch %zu in equal shares on %zu data-parallel ranks: the curve is not the same bits as "
                    "in other "
                    "layouts",
                    batch, layout.dp);
    return GYRE_OK;
}
