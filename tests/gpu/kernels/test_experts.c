/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_experts.c: kernels of a mixture of experts: routing, slots, rows there and back,
 * sums over leaves and backward, against the CPU's kernels or plain loops, in fp32 to the bit if the order is
 * the same. Capacity 1, one expert for all, ties, NaN, one expert, all experts chosen, more positions than a
 * block has threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu/layers/experts.h"
#include "model/kernels/kernels.h"
#include "model/random.h"
#include "tests/gpu/memory.h"

static struct CUstream_st *stream;
static const model_kernels_t_f32 *k;

enum { SPREAD, TIES, ONE_FOR_ALL, NO_NUMBERS };
typedef struct {
    const char *name;
    size_t n, T, E, k, cap, leaf, C;
    int logits;
} case_t;
static const case_t cases[] = {
    {"usual", 2, 37, 8, 3, 11, 2, 20, SPREAD},           {"ties", 1, 9, 6, 2, 4, 3, 4, TIES},
    {"one for all", 2, 21, 4, 2, 5, 1, 12, ONE_FOR_ALL}, {"capacity 1", 2, 13, 4, 2, 1, 2, 5, SPREAD},
    {"one expert", 1, 7, 1, 1, 7, 1, 7, SPREAD},         {"all chosen", 1, 11, 16, 16, 11, 1, 36, SPREAD},
    {"four of 32", 1, 19, 32, 4, 3, 2, 8, SPREAD},       {"long", 1, 300, 4, 2, 190, 2, 4, SPREAD},
    {"no numbers", 1, 5, 8, 3, 5, 2, 4, NO_NUMBERS},
};

/* What the CPU has: of `n` sequences as in model_cuda_routing_t, of all experts. */
typedef struct {
    float *prob, *share;
    int32_t *choice, *place, *owner, *chosen;
} want_t;

static uint64_t drawn;

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)model_random_normal(6, MODEL_RANDOM_PROBE, 0, drawn++);
    return x;
}

static float *logits_of(const case_t *c)
{
    size_t count = c->n * c->T * c->E;
    float *x = numbers(count);
    for (size_t i = 0; i < count; i++) {
        if (c->logits == TIES)
            x[i] = i % c->E < c->E / 2 ? 0.5f : -0.5f;
        else if (c->logits == ONE_FOR_ALL && i % c->E == c->E - 1)
            x[i] = 9.0f;
        else if (c->logits == NO_NUMBERS && i / c->E % 2 == 1)
            x[i] = i % 3 == 0 ? NAN : INFINITY;
    }
    return x;
}

static want_t want_of(const case_t *c, const float *logits)
{
    size_t rows = c->n * c->T, slots = c->E * c->n * c->cap;
    want_t w = {calloc(rows * c->E, 4), calloc(rows * c->k, 4), calloc(rows * c->k, 4),
                calloc(rows * c->k, 4), calloc(slots, 4),       calloc(c->n * c->E, 4)};
    memcpy(w.prob, logits, rows * c->E * sizeof(float));
    k->route(w.prob, w.choice, w.share, rows, &(model_router_t_f32){.experts = c->E, .top_k = c->k});
    for (size_t i = 0; i < slots; i++)
        w.owner[i] = -1;
    for (size_t i = 0; i < rows * c->k; i++) {
        size_t j = i / (c->T * c->k), x = (size_t)w.choice[i], at = (size_t)w.chosen[j * c->E + x]++;
        w.place[i] = at < c->cap ? (int32_t)at : -1;
        if (at < c->cap)
            w.owner[(x * c->n + j) * c->cap + at] = (int32_t)(i - j * c->T * c->k);
    }
    return w;
}

static void free_want(want_t *w)
{
    free(w->prob), free(w->share), free(w->choice), free(w->place), free(w->owner), free(w->chosen);
}

