/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Layouts: which are legal, what the message offers instead, and that places and layers add up to the
 * whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "optim/store/zero.h"
#include "pipeline/plan/layout.h"

static const model_config_t model = {
    .vocab = 64, .seq = 16, .layers = 6, .hidden = 32, .heads = 8, .leaves = 4};
static const optim_batch_t batch = {.batch = 8};

static gyre_status_t check(pipe_layout_t layout, size_t ranks)
{
    const pipe_layout_t whole = pipe_layout_complete(&layout, ranks, NULL);
    return pipe_layout_check(&whole, &model, ranks, &batch);
}

static void refused(pipe_layout_t layout, size_t ranks, const char *why, const char *instead)
{
    assert_int_equal(check(layout, ranks), GYRE_ERR_INVALID);
    if (!strstr(gyre_last_error(), why) || !strstr(gyre_last_error(), instead))
        fail_msg("'%s' should say '%s' and '%s'", gyre_last_error(), why, instead);
}

static void rules(void **state)
{
    (void)state;
    assert_int_equal(check((pipe_layout_t){.tp = 1}, 1), GYRE_OK);
    assert_int_equal(check((pipe_layout_t){.tp = 4, .pp = 2}, 8), GYRE_OK);
    assert_int_equal(check((pipe_layout_t){.pp = 3, .dp = 5}, 15), GYRE_OK);
    assert_int_equal(check((pipe_layout_t){.pp = 2, .schedule = PIPE_ZB_V, .zero = 3}, 4), GYRE_OK);
    refused((pipe_layout_t){.tp = 2, .pp = 2, .dp = 1}, 8, "does not make 8 ranks", "--tp 2 --pp 2 --dp 2");
    refused((pipe_layout_t){.tp = 3, .dp = 1}, 3, "tp 3 does not divide the 4 leaves", "--tp");
    refused((pipe_layout_t){.tp = 8}, 8, "tp 8 does not divide the 4 leaves", "--tp 4 --pp 1 --dp 2");
    refused((pipe_layout_t){.pp = 7}, 7, "the model has 6 layers", "--dp 7");
    refused((pipe_layout_t){.dp = 16}, 16, "cannot feed dp 16", "--dp 8");
    refused((pipe_layout_t){.pp = 2, .chunks = 2}, 2, "gpipe has one chunk per rank",
            "--schedule gpipe --chunks 1");
    refused((pipe_layout_t){.pp = 2, .schedule = PIPE_INTERLEAVED, .micro_batch = 8}, 2,
            "a multiple of pp 2 micro-batches, not 1", "--tp 1 --pp 2 --dp 1 --micro-batch 4");
    refused((pipe_layout_t){.pp = 4, .schedule = PIPE_INTERLEAVED}, 4, "are 8 stages",
            "--pp 4 --dp 1 --schedule 1f1b");
    refused((pipe_layout_t){.zero = 4}, 1, "zero 4", "--dp 1 --zero 3");
}

