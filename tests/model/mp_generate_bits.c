/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 4 */
/* tests/model/mp_generate_bits.c: the log-probability of each generated token is, to the bit, the loss of the
 * trainer's forward at that position: of one stage with the whole model, over the whole sequence. With every
 * split of the ranks into tensor and pipeline parallelism, 1 to 7 sequences together, and prompts in pieces.
 *
 *   mp_generate_bits TOKENS    the same with so many tokens after each prompt: make check-generate */
#include <string.h>

#include "model/formats/hf.h"
#include "model/network/stage/plain_store.h"
#include "model/random.h"
#include "pipeline/generate/generate.h"
#include "tests/support/mp.h"
#include "tests/support/weights.h"

enum { PROMPTS = 7, LONGEST = 23, VOCAB = 64 };

/* The whole model on this rank, as training computes it. */
typedef struct {
    model_params_t *params;
    float *weights;
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
} trainer_t;

typedef struct {
    model_token_t *text;  /* [seq + 1]: prompt, and what follows */
    size_t count;         /* of the prompt */
    model_token_t *first; /* [seq + 1]: the same as it was drawn first */
    int drawn;            /* 1: it was */
    float *losses;        /* [seq] the trainer's, of the text that was drawn first */
    float *said;          /* [tokens] log-probabilities */
} sequence_t;

static sequence_t sequence[PROMPTS];

static void open_trainer(trainer_t *t, const char *folder, model_precision_t precision)
{
    pipe_source_t *source;
    const model_tp_t alone = {.size = 1};
    MP_OK(pipe_source_open(&(pipe_source_config_t){.path = folder, .precision = (int)precision}, &source));
    MP_OK(model_params_create(pipe_source_model(source), &t->params));
    t->weights = calloc(t->params->total, sizeof *t->weights);
    MP_CHECK(t->weights, "memory");
    MP_OK(pipe_source_read(source, t->params, t->params, t->weights));
    pipe_source_close(source);
    t->plain = (model_plain_store_t_f32){.params = t->params, .weights = t->weights};
    const model_store_t_f32 store = model_plain_store_f32(&t->plain);
    const model_stage_config_t all = {
        .layers = t->params->config.layers, .embed = 1, .head = 1, .slots = 1, .precision = precision};
    MP_OK(model_stage_create_f32(t->params, &alone, &all, &store, MODEL_ISA_BEST, &t->stage));
}

static void close_trainer(trainer_t *t)
{
    model_stage_destroy_f32(t->stage);
    model_params_destroy(t->params);
    free(t->weights);
}

static gyre_status_t keep(void *user, size_t prompt, size_t index, model_token_t token, float log_probability,
                          int last)
{
    (void)user;
    (void)last;
    sequence[prompt].text[sequence[prompt].count + index] = token;
    sequence[prompt].said[index] = log_probability;
    return GYRE_OK;
}

/* Every token of every sequence against the trainer. */
static void compare(trainer_t *t, size_t tokens, const char *how)
{
    for (size_t p = 0; p < PROMPTS; p++) {
        const sequence_t *s = &sequence[p];
        const size_t bytes = (t->params->config.seq + 1) * sizeof *s->text;
        double loss;
        if (!s->drawn) {
            const model_sequence_t whole = {.tokens = s->text, .targets = s->text + 1, .evaluate = 1};
            memcpy(s->first, s->text, bytes);
            MP_OK(model_stage_forward_f32(t->stage, 0, &whole, NULL, NULL, &loss));
            model_stage_losses_f32(t->stage, s->losses);
            sequence[p].drawn = 1;
        }
        MP_CHECK(memcmp(s->first, s->text, bytes) == 0, "%s, prompt %zu: other tokens are drawn", how, p);
        for (size_t i = 0; i < tokens; i++)
            MP_CHECK(s->said[i] == -s->losses[s->count + i - 1],
                     "%s, prompt %zu, token %zu: log-probability %a, the trainer's is %a", how, p, i,
                     (double)s->said[i], (double)-s->losses[s->count + i - 1]);
    }
}

static void try(gyre_comm_t *comm, const char *folder, trainer_t *t, size_t tokens,
                const pipe_part_config_t *place, pipe_generate_config_t config)
{
    char how[128];
    pipe_part_t part;
    pipe_generator_t *generator;
    pipe_prompt_t prompt[PROMPTS];
    snprintf(how, sizeof how, "%s, tp %zu, pp %zu, batch %zu, prefill %zu", strrchr(folder, '/'), place->tp,
             place->pp, config.batch, config.prefill);
    for (size_t p = 0; p < PROMPTS; p++) {
        prompt[p] = (pipe_prompt_t){.tokens = sequence[p].text, .count = sequence[p].count};
        memset(sequence[p].text + sequence[p].count, 0,
               (t->params->config.seq + 1 - sequence[p].count) * sizeof *sequence[p].text);
    }
    MP_OK(pipe_part_open(comm, place, &part));
    MP_OK(pipe_generator_create(&part, &config, &generator));
    const pipe_generate_t sampled = {.draw = {.temperature = 1.0, .top_k = 20, .top_p = 0.95, .seed = 5},
                                     .tokens = tokens};
    MP_OK(pipe_generate(generator, prompt, PROMPTS, &sampled, keep, NULL));
    compare(t, tokens, how);
    pipe_generator_destroy(generator);
    pipe_part_close(&part);
}