/* A copy of device memory that stays. */
static void *look(const void *memory, size_t bytes)
{
    void *host = malloc(bytes);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
    return host;
}

static void same(const char *name, const char *what, const void *want, const void *memory, size_t count)
{
    const uint32_t *a = want;
    uint32_t *b = look(memory, count * sizeof *b);
    for (size_t i = 0; i < count; i++) {
        float x, y;
        memcpy(&x, a + i, sizeof x), memcpy(&y, b + i, sizeof y);
        if (a[i] != b[i] && !(isnan(x) && isnan(y)))
            fail_msg("%s: %s[%zu] is %#x (%g), on the CPU %#x (%g)", name, what, i, b[i], (double)y, a[i],
                     (double)x);
    }
    free(b);
}

/* Decides on the device; of experts first .. first + here - 1. */
static model_cuda_routing_t routing_on_device(const case_t *c, const float *logits, size_t first, size_t here)
{
    size_t rows = c->n * c->T;
    model_cuda_routing_t r = {.sequences = c->n,
                              .T = c->T,
                              .experts = c->E,
                              .top_k = c->k,
                              .cap = c->cap,
                              .first = first,
                              .here = here,
                              .leaf_experts = c->leaf,
                              .prob = to_device(logits, rows * c->E * 4),
                              .share = to_device(NULL, rows * c->k * 4),
                              .choice = to_device(NULL, rows * c->k * 4),
                              .place = to_device(NULL, rows * c->k * 4),
                              .owner = to_device(NULL, here * c->n * c->cap * 4),
                              .chosen = to_device(NULL, c->n * c->E * 4),
                              .mass = to_device(NULL, c->n * c->E * 4)};
    assert_int_equal(model_cuda_route(&r, stream), GYRE_OK);
    assert_int_equal(model_cuda_assign(&r, stream), GYRE_OK);
    return r;
}

static void free_routing(model_cuda_routing_t *r)
{
    void *memory[] = {r->prob, r->share, r->choice, r->place, r->owner, r->chosen, r->mass};
    assert_cuda(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        assert_cuda(cudaFree(memory[i]));
}

static void check_told(const case_t *c, const want_t *w, const model_cuda_routing_t *r)
{
    size_t stride = 3; /* of which the layer's first n sequences are read */
    int32_t *chosen = to_device(NULL, 2 * stride * c->E * 4);
    float *mass = to_device(NULL, 2 * stride * c->E * 4);
    model_routed_t *d = to_device(NULL, 2 * c->n * sizeof *d), got[2 * 2];
    for (size_t l = 0; l < 2; l++) {
        assert_cuda(cudaMemcpyAsync(chosen + l * stride * c->E, r->chosen, c->n * c->E * 4,
                                    cudaMemcpyDeviceToDevice, stream));
        assert_cuda(cudaMemcpyAsync(mass + l * stride * c->E, r->mass, c->n * c->E * 4,
                                    cudaMemcpyDeviceToDevice, stream));
    }
    assert_int_equal(model_cuda_routed(d, chosen, mass, 2, stride, c->n, c->T, c->E, c->cap, 0.1, stream),
                     GYRE_OK);
    from_device(got, d, 2 * c->n * sizeof *d, stream);
    assert_true(cudaFree(chosen) == cudaSuccess && cudaFree(mass) == cudaSuccess);
    for (size_t j = 0; j < c->n; j++) {
        size_t dropped = 0;
        double sum = 0.0;
        for (size_t x = 0; x < c->E; x++) {
            size_t count = (size_t)w->chosen[j * c->E + x];
            double p = 0.0;
            for (size_t t = 0; t < c->T; t++)
                p += (double)w->prob[(j * c->T + t) * c->E + x];
            dropped += count > c->cap ? count - c->cap : 0;
            sum += (double)count / (double)c->T * (p / (double)c->T);
        }
        for (size_t l = 0; l < 2; l++) {
            const model_routed_t *told = &got[j * 2 + l];
            double want = 0.1 * (double)c->E * sum;
            assert_int_equal(told->dropped, dropped);
            if (!isnan(want) && !(fabs(told->balance - want) <= 1e-6 * want))
                fail_msg("%s: balance loss %g, on the CPU %g", c->name, told->balance, want);
        }
    }
}

static void choices_and_slots(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const case_t *c = &cases[i];
        size_t rows = c->n * c->T, first = c->E / 2, here = c->E - first;
        float *logits = logits_of(c);
        want_t w = want_of(c, logits);
        model_cuda_routing_t r = routing_on_device(c, logits, first, here);
        same(c->name, "choice", w.choice, r.choice, rows * c->k);
        same(c->name, "place", w.place, r.place, rows * c->k);
        same(c->name, "owner", w.owner + first * c->n * c->cap, r.owner, here * c->n * c->cap);
        same(c->name, "chosen", w.chosen, r.chosen, c->n * c->E);
        same(c->name, "prob", w.prob, r.prob, rows * c->E);
        same(c->name, "share", w.share, r.share, rows * c->k);
        check_told(c, &w, &r);
        free_routing(&r);
        free_want(&w);
        free(logits);
    }
}

