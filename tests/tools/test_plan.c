/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/test_plan.c: gyre-plan's estimates against formulas to the byte, and against published
 * measurements. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "pipeline/plan/memory_trainer.h"
#include "pipeline/plan/work.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/time_rows.h"
#include "optim/store/shard.h"

#define GIB    1073741824.0
#define SBH    (2048ul * 12288)     /* of GPT-3 175B, a sequence */
#define SCORES (96ul * 2048 * 2048) /* a s^2 */

/* A command line, as one text. */
static int ask(const char *text, plan_for_t what, plan_question_t *q)
{
    char words[512], *argv[40] = {"test"}, *rest;
    int argc = 1;
    snprintf(words, sizeof words, "%s", text);
    for (char *at = strtok_r(words, " ", &rest); at && argc < 40; at = strtok_r(NULL, " ", &rest))
        argv[argc++] = at;
    static char kept[512]; /* q keeps pointers into it */
    memcpy(kept, words, sizeof kept);
    for (int i = 1; i < argc; i++)
        argv[i] = kept + (argv[i] - words);
    return plan_question(argc, argv, what, "", q);
}

static plan_question_t question(const char *text, plan_base_t *base)
{
    plan_question_t q;
    if (ask(text, PLAN_FOR_MEMORY | PLAN_FOR_TIME, &q) != PLAN_OK || plan_base(&q.recipe, base) != GYRE_OK)
        fail_msg("%s: %s", text, gyre_last_error());
    return q;
}

static plan_memory_t memory(const char *text, size_t stage)
{
    plan_base_t base;
    plan_question_t q = question(text, &base);
    plan_memory_t m;
    plan_memory(&q.recipe, &base, stage, &q.software, &m);
    assert_int_equal(m.total,
                     m.weights + m.gradients + m.optimizer + m.activations + m.ends + m.working + m.buffers);
    return m;
}

static plan_time_t seconds(const char *text)
{
    plan_base_t base;
    plan_question_t q = question(text, &base);
    plan_time_t t;
    plan_time(&q.recipe, &base, &q.machine, &q.software, &t);
    return t;
}

/* 16, 4 + 12/N, 2 + 14/N, 16/N bytes per parameter (Rajbhandari et al. 2020); with fp32 gradients 18, 6 +
 * 12/N, 2 + 16/N, 18/N (Megatron-LM's distributed optimizer); fp32 16, 8 + 8/N, 4 + 12/N, 16/N. Shards
 * that do not divide are rounded up. */
static void state_bytes(void **state)
{
    (void)state;
    const struct {
        const char *type, *grad;
        size_t weight, gradient, rest;
    } mix[] = {{"bf16", "bf16", 2, 2, 12}, {"fp16", "fp32", 2, 4, 12}, {"fp32", "fp32", 4, 4, 8}};
    const size_t replicas[] = {1, 3, 7, 8, 64}, psi = 124439808;
    for (size_t i = 0; i < 3; i++)
        for (size_t zero = 0; zero < 4; zero++)
            for (size_t r = 0; r < 5; r++) {
                char text[128];
                const size_t n = replicas[r], shard = (psi + n - 1) / n;
                snprintf(text, sizeof text,
                         "--dtype %s --grad-dtype %s --zero %zu --dp %zu --global-batch %zu", mix[i].type,
                         mix[i].grad, zero, n, n);
                plan_memory_t m = memory(text, 0);
                assert_int_equal(m.parameters, psi);
                assert_int_equal(m.weights, mix[i].weight * (zero == 3 ? shard : psi));
                assert_int_equal(m.gradients, mix[i].gradient * (zero >= 2 ? shard : psi));
                assert_int_equal(m.optimizer, mix[i].rest * (zero >= 1 ? shard : psi));
                if (i == 0 && n == 64) { /* their figure 1: 7.5 B parameters, 64 ranks */
                    const double printed[] = {120, 31.4, 16.6, 1.9};
                    double each = (double)(m.weights + m.gradients + m.optimizer) / (double)psi;
                    assert_true(fabs(7.5 * each - printed[zero]) < 0.051);
                }
            }
}