/* A batch of 16 sequences, four of which have one gradient. */
static void gradients_of_several(void **state)
{
    (void)state;
    const optim_batch_t four = {.batch = 16, .leaf = 4}, odd = {.batch = 18, .leaf = 4};
    const struct {
        const optim_batch_t *batch;
        pipe_layout_t layout;
        size_t ranks;
        const char *why, *instead; /* NULL: it is accepted */
    } tried[] = {
        {&four, {.dp = 4, .micro_batch = 4}, 4, NULL, NULL},
        {&four, {.dp = 1, .micro_batch = 8}, 1, NULL, NULL},
        {&four,
         {.dp = 1, .micro_batch = 6},
         1,
         "micro-batches of 6 sequences are no whole gradients of 4",
         "--micro-batch 8"},
        {&four, {.dp = 2, .micro_batch = 2}, 2, "(--grad-sequences)", "--dp 2 --micro-batch 4"},
        {&four,
         {.dp = 8, .micro_batch = 4},
         8,
         "in gradients of 4 (--grad-sequences) cannot feed dp 8, of 2 (other bits) it could",
         "--dp 4"},
        {&odd,
         {.dp = 1, .micro_batch = 4},
         1,
         "does not divide evenly",
         "take --grad-sequences 3 (other bits), or a batch of 20"},
    };
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        const pipe_layout_t l = pipe_layout_complete(&tried[i].layout, tried[i].ranks, NULL);
        assert_int_equal(pipe_layout_check(&l, &model, tried[i].ranks, tried[i].batch),
                         tried[i].why ? GYRE_ERR_INVALID : GYRE_OK);
        if (tried[i].why &&
            (!strstr(gyre_last_error(), tried[i].why) || !strstr(gyre_last_error(), tried[i].instead)))
            fail_msg("'%s' should say '%s' and '%s'", gyre_last_error(), tried[i].why, tried[i].instead);
    }
    /* by itself: one gradient, or as many whole ones as fit into memory */
    pipe_load_t load = {.model = model, .batch = four};
    assert_int_equal(pipe_layout_complete(&(pipe_layout_t){.dp = 2}, 2, &load).micro_batch, 4);
    for (size_t hidden = 32; hidden <= 512; hidden *= 2) {
        load.model.hidden = hidden;
        for (size_t leaf = 1; leaf <= 8; leaf *= 2) {
            load.batch = (optim_batch_t){.batch = 64, .leaf = leaf};
            size_t micro = pipe_layout_complete(&(pipe_layout_t){.zero = 3}, 2, &load).micro_batch;
            assert_true(micro % leaf == 0 && micro >= leaf && micro <= 32);
        }
    }
}

/* Bytes of rank 0 in ZeRO stage `stage`, activations included. */
static size_t total(int stage, size_t dp, const pipe_load_t *load, size_t micro, size_t each)
{
    const optim_zero_config_t zero = {.stage = stage,
                                      .share = load->batch.batch / dp,
                                      .group = optim_batch_group(&load->batch),
                                      .bucket_bytes = 512 << 10,
                                      .precision = load->precision,
                                      .grad16 = load->grad16};
    size_t bytes[OPTIM_MEMORY_KINDS], sum = micro * each;
    model_params_t *params;
    assert_int_equal(model_params_create(&load->model, &params), GYRE_OK);
    assert_int_equal(optim_zero_predict(params, &zero, dp, 0, 1, bytes, NULL), GYRE_OK);
    for (int k = 0; k < OPTIM_MEMORY_KINDS; k++)
        sum += bytes[k];
    model_params_destroy(params);
    return sum;
}

/* Where weights are gathered for each micro-batch, and nothing else demands many: as many sequences together
 * as fit into memory. A user who takes stage 3 for want of memory needs no more than in stage 0, for any size
 * of the batch. */
static void micro_batch_by_itself(void **state)
{
    (void)state;
    pipe_load_t load = {.model = {.vocab = 64, .seq = 8, .layers = 4, .hidden = 128, .heads = 4, .leaves = 4},
                        .batch = {.batch = 8}};
    const struct {
        pipe_layout_t layout;
        size_t ranks, micro;
        int keep;
    } want[] = {{{.zero = 3}, 4, 2, 0}, {{.zero = 3}, 3, 4, 0}, /* shares of 2, 2, 4 */
                {{.zero = 3}, 1, 1, 0}, {{.zero = 3, .pp = 2}, 4, 1, 0},
                {{.zero = 3}, 4, 1, 1}, {{.zero = 2}, 4, 1, 0},
                {{.zero = 3}, 9, 1, 0}, {{.zero = 3, .micro_batch = 1}, 4, 1, 0}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        load.keep = want[i].keep;
        assert_int_equal(pipe_layout_complete(&want[i].layout, want[i].ranks, &load).micro_batch,
                         want[i].micro);
    }
    assert_int_equal(pipe_layout_complete(&want[0].layout, 4, NULL).micro_batch, 1);

    const model_tp_t alone = {.size = 1};
    load.model.seq = 64;
    load.keep = 0;
    for (size_t sequences = 2; sequences <= 4096; sequences *= 2)
        for (int half = 0; half < 2; half++) {
            load.precision = half ? MODEL_BFLOAT16 : MODEL_FLOAT32;
            load.recompute = sequences % 3 == 1 ? MODEL_RECOMPUTE_FULL : MODEL_RECOMPUTE_NONE;
            load.batch.batch = sequences;
            const model_config_t whole = model_config_complete(&load.model);
            const model_stage_config_t stage = {.layers = whole.layers,
                                                .embed = 1,
                                                .head = 1,
                                                .slots = 1,
                                                .together = 1,
                                                .recompute = load.recompute};
            size_t each, micro = pipe_layout_complete(&want[0].layout, 2, &load).micro_batch;
            assert_int_equal(model_stage_slot_bytes_f32(&whole, &alone, &stage, &each), GYRE_OK);
            assert_in_range(micro, 1, sequences / 2);
            size_t least = total(3, 2, &load, 1, each), most = total(0, 2, &load, 1, each);
            assert_true(total(3, 2, &load, micro, each) <= least + (most - least) / 2);
            /* and so few micro-batches that one sequence more in each is no gain, or does not fit */
            size_t share = sequences / 2, count = (share + micro - 1) / micro;
            if (count > 1)
                assert_true(total(3, 2, &load, (share + count - 2) / (count - 1), each) >
                            least + (most - least) / 2);
        }
}