/* Row t of sequence j: the tree over leaves, each of which adds up its experts from +0 on. */
static void tree(const case_t *c, const want_t *w, const float *slots, int weighted, size_t row, size_t ch,
                 size_t first, size_t leaves, float *out)
{
    if (leaves > 1) {
        float right;
        tree(c, w, slots, weighted, row, ch, first, leaves / 2, out);
        tree(c, w, slots, weighted, row, ch, first + leaves / 2, leaves / 2, &right);
        *out = *out + right;
        return;
    }
    *out = 0.0f;
    for (size_t x = first * c->leaf; x < (first + 1) * c->leaf; x++)
        for (size_t i = row * c->k; i < (row + 1) * c->k; i++)
            if ((size_t)w->choice[i] == x && w->place[i] >= 0) {
                size_t slot = (x * c->n + row / c->T) * c->cap + (size_t)w->place[i];
                *out = (weighted ? w->share[i] : 1.0f) * slots[slot * c->C + ch] + *out;
            }
}

static float bf16(float x)
{
    k->round_bf16(&x, 1);
    return x;
}

/* [count] as the type has it; x becomes what that is. */
static void *as_type(model_cuda_type_t type, float *x, size_t count)
{
    if (type == MODEL_CUDA_F32)
        return to_device(x, count * 4);
    uint16_t *half = malloc(count * 2);
    for (size_t i = 0; i < count; i++) {
        uint32_t u;
        x[i] = bf16(x[i]);
        memcpy(&u, &x[i], sizeof u);
        half[i] = (uint16_t)(u >> 16);
    }
    void *memory = to_device(half, count * 2);
    free(half);
    return memory;
}

static void same_as(model_cuda_type_t type, const case_t *c, const char *what, const float *want,
                    const void *memory, size_t count)
{
    if (type == MODEL_CUDA_F32) {
        same(c->name, what, want, memory, count);
        return;
    }
    uint16_t *half = look(memory, count * 2);
    for (size_t i = 0; i < count; i++) {
        uint32_t u = (uint32_t)half[i] << 16;
        float got;
        memcpy(&got, &u, sizeof got);
        if (got != bf16(want[i]))
            fail_msg("%s: %s[%zu] is %g, on the CPU %g", c->name, what, i, (double)got, (double)want[i]);
    }
    free(half);
}

