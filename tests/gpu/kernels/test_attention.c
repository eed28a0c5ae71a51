/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_attention.c: attention on the GPU against the plain formulas in double, forward and
 * backward: both types, odd lengths and head sizes, groups, leaves, prefixes, ALiBi, the CPU's dropout,
 * aligned and not. The bits are the same on every run, and for a sequence or a head with any neighbours.
 *
 * Tolerances. Each result is a sum of products, and errs by at most `unit` times the sum of the products'
 * sizes. Its inputs were rounded three times at most (a weight or its gradient, o in delta, the result), so
 * unit is 3 2^-8 for bf16. For fp32 the scores' errors dominate, up to 8 in size and sums of 128 terms:
 * 2^-17. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/settings/settings.h"
#include "model/gpu/attention/attention.h"
#include "model/kernels/kernels.h"
#include "tests/gpu/memory.h"
#include "tests/gpu/kernels/tensors.h"

enum { PREFIX = 1, ALIBI = 2, DROPOUT = 4 };

typedef struct {
    model_cuda_type_t type;
    size_t batch, leaves, heads, kv_heads, T, head_dim;
    size_t pad;   /* elements after each row */
    size_t shift; /* elements by which tensors miss an allocation's alignment */
    int with;     /* PREFIX | ... */
} shape_t;

typedef struct {
    shape_t s;
    model_cuda_attention_t a;
    size_t width, rows; /* of a packed row; of all leaves and sequences */
    tensor_t qkv, o, d_o, d_qkv, lse, delta;
    uint32_t *prefix; /* host */
    float *slopes;
    uint32_t (*keys)[4];
    void *device[3];
} case_t;

static case_t case_make(shape_t s)
{
    case_t c = {.s = s};
    size_t H = s.leaves * s.heads, D = s.head_dim, width = (s.heads + 2 * s.kv_heads) * D + s.pad,
           out = s.heads * D + s.pad;
    c.width = width;
    c.rows = s.leaves * s.batch * s.T;
    c.qkv = tensor_random(s.type, c.rows * width, 1.5, s.shift);
    c.d_qkv = tensor_random(s.type, c.rows * width, 1, s.shift);
    c.o = tensor_random(s.type, c.rows * out, 1, s.shift);
    c.d_o = tensor_random(s.type, c.rows * out, 1, s.shift);
    c.lse = tensor_random(MODEL_CUDA_F32, s.batch * H * s.T, 1, 0);
    c.delta = tensor_random(MODEL_CUDA_F32, s.batch * H * s.T, 1, 0);
    c.prefix = calloc(s.batch, sizeof(*c.prefix));
    c.slopes = calloc(H, sizeof(*c.slopes));
    c.keys = calloc(s.batch, sizeof(*c.keys));
    for (size_t b = 0; b < s.batch; b++) {
        c.prefix[b] = (uint32_t)tensor_below(s.T + 2);
        model_dropout_key(5, 100 + b, 3, 2, 3, c.keys[b]);
    }
    for (size_t h = 0; h < H; h++)
        c.slopes[h] = (float)model_alibi_slope(h, H);
    c.device[0] = to_device(c.prefix, s.batch * sizeof(*c.prefix));
    c.device[1] = to_device(c.slopes, H * sizeof(*c.slopes));
    c.device[2] = to_device(c.keys, s.batch * sizeof(*c.keys));

    size_t element = tensor_element(&c.qkv), k = s.heads * D * element, v = k + s.kv_heads * D * element;
    model_cuda_heads_t in = {
        .data = c.qkv.device, .row = width, .sequence = s.T * width, .leaf = s.batch * s.T * width};
    model_cuda_heads_t to = {
        .data = c.o.device, .row = out, .sequence = s.T * out, .leaf = s.batch * s.T * out};
    c.a = (model_cuda_attention_t){.type = s.type,
                                   .batch = s.batch,
                                   .leaves = s.leaves,
                                   .heads = s.heads,
                                   .kv_heads = s.kv_heads,
                                   .T = s.T,
                                   .head_dim = D,
                                   .scale = 1 / sqrtf((float)D),
                                   .first_head = 7,
                                   .below = model_dropout_below(0.3),
                                   .kept = (float)(1 / 0.7),
                                   .lse = (float *)(void *)c.lse.device,
                                   .delta = (float *)(void *)c.delta.device};
    c.a.prefix = s.with & PREFIX ? c.device[0] : NULL;
    c.a.slopes = s.with & ALIBI ? c.device[1] : NULL;
    c.a.keys = s.with & DROPOUT ? c.device[2] : NULL;
    c.a.q = c.a.k = c.a.v = c.a.d_q = c.a.d_k = c.a.d_v = in;
    c.a.o = c.a.d_o = to;
    c.a.d_o.data = c.d_o.device;
    c.a.k.data = c.qkv.device + k;
    c.a.v.data = c.qkv.device + v;
    c.a.d_q.data = c.d_qkv.device;
    c.a.d_k.data = c.d_qkv.device + k;
    c.a.d_v.data = c.d_qkv.device + v;
    return c;
}

