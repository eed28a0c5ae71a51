/* SPDX-License-Identifier: Apache-2.0 */
/* guard: 2 */
/* tests/gpu/test_stage.c: stages on the GPU against those of the CPU: losses, every gradient, logits, for
 * every architecture, in fp32 and bf16. Recomputation, split backward, cuts into stages and CUDA graphs
 * change no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/gpu/stages.h"

static const model_tp_t alone = {.size = 1};

typedef struct {
    float *grads[SEQUENCES]; /* the result's */
    const model_params_t *params;
    float *now;
} taken_t;

static gyre_status_t take(void *user, size_t slot, size_t first, size_t rows)
{
    const taken_t *t = user;
    for (size_t r = first; r < first + rows; r++)
        memcpy(t->grads[slot] + t->params->row[r].grad, t->now + t->params->row[r].grad,
               t->params->row[r].count * sizeof(float));
    return GYRE_OK;
}

/* The same on the CPU; logits [T,V] of the first sequence. */
static void run_cpu(const whole_t *w, model_precision_t precision, result_t *out, float *logits)
{
    const model_config_t c = w->params->config;
    float *grads = calloc(w->params->grad_total, sizeof(float));
    taken_t taken = {.grads = {out->grads[0], out->grads[1]}, .params = w->params, .now = grads};
    model_plain_store_t_f32 plain = {
        .params = w->params, .weights = w->weights, .grads = grads, .ready = take, .user = &taken};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    const model_stage_config_t config = {.layers = c.layers,
                                         .embed = 1,
                                         .head = 1,
                                         .slots = SEQUENCES,
                                         .together = SEQUENCES,
                                         .precision = precision,
                                         .seed = 5};
    model_stage_t_f32 *stage;
    assert_int_equal(model_stage_create_f32(w->params, &alone, &config, &store, MODEL_ISA_BEST, &stage),
                     GYRE_OK);
    assert_int_equal(model_stage_forward_batch_f32(stage, 0, SEQUENCES, w->sequence, NULL, NULL, out->loss),
                     GYRE_OK);
    for (size_t i = 0; i < SEQUENCES; i++)
        for (size_t l = 0; l < LAYERS; l++)
            model_stage_routed_f32(stage, i, l, &out->routed[i][l]);
    assert_int_equal(model_stage_backward_batch_f32(stage, 0, SEQUENCES, 0.5f, NULL, NULL), GYRE_OK);
    assert_int_equal(model_stage_logits_f32(stage, &w->sequence[0], NULL, 0, c.seq, logits), GYRE_OK);
    model_stage_destroy_f32(stage);
    free(grads);
}

/* Rows agree to `tolerance` of their largest element. */
static void compare(const whole_t *w, const result_t *want, const result_t *got, double tolerance,
                    const char *what)
{
    double worst = 0.0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        if (!(fabs(want->loss[i] - got->loss[i]) <= tolerance * fabs(want->loss[i])))
            fail_msg("%s: loss of sequence %zu: %.9g, the CPU's is %.9g", what, i, got->loss[i],
                     want->loss[i]);
        for (size_t l = 0; l < LAYERS; l++) {
            const model_routed_t *a = &want->routed[i][l], *b = &got->routed[i][l];
            if (a->dropped != b->dropped || !(fabs(a->balance - b->balance) <= tolerance * a->balance))
                fail_msg("%s: sequence %zu, layer %zu: %zu dropped, balance %.9g, on the CPU %zu, %.9g", what,
                         i, l, b->dropped, b->balance, a->dropped, a->balance);
        }
        for (size_t r = 0; r < w->params->rows; r++) {
            const model_param_t *row = &w->params->row[r];
            const float *a = want->grads[i] + row->grad, *b = got->grads[i] + row->grad;
            double largest = 1e-9, apart = 0.0;
            for (size_t e = 0; e < row->count; e++) {
                largest = fmax(largest, fabs((double)a[e]));
                apart = isfinite(b[e]) ? fmax(apart, fabs((double)a[e] - (double)b[e])) : INFINITY;
            }
            if (apart > tolerance * largest && apart > 1e-9) /* keys' biases have a gradient of 0 */
                fail_msg("%s: sequence %zu: gradient of %s is %.3g of its largest element, %.3g, off", what,
                         i, row->name, apart / largest, largest);
            worst = fmax(worst, apart > 1e-9 ? apart / largest : 0.0);
        }
    }
    printf("%s: gradients agree to %.2g of a row's largest element\n", what, worst);
}