static void rows_and_sums(const case_t *c, model_cuda_type_t type)
{
    size_t rows = c->n * c->T, slots = c->E * c->n * c->cap, C = c->C, leaves = c->E / c->leaf;
    float *logits = logits_of(c), *x = numbers(rows * C), *y = numbers(slots * C), *dy = numbers(rows * C);
    float *filled = calloc(slots * C, 4), *sum = malloc(rows * C * 4), *d_share = calloc(rows * c->k, 4);
    want_t w = want_of(c, logits);
    model_cuda_routing_t r = routing_on_device(c, logits, 0, c->E);
    void *d_x = as_type(type, x, rows * C), *d_y = as_type(type, y, slots * C),
         *d_dy = as_type(type, dy, rows * C), *d_slots = to_device(NULL, slots * C * 4);
    float *d_sum = to_device(NULL, rows * C * 4), *d_d_share = to_device(d_share, rows * c->k * 4);

    assert_int_equal(model_cuda_fill_slots(type, &r, C, d_slots, d_x, stream), GYRE_OK);
    for (size_t s = 0; s < slots; s++)
        if (w.owner[s] >= 0)
            memcpy(filled + s * C, x + (s / c->cap % c->n * c->T + (size_t)w.owner[s] / c->k) * C, C * 4);
    same_as(type, c, "a slot", filled, d_slots, slots * C);

    for (int weighted = 0; weighted < 2; weighted++) {
        assert_int_equal(model_cuda_join_slots(type, &r, C, d_sum, d_y, weighted, stream), GYRE_OK);
        for (size_t i = 0; i < rows * C; i++)
            tree(c, &w, y, weighted, i / C, i % C, 0, leaves, sum + i);
        same(c->name, "a sum", sum, d_sum, rows * C);
    }
    if (leaves > 1) { /* the two ranks of a group have the tree's halves */
        float *half[2];
        for (size_t rank = 0; rank < 2; rank++) {
            model_cuda_routing_t part = routing_on_device(c, logits, rank * c->E / 2, c->E / 2);
            const size_t from = rank * slots / 2 * C * (type == MODEL_CUDA_BF16 ? 2 : 4);
            assert_int_equal(model_cuda_join_slots(type, &part, C, d_sum, (char *)d_y + from, 1, stream),
                             GYRE_OK);
            half[rank] = look(d_sum, rows * C * 4);
            free_routing(&part);
        }
        for (size_t i = 0; i < rows * C; i++)
            half[0][i] = half[0][i] + half[1][i];
        assert_memory_equal(half[0], sum, rows * C * 4);
        free(half[0]), free(half[1]);
    }

    assert_int_equal(model_cuda_slots_back(type, &r, C, d_slots, d_d_share, d_y, d_dy, stream), GYRE_OK);
    memset(filled, 0, slots * C * 4);
    for (size_t s = 0; s < slots; s++) {
        size_t row = s / c->cap % c->n * c->T + (size_t)w.owner[s] / c->k,
               i = row * c->k + (size_t)w.owner[s] % c->k;
        if (w.owner[s] < 0)
            continue;
        k->scale(filled + s * C, w.share[i], dy + row * C, C);
        d_share[i] = k->dot(y + s * C, dy + row * C, C) + 0.0f;
    }
    same_as(type, c, "a slot's gradient", filled, d_slots, slots * C);
    same(c->name, "a share's gradient", d_share, d_d_share, rows * c->k);

    void *memory[] = {d_x, d_y, d_dy, d_slots, d_sum, d_d_share};
    free_routing(&r);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        assert_cuda(cudaFree(memory[i]));
    free_want(&w);
    free(logits), free(x), free(y), free(dy), free(filled), free(sum), free(d_share);
}

static void rows_there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].logits != NO_NUMBERS)
            for (model_cuda_type_t type = MODEL_CUDA_F32; type <= MODEL_CUDA_BF16; type++)
                rows_and_sums(&cases[i], type);
}

/* Of the router's weights: rows from `begin` on, all of them or the later half, as sequence parallelism
 * has them. */