static void case_free(case_t *c)
{
    tensor_t *all[] = {&c->qkv, &c->o, &c->d_o, &c->d_qkv, &c->lse, &c->delta};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        tensor_free(all[i]);
    for (size_t i = 0; i < 3; i++)
        assert_cuda(cudaFree(c->device[i]));
    free(c->prefix);
    free(c->slopes);
    free(c->keys);
}

static void compute(case_t *c)
{
    assert_int_equal(model_cuda_attention(&c->a, NULL), GYRE_OK);
    assert_int_equal(model_cuda_attention_backward(&c->a, NULL), GYRE_OK);
}

static void near(const case_t *c, const char *what, double got, double want, double size, size_t t, size_t d,
                 size_t h)
{
    double unit = c->s.type == MODEL_CUDA_BF16 ? 3 * 0x1p-8 : 0x1p-17, most = unit * size + 1e-7;
    if (fabs(got - want) <= most)
        return;
    fail_msg("%s of head %zu [%zu][%zu]: %.9g, not %.9g (+- %g); batch %zu leaves %zu heads %zu of %zu T %zu "
             "D %zu pad %zu shift %zu with %d, %s",
             what, h, t, d, got, want, most, c->s.batch, c->s.leaves, c->s.heads, c->s.kv_heads, c->s.T,
             c->s.head_dim, c->s.pad, c->s.shift, c->s.with, c->s.type == MODEL_CUDA_BF16 ? "bf16" : "fp32");
}

/* One head: p, dp with its mask, and what o, lse and the gradients of the head should be; dk, dv are added
 * to those of the group. */
