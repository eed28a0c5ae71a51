/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/test_vocabulary.c: cross-entropy in fp32 and the embedding's gradient to the bit, in the
 * order of sums that model/gpu/layers/loss.cu and vocabulary.cu promise; cross-entropy in bf16 against sums
 * in double; in both to the bit the same with leaves on ranks of their own. test_elementwise.c compares the
 * same kernels with sums in double, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "model/gpu/layers/vocabulary.h"
#include "model/kernels/kernels.h"
#include "tests/gpu/kernels/storage.h"

static const model_kernels_t_f32 *k;
static struct CUstream_st *stream;

/* ---- cross-entropy ------------------------------------------------------------------------------------- */

/* e^x with the bits of model/kernels/scalar.inc. */
static float exp_of(float x)
{
    float sum, zero = 0.0f;
    k->row_exp(&sum, &x, &zero, 1, 1, 1);
    return x;
}

enum { MOST_THREADS = 512 };

static void merge(float *max, float *sum, float other_max, float other_sum)
{
    float top = *max > other_max ? *max : other_max;
    float a = *max < top ? *sum * exp_of(*max - top) : *sum;
    float b = other_max < top ? other_sum * exp_of(other_max - top) : other_sum;
    *max = top;
    *sum = a + b;
}

/* n threads, `step` apart, meet in a tree. */
static void join(float *max, float *sum, size_t n, size_t step)
{
    for (size_t w = n / 2; w > 0; w /= 2)
        for (size_t t = 0; t < w; t++)
            merge(&max[t * step], &sum[t * step], max[(t + w) * step], sum[(t + w) * step]);
}

/* The largest of x [n], and the sum of e^(x - largest): pieces of 16 bytes go to threads in turn, each under
 * the largest so far; then threads of a warp meet in a tree, and warps. */
static void leaf_sum(const float *x, size_t n, size_t threads, float *max, float *sum)
{
    enum { E = 4 };
    float m[MOST_THREADS], s[MOST_THREADS];
    for (size_t t = 0; t < threads; t++) {
        m[t] = -INFINITY;
        s[t] = 0.0f;
        for (size_t c = t * E; c < n; c += threads * E) {
            float top = m[t];
            for (size_t i = c; i < c + E && i < n; i++)
                top = fmaxf(top, x[i]);
            if (top > m[t])
                s[t] = s[t] * exp_of(m[t] - top);
            m[t] = top;
            for (size_t i = c; i < c + E && i < n; i++)
                s[t] = s[t] + exp_of(x[i] - top);
        }
    }
    for (size_t first = 0; first < threads; first += 32)
        join(m + first, s + first, 32, 1);
    join(m, s, threads / 32, 32);
    *max = m[0];
    *sum = s[0];
}

enum { SEQUENCES = 2, POSITIONS = 2, ROWS = SEQUENCES * POSITIONS, LEAVES = 2 };

/* Logits, of which the second leaf ends in padding; what lies between rows is larger than all. */
typedef struct {
    model_cuda_type_t type;
    size_t width, ld, vocab, count;
    float *x;
    int32_t targets[ROWS];
    uint32_t prefix[SEQUENCES];
} logits_t;

/* What the kernels make of it. */
typedef struct {
    float leaf[2 * LEAVES * ROWS], max[ROWS], pair[2 * ROWS], *gradient;
    double loss[SEQUENCES];
} losses_t;

static logits_t make_logits(model_cuda_type_t type, size_t width, size_t ld)
{
    logits_t l = {.type = type,
                  .width = width,
                  .ld = ld,
                  .vocab = width + width / 2 + 1,
                  .count = LEAVES * ROWS * ld,
                  .prefix = {0, 1}};
    l.x = numbers(l.count);
    for (size_t i = 0; i < l.count; i++)
        l.x[i] = i % ld < width ? 4.0f * l.x[i] + (float)(i % ld) / (float)width : 1e6f;
    round_to(type, l.x, l.count);
    for (size_t r = 0; r < ROWS; r++)
        l.targets[r] = (int32_t)((r * 1001 + 3) % l.vocab);
    return l;
}