/* gyre-train's own plan holds what the formulas say: whole parts exactly, shards up to the unit that they
 * are cut in. */
static void trainer(void **state)
{
    (void)state;
    const size_t psi = 124439808;
    for (size_t zero = 0; zero < 4; zero++)
        for (size_t n = 1; n <= 8; n += 7) {
            char text[128];
            plan_base_t base;
            plan_held_t held;
            const plan_trainer_t how = {.bucket_bytes = 1 << 22};
            const size_t *bytes = held.store;
            snprintf(text, sizeof text,
                     "--dtype bf16 --grad-dtype fp32 --zero %zu --dp %zu --global-batch %zu", zero, n, 4 * n);
            plan_question_t q = question(text, &base);
            assert_int_equal(plan_trainer(&q.recipe, &how, 0, &held), GYRE_OK);
            plan_memory_t m = memory(text, 0);
            const size_t slack =
                64 * OPTIM_SHARD_UNIT * 18; /* of each bucket, and of the wide ones alone in theirs */
            assert_in_range(bytes[OPTIM_MEMORY_WEIGHTS], m.weights,
                            m.weights + (zero == 3 && n > 1 ? slack : 0));
            assert_in_range(bytes[OPTIM_MEMORY_GRADIENTS], m.gradients,
                            m.gradients + (zero >= 2 && n > 1 ? slack : 0));
            size_t rest = bytes[OPTIM_MEMORY_MASTER] + bytes[OPTIM_MEMORY_MOMENTS];
            assert_in_range(rest, m.optimizer, m.optimizer + (zero >= 1 && n > 1 ? slack : 0));
            assert_int_equal(bytes[OPTIM_MEMORY_ACCUMULATION] >= 2 * 4 * psi, 1); /* log2 of 4 sequences */
        }
}

#define GPT3 "--recipe examples/recipes/gpt-3-175b.json "
#define ONE  GPT3 "--dp 1 --pp 1 --layers 1 --global-batch 1 "

/* Korthikanti et al. 2022, table 2. */
static void activations(void **state)
{
    (void)state;
    const double terabytes[] = {0.2754, 17.63, 35.25};
    const size_t batch[] = {1, 64, 128};
    for (size_t i = 0; i < 3; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 GPT3 "--dp 1 --tp 1 --pp 1 --micro-batch %zu --global-batch %zu --recompute none", batch[i],
                 batch[i]);
        plan_memory_t m = memory(text, 0);
        assert_int_equal(m.activations, 96 * batch[i] * (34 * SBH + 5 * SCORES));
        assert_true(fabs((double)m.activations / 1e12 / terabytes[i] - 1) < 3e-4);
    }
    const struct {
        const char *flags;
        size_t bytes;
    } one[] = {{ONE "--tp 8 --recompute none", 10 * SBH + 24 * SBH / 8 + 5 * SCORES / 8},
               {ONE "--tp 8 --recompute none --sequence-parallel 1", (34 * SBH + 5 * SCORES) / 8},
               {ONE "--tp 8 --recompute selective --sequence-parallel 1", 34 * SBH / 8},
               {ONE "--tp 8 --recompute full", 2 * SBH},
               {ONE "--tp 8 --recompute full --sequence-parallel 1", 2 * SBH / 8}};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        assert_int_equal(memory(one[i].flags, 0).activations, one[i].bytes);
    /* what is not kept is needed for a layer at a time */
    assert_int_equal(memory(ONE "--tp 1 --recompute full", 0).working, 32 * SBH + 5 * SCORES);
    assert_int_equal(memory(ONE "--tp 1 --recompute selective", 0).working, 5 * SCORES);
    assert_int_equal(memory(ONE "--tp 1 --recompute none", 0).working, 0);
    /* the ends: mask of the embedding's dropout; inputs of final norm and head, fp32 logits */
    assert_int_equal(memory(ONE "--tp 8 --recompute none", 0).ends, SBH + 4 * SBH + 4 * 2048 * 51200 / 8);
}