static void check_head(case_t *c, size_t leaf, size_t b, size_t h, double *grad_kv, double *size_kv)
{
    const shape_t *s = &c->s;
    size_t T = s->T, D = s->head_dim, W = c->width, O = s->heads * D + s->pad,
           kv = h / (s->heads / s->kv_heads);
    size_t first = (leaf * s->batch + b) * T, head = leaf * s->heads + h;
    const double *q = c->qkv.value + first * W + h * D, *k = c->qkv.value + first * W + (s->heads + kv) * D,
                 *v = k + s->kv_heads * D;
    const double *o = c->o.value + first * O + h * D, *d_o = c->d_o.value + first * O + h * D,
                 *d_q = c->d_qkv.value + first * W + h * D;
    double *p = calloc(T * T, sizeof(*p)), scale = 1 / sqrt((double)D);
    float *keep = malloc(T * T * sizeof(*keep));
    for (size_t i = 0; i < T * T; i++)
        keep[i] = 1;
    if (s->with & DROPOUT)
        model_kernels_f32(MODEL_ISA_BASE)
            ->dropout(keep, keep, c->keys[b], c->a.below, c->a.kept, (c->a.first_head + head) * T * T, T * T);
    for (size_t i = 0; i < T; i++) {
        size_t sees = s->with & PREFIX && i < c->prefix[b] ? c->prefix[b] : i + 1;
        double sum = 0, *row = p + i * T;
        sees = sees < T ? sees : T;
        for (size_t j = 0; j < sees; j++) {
            double x = 0;
            for (size_t e = 0; e < D; e++)
                x += q[i * W + e] * k[j * W + e];
            x *= scale;
            if (s->with & ALIBI)
                x -= (double)c->slopes[head] * fabs((double)i - (double)j);
            sum += row[j] = exp(x);
        }
        for (size_t j = 0; j < sees; j++)
            row[j] /= sum;
        double lse = c->lse.value[(leaf * s->batch + b) * s->heads * T + h * T + i];
        if (fabs(lse - log(sum)) > 4e-6 * (2 + fabs(lse)))
            fail_msg("lse of head %zu, row %zu: %.9g, not %.9g", h, i, lse, log(sum));

        double delta = 0, size_delta = 0;
        for (size_t e = 0; e < D; e++) {
            double want = 0, size = 0;
            for (size_t j = 0; j < sees; j++) {
                double x = row[j] * (double)keep[i * T + j] * v[j * W + e];
                want += x;
                size += fabs(x);
            }
            near(c, "o", o[i * O + e], want, size, i, e, head);
            delta += want * d_o[i * O + e];
            size_delta += size * fabs(d_o[i * O + e]);
        }
        double *want = calloc(2 * D, sizeof(*want)), *size = want + D;
        for (size_t j = 0; j < sees; j++) {
            double dp = 0, size_dp = 0, drop = (double)keep[i * T + j];
            for (size_t e = 0; e < D; e++) {
                dp += d_o[i * O + e] * v[j * W + e] * drop;
                size_dp += fabs(d_o[i * O + e] * v[j * W + e]) * drop;
            }
            double ds = scale * row[j] * (dp - delta), size_ds = scale * row[j] * (size_dp + size_delta);
            for (size_t e = 0; e < D; e++) {
                want[e] += ds * k[j * W + e];
                size[e] += size_ds * fabs(k[j * W + e]);
                grad_kv[j * 2 * D + e] += ds * q[i * W + e];
                size_kv[j * 2 * D + e] += size_ds * fabs(q[i * W + e]);
                grad_kv[j * 2 * D + D + e] += row[j] * drop * d_o[i * O + e];
                size_kv[j * 2 * D + D + e] += row[j] * drop * fabs(d_o[i * O + e]);
            }
        }
        for (size_t e = 0; e < D; e++)
            near(c, "dq", d_q[i * W + e], want[e], size[e], i, e, head);
        free(want);
    }
    free(p);
    free(keep);
}

static void case_check(case_t *c)
{
    const shape_t *s = &c->s;
    size_t T = s->T, D = s->head_dim, W = c->width, O = s->heads * D + s->pad, share = s->heads / s->kv_heads;
    double *pads = malloc((c->rows * s->pad * 2 + 1) * sizeof(*pads)), *pad = pads;
    for (size_t i = 0; i < c->rows * s->pad; i++) {
        *pad++ = c->d_qkv.value[i / s->pad * W + W - s->pad + i % s->pad];
        *pad++ = c->o.value[i / s->pad * O + O - s->pad + i % s->pad];
    }
    compute(c);
    tensor_receive(&c->o);
    tensor_receive(&c->lse);
    tensor_receive(&c->d_qkv);
    pad = pads;
    for (size_t i = 0; i < c->rows * s->pad; i++) { /* what lies between rows is as it was */
        assert_true(*pad++ == c->d_qkv.value[i / s->pad * W + W - s->pad + i % s->pad]);
        assert_true(*pad++ == c->o.value[i / s->pad * O + O - s->pad + i % s->pad]);
    }
    free(pads);
    for (size_t leaf = 0; leaf < s->leaves; leaf++)
        for (size_t b = 0; b < s->batch; b++)
            for (size_t kv = 0; kv < s->kv_heads; kv++) {
                double *want = calloc(4 * T * D, sizeof(*want)), *size = want + 2 * T * D; /* [T][k, v][D] */
                const double *d_k = c->d_qkv.value + (leaf * s->batch + b) * T * W + (s->heads + kv) * D;
                for (size_t h = kv * share; h < (kv + 1) * share; h++)
                    check_head(c, leaf, b, h, want, size);
                for (size_t t = 0; t < T; t++)
                    for (size_t e = 0; e < D; e++) {
                        near(c, "dk", d_k[t * W + e], want[t * 2 * D + e], size[t * 2 * D + e], t, e, kv);
                        near(c, "dv", d_k[t * W + s->kv_heads * D + e], want[t * 2 * D + D + e],
                             size[t * 2 * D + D + e], t, e, kv);
                    }
                free(want);
            }
}