static void same_bits(const whole_t *w, const result_t *want, const result_t *got, const char *what)
{
    for (size_t i = 0; i < SEQUENCES; i++) {
        if (memcmp(&want->loss[i], &got->loss[i], sizeof(double)) != 0)
            fail_msg("%s: loss of sequence %zu: %a, alone it is %a", what, i, got->loss[i], want->loss[i]);
        assert_memory_equal(want->routed[i], got->routed[i], sizeof got->routed[i]);
        for (size_t r = 0; r < w->params->rows; r++) {
            const model_param_t *row = &w->params->row[r];
            for (size_t e = 0; e < row->count; e++)
                if (memcmp(want->grads[i] + row->grad + e, got->grads[i] + row->grad + e, sizeof(float)) != 0)
                    fail_msg("%s: sequence %zu: gradient of %s[%zu]: %a, alone it is %a", what, i, row->name,
                             e, (double)got->grads[i][row->grad + e], (double)want->grads[i][row->grad + e]);
        }
    }
}

static void check_logits(const whole_t *w, const float *want, double tolerance, const char *what)
{
    const layout_t layout = {.stages = 1};
    size_t T = w->params->config.seq, V = w->params->config.vocab, from = 3, count = (T - from) * V;
    struct CUstream_st *stream;
    float *device = device_memory(count * sizeof(float)), *got = malloc(count * sizeof(float));
    part_t part;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    make_part(w, &alone, &layout, 0, stream, &part);
    assert_int_equal(model_cuda_stage_logits(part.stage, &w->sequence[0], NULL, from, T - from, device),
                     GYRE_OK);
    check(cudaStreamSynchronize(stream) == cudaSuccess, "waiting");
    check(cudaMemcpy(got, device, count * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess,
          "copying logits");
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[from * V + i]) <= tolerance))
            fail_msg("%s: logit %zu of position %zu: %g, the CPU's is %g", what, i % V, from + i / V,
                     (double)got[i], (double)want[from * V + i]);
    free_part(&part);
    check(cudaFree(device) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess, "ending");
    free(got);
}

/* One gradient of both sequences is the sum of theirs. */
static void check_both(const whole_t *w, result_t *cpu, layout_t layout, double tolerance, const char *name)
{
    result_t got = make_result(w);
    model_traffic_t traffic;
    char what[160];
    layout.grad_sequences = SEQUENCES;
    run_gpu(w, &alone, &layout, &got, &traffic);
    for (size_t i = 0; i < w->params->grad_total; i++) {
        cpu->grads[0][i] += cpu->grads[1][i];
        cpu->grads[1][i] = got.grads[1][i] = 0;
    }
    snprintf(what, sizeof what, "%s, two sequences with one gradient", name);
    compare(w, cpu, &got, tolerance, what);
    free_result(&got);
}

static void architectures(model_precision_t precision, double tolerance)
{
    for (size_t i = 0; i < SHAPES; i += precision == MODEL_FLOAT32 || i == 6 ? 1 : 2) {
        whole_t w;
        model_traffic_t traffic;
        make_whole(&w, &shapes[i].config, precision);
        result_t cpu = make_result(&w), gpu = make_result(&w);
        float *logits = calloc(w.params->config.seq * w.params->config.vocab, sizeof *logits);
        run_cpu(&w, precision, &cpu, logits);
        run_gpu(&w, &alone, &(layout_t){.stages = 1, .precision = precision}, &gpu, &traffic);
        compare(&w, &cpu, &gpu, tolerance, shapes[i].name);
        if (precision == MODEL_FLOAT32)
            check_logits(&w, logits, tolerance, shapes[i].name);
        check_both(&w, &cpu, (layout_t){.stages = 1, .split = i % 2 == 1, .precision = precision}, tolerance,
                   shapes[i].name);
        free(logits);
        free_result(&cpu);
        free_result(&gpu);
        free_whole(&w);
    }
}

static void fp32_is_the_cpus(void **state)
{
    (void)state;
    architectures(MODEL_FLOAT32, 1e-5);
}

static void bf16_is_near_the_cpus(void **state)
{
    (void)state;
    architectures(MODEL_BFLOAT16, 3e-2);
}

static void layouts_change_no_bit(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {.stages = 1, .recompute = MODEL_RECOMPUTE_FULL},
        {.stages = 1, .graphs = MODEL_GRAPHS_AUTO},
        {.stages = 2, .split = 1, .graphs = MODEL_GRAPHS_ON},
        {.stages = 1, .split = 1, .recompute = MODEL_RECOMPUTE_FULL},
        {.stages = 1, .offload = 1, .recompute = MODEL_RECOMPUTE_FULL, .graphs = MODEL_GRAPHS_ON},
        {.stages = 2, .offload = 1, .split = 1, .recompute = MODEL_RECOMPUTE_FULL}};
    const int all = getenv("TEST_LONG") != NULL; /* else half of them: each in both precisions */
    for (size_t i = 0, tried = 0; i < SHAPES; i += i == 6 ? 1 : 3, tried++) {
        const model_precision_t precision = i % 2 == 0 ? MODEL_BFLOAT16 : MODEL_FLOAT32;
        whole_t w;
        model_traffic_t traffic;
        make_whole(&w, &shapes[i].config, precision);
        result_t one = make_result(&w);
        run_gpu(&w, &alone, &(layout_t){.stages = 1, .precision = precision}, &one, &traffic);
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            if (!all && (k + (tried + 1) / 2) % 2 != 0)
                continue;
            result_t other = make_result(&w);
            layout_t layout = layouts[k];
            char what[160];
            layout.precision = precision;
            run_gpu(&w, &alone, &layout, &other, &traffic);
            snprintf(what, sizeof what, "%s, %zu stages, split %d, recomputation %d, offload %d, graphs %d",
                     shapes[i].name, layout.stages, layout.split, (int)layout.recompute, layout.offload,
                     (int)layout.graphs);
            same_bits(&w, &one, &other, what);
            free_result(&other);
        }
        free_result(&one);
        free_whole(&w);
    }
}