/* Shards of positions: as many as tensor ranks, whatever the leaves. */
static void sequence_parallel(void **state)
{
    (void)state;
    model_config_t odd = model;
    odd.seq = 18; /* divisible by 2, not by the 4 leaves */
    pipe_layout_t l = pipe_layout_complete(&(pipe_layout_t){.tp = 2, .sequence = 1}, 2, NULL);
    assert_int_equal(pipe_layout_check(&l, &odd, 2, &batch), GYRE_OK);
    odd.seq = 17;
    assert_int_equal(pipe_layout_check(&l, &odd, 2, &batch), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "seq 17 is not divisible by tp 2"));
    assert_non_null(strstr(gyre_last_error(), "--tp 2 --pp 1 --dp 1, without --sequence-parallel"));
    l = pipe_layout_complete(&(pipe_layout_t){.tp = 1, .sequence = 1}, 2, NULL); /* nothing to shard */
    assert_int_equal(pipe_layout_check(&l, &odd, 2, &batch), GYRE_OK);
}

/* Ranks that share sequences: parts, heads, and a batch that is dealt out sequence by sequence. */
static void context(void **state)
{
    (void)state;
    const struct {
        size_t tp, cp, dp, parts, batch;
        const char *why;
    } row[] = {
        {1, 2, 1, 2, 8, NULL},
        {2, 2, 2, 4, 8, NULL},
        {1, 4, 1, 4, 12, NULL},
        {1, 2, 1, 1, 8, "cp 2 does not divide the 1 part of each sequence: with --sequence-parts 2 "},
        {1, 3, 1, 4, 8, "cp 3 is no power of two, as the parts of a sequence are"},
        {4, 2, 1, 2, 8,
         "cp 2 does not divide the 1 key and value heads of a tensor rank: with --cp-attention ring it "
         "could"},
        {1, 2, 2, 2, 12,
         "cp 2: dp 2 does not deal the 12 sequences of a batch out one by one: with --lanes 4 (other bits)"},
        {1, 2, 4, 2, 5, "cp 2: dp 4 does not deal the 5 sequences of a batch out one by one"},
        {1, 1, 1, 3, 8, "--sequence-parts 3: it must be a power of two up to 64"},
        {1, 1, 1, 64, 8, "--sequence-parts 64 does not divide seq 16: take --seq 64"}};
    const optim_batch_t four = {.batch = 8, .parts = 4};
    const pipe_layout_t alone = pipe_layout_complete(&(pipe_layout_t){.tp = 1}, 1, NULL);
    const model_config_t odd = {.vocab = 64, .seq = 70, .layers = 4, .hidden = 32, .heads = 4, .leaves = 4};
    assert_int_equal(pipe_layout_check(&alone, &odd, 1, &four), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "does not divide seq 70: take --seq 68 or 72"));
    model_config_t c = {.vocab = 64, .seq = 16, .layers = 4, .hidden = 32, .heads = 4, .leaves = 4};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const optim_batch_t b = {.batch = row[i].batch, .parts = row[i].parts};
        const size_t ranks = row[i].tp * row[i].cp * row[i].dp;
        const pipe_layout_t asked = {.tp = row[i].tp, .cp = row[i].cp, .dp = row[i].dp};
        const pipe_layout_t l = pipe_layout_complete(&asked, ranks, NULL);
        assert_int_equal(pipe_layout_check(&l, &c, ranks, &b), row[i].why ? GYRE_ERR_INVALID : GYRE_OK);
        if (row[i].why && !strstr(gyre_last_error(), row[i].why))
            fail_msg("'%s' lacks '%s'", gyre_last_error(), row[i].why);
    }
    const optim_batch_t two = {.batch = 8, .parts = 2};
    const pipe_layout_t ring = pipe_layout_complete(&(pipe_layout_t){.tp = 4, .cp = 2, .ring = 1}, 8, NULL);
    assert_int_equal(pipe_layout_check(&ring, &c, 8, &two), GYRE_OK);
    c.prefix = 1;
    const optim_batch_t b = {.batch = 8, .parts = 2};
    const pipe_layout_t l = pipe_layout_complete(&(pipe_layout_t){.cp = 2}, 2, NULL);
    assert_int_equal(pipe_layout_check(&l, &c, 2, &b), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "is not for a model with prefixes"));
    c.prefix = 0;
    c.kv_latent = 8;
    assert_int_equal(pipe_layout_check(&l, &c, 2, &b), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "is not for a model with latent attention"));
}