/* fp32, bf16 by what the device has, bf16 by mma.sync */
enum { WAYS = 3 };

static model_cuda_type_t type_of(int way)
{
    assert_int_equal(base_settings_set(SET_WGMMA, way == 2 ? "off" : "auto", "test"), GYRE_OK);
    return way ? MODEL_CUDA_BF16 : MODEL_CUDA_F32;
}

static void take_default(void)
{
    assert_int_equal(base_settings_set(SET_WGMMA, NULL, NULL), GYRE_OK);
}

/* Lengths and head sizes at, below and above what a tile holds; every way to mask. */
static void against_the_formulas(void **state)
{
    (void)state;
    static const shape_t shapes[] = {
        {.batch = 2, .leaves = 1, .heads = 2, .kv_heads = 2, .T = 64, .head_dim = 64},
        {.batch = 1, .leaves = 2, .heads = 2, .kv_heads = 1, .T = 130, .head_dim = 16, .with = PREFIX},
        {.batch = 1,
         .leaves = 1,
         .heads = 3,
         .kv_heads = 1,
         .T = 65,
         .head_dim = 80,
         .pad = 8,
         .with = ALIBI},
        {.batch = 2, .leaves = 1, .heads = 1, .kv_heads = 1, .T = 33, .head_dim = 96, .with = DROPOUT},
        {.batch = 1, .leaves = 1, .heads = 1, .kv_heads = 1, .T = 150, .head_dim = 128},
        {.batch = 1, .leaves = 1, .heads = 1, .kv_heads = 1, .T = 1, .head_dim = 128, .with = PREFIX},
        {.batch = 2,
         .leaves = 2,
         .heads = 2,
         .kv_heads = 1,
         .T = 31,
         .head_dim = 7,
         .pad = 1,
         .shift = 1,
         .with = PREFIX | ALIBI | DROPOUT},
        {.batch = 3,
         .leaves = 1,
         .heads = 1,
         .kv_heads = 1,
         .T = 97,
         .head_dim = 8,
         .with = PREFIX | DROPOUT},
        {.batch = 1,
         .leaves = 1,
         .heads = 4,
         .kv_heads = 2,
         .T = 40,
         .head_dim = 100,
         .pad = 3,
         .with = ALIBI},
        {.batch = 1, .leaves = 1, .heads = 2, .kv_heads = 1, .T = 270, .head_dim = 64},
        {.batch = 1,
         .leaves = 1,
         .heads = 1,
         .kv_heads = 1,
         .T = 260,
         .head_dim = 128,
         .with = PREFIX | ALIBI | DROPOUT},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int way = 0; way < WAYS; way++) {
            shape_t s = shapes[i];
            tensor_seed = 20 + i;
            s.type = type_of(way);
            case_t c = case_make(s);
            case_check(&c);
            case_free(&c);
        }
    take_default();
}