/* Of a rank's chunks the first has the embedding, whose masks are those of its own micro-batches. */
static void masks_of_chunks(void **state)
{
    (void)state;
    const char *const text[] = {GPT3 "--schedule interleaved --chunks 2",
                                GPT3 "--schedule interleaved --chunks 8",
                                GPT3 "--schedule interleaved --chunks 8 --global-batch 192",
                                GPT3 "--schedule zb-v", GPT3 "--schedule gpipe"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        plan_base_t base;
        pipe_schedule_t *schedule;
        const plan_question_t q = question(text[i], &base);
        assert_int_equal(pipe_schedule_create(&base.shape, &schedule), GYRE_OK);
        const size_t head = q.recipe.layout.schedule == PIPE_ZB_V ? memory(GPT3, 11).ends : 0;
        assert_int_equal(memory(text[i], 0).ends, pipe_schedule_in_flight(schedule, 0, 0) * SBH + head);
        pipe_schedule_destroy(schedule);
    }
}

static void in_flight(void **state)
{
    (void)state;
    for (size_t s = 0; s < 12; s++) {
        assert_int_equal(memory(GPT3, s).in_flight, 12 - s);
        assert_int_equal(memory(GPT3 "--schedule gpipe", s).in_flight, 96);
    }
    plan_memory_t m = memory(GPT3 "--schedule interleaved --chunks 4", 0); /* L (1 + (p-1)/pv) layers */
    assert_true(fabs((double)(m.in_flight * m.holds.layers) / 4 - 96 * (1 + 11.0 / 48)) < 1e-9);
}

/* Weight gradients that are put off need the inputs of all products of their layers, whatever is computed
 * again, and the last stage's those of the head: its logits' gradients. */
static void weights_put_off(void **state)
{
    (void)state;
    const plan_memory_t full = memory(GPT3 "--recompute full", 11),
                        kept = memory(GPT3 "--recompute selective", 11);
    const size_t more = kept.activations - full.activations; /* of one micro-batch */
    for (size_t s = 0; s < 12; s++) {
        const plan_memory_t h1 = memory(GPT3 "--recompute full --schedule zb-h1", s),
                            v = memory(GPT3 "--recompute full --schedule zb-v", s);
        assert_int_equal(h1.activations, 12 * full.activations + (s + 1) * more);
        assert_int_equal(v.activations, 12 * full.activations + (2 * s + 1) * more / 2);
        assert_int_equal(h1.working, kept.working);
        assert_int_equal(memory(GPT3 "--recompute selective --schedule zb-h1", s).activations,
                         12 * kept.activations);
    }
    assert_int_equal(memory(GPT3 "--schedule zb-h1", 11).ends, 12 * full.ends);
    assert_int_equal(memory(GPT3 "--schedule zb-h1 --global-batch 80", 11).ends, 5 * full.ends);
    /* the head's own are done at once; masks of the embedding's dropout */
    assert_int_equal(memory(GPT3 "--schedule zb-v", 0).ends, full.ends + 24 * SBH);
}

static void bloom(void **state)
{
    (void)state;
    plan_base_t base;
    plan_question_t q = question("--recipe examples/recipes/bloom-176b.json", &base);
    assert_int_equal(base.count.layer.whole + base.count.layer.cut, 2466437120);
    assert_int_equal(base.count.embed.cut, 3596615680);
    assert_true(fabs((double)model_count_total(&base.count) * 14 / GIB / 1024 - 2.244) < 0.0005);
    assert_true(fabs((double)model_count_total(&base.count) * 2 / GIB - 328.3) < 0.05);
    plan_memory_t m;
    assert_int_equal(plan_memory_worst(&q.recipe, &base, &q.software, &m), 0);
    assert_int_equal(m.holds.layers, 5);
    assert_int_equal(m.weights + m.gradients + m.optimizer, 6 * m.parameters + 12 * ((m.parameters + 7) / 8));
}

static void close_to(double value, double wanted, double part)
{
    if (fabs(value / wanted - 1) > part)
        fail_msg("%.9g is not %.9g", value, wanted);
}