/* Data-parallel ranks that share experts. */
static void experts(void **state)
{
    (void)state;
    const struct {
        size_t tp, dp, ep, experts;
        optim_batch_t batch;
        const char *why;
    } row[] = {
        {1, 4, 4, 8, {.batch = 8}, NULL},
        {2, 4, 2, 8, {.batch = 12, .groups = 4}, NULL},
        {2, 4, 4, 8, {.batch = 8, .lanes = 4}, NULL},
        {1,
         2,
         2,
         0,
         {.batch = 8},
         "ep 2: the model has no experts; the nearest that works on 2 ranks: "
         "--tp 1 --pp 1 --dp 2 --ep 1"},
        {1, 3, 3, 12, {.batch = 9}, "ep 3 must be a power of two that divides dp 3"},
        {1, 3, 2, 8, {.batch = 9}, "ep 2 must be a power of two that divides dp 3"},
        {4,
         4,
         4,
         8,
         {.batch = 8},
         "ep 4 x tp 4 does not divide the 8 experts; the nearest that works on 16 "
         "ranks: --tp 4 --pp 1 --dp 4 --ep 2"},
        {1, 2, 2, 8, {.batch = 8, .parts = 2}, "ep 2 does not go with --sequence-parts 2: leave one out"},
        {1, 2, 2, 8, {.batch = 8, .leaf = 2}, "ep 2 does not go with --grad-sequences 2: leave one out"},
        {1, 4, 2, 8, {.batch = 6}, "6 has no equal shares for dp 4: take a batch of 8"},
        {1, 6, 2, 8, {.batch = 12}, "has no equal shares for dp 6: take --groups 6 (other bits)"},
        {1, 6, 2, 8, {.batch = 7}, "take a batch of 12 with --groups 6 (other bits)"},
        {1, 6, 2, 8, {.batch = 12, .lanes = 6}, "take --groups 6 (other bits)"},
        {1, 6, 2, 8, {.batch = 12, .groups = 6}, NULL}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const model_config_t c = {.vocab = 64,
                                  .seq = 16,
                                  .layers = 4,
                                  .hidden = 32,
                                  .heads = 4,
                                  .leaves = 4,
                                  .experts = row[i].experts,
                                  .top_k = row[i].experts ? 2 : 0};
        const size_t ranks = row[i].tp * row[i].dp;
        const pipe_layout_t asked = {.tp = row[i].tp, .dp = row[i].dp, .ep = row[i].ep};
        const pipe_load_t load = {.model = c, .batch = row[i].batch};
        const pipe_layout_t l = pipe_layout_complete(&asked, ranks, &load);
        assert_int_equal(pipe_layout_check(&l, &c, ranks, &row[i].batch),
                         row[i].why ? GYRE_ERR_INVALID : GYRE_OK);
        if (row[i].why && !strstr(gyre_last_error(), row[i].why))
            fail_msg("'%s' lacks '%s'", gyre_last_error(), row[i].why);
    }
}

