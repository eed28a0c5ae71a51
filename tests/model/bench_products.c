/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/bench_products.c: products of float by the BLAS and of bfloat16 by the processor's tiles, in
 * turns, at the shapes of GPT-2 124M with 1,024 positions: forward, the gradient of inputs and that of
 * weights.
 *
 *   make build/tests/model/bench_products && build/tests/model/bench_products [ROUNDS]      default: 5
 *
 * Prints the shortest processor time of the rounds, one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model/kernels/kernels.h"

enum { T = 1024, HIDDEN = 768, VOCAB = 50257, KINDS = 2 };

/* A product with weights [in, out], or [out, in] of the head: y = x w, dx = dy w^T, dw = x^T dy. */
static const struct {
    size_t in, out;
    int head;
} layers[] = {{HIDDEN, HIDDEN, 0},
              {HIDDEN, 3 * HIDDEN, 0},
              {HIDDEN, 4 * HIDDEN, 0},
              {4 * HIDDEN, HIDDEN, 0},
              {HIDDEN, VOCAB, 1}};

typedef struct {
    int trans_a, trans_b;
    size_t M, N, K;
} shape_t;

static shape_t shape_of(size_t layer, int what)
{
    const size_t in = layers[layer].in, out = layers[layer].out;
    const int head = layers[layer].head;
    if (what == 0)
        return (shape_t){0, head, T, out, in};
    if (what == 1)
        return (shape_t){0, !head, T, in, out};
    return head ? (shape_t){1, 0, out, in, T} : (shape_t){1, 0, in, out, T};
}

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);
    if (!x) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i * 2654435761u % 256) / 128.0f - 1.0f;
    return x;
}

static double running(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    const unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
    const size_t most = (size_t)T * VOCAB;
    if (!model_matmul_has_bf16()) {
        fprintf(stderr, "%s\n", model_matmul_no_bf16());
        return 1;
    }
    model_matmul_init();
    float *a = numbers(most), *b = numbers(most), *c = numbers(most);
    void *pack = numbers(MODEL_PACK_BYTES / sizeof(float));
    for (size_t at = 0; at < 3 * sizeof layers / sizeof *layers; at++) {
        const shape_t s = shape_of(at / 3, (int)(at % 3));
        const size_t lda = s.trans_a ? s.M : s.K, ldb = s.trans_b ? s.K : s.N;
        const int add = at % 3 == 2;
        double best[KINDS] = {1e9, 1e9};
        for (unsigned long r = 0; r < rounds; r++)
            for (int kind = 0; kind < KINDS; kind++) {
                const double start = running();
                if (kind == 0)
                    model_matmul_f32(s.trans_a, s.trans_b, s.M, s.N, s.K, 1, a, lda, b, ldb, add ? 1 : 0, c,
                                     s.N);
                else
                    model_matmul_bf16_f32(pack, s.trans_a, s.trans_b, s.M, s.N, s.K, a, lda, b, ldb, add, c,
                                          s.N);
                const double took = running() - start;
                best[kind] = took < best[kind] ? took : best[kind];
            }
        printf("%5zu x %5zu x %5zu %s%s   float %8.3f ms   bfloat16 %8.3f ms   ratio %.2f\n", s.M, s.N, s.K,
               s.trans_a ? "A^T " : "A ", s.trans_b ? "B^T" : "B  ", best[0] * 1e3, best[1] * 1e3,
               best[0] / best[1]);
    }
    free(a);
    free(b);
    free(c);
    free(pack);
    return 0;
}