static void volumes(void **state)
{
    (void)state;
    /* 8 b s h (t-1)/t elements of 2 bytes per layer and micro-batch, 12 with full recomputation, and the
     * ends' */
    const double ends = 4 * (4 * (double)SBH * 7 / 8 * 2 + 24 * 2048 * 7.0 / 8),
                 layer = 4 * 10 * (double)SBH * 7 / 8 * 2;
    close_to(seconds(GPT3 "--dp 1 --pp 1 --layers 10 --recompute none --global-batch 4").volume.tp,
             8 * layer + ends, 1e-9);
    close_to(seconds(GPT3 "--dp 1 --pp 1 --layers 10 --recompute full --global-batch 4").volume.tp,
             12 * layer + ends, 1e-9);
    close_to(seconds(GPT3 "--dp 1 --pp 1 --layers 10 --recompute none --global-batch 4 --sequence-parallel 1")
                 .volume.tp,
             8 * layer + ends, 1e-9);
    /* 2 psi (N-1)/N, and half as much again with stage 3 */
    for (int zero = 0; zero < 4; zero++) {
        char text[80];
        snprintf(text, sizeof text, "--dtype bf16 --grad-dtype bf16 --dp 8 --global-batch 8 --zero %d", zero);
        close_to(seconds(text).volume.dp, (zero == 3 ? 3 : 2) * 124439808.0 * 7 / 8 * 2, 1e-9);
    }
    /* 2 b s h per boundary and micro-batch: a stage in the middle has two; sequence parallelism sends
     * shards */
    plan_base_t base;
    plan_question_t q = question(GPT3 "--dp 1 --tp 8 --pp 4 --layers 8 --global-batch 8", &base);
    for (size_t s = 0; s < 4; s++)
        close_to(plan_volume(&q.recipe, &base, s).pp, 8 * (s == 0 || s == 3 ? 1 : 2) * (double)SBH * 2, 1e-9);
    q.recipe.layout.sequence = 1;
    close_to(plan_volume(&q.recipe, &base, 1).pp, 2 * (double)SBH * 2, 1e-9);
    /* attention's half; a token's copies go to two experts and back, forward and backward, each 1/t of
     * them from a rank */
    const double moe = 8192.0 * 4096 * 2 * 7 / 8;
    close_to(seconds("--recipe examples/recipes/mixtral-8x7b.json --pp 1 --dp 1 --layers 10 --global-batch 1 "
                     "--recompute none")
                 .volume.tp,
             10 * (4 * moe + 4 * moe * 2 / 8) + 4 * moe + 24 * 8192.0 * 7 / 8, 1e-9);
}

/* Replicas that share experts: the copies of tokens go to their owners and back, forward and backward; an
 * expert has a quarter of the replicas, and a rank a quarter of the experts. */
static void shared_experts(void **state)
{
    (void)state;
#define MIXTRAL \
    "--recipe examples/recipes/mixtral-8x7b.json --tp 1 --pp 1 --dp 8 --layers 10 --global-batch 8 "
    const plan_time_t whole = seconds(MIXTRAL "--recompute none"),
                      t = seconds(MIXTRAL "--ep 4 --recompute none");
    const double stream = 8192.0 * 4096 * 2;
    close_to(t.volume.ep, 10 * 2 * 2 * stream * 2 * 3 / 4, 1e-9);
    close_to(seconds(MIXTRAL "--ep 4 --recompute full").volume.ep, 10 * 3 * 2 * stream * 2 * 3 / 4, 1e-9);
    assert_true(whole.ep == 0 && whole.volume.ep == 0 && t.ep > 0 && whole.volume.tp == t.volume.tp);
    plan_base_t base;
    const plan_question_t q = question(MIXTRAL "--ep 4 --zero 0", &base),
                          all = question(MIXTRAL "--zero 0", &base);
    const double bytes = (double)pipe_precision_bytes(q.recipe.precision.grad),
                 experts = 10.0 * 8 * 3 * 4096 * 14336;
    plan_memory_t here, there;
    plan_memory_worst(&q.recipe, &base, &q.software, &here);
    plan_memory_worst(&all.recipe, &base, &all.software, &there);
    assert_true(there.parameters - here.parameters == (size_t)(experts * 3 / 4));
    close_to(plan_volume(&all.recipe, &base, 0).dp, 2 * bytes * (double)there.parameters * 7 / 8, 1e-9);
    close_to(plan_volume(&q.recipe, &base, 0).dp,
             2 * bytes * (((double)there.parameters - experts) * 7 / 8 + experts / 4 / 2), 1e-9);
    assert_int_equal(here.shard, there.shard);
}