static void nothing_works(void **state)
{
    (void)state;
    const pipe_layout_t one = pipe_layout_complete(&(pipe_layout_t){.tp = 1}, 499, NULL);
    assert_int_equal(pipe_layout_check(&one, &model, 499, &batch), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "no layout of this model"));
}

/* The flags after "the nearest that works": each instead of the user's. */
static void take_flags(const char *text, pipe_layout_t *layout)
{
    const struct {
        const char *flag;
        size_t *to;
    } degree[] = {{"--tp ", &layout->tp},
                  {"--cp ", &layout->cp},
                  {"--pp ", &layout->pp},
                  {"--dp ", &layout->dp},
                  {"--ep ", &layout->ep},
                  {"--chunks ", &layout->chunks},
                  {"--micro-batch ", &layout->micro_batch}};
    for (size_t i = 0; i < sizeof degree / sizeof degree[0]; i++) {
        const char *at = strstr(text, degree[i].flag);
        if (at)
            *degree[i].to = strtoull(at + strlen(degree[i].flag), NULL, 10);
    }
    const char *schedule = strstr(text, "--schedule "), *zero = strstr(text, "--zero ");
    if (schedule) {
        char name[32];
        assert_int_equal(sscanf(schedule, "--schedule %31s", name), 1);
        assert_int_equal(pipe_kind_parse(name, &layout->schedule), GYRE_OK);
    }
    if (zero)
        layout->zero = (int)strtol(zero + strlen("--zero "), NULL, 10);
    if (strstr(text, "--balance "))
        layout->balance = strstr(text, "--balance embedding") != NULL;
    if (strstr(text, "without --sequence-parallel"))
        layout->sequence = 0;
}

/* What a refusal of `layout` names is accepted. Returns how many ways out it named. */
static size_t try_advice(const pipe_layout_t *layout, const model_config_t *c, size_t ranks,
                         const optim_batch_t *b)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", gyre_last_error());
    const char *near = strstr(message, "the nearest that works"), *leaves = strstr(message, ", or --leaves "),
               *fewer = strstr(message, ": take ");
    size_t tried = 0;
    pipe_layout_t l = *layout;
    model_config_t other = *c;
    if (near) {
        take_flags(near, &l);
        if (pipe_layout_check(&l, c, ranks, b) != GYRE_OK)
            fail_msg("the advice of '%s' is refused: %s", message, gyre_last_error());
        tried++;
    }
    if (leaves) {
        other.leaves = strtoull(leaves + strlen(", or --leaves "), NULL, 10);
        if (model_config_check(&other) != GYRE_OK || pipe_layout_check(layout, &other, ranks, b) != GYRE_OK)
            fail_msg("the leaves of '%s' are refused: %s", message, gyre_last_error());
        tried++;
    }
    if (fewer && sscanf(fewer, ": take %zu ranks", &ranks) == 1) {
        take_flags(fewer, &l);
        if (pipe_layout_check(&l, c, ranks, b) != GYRE_OK)
            fail_msg("the ranks of '%s' are refused: %s", message, gyre_last_error());
        tried++;
    }
    return tried;
}