/* Again, and a sequence alone: the bits of the first time. */
static void the_same_bits(void **state)
{
    (void)state;
    for (int kernels = 0; kernels < WAYS; kernels++) {
        shape_t s = {.batch = 2,
                     .leaves = 1,
                     .heads = 2,
                     .kv_heads = 1,
                     .T = 70,
                     .head_dim = 24,
                     .with = DROPOUT | ALIBI};
        s.type = type_of(kernels);
        tensor_seed = 40;
        case_t c = case_make(s);
        double *o = malloc(c.o.count * sizeof(*o)), *d = malloc(c.d_qkv.count * sizeof(*d));
        for (int way = 0; way < 3; way++) {
            if (way == 2) { /* the second sequence by itself */
                model_cuda_heads_t *all[] = {&c.a.q,   &c.a.k,   &c.a.v,   &c.a.o,
                                             &c.a.d_o, &c.a.d_q, &c.a.d_k, &c.a.d_v};
                for (size_t i = 0; i < 8; i++)
                    all[i]->data = (char *)all[i]->data + all[i]->sequence * tensor_element(&c.qkv);
                c.a.batch = 1;
                c.a.keys += 4;
            }
            for (size_t i = 0; way < 2 && i < c.o.count; i++)
                c.o.value[i] = 9;
            for (size_t i = 0; way < 2 && i < c.d_qkv.count; i++)
                c.d_qkv.value[i] = 9;
            tensor_send(&c.o);
            tensor_send(&c.d_qkv);
            compute(&c);
            tensor_receive(&c.o);
            tensor_receive(&c.d_qkv);
            if (way == 0) {
                memcpy(o, c.o.value, c.o.count * sizeof(*o));
                memcpy(d, c.d_qkv.value, c.d_qkv.count * sizeof(*d));
            }
            assert_memory_equal(o, c.o.value, c.o.count * sizeof(*o));
            assert_memory_equal(d, c.d_qkv.value, c.d_qkv.count * sizeof(*d));
        }
        free(o);
        free(d);
        case_free(&c);
    }
    take_default();
}

/* Which kernels are taken, and that the setting names others. */
static void choices(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 64, 65, 96, 97, 128};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        const char *by = model_cuda_attention_by(MODEL_CUDA_BF16, dims[i]);
        assert_string_equal(model_cuda_attention_by(MODEL_CUDA_F32, dims[i]), "fma");
        if (gpu_is_emulated()) /* a device of compute capability 9.0 */
            assert_string_equal(by, dims[i] > 64 && dims[i] <= 96 ? "mma.sync" : "wgmma");
        type_of(2);
        assert_string_equal(model_cuda_attention_by(MODEL_CUDA_BF16, dims[i]), "mma.sync");
        take_default();
    }
}

static void refusals(void **state)
{
    (void)state;
    model_cuda_attention_t a = {.batch = 1, .leaves = 1, .heads = 4, .kv_heads = 3, .T = 8, .head_dim = 16};
    assert_int_equal(model_cuda_attention(&a, NULL), GYRE_ERR_INVALID);
    a.kv_heads = 2;
    a.head_dim = MODEL_CUDA_HEAD_MAX + 1;
    assert_int_equal(model_cuda_attention_backward(&a, NULL), GYRE_ERR_UNSUPPORTED);
    a.head_dim = 96;
    a.type = MODEL_CUDA_BF16; /* 107 KiB for keys and values */
    if (gpu_is_emulated()) {
        setenv("EMULATED_SHARED", "99", 1);
        assert_int_equal(model_cuda_attention_backward(&a, NULL), GYRE_ERR_UNSUPPORTED);
        assert_string_equal(
            gyre_last_error(),
            "training attention heads of 96 channels in bf16 takes 105 KiB of shared memory per "
            "block, and this GPU has 99: take heads of 64 channels or fewer in bf16, or "
            "--device cpu");
        assert_int_equal(model_cuda_attention_fits(MODEL_CUDA_BF16, 128), GYRE_ERR_UNSUPPORTED);
        assert_int_equal(model_cuda_attention_fits(MODEL_CUDA_F32, 64), GYRE_ERR_UNSUPPORTED);
        assert_non_null(strstr(gyre_last_error(), "take --precision bf16, or --device cpu"));
        assert_int_equal(model_cuda_attention_fits(MODEL_CUDA_BF16, 64), GYRE_OK);
        unsetenv("EMULATED_SHARED");
    }
    assert_int_equal(model_cuda_attention_fits(MODEL_CUDA_BF16, 128), GYRE_OK);
    a.T = 0; /* nothing to do */
    assert_int_equal(model_cuda_attention(&a, NULL), GYRE_OK);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_the_formulas),
                                       cmocka_unit_test(the_same_bits), cmocka_unit_test(choices),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
