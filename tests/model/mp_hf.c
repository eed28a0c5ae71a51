/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 */
/* tests/model/mp_hf.c: ranks read their slices of a model in Hugging Face's form, and together have the loss
 * that one rank has.
 *
 *   mp_hf FOLDER     what tests/model/torch_arch_compare.py compares with PyTorch: reads the model in FOLDER
 *   and the sequences in
 *                    FOLDER/sequences.json, [{"tokens": [..], "targets": [..], "prefix": n, "positions":
 *                    [..]}, ..] (positions may be absent); prints mean loss and auxiliary losses; writes the
 *                    gradients of their sum to FOLDER/gradients, and the weights again, in shards, to
 *                    FOLDER/export. All in double but the files. */
#include <string.h>
#include <unistd.h>

#include "base/text/json.h"
#include "model/formats/hf.h"
#include "tests/support/mp.h"
#include "tests/model/f64/f64.h"
#include "tests/model/kinds.h"
#include "tests/support/weights.h"

enum { LONGEST = 64 };

typedef struct {
    model_token_t tokens[LONGEST], targets[LONGEST];
    int32_t positions[LONGEST];
    model_sequence_t sequence;
} sample_t;

/* One stage with all layers, and what it works with. */
typedef struct {
    model_params_t *params;
    double *weights, *grads;
    model_plain_store_t_f64 plain;
    model_stage_t_f64 *stage;
} whole_t;

static void make(whole_t *w, model_params_t *params, const char *folder, const model_tp_t *tp)
{
    w->params = params;
    w->weights = calloc(params->total, sizeof(double));
    w->grads = calloc(params->grad_total, sizeof(double));
    float *read = calloc(params->total, sizeof(float));
    MP_CHECK(w->weights && w->grads && read, "memory");
    MP_OK(model_hf_load(folder, params, read));
    for (size_t i = 0; i < params->total; i++)
        w->weights[i] = (double)read[i];
    free(read);
    w->plain = (model_plain_store_t_f64){.params = params, .weights = w->weights, .grads = w->grads};
    const model_store_t_f64 store = model_plain_store_f64(&w->plain);
    const model_stage_config_t config = {.layers = params->config.layers, .embed = 1, .head = 1, .slots = 1};
    MP_OK(model_stage_create_f64(params, tp, &config, &store, MODEL_ISA_BEST, &w->stage));
}

static void unmake(whole_t *w)
{
    model_stage_destroy_f64(w->stage);
    model_params_destroy(w->params);
    free(w->weights);
    free(w->grads);
}

/* ---- for PyTorch --------------------------------------------------------------------------------------- */

static void read_sample(const json_t *object, size_t seq, sample_t *out)
{
    const json_t *tokens = json_object_get(object, "tokens"), *targets = json_object_get(object, "targets");
    MP_CHECK(json_array_size(tokens) == seq && json_array_size(targets) == seq && seq <= LONGEST,
             "sequences of %zu tokens", seq);
    for (size_t t = 0; t < seq; t++) {
        out->tokens[t] = (model_token_t)json_integer_value(json_array_get(tokens, t));
        out->targets[t] = (model_token_t)json_integer_value(json_array_get(targets, t));
    }
    out->sequence =
        (model_sequence_t){.tokens = out->tokens,
                           .targets = out->targets,
                           .prefix = (size_t)json_integer_value(json_object_get(object, "prefix"))};
    const json_t *positions = json_object_get(object, "positions");
    for (size_t t = 0; t < seq && positions; t++)
        out->positions[t] = (int32_t)json_integer_value(json_array_get(positions, t));
    out->sequence.positions = positions ? out->positions : NULL;
}

/* The gradients as weights of the same model: a tied weight's are added. */
static void write_gradients(const char *folder, const model_params_t *params, const double *sum)
{
    float *flat = calloc(params->total, sizeof *flat);
    MP_CHECK(flat != NULL, "memory");
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        size_t head = row->twin ? model_params_find(params, MODEL_HEAD, 0) : MODEL_NONE;
        for (size_t i = 0; i < row->count; i++) {
            double d = sum[row->grad + i] + (head == MODEL_NONE ? 0.0 : sum[params->row[head].grad + i]);
            flat[row->offset + i] = (float)d;
        }
    }
    MP_OK(save_hf(folder, params, flat, MODEL_HF_F32, 0));
    free(flat);
}