static void advice_is_accepted(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252u;
    size_t refusals = 0, tried = 0;
    for (int i = 0; i < 6000; i++) {
        size_t draw[16];
        for (size_t d = 0; d < 16; d++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            draw[d] = (size_t)(random >> 20);
        }
        const size_t parts = draw[15] % 4 == 0 ? 4 : 1;
        const model_config_t c = {.vocab = 64,
                                  .seq = (8 + draw[0] % 9) * parts,
                                  .layers = 1 + draw[1] % 12,
                                  .hidden = 64,
                                  .heads = (size_t)8 << draw[2] % 2,
                                  .leaves = (size_t)1 << draw[3] % 4};
        const optim_batch_t b = {.batch = 1 + draw[4] % 24, .parts = parts};
        size_t ranks = 1 + draw[5] % 24;
        const pipe_layout_t asked = {.tp = 1 + draw[6] % 9,
                                     .cp = draw[15] / 4 % (parts + 2),
                                     .pp = 1 + draw[7] % 8,
                                     .dp = draw[8] % 2 ? 0 : 1 + draw[8] / 2 % 6,
                                     .chunks = draw[9] % 4,
                                     .schedule = (pipe_kind_t)(draw[10] % PIPE_KIND_END),
                                     .zero = (int)(draw[11] % 5),
                                     .sequence = (int)(draw[12] % 2),
                                     .micro_batch = draw[13] % 6,
                                     .balance = (int)(draw[14] % 2)};
        const pipe_layout_t whole =
            pipe_layout_complete(&asked, ranks, &(pipe_load_t){.model = c, .batch = b});
        if (pipe_layout_check(&whole, &c, ranks, &b) == GYRE_OK)
            continue;
        refusals++;
        tried += try_advice(&whole, &c, ranks, &b);
    }
    assert_true(refusals > 3000 && tried >= refusals);
}

static void places_and_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3 * 3 * 5 * 5; i++) {
        const size_t tp = (size_t)1 << i % 3, cp = i / 3 % 3, pp = 1 + i / 9 % 5, dp = 1 + i / 45,
                     c = cp ? cp : 1;
        const pipe_layout_t l = {.tp = tp, .cp = cp, .pp = pp, .dp = dp, .chunks = 1};
        for (size_t r = 0; r < tp * c * pp * dp; r++) {
            pipe_place_t at = pipe_layout_place(&l, r);
            assert_true(at.tp < tp && at.cp < c && at.pp < pp && at.dp < dp);
            assert_int_equal(((at.pp * dp + at.dp) * c + at.cp) * tp + at.tp, r);
        }
    }
    for (size_t layers = 1; layers <= 20; layers++)
        for (size_t stages = 1; stages <= layers; stages++) {
            const pipe_layout_t l = {.tp = 1, .pp = stages, .dp = 1, .chunks = 1};
            size_t next = 0;
            for (size_t s = 0; s < stages; s++) {
                size_t first, count;
                pipe_layout_layers(&l, layers, s, &first, &count);
                assert_int_equal(first, next);
                assert_in_range(count, layers / stages, layers / stages + 1);
                next += count;
            }
            assert_int_equal(next, layers);
        }
}

/* With the embedding and the head as a layer each: every stage has a layer, and the slots differ by one at
 * most. */
static void balanced(void **state)
{
    (void)state;
    for (size_t layers = 1; layers <= 20; layers++)
        for (size_t stages = 1; 2 * stages <= layers + 2; stages++) {
            const pipe_layout_t l = {.tp = 1, .pp = stages, .dp = 1, .chunks = 1, .balance = 1};
            size_t next = 0;
            for (size_t s = 0; s < stages; s++) {
                size_t first, count, slots;
                pipe_layout_layers(&l, layers, s, &first, &count);
                slots = count + (stages > 1 && s == 0 ? 1 : 0) + (stages > 1 && s + 1 == stages ? 1 : 0);
                assert_int_equal(first, next);
                assert_true(count >= 1);
                if (stages > 1)
                    assert_in_range(slots, (layers + 2) / stages, (layers + 2) / stages + 1);
                next += count;
            }
            assert_int_equal(next, layers);
        }
    refused((pipe_layout_t){.pp = 5, .schedule = PIPE_1F1B, .balance = 1}, 5,
            "balance: embedding, head and 6 layers", "--pp 5 --dp 1 --balance layers");
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(gradients_of_several),
        cmocka_unit_test(micro_batch_by_itself),
        cmocka_unit_test(sequence_parallel),
        cmocka_unit_test(context),
        cmocka_unit_test(experts),
        cmocka_unit_test(nothing_works),
        cmocka_unit_test(places_and_layers),
        cmocka_unit_test(balanced),
        cmocka_unit_test(advice_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