/* Boundary tensors: three on each side that faces another rank. Interleaved goes on from the last rank to the
 * first, and a V comes back. */
static void boundaries(void **state)
{
    (void)state;
#define SIDES GPT3 "--dp 1 --tp 1 --pp 4 --layers 8 --global-batch 8 --schedule "
    for (size_t s = 0; s < 4; s++) {
        assert_int_equal(memory(SIDES "1f1b", s).buffers, (s == 0 || s == 3 ? 1u : 2u) * 3 * 2 * SBH);
        assert_int_equal(memory(SIDES "interleaved", s).buffers, 2 * 3 * 2 * SBH);
        assert_int_equal(memory(SIDES "zb-v", s).buffers, 2 * 3 * 2 * SBH);
    }
}

/* A micro-batch has no more sequences than a rank has. */
static void large_micro_batches(void **state)
{
    (void)state;
    const plan_time_t whole = seconds("--dp 2 --global-batch 2 --micro-batch 1"),
                      large = seconds("--dp 2 --global-batch 2 --micro-batch 8");
    close_to(large.step, whole.step, 1e-12);
    assert_int_equal(memory("--dp 2 --global-batch 2 --micro-batch 8", 0).total,
                     memory("--dp 2 --global-batch 2 --micro-batch 1", 0).total);
}

/* Ranks that share sequences: q, k, v and outputs of a layer forward, these and their gradients backward, of
 * which one in four stays; a quarter of the products; replicas are all of them. */
static void context(void **state)
{
    (void)state;
#define PARTS "--seq 4096 --sequence-parts 4 --global-batch 2 --machine A100-80 --overlap 0 "
    const double layer = 1024 * 4 * 11 * 768.0 * 3 / 4;
    const plan_time_t whole = seconds(PARTS "--recompute none"), t = seconds(PARTS "--cp 4 --recompute none");
    close_to(t.volume.cp, 2 * 12 * layer, 1e-9);
    close_to(seconds(PARTS "--cp 4 --recompute full").volume.cp, 2 * 12 * layer * 15 / 11, 1e-9);
    close_to(t.cp, 12 * layer / 254e9, 1e-9);
    close_to(t.compute, whole.compute / 4, 1e-9);
    /* in a ring keys and values go past three ranks, twice, and queries with gradients of outputs once */
    const plan_time_t ring = seconds(PARTS "--cp 4 --cp-attention ring --recompute none");
    close_to(ring.volume.cp, 2 * 12 * layer * 24 / 11, 1e-9);
    assert_true(ring.compute > t.compute && ring.compute < 2 * t.compute);
    close_to(seconds(PARTS "--cp-attention ring --recompute none").compute, whole.compute, 1e-9);
    close_to(seconds(PARTS "--cp 2 --tp 2 --recompute none").volume.tp,
             seconds(PARTS "--tp 2 --recompute none").volume.tp / 2, 1e-9);
    /* gradients are reduced after each sequence of a rank */
    close_to(2 * seconds(PARTS "--cp 2 --dp 2").dp, seconds(PARTS "--cp 4").dp, 1e-9);
    assert_true(whole.cp == 0 && whole.volume.cp == 0 && whole.dp == 0 && t.dp > 0);
    close_to(t.mfu, t.model_flops / 4 / t.step / 312e12, 1e-9);
}