static void for_pytorch(const char *folder)
{
    char path[512];
    json_t *list = NULL;
    model_config_t config;
    model_params_t *params = NULL;
    whole_t w = {0};
    const model_tp_t alone = {.size = 1};
    snprintf(path, sizeof path, "%s/sequences.json", folder);
    MP_OK(base_json_read(path, &list));
    MP_OK(model_hf_config(folder, 0, &config));
    MP_OK(model_params_create(&config, &params));
    make(&w, params, folder, &alone);
    size_t n = json_array_size(list);
    double loss = 0.0, auxiliary = 0.0, *sum = calloc(params->grad_total, sizeof *sum);
    MP_CHECK(sum != NULL && n > 0, "memory, or no sequences");
    for (size_t i = 0; i < n; i++) {
        sample_t sample;
        double one = 0.0;
        read_sample(json_array_get(list, i), config.seq, &sample);
        MP_OK(model_stage_forward_f64(w.stage, 0, &sample.sequence, NULL, NULL, &one));
        loss += one / (double)n;
        auxiliary += model_stage_auxiliary_f64(w.stage, 0) / (double)n;
        MP_OK(model_stage_backward_f64(w.stage, 0, 1.0 / (double)n, NULL, NULL));
        for (size_t j = 0; j < params->grad_total; j++)
            sum[j] += w.grads[j];
    }
    snprintf(path, sizeof path, "%s/gradients", folder);
    write_gradients(path, params, sum);
    float *weights = calloc(params->total, sizeof *weights);
    MP_CHECK(weights != NULL, "memory");
    MP_OK(model_hf_load(folder, params, weights));
    snprintf(path, sizeof path, "%s/export", folder);
    MP_OK(save_hf(path, params, weights, MODEL_HF_F32, 20000));
    model_family_t family;
    MP_OK(model_config_family(&config, &family));
    printf("{\"family\": \"%s\", \"loss\": %.17g, \"auxiliary\": %.17g}\n", model_family_name(family), loss,
           auxiliary);
    json_decref(list);
    free(sum);
    free(weights);
    unmake(&w);
}

/* ---- a group reads what it holds ----------------------------------------------------------------------- */

static void group(gyre_comm_t *world)
{
    const model_config_t config = {.vocab = 21,
                                   .seq = 8,
                                   .layers = 2,
                                   .hidden = 12,
                                   .heads = 6,
                                   .kv_heads = 2,
                                   .ffn = 20,
                                   .leaves = 2,
                                   LLAMA_LIKE};
    char folder[] = "/tmp/gyre-mp-hf-XXXXXX";
    model_params_t *params = NULL, *part = NULL;
    int rank = gyre_comm_rank(world);
    MP_OK(model_params_create(&config, &params));
    if (rank == 0) {
        float *flat = calloc(params->total, sizeof *flat);
        MP_CHECK(flat && mkdtemp(folder), "a folder");
        init_params(params, 7, flat);
        MP_OK(save_hf(folder, params, flat, MODEL_HF_BF16, 3000));
        free(flat);
    }
    MP_OK(gyre_broadcast(folder, folder, sizeof folder, GYRE_UINT8, 0, world));
    const model_tp_t alone = {.size = 1},
                     all = {.comm = world, .rank = (size_t)rank, .size = (size_t)gyre_comm_size(world)};
    MP_OK(model_params_slice(
        params, &(model_slice_t){.tp_rank = all.rank, .tp_size = all.size, .embed = 1, .head = 1}, &part));
    whole_t one = {0}, ours = {0};
    make(&one, params, folder, &alone);
    make(&ours, part, folder, &all);
    sample_t sample = {.sequence = {.tokens = sample.tokens, .targets = sample.targets}};
    for (size_t t = 0; t < config.seq; t++) {
        sample.tokens[t] = (model_token_t)(t * t % config.vocab);
        sample.targets[t] = (model_token_t)((t * 3 + 1) % config.vocab);
    }
    double want = 0.0, got = 0.0;
    MP_OK(model_stage_forward_f64(one.stage, 0, &sample.sequence, NULL, NULL, &want));
    MP_OK(model_stage_forward_f64(ours.stage, 0, &sample.sequence, NULL, NULL, &got));
    MP_CHECK(want > 0.0 && memcmp(&want, &got, sizeof want) == 0, "loss %a, alone %a", got, want);
    MP_OK(gyre_barrier(world));
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    MP_CHECK(rank != 0 || system(command) == 0, "%s", command);
    unmake(&one);
    unmake(&ours);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        for_pytorch(argv[1]);
        return 0;
    }
    gyre_comm_t *world = NULL, *two = NULL; /* as many as the model has leaves */
    MP_OK(gyre_init(NULL, &world));
    int rank = gyre_comm_rank(world);
    MP_OK(gyre_comm_split(world, rank < 2 ? 0 : -1, rank, &two));
    if (two) {
        group(two);
        MP_OK(gyre_comm_destroy(two));
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