static void check(gyre_comm_t *comm, const char *folder, model_precision_t precision, size_t tokens)
{
    const size_t ranks = (size_t)gyre_comm_size(comm);
    trainer_t trainer;
    open_trainer(&trainer, folder, precision);
    const size_t T = trainer.params->config.seq;
    for (size_t p = 0; p < PROMPTS; p++) {
        sequence[p] = (sequence_t){.text = calloc(T + 1, sizeof *sequence[p].text),
                                   .count = 1 + p * (LONGEST - 1) / (PROMPTS - 1),
                                   .first = calloc(T + 1, sizeof *sequence[p].first),
                                   .losses = calloc(T, sizeof *sequence[p].losses),
                                   .said = calloc(tokens, sizeof *sequence[p].said)};
        MP_CHECK(sequence[p].text && sequence[p].first && sequence[p].losses && sequence[p].said, "memory");
        for (size_t i = 0; i < sequence[p].count; i++)
            sequence[p].text[i] = (model_token_t)((7 * i * i + p) % VOCAB);
    }
    for (size_t pp = 1; pp <= ranks && pp <= 2; pp++) /* the model has two layers */
        for (size_t batch = 1; batch <= PROMPTS; batch += 3)
            try(comm, folder, &trainer, tokens,
                &(pipe_part_config_t){
                    .source = {.path = folder, .precision = (int)precision}, .tp = ranks / pp, .pp = pp},
                (pipe_generate_config_t){.batch = batch, .prefill = batch == 1 ? 64 : batch - 1});
    for (size_t p = 0; p < PROMPTS; p++) {
        free(sequence[p].text);
        free(sequence[p].first);
        free(sequence[p].losses);
        free(sequence[p].said);
    }
    close_trainer(&trainer);
}

/* Random weights in a folder that all ranks see. */
static void make_folder(gyre_comm_t *comm, const model_config_t *shape, char *folder, size_t bytes)
{
    model_params_t *params;
    MP_OK(model_params_create(shape, &params));
    if (gyre_comm_rank(comm) == 0) {
        float *flat = calloc(params->total, sizeof *flat);
        MP_CHECK(flat && mkdtemp(folder), "a folder");
        for (size_t r = 0; r < params->rows; r++)
            for (size_t i = 0; i < params->row[r].count; i++) {
                float even = params->row[r].init == MODEL_INIT_ONE ? 1.0f : 0.0f;
                flat[params->row[r].offset + i] =
                    even + (float)(0.2 * model_random_normal(11, MODEL_RANDOM_DATA, (uint32_t)r, i));
            }
        MP_OK(save_hf(folder, params, flat, MODEL_HF_F32, 0));
        free(flat);
    }
    MP_OK(gyre_broadcast(folder, folder, bytes, GYRE_UINT8, 0, comm));
    model_params_destroy(params);
}

static void remove_folder(gyre_comm_t *comm, const char *folder)
{
    char command[96];
    MP_OK(gyre_barrier(comm));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (gyre_comm_rank(comm) == 0)
        MP_CHECK(system(command) == 0, "%s", command);
}

int main(int argc, char **argv)
{
    const size_t tokens = argc > 1 ? strtoul(argv[1], NULL, 10) : 24, seq = argc > 1 ? tokens + 64 : 64;
    const model_config_t shape = {
        .vocab = VOCAB, .seq = seq, .layers = 2, .hidden = 64, .heads = 4, .leaves = 4};
    model_config_t models[] = {shape, shape, shape, shape, shape};
    models[1].pos = MODEL_POS_ROPE;
    models[1].norm = MODEL_NORM_RMS;
    models[1].act = MODEL_ACT_SILU;
    models[1].gated = models[1].untied = 1;
    models[1].no_qkv_bias = models[1].no_proj_bias = models[1].no_mlp_bias = 1;
    models[1].window = 24;
    models[1].window_every = 2;
    models[1].local_theta = 100;
    models[1].qk_norm = 1;
    models[2].experts = 4;
    models[2].untied = 1;
    models[2].norm = MODEL_NORM_RMS;
    models[2].gain_plus_1 = models[2].embed_scaled = 1;
    models[3] = models[1];
    models[3].window = models[3].window_every = 0;
    models[2].both_norms = 1;
    models[2].attn_cap = 2;
    models[2].logit_cap = 8;
    models[3].out_norm = models[3].qk_whole = 1;
    models[4] = models[1];
    models[4].qk_norm = 0;
    models[4].local_theta = 0.0;
    models[4].act = MODEL_ACT_GELU_FAST;
    models[4].act_limit = 0.3;
    models[4].no_qkv_bias = models[4].no_proj_bias = 0;
    models[4].experts = 4;
    models[4].capacity = 2.0;
    models[4].sinks = models[4].router_bias = models[4].expert_bias = 1;
    gyre_comm_t *comm;
    MP_OK(gyre_init(NULL, &comm));
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char folder[] = "/tmp/gyre-mp-generate-XXXXXX";
        make_folder(comm, &models[m], folder, sizeof folder);
        check(comm, folder, MODEL_FLOAT32, tokens);
        if (m == 1 || m == 4)
            check(comm, folder, MODEL_BFLOAT16, tokens);
        remove_folder(comm, folder);
    }
    MP_OK(gyre_finalize(comm));
    return 0;
}