static void router_input(const case_t *c, model_cuda_type_t type, const model_cuda_routing_t *r,
                         const void *d_logits, const float *d)
{
    size_t C = c->C, E = c->E;
    float *w = numbers(C * E), *sum = numbers(c->n * c->T * C);
    void *d_w = as_type(type, w, C * E);
    for (size_t begin = 0; begin < c->T; begin += (c->T + 1) / 2) {
        size_t here = c->T - begin, count = c->n * here * C;
        float *d_sum = to_device(sum, count * 4), *want = malloc(count * 4);
        void *out = to_device(NULL, count * 4);
        assert_int_equal(model_cuda_router_input(type, r, C, here, begin, out, d_sum, d_logits, d_w, stream),
                         GYRE_OK);
        for (size_t i = 0; i < count; i++) {
            size_t row = i / C / here * c->T + begin + i / C % here;
            want[i] = sum[i];
            for (size_t e = 0; e < E; e++)
                want[i] = fmaf(d[row * E + e], w[i % C * E + e], want[i]);
        }
        same_as(type, c, "the router's input's gradient", want, out, count);
        assert_true(cudaFree(d_sum) == cudaSuccess && cudaFree(out) == cudaSuccess);
        free(want);
    }
    assert_cuda(cudaFree(d_w));
    free(w), free(sum);
}

static void router_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (model_cuda_type_t type = MODEL_CUDA_F32; type <= MODEL_CUDA_BF16; type++) {
            const case_t *c = &cases[i];
            size_t rows = c->n * c->T, E = c->E, parts = MODEL_CUDA_PARTS(type);
            double balance = i % 3 == 0 ? 0.0 : 0.5 * 0.1 * (double)E;
            float *logits = logits_of(c), *d_share = numbers(rows * c->k), *d = malloc(rows * E * 4),
                  *d_prob = calloc(E, 4);
            want_t w = want_of(c, logits);
            model_cuda_routing_t r = routing_on_device(c, logits, 0, E);
            float *d_d_share = to_device(d_share, rows * c->k * 4);
            void *d_logits = to_device(NULL, rows * parts * E * 4);
            assert_int_equal(model_cuda_route_back(type, &r, balance, d_logits, d_d_share, stream), GYRE_OK);
            for (size_t j = 0; j < c->n; j++) {
                size_t at = j * c->T;
                for (size_t e = 0; e < E; e++)
                    d_prob[e] =
                        (float)(balance * (double)w.chosen[j * E + e] / ((double)c->T * (double)c->T));
                k->route_backward(d + at * E, w.prob + at * E, w.choice + at * c->k, w.share + at * c->k,
                                  d_share + at * c->k, d_prob, c->T,
                                  &(model_router_t_f32){.experts = E, .top_k = c->k});
            }
            if (type == MODEL_CUDA_F32) {
                same(c->name, "the logits' gradient", d, d_logits, rows * E);
            } else if (c->logits != NO_NUMBERS) {
                uint16_t *half = look(d_logits, rows * parts * E * 2);
                for (size_t e = 0; e < rows * E; e++) {
                    float got = 0.0f;
                    for (size_t part = 0; part < parts; part++) {
                        uint32_t u = (uint32_t)half[(e / E * parts + part) * E + e % E] << 16;
                        float piece;
                        memcpy(&piece, &u, sizeof piece);
                        got = got + piece;
                    }
                    if (got != d[e])
                        fail_msg("%s: the parts of gradient %zu are %a, not %a", c->name, e, (double)got,
                                 (double)d[e]);
                }
                free(half);
            }
            if (c->logits != NO_NUMBERS)
                router_input(c, type, &r, d_logits, d);
            free_routing(&r);
            assert_true(cudaFree(d_d_share) == cudaSuccess && cudaFree(d_logits) == cudaSuccess);
            free_want(&w);
            free(logits), free(d_share), free(d), free(d_prob);
        }
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    k = model_kernels_f32(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_and_slots),
                                       cmocka_unit_test(rows_there_and_back),
                                       cmocka_unit_test(router_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