static void bubbles(void **state)
{
    (void)state;
#define EVEN GPT3 "--dp 1 --tp 1 --pp 4 --layers 8 --vocab 8 --global-batch 8 "
    close_to(seconds(EVEN).bubble, 3.0 / 11, 0.01);
    close_to(seconds(EVEN "--schedule interleaved").bubble, 3.0 / 19, 0.01);
    close_to(seconds(EVEN "--recompute none --schedule zb-h1").bubble, 1.0 / 9, 0.01);
    close_to(seconds(EVEN "--recompute none --schedule zb-v").bubble, 0.5 / 8.5, 0.01);
    /* as gyre-plan pipeline --backward 3 --weight 1 */
    close_to(seconds(EVEN "--recompute full --schedule zb-h1").bubble, 6.0 / 38, 0.01);
    close_to(seconds(EVEN "--recompute full --schedule zb-v").bubble, 3.0 / 35, 0.01);
}

/* A ring that leaves a node uses the network of all its ranks there, up to the rate inside. */
static void networks(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double rate;
    } groups[] = {{"--dp 8", 254e9},       {"--dp 16", 200e9},      {"--dp 16 --inter 50", 254e9},
                  {"--dp 4 --tp 4", 50e9}, {"--dp 2 --tp 8", 25e9}, {"--dp 2 --tp 16 --inter 3", 3e9}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "--heads 16 --hidden 1024 --global-batch 16 --machine A100-80 --overlap 0 %s",
                 groups[i].text);
        const plan_time_t t = seconds(text);
        close_to(t.dp, t.volume.dp / groups[i].rate, 1e-9);
    }
    /* a tensor-parallel group over two nodes */
    const plan_time_t t = seconds("--heads 16 --hidden 1024 --tp 16 --machine A100-80");
    close_to(t.tp, t.volume.tp / 200e9, 1e-9);
}

/* GPT-3's layer, tp 8: what its device memory reads and writes, term by term. */
static void traffic(void **state)
{
    (void)state;
    plan_base_t base;
    plan_question_t q =
        question(GPT3 "--dp 1 --tp 8 --pp 1 --layers 2 --global-batch 2 --recompute none", &base);
    const double s = 2048, h = 12288, scores = (double)SCORES / 8;
    const double products = (s * h + h * 3 * h / 8 + s * 3 * h / 8) + (s * h / 8 + h / 8 * h + s * h) +
                            (s * h + h * h / 2 + s * h / 2) + (s * h / 2 + h / 2 * h + s * h);
    /* norms and residual sums with dropout's mask, whole; the activation, cut */
    const double rest = s * (2 * (5 * 2 * h + h) + 2 * 2 * h / 2);
    const double fused = 3 * (2 * products + rest);
    plan_software_t software = q.software;
    close_to(plan_work_layer(&q.recipe, &base, &software).bytes, fused, 1e-12);
    software.moves = 1; /* 4 and 7 passes of 2 bytes, and dropout's 5 each */
    close_to(plan_work_layer(&q.recipe, &base, &software).bytes, fused + scores * (13 + 19), 1e-12);
    q.recipe.recompute = MODEL_RECOMPUTE_FULL;
    close_to(plan_work_layer(&q.recipe, &base, &software).bytes, fused * 4 / 3 + scores * (2 * 13 + 19),
             1e-12);
    close_to(plan_work_layer(&q.recipe, &base, &software).products, 4 * base.flops.matrix / 8, 1e-12);
    /* the optimizer's step: fp32 gradients three times, moments and master copy in and out, 16-bit weights */
    close_to(plan_work_update(&q.recipe, 1000), 1000 * (3 * 4 + 24 + 2), 1e-12);
    close_to(plan_work_sum(&q.recipe, &base, 1000), 1000 * 2 * 4, 1e-12);
}