/* A forward that is no training leaves the logits as they are, and its graph is not that of training. */
static void evaluation_has_graphs_of_its_own(void **state)
{
    (void)state;
    const layout_t layout = {.stages = 1, .graphs = MODEL_GRAPHS_ON};
    whole_t w;
    part_t part;
    model_traffic_t traffic;
    void *edge[2] = {0};
    double *loss;
    struct CUstream_st *stream;
    make_whole(&w, &shapes[0].config, MODEL_FLOAT32);
    result_t want = make_result(&w);
    run_gpu(&w, &alone, &(layout_t){.stages = 1}, &want, &traffic);
    const size_t bytes = w.params->grad_total * sizeof(float);
    float *got = malloc(SEQUENCES * bytes);
    assert_non_null(got);
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaHostAlloc((void **)&loss, SEQUENCES * sizeof *loss, cudaHostAllocDefault) == cudaSuccess,
          "beginning");
    make_part(&w, &alone, &layout, 0, stream, &part);
    model_sequence_t asked[SEQUENCES];
    for (size_t i = 0; i < SEQUENCES; i++) {
        asked[i] = w.sequence[i];
        asked[i].evaluate = 1;
    }
    for (int round = 0; round < 3; round++)
        assert_int_equal(model_cuda_stage_forward(part.stage, 2, SEQUENCES, asked, NULL, NULL, loss),
                         GYRE_OK);
    run_round(&w, &part, &layout, edge, loss, NULL);
    check(cudaStreamSynchronize(stream) == cudaSuccess &&
              cudaMemcpy(got, part.aside, SEQUENCES * bytes, cudaMemcpyDeviceToHost) == cudaSuccess,
          "copying gradients");
    for (size_t i = 0; i < SEQUENCES; i++)
        assert_memory_equal(got + i * w.params->grad_total, want.grads[i], bytes);
    free_part(&part);
    check(cudaFreeHost(loss) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess, "ending");
    free(got);
    free_result(&want);
    free_whole(&w);
}

static void what_it_cannot_do_is_told(void **state)
{
    (void)state;
    model_config_t c = shapes[0].config;
    c.experts = 20;
    c.top_k = 17;
    model_params_t *params;
    model_cuda_stage_t *stage;
    const model_cuda_store_t store = {0};
    model_stage_config_t config = {.layers = LAYERS, .embed = 1, .head = 1, .slots = 1};
    assert_int_equal(model_params_create(&c, &params), GYRE_OK);
    assert_int_equal(model_cuda_stage_create(params, &alone, &config, &store, NULL, &stage),
                     GYRE_ERR_UNSUPPORTED);
    assert_non_null(strstr(gyre_last_error(), "experts"));
    model_params_destroy(params);
    c = shapes[0].config;
    c.z_loss = 0.1;
    assert_int_equal(model_params_create(&c, &params), GYRE_OK);
    assert_int_equal(model_cuda_stage_create(params, &alone, &config, &store, NULL, &stage),
                     GYRE_ERR_UNSUPPORTED);
    assert_string_equal(gyre_last_error(), "z-losses on the GPU: take --device cpu");
    model_params_destroy(params);
    assert_int_equal(model_params_create(&shapes[0].config, &params), GYRE_OK);
    config.precision = MODEL_FLOAT16;
    assert_int_equal(model_cuda_stage_create(params, &alone, &config, &store, NULL, &stage),
                     GYRE_ERR_UNSUPPORTED);
    assert_non_null(strstr(gyre_last_error(), "bf16"));
    config.precision = MODEL_FLOAT32;
    config.offload = 1;
    assert_int_equal(model_cuda_stage_create(params, &alone, &config, &store, NULL, &stage),
                     GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "recomputation"));
    model_params_destroy(params);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_is_the_cpus), cmocka_unit_test(bf16_is_near_the_cpus),
        cmocka_unit_test(layouts_change_no_bit), cmocka_unit_test(evaluation_has_graphs_of_its_own),
        cmocka_unit_test(what_it_cannot_do_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