/* Leaves `first` .. of the logits, `leaves` of them, on the device. */
static model_cuda_loss_t on_device(const logits_t *l, size_t first, size_t leaves)
{
    const size_t part = l->count / LEAVES;
    return (model_cuda_loss_t){.type = l->type,
                               .sequences = SEQUENCES,
                               .T = POSITIONS,
                               .leaves = leaves,
                               .width = l->width,
                               .first = first,
                               .ld = l->ld,
                               .vocab = l->vocab,
                               .logits = send(l->type, l->x + first * part, leaves * part),
                               .leaf = to_device(NULL, 2 * leaves * ROWS * 4),
                               .max = to_device(NULL, ROWS * 4),
                               .pair = to_device(NULL, 2 * ROWS * 4),
                               .targets = to_device(l->targets, sizeof l->targets),
                               .prefix = to_device(l->prefix, sizeof l->prefix),
                               .loss = to_device(NULL, SEQUENCES * sizeof(double))};
}

static void take_back(const logits_t *l, const model_cuda_loss_t *p, losses_t *out)
{
    const size_t n = p->leaves * (l->count / LEAVES), size = l->type == MODEL_CUDA_BF16 ? 2 : 4;
    char *bytes = malloc(n * size);
    out->gradient = calloc(n, sizeof *out->gradient);
    assert_true(bytes && out->gradient);
    from_device(bytes, p->logits, n * size, stream);
    for (size_t i = 0; i < n; i++)
        out->gradient[i] = size == 2 ? of_bf16(((const uint16_t *)(const void *)bytes)[i])
                                     : ((const float *)(const void *)bytes)[i];
    from_device(out->leaf, p->leaf, 2 * p->leaves * ROWS * 4, stream);
    from_device(out->max, p->max, sizeof out->max, stream);
    from_device(out->pair, p->pair, sizeof out->pair, stream);
    from_device(out->loss, p->loss, sizeof out->loss, stream);
    assert_true(cudaFree((void *)(uintptr_t)p->targets) == cudaSuccess &&
                cudaFree((void *)(uintptr_t)p->prefix) == cudaSuccess);
    free(bytes);
}

static void in_one_kernel(const logits_t *l, losses_t *out)
{
    const model_cuda_loss_t p = on_device(l, 0, LEAVES);
    assert_int_equal(model_cuda_loss(&p, 1, stream), GYRE_OK);
    assert_int_equal(model_cuda_loss_mean(&p, stream), GYRE_OK);
    take_back(l, &p, out);
}

/* An all_reduce of two "ranks" on the host. */
static void reduce(float *const at[LEAVES], size_t n, int largest)
{
    float x[LEAVES][2 * ROWS];
    for (size_t i = 0; i < LEAVES; i++) {
        assert_cuda(cudaStreamSynchronize(stream));
        assert_cuda(cudaMemcpy(x[i], at[i], n * 4, cudaMemcpyDeviceToHost));
    }
    for (size_t e = 0; e < n; e++)
        x[0][e] = largest ? fmaxf(x[0][e], x[1][e]) : x[0][e] + x[1][e];
    for (size_t i = 0; i < LEAVES; i++)
        assert_cuda(cudaMemcpy(at[i], x[0], n * 4, cudaMemcpyHostToDevice));
    assert_cuda(cudaDeviceSynchronize());
}

/* Each leaf on a rank of its own. */
static void on_ranks(const logits_t *l, losses_t out[LEAVES])
{
    model_cuda_loss_t p[LEAVES];
    for (size_t i = 0; i < LEAVES; i++) {
        p[i] = on_device(l, i, 1);
        assert_int_equal(model_cuda_loss_max(&p[i], stream), GYRE_OK);
    }
    reduce((float *const[]){p[0].max, p[1].max}, ROWS, 1);
    for (size_t i = 0; i < LEAVES; i++)
        assert_int_equal(model_cuda_loss_pair(&p[i], stream), GYRE_OK);
    reduce((float *const[]){p[0].pair, p[1].pair}, 2 * ROWS, 0);
    for (size_t i = 0; i < LEAVES; i++) {
        assert_int_equal(model_cuda_loss_back(&p[i], stream), GYRE_OK);
        assert_int_equal(model_cuda_loss_mean(&p[i], stream), GYRE_OK);
        take_back(l, &p[i], &out[i]);
    }
}

static int is_learned(size_t r, const logits_t *l)
{
    return r % POSITIONS >= l->prefix[r / POSITIONS];
}