/* Software's figures: the host's is a floor, the others are added. */
static void softwares(void **state)
{
    (void)state;
#define RUN                                                                                                 \
    "--heads 16 --hidden 1024 --layers 4 --tp 2 --global-batch 4 --dtype bf16 --recompute full --software " \
    "fsdp "
    const plan_time_t plain = seconds(RUN "--step 0"), step = seconds(RUN "--step 50");
    close_to(step.step - plain.step, 0.05, 1e-9);
    assert_true(plain.memory > 0.0 && plain.update > 0.0 && plain.overhead == 0.0);
    close_to(seconds(RUN "--latency 100").tp - plain.tp, 4 * 6 * 100e-6, 1e-9);
    const plan_time_t slow = seconds(RUN "--host 30");
    close_to(slow.compute + slow.memory + slow.tp + slow.overhead, 4 * 0.03 * 4 / 3, 1e-9);
    close_to(seconds(RUN "--host 1e-3").step, seconds(RUN).step, 1e-9);
    assert_true(seconds(RUN "--attention 0.5").compute > seconds(RUN "--attention 1").compute);
    assert_true(seconds(RUN "--bandwidth 1000").memory > 1.5 * seconds(RUN).memory);
    /* memory: no scores, 14 bytes of a logit, 1.4 times the other activations, half a GiB */
    const char *model = "--heads 16 --hidden 1024 --layers 4 --dtype bf16 --vocab 50304 --software ";
    char text[200];
    snprintf(text, sizeof text, "%s megatron --recompute selective", model);
    const plan_memory_t papers = memory(text, 0);
    snprintf(text, sizeof text, "%s nanotron", model);
    const plan_memory_t own = memory(text, 0);
    close_to((double)own.activations, 1.4 * (double)papers.activations, 1e-7);
    assert_int_equal(own.ends - papers.ends, 10ul * 1024 * 50304);
    assert_int_equal(own.buffers - papers.buffers, 512ul << 20);
}

/* At the rate of fp8 the layers' products alone take as long as a rate is over the other. */
static void fp8(void **state)
{
    (void)state;
#define DENSE "--heads 16 --hidden 1024 --layers 4 --vocab 1024 --seq 128 --dtype bf16 --machine "
    const char *const machines[] = {"H100", "H200", "B200", "GB200"};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        char text[200];
        const plan_machine_t *m = plan_machine_find(machines[i]);
        snprintf(text, sizeof text, DENSE "%s", machines[i]);
        const plan_time_t whole = seconds(text);
        snprintf(text, sizeof text, DENSE "%s --products fp8", machines[i]);
        const plan_time_t half = seconds(text);
        /* 12 h^2 weights of each of 4 layers for 128 tokens, 6 operations each */
        const double products = 6.0 * 4 * 12 * 1024 * 1024 * 128;
        close_to(whole.compute - half.compute, products / m->efficiency * (1 / m->peak - 1 / m->peak8), 1e-6);
        assert_true(half.mfu > whole.mfu);
    }
    assert_true(plan_machine_find("A100-80")->peak8 == 0.0);
}

static plan_rows_t read(const char *text, plan_question_t *q)
{
    plan_rows_t rows;
    if (ask(text, PLAN_FOR_TIME, q) != PLAN_OK || plan_rows_read(q, &rows) != PLAN_OK)
        fail_msg("%s: %s", text, gyre_last_error());
    return rows;
}

/* Errors of the step over rows that were not fitted; *contradict: rows whose printed TFLOP/s are off by
 * more than `part`. */
static plan_errors_t errors_of(const plan_rows_t *rows, const plan_question_t *q,
                               const plan_machine_t *machine, double part, size_t *contradict)
{
    static double error[256];
    size_t n = 0;
    *contradict = 0;
    for (size_t i = 0; i < rows->rows; i++) {
        const plan_row_t *row = &rows->row[i];
        plan_time_t t;
        int own = 0;
        for (size_t f = 0; f < q->fits; f++)
            own |= q->fit[f] == i + 1;
        if (!(row->seconds > 0.0))
            continue;
        plan_time(&row->recipe, &row->base, machine, &q->software, &t);
        double counted = t.teraflops * t.step / row->seconds;
        *contradict += row->teraflops > 0.0 && fabs(counted / row->teraflops - 1) > part ? 1 : 0;
        if (!own)
            error[n++] = fabs(t.step / row->seconds - 1);
    }
    return plan_errors(error, n);
}

static void published_times(void **state)
{
    (void)state;
    plan_question_t q;
    size_t contradict;
    plan_rows_t rows = read(GPT3 "--rows docs/data/sc21-table1.txt", &q);
    plan_errors_t e = errors_of(&rows, &q, &q.machine, 0.004, &contradict); /* three digits are printed */
    assert_int_equal(rows.rows, 10);
    assert_int_equal(contradict, 0);
    assert_true(e.median < 0.06);
    plan_rows_free(&rows);

    rows = read(GPT3 "--rows docs/data/megatron-h100.txt --vocab 131072 --seq 4096 --machine H100", &q);
    e = errors_of(&rows, &q, &q.machine, 0.002, &contradict);
    assert_int_equal(rows.rows, 9);
    assert_int_equal(contradict, 0);
    assert_true(e.median < 0.10);
    plan_rows_free(&rows);

    /* 129 timed rows; five tell the machine, 124 are blind; one contradicts itself
     * (docs/data/bloom-sweep.txt) */
    rows = read("--recipe examples/recipes/bloom-176b.json --rows docs/data/bloom-sweep.txt --inter 6.25 "
                "--fit 31,33,79,80,84",
                &q);
    plan_machine_t machine = q.machine;
    plan_fit(&rows, q.fit, q.fits, &q.software, &machine);
    e = errors_of(&rows, &q, &machine, 0.002, &contradict);
    assert_int_equal(contradict, 1);
    assert_int_equal(e.rows, 124);
    assert_true(e.median < 0.10);
    plan_machine_t again = q.machine;
    plan_fit(&rows, q.fit, q.fits, &q.software, &again);
    assert_true(again.efficiency == machine.efficiency && again.intra == machine.intra &&
                again.inter == machine.inter && again.overhead == machine.overhead &&
                again.overlap == machine.overlap && again.reserve == machine.reserve);
    plan_rows_free(&rows);
}

/* A fit to runs that the model itself made finds the times that made it. */
static void fits(void **state)
{
    (void)state;
    plan_question_t q;
    plan_rows_t rows = read("--recipe examples/recipes/bloom-176b.json --rows docs/data/bloom-sweep.txt "
                            "--fit 1,31,33,79,80,84,87,90",
                            &q);
    plan_machine_t made = q.machine, found = q.machine;
    made.efficiency = 0.5;
    made.intra = 100e9;
    made.overhead = 5e-3;
    for (size_t i = 0; i < rows.rows; i++) {
        plan_time_t t;
        plan_time(&rows.row[i].recipe, &rows.row[i].base, &made, &q.software, &t);
        rows.row[i].seconds = rows.row[i].seconds > 0.0 ? t.step : 0.0;
    }
    plan_fit(&rows, q.fit, q.fits, &q.software, &found);
    close_to(found.efficiency, made.efficiency, 0.02);
    size_t contradict;
    plan_errors_t e = errors_of(&rows, &q, &found, 1, &contradict);
    if (e.median > 0.02 || e.worst > 0.04)
        fail_msg("%g %g", e.median, e.worst);
    e = errors_of(&rows, &q, &q.machine, 1, &contradict);
    assert_true(e.median > 0.05);
    plan_rows_free(&rows);
}

static void errors(void **state)
{
    (void)state;
    double five[] = {0.5, 0.1, 0.4, 0.2, 0.3}, two[] = {0.3, 0.1};
    plan_errors_t e = plan_errors(five, 5);
    assert_true(e.median == 0.3 && e.ninety == 0.5 && e.worst == 0.5 && e.rows == 5);
    assert_true(fabs(plan_errors(two, 2).median - 0.2) < 1e-12);
    assert_int_equal(plan_errors(two, 0).rows, 0);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_bytes),     cmocka_unit_test(trainer),
        cmocka_unit_test(activations),     cmocka_unit_test(in_flight),
        cmocka_unit_test(weights_put_off), cmocka_unit_test(bloom),
        cmocka_unit_test(volumes),         cmocka_unit_test(context),
        cmocka_unit_test(shared_experts),  cmocka_unit_test(bubbles),
        cmocka_unit_test(networks),        cmocka_unit_test(traffic),
        cmocka_unit_test(softwares),       cmocka_unit_test(fp8),
        cmocka_unit_test(published_times), cmocka_unit_test(fits),
        cmocka_unit_test(errors),          cmocka_unit_test(large_micro_batches),
        cmocka_unit_test(boundaries),      cmocka_unit_test(masks_of_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