/* In fp32 to the bit. */
static void expect_host(const logits_t *l, size_t threads, const losses_t *got)
{
    float leaf[2 * LEAVES * ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        float *max = leaf + r, *sum = leaf + LEAVES * ROWS + r,
              each = 1.0f / (float)(POSITIONS - l->prefix[r / POSITIONS]);
        for (size_t i = 0; i < LEAVES; i++)
            leaf_sum(l->x + (i * ROWS + r) * l->ld, i == 0 ? l->width : l->vocab - l->width, threads,
                     &max[i * ROWS], &sum[i * ROWS]);
        float top = fmaxf(max[0], max[ROWS]), pair = sum[0] * exp_of(max[0] - top);
        pair = pair + sum[ROWS] * exp_of(max[ROWS] - top);
        for (size_t i = 0; i < LEAVES * l->width; i++) {
            size_t at = (i / l->width * ROWS + r) * l->ld + i % l->width;
            float want = exp_of(l->x[at] - top) * (each / pair);
            want = i == (size_t)l->targets[r] ? want - each : want;
            want = i < l->vocab && is_learned(r, l) ? want : 0.0f;
            if (memcmp(&want, &got->gradient[at], sizeof want) != 0)
                fail_msg("gradient of logit %zu of row %zu, %zu wide: %a, not %a", i, r, l->width,
                         (double)got->gradient[at], (double)want);
        }
    }
    assert_memory_equal(leaf, got->leaf, sizeof leaf);
}

/* Against sums in double, in bf16: a gradient is rounded to 8 bits; 2^-20 is for exponentials (2^-22, and
 * 2^-24 of an exponent of up to 32) and their sums. */
static void expect_near(const logits_t *l, const losses_t *got)
{
    double loss[SEQUENCES] = {0};
    for (size_t r = 0; r < ROWS; r++) {
        const double each = 1.0 / (double)(POSITIONS - l->prefix[r / POSITIONS]);
        double top = -INFINITY, sum = 0;
#define AT(i) (((i) / l->width * ROWS + r) * l->ld + (i) % l->width)
        for (size_t i = 0; i < l->vocab; i++)
            top = fmax(top, (double)l->x[AT(i)]);
        for (size_t i = 0; i < l->vocab; i++)
            sum += exp((double)l->x[AT(i)] - top);
        const size_t target = (size_t)l->targets[r];
        if (is_learned(r, l))
            loss[r / POSITIONS] += each * (log(sum) + top - (double)l->x[AT(target)]);
        for (size_t i = 0; i < LEAVES * l->width; i++) {
            const double p = i < l->vocab ? exp((double)l->x[AT(i)] - top) / sum : 0;
            const double want = is_learned(r, l) ? each * (p - (i == target)) : 0;
            const double is = (double)got->gradient[AT(i)];
            if (!(fabs(is - want) <= fabs(want) / 256 + each * p * 0x1p-20))
                fail_msg("gradient of logit %zu of row %zu, %zu wide: %g, not %g", i, r, l->width, is, want);
        }
#undef AT
    }
    for (size_t i = 0; i < SEQUENCES; i++)
        if (!(fabs(got->loss[i] - loss[i]) <= 0x1p-20 * (1 + loss[i])))
            fail_msg("loss of sequence %zu, %zu wide: %.9g, not %.9g", i, l->width, got->loss[i], loss[i]);
}

static void loss_of(model_cuda_type_t type, size_t width, size_t ld, size_t threads)
{
    logits_t l = make_logits(type, width, ld);
    losses_t whole, part[LEAVES];
    in_one_kernel(&l, &whole);
    on_ranks(&l, part);
    if (type == MODEL_CUDA_F32)
        expect_host(&l, threads, &whole);
    else
        expect_near(&l, &whole);
    for (size_t i = 0; i < LEAVES; i++) {
        assert_memory_equal(part[i].max, whole.max, sizeof whole.max);
        assert_memory_equal(part[i].pair, whole.pair, sizeof whole.pair);
        assert_memory_equal(part[i].loss, whole.loss, sizeof whole.loss);
        for (size_t at = 0; at < l.count / LEAVES; at++)
            if (at % ld < width &&
                memcmp(&part[i].gradient[at], &whole.gradient[i * (l.count / LEAVES) + at], 4) != 0)
                fail_msg("gradient %zu of leaf %zu, %zu wide, is another one on a rank of its own", at, i,
                         width);
        free(part[i].gradient);
    }
    free(whole.gradient), free(l.x);
}

static void losses(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        loss_of((model_cuda_type_t)type, 37, 40, 32); /* the last piece is not whole */
        loss_of((model_cuda_type_t)type, 264, 272, 64);
        loss_of((model_cuda_type_t)type, 4603, 4608, 512); /* several turns, and the rest of one */
    }
    loss_of(MODEL_CUDA_F32, 18001, 18004, 512); /* more than shared memory holds for two blocks */
}

/* Rows that do not begin at multiples of 16 bytes are refused. */
static void odd_rows(void **state)
{
    (void)state;
    const model_cuda_loss_t p = {
        .type = MODEL_CUDA_BF16, .sequences = 1, .T = 1, .leaves = 1, .width = 39, .ld = 39, .vocab = 39};
    assert_int_equal(model_cuda_loss(&p, 1, stream), GYRE_ERR_INVALID);
}

/* ---- embedding ----------------------------------------------------------------------------------------- */

/* Half of the positions have one token; others have few each, and two tokens are another rank's. */
static void embedding_of(model_cuda_type_t type, size_t C)
{
    enum { T = 150, V = 40, FIRST = 1, HERE = 38 };
    int32_t tokens[T], segments[T], last[V];
    float *d = stored(type, T * C), *want = calloc(HERE * C, sizeof *want);
    memset(last, 0xff, sizeof last);
    for (size_t t = 0; t < T; t++) {
        tokens[t] = (int32_t)(t % 2 ? 7 : t * t / 4 % V);
        float *to = want + (size_t)(tokens[t] - FIRST) * C;
        if (tokens[t] >= FIRST && tokens[t] < FIRST + HERE)
            k->scale_add(to, 0.1f, d + t * C, to, C);
    }
    model_cuda_segments(segments, tokens, T, last);
    for (size_t i = 0; i < V; i++)
        assert_int_equal(last[i], -1);
    void *d_d = send(type, d, T * C), *d_tokens = to_device(tokens, sizeof tokens),
         *d_segments = to_device(segments, sizeof segments);
    float *dw = to_device(NULL, HERE * C * 4);
    assert_cuda(cudaMemset(dw, 0, HERE * C * 4));
    assert_int_equal(
        model_cuda_embed_back(type, dw, FIRST, HERE, d_d, d_tokens, d_segments, T, C, 0.1f, stream), GYRE_OK);
    expect_bits("gradient of an embedding", MODEL_CUDA_F32, want, dw, HERE * C, stream);
    assert_true(cudaFree(d_d) == cudaSuccess && cudaFree(d_tokens) == cudaSuccess &&
                cudaFree(d_segments) == cudaSuccess);
    free(d), free(want);
}

static void embeddings(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        embedding_of((model_cuda_type_t)type, 37);
        embedding_of((model_cuda_type_t)type, 264);
    }
}

/* The positions of a token lie side by side in their order; the first has a negative number. */
static void segments_of_tokens(void **state)
{
    (void)state;
    enum { T = 9, V = 6 };
    const int32_t tokens[T] = {3, 0, 3, 1, 5, 3, 4, 1, 0};
    const int32_t want[T] = {-1, 2, 5, -2, 8, -4, 7, -5, -7};
    int32_t got[T], last[V] = {-1, -1, -1, -1, -1, -1};
    model_cuda_segments(got, tokens, T, last);
    assert_memory_equal(got, want, sizeof want);
}

static void sums_of_terms(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++)
        for (size_t count = 131; count <= 512; count += 381) {
            enum { TERMS = 13 };
            float *d = stored((model_cuda_type_t)type, TERMS * count), *want = calloc(count, sizeof *want);
            void *d_d = send((model_cuda_type_t)type, d, TERMS * count), *out = to_device(NULL, count * 4);
            memcpy(want, d, count * sizeof *want);
            for (size_t i = 1; i < TERMS; i++)
                k->add(want, want, d + i * count, count);
            assert_int_equal(model_cuda_widen((model_cuda_type_t)type, out, d_d, TERMS, count, stream),
                             GYRE_OK);
            expect_bits("sum of terms", MODEL_CUDA_F32, want, out, count, stream);
            assert_cuda(cudaFree(d_d));
            free(d), free(want);
        }
}

int main(void)
{
    if (!gpu_here())
        return 77;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    k = model_kernels_f32(MODEL_ISA_BEST);
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses), cmocka_unit_test(odd_rows),
                                       cmocka_unit_test(embeddings), cmocka_unit_test(segments_of_tokens),
                                       cmocka_unit_test(sums_of_terms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
