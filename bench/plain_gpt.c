/* SPDX-License-Identifier: Apache-2.0 */
/* bench/plain_gpt.c: a training step of a GPT-2-style model in plain C loops and OpenMP: what one writes
 * without a library.
 *
 *     plain_gpt [--textbook | --blas] WEIGHTS TOKENS STEPS
 *
 * WEIGHTS: floats, in the order of `sizes` below, matrices [in, out]; TOKENS: STEPS * B * (T + 1) int32.
 * Prints the loss and the seconds of each step. Shapes are the demo's or, with -DGPT2_124M, those of GPT-2's
 * smallest. Gradients are exact; AdamW with clipping at 1, as gyre-train has it.
 *
 * The products with weights, which are nine tenths of the work, come in two orders of their loops:
 *   vectorised   matrices are [in, out]; rows of the output, then the inner dimension, then columns: what one
 *                arrives at with a compiler's vectoriser in mind
 *   textbook     matrices are [out, in], and an output element is a dot product over the inputs: what one
 *                writes down first, and what llm.c's CPU reference has
 * With --blas they are a BLAS's, which has threads of its own, and so are those of the head.
 * It is built twice: as C defines sums, from the first number to the last, and with -ffast-math, which lets
 * the compiler make vectors of a dot product and of tanhf. */
#include <cblas.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef GPT2_124M
enum { L = 12, H = 12, C = 768, T = 1024, B = 2, V = 50257 };
#else
enum { L = 4, H = 4, C = 128, T = 64, B = 12, V = 256 };
#endif
enum { D = C / H, N = B * T };

/* One layer's parameters, then those of the whole. */
enum { LN1W, LN1B, QKVW, QKVB, PROJW, PROJB, LN2W, LN2B, FCW, FCB, OUTW, OUTB, PER_LAYER };
static const size_t sizes[PER_LAYER] = {C, C, C * 3 * C, 3 * C, C *C, C, C, C, C * 4 * C, 4 * C, 4 * C *C, C};
enum { LAYER = 12 * C * C + 13 * C, WTE = L * LAYER, WPE = WTE + V * C, LNFW = WPE + T * C, LNFB = LNFW + C };
enum { PARAMETERS = LNFB + C };

typedef struct {
    float x[N * C], ln1[N * C], qkv[N * 3 * C], p[B * H * T * T], attn[N * C], x2[N * C], ln2[N * C],
        fc[N * 4 * C], act[N * 4 * C], mean1[N], rstd1[N], mean2[N], rstd2[N];
} layer_t;

static float *w, *g, *m, *v; /* [PARAMETERS] */
static layer_t *layer;       /* [L] */
static float *logits;        /* [N, V] */
static float x_out[N * C], lnf[N * C], meanf[N], rstdf[N];
static float d_x[N * C], d_a[N * C], d_wide[N * 4 * C], d_qkv[N * 3 * C];

static float *at(float *base, int l, int kind)
{
    float *p = base + (size_t)l * LAYER;
    for (int k = 0; k < kind; k++)
        p += sizes[k];
    return p;
}

static int textbook, blas;

/* ---- products, textbook order: wt, dw [out,in] ---- */

static void textbook_linear(float *y, const float *x, const float *wt, const float *b, const float *r, int in,
                            int out)
{
#pragma omp parallel for
    for (int n = 0; n < N; n++)
        for (int o = 0; o < out; o++) {
            float sum = b[o] + (r ? r[n * out + o] : 0.0f);
            for (int i = 0; i < in; i++)
                sum += x[n * in + i] * wt[o * in + i];
            y[n * out + o] = sum;
        }
}

static void textbook_linear_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                                     const float *wt, int in, int out)
{
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        memset(dx + n * in, 0, (size_t)in * sizeof *dx);
        for (int o = 0; o < out; o++)
            for (int i = 0; i < in; i++)
                dx[n * in + i] += dy[n * out + o] * wt[o * in + i];
    }
#pragma omp parallel for
    for (int o = 0; o < out; o++)
        for (int n = 0; n < N; n++) {
            db[o] += dy[n * out + o];
            for (int i = 0; i < in; i++)
                dw[o * in + i] += dy[n * out + o] * x[n * in + i];
        }
}

/* ---- products, vectorised order: wt, dw [in,out] ---- */

/* c [rows,columns] = a b, to which `keep` times what is in c is added; transposed: of both, in memory. */
static void product(float *c, const float *a, int a_transposed, const float *b, int b_transposed, int rows,
                    int columns, int inner, float keep)
{
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, rows, columns, inner, 1.0f, a,
                a_transposed ? rows : inner, b, b_transposed ? inner : columns, keep, c, columns);
}

/* y [N,out] = x [N,in] w + b (+ r) */
static void linear(float *y, const float *x, const float *wt, const float *b, const float *r, int in, int out)
{
    if (textbook) {
        textbook_linear(y, x, wt, b, r, in, out);
        return;
    }
    if (blas) {
#pragma omp parallel for
        for (int n = 0; n < N; n++)
            for (int o = 0; o < out; o++)
                y[n * out + o] = b[o] + (r ? r[n * out + o] : 0.0f);
        product(y, x, 0, wt, 0, N, out, in, 1.0f);
        return;
    }
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        float *yn = y + n * out;
        for (int o = 0; o < out; o++)
            yn[o] = b[o] + (r ? r[n * out + o] : 0.0f);
        for (int i = 0; i < in; i++) {
            float xi = x[n * in + i];
            for (int o = 0; o < out; o++)
                yn[o] += xi * wt[i * out + o];
        }
    }
}

static void linear_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *wt,
                            int in, int out)
{
    if (textbook) {
        textbook_linear_backward(dx, dw, db, dy, x, wt, in, out);
        return;
    }
    for (int n = 0; n < N; n++)
        for (int o = 0; o < out; o++)
            db[o] += dy[n * out + o];
    if (blas) {
        product(dx, dy, 0, wt, 1, N, in, out, 0.0f);
        product(dw, x, 1, dy, 0, in, out, N, 1.0f);
        return;
    }
#pragma omp parallel for
    for (int n = 0; n < N; n++)
        for (int i = 0; i < in; i++) {
            float sum = 0.0f;
            for (int o = 0; o < out; o++)
                sum += dy[n * out + o] * wt[i * out + o];
            dx[n * in + i] = sum;
        }
#pragma omp parallel for
    for (int i = 0; i < in; i++)
        for (int n = 0; n < N; n++) {
            float xi = x[n * in + i];
            for (int o = 0; o < out; o++)
                dw[i * out + o] += xi * dy[n * out + o];
        }
}

static void norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *bias)
{
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        float mu = 0.0f, var = 0.0f;
        for (int c = 0; c < C; c++)
            mu += x[n * C + c];
        mu /= C;
        for (int c = 0; c < C; c++)
            var += (x[n * C + c] - mu) * (x[n * C + c] - mu);
        float s = 1.0f / sqrtf(var / C + 1e-5f);
        for (int c = 0; c < C; c++)
            y[n * C + c] = (x[n * C + c] - mu) * s * gain[c] + bias[c];
        mean[n] = mu;
        rstd[n] = s;
    }
}

/* Adds to dx. */
static void norm_backward(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                          const float *gain, const float *mean, const float *rstd)
{
    for (int n = 0; n < N; n++) {
        float a = 0.0f, b = 0.0f;
        for (int c = 0; c < C; c++) {
            float hat = (x[n * C + c] - mean[n]) * rstd[n], dh = dy[n * C + c] * gain[c];
            dgain[c] += dy[n * C + c] * hat;
            dbias[c] += dy[n * C + c];
            a += dh;
            b += dh * hat;
        }
        for (int c = 0; c < C; c++) {
            float hat = (x[n * C + c] - mean[n]) * rstd[n], dh = dy[n * C + c] * gain[c];
            dx[n * C + c] += rstd[n] * (dh - a / C - hat * b / C);
        }
    }
}

static void attention(layer_t *a)
{
    const float scale = 1.0f / sqrtf((float)D);
#pragma omp parallel for collapse(2)
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++) {
                const float *q = a->qkv + (b * T + t) * 3 * C + h * D;
                float *p = a->p + ((b * H + h) * T + t) * T, *out = a->attn + (b * T + t) * C + h * D;
                float most = -INFINITY, sum = 0.0f;
                for (int u = 0; u <= t; u++) {
                    const float *k = a->qkv + (b * T + u) * 3 * C + C + h * D;
                    float s = 0.0f;
                    for (int d = 0; d < D; d++)
                        s += q[d] * k[d];
                    p[u] = s * scale;
                    most = fmaxf(most, p[u]);
                }
                for (int u = 0; u <= t; u++)
                    sum += p[u] = expf(p[u] - most);
                memset(out, 0, D * sizeof *out);
                for (int u = 0; u <= t; u++) {
                    const float *val = a->qkv + (b * T + u) * 3 * C + 2 * C + h * D;
                    p[u] /= sum;
                    for (int d = 0; d < D; d++)
                        out[d] += p[u] * val[d];
                }
            }
}

static void attention_backward(const layer_t *a, const float *d_attn)
{
    const float scale = 1.0f / sqrtf((float)D);
    memset(d_qkv, 0, sizeof d_qkv);
#pragma omp parallel for collapse(2)
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++) {
                const float *p = a->p + ((b * H + h) * T + t) * T, *d_o = d_attn + (b * T + t) * C + h * D;
                const float *q = a->qkv + (b * T + t) * 3 * C + h * D;
                float *dq = d_qkv + (b * T + t) * 3 * C + h * D, dp[T], dot = 0.0f;
                for (int u = 0; u <= t; u++) {
                    const float *val = a->qkv + (b * T + u) * 3 * C + 2 * C + h * D;
                    float *dv = d_qkv + (b * T + u) * 3 * C + 2 * C + h * D;
                    dp[u] = 0.0f;
                    for (int d = 0; d < D; d++) {
                        dp[u] += d_o[d] * val[d];
                        dv[d] += p[u] * d_o[d];
                    }
                    dot += dp[u] * p[u];
                }
                for (int u = 0; u <= t; u++) {
                    const float *k = a->qkv + (b * T + u) * 3 * C + C + h * D;
                    float *dk = d_qkv + (b * T + u) * 3 * C + C + h * D, ds = p[u] * (dp[u] - dot) * scale;
                    for (int d = 0; d < D; d++) {
                        dq[d] += ds * k[d];
                        dk[d] += ds * q[d];
                    }
                }
            }
}

static const float root = 0.7978845608f; /* sqrt(2 / pi) */

static void gelu(float *y, const float *x, int n)
{
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        y[i] = 0.5f * x[i] * (1.0f + tanhf(root * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

static void gelu_backward(float *d, const float *x, int n)
{
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        float t = tanhf(root * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
        d[i] *=
            0.5f * (1.0f + t) + 0.5f * x[i] * (1.0f - t * t) * root * (1.0f + 3.0f * 0.044715f * x[i] * x[i]);
    }
}

/* Forward; leaves the gradient of the mean loss in logits. */
static double forward(const int32_t *token)
{
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            layer[0].x[n * C + c] = w[WTE + token[n / T * (T + 1) + n % T] * C + c] + w[WPE + n % T * C + c];
    for (int l = 0; l < L; l++) {
        layer_t *a = &layer[l];
        float *out = l + 1 < L ? layer[l + 1].x : x_out;
        norm(a->ln1, a->mean1, a->rstd1, a->x, at(w, l, LN1W), at(w, l, LN1B));
        linear(a->qkv, a->ln1, at(w, l, QKVW), at(w, l, QKVB), NULL, C, 3 * C);
        attention(a);
        linear(a->x2, a->attn, at(w, l, PROJW), at(w, l, PROJB), a->x, C, C);
        norm(a->ln2, a->mean2, a->rstd2, a->x2, at(w, l, LN2W), at(w, l, LN2B));
        linear(a->fc, a->ln2, at(w, l, FCW), at(w, l, FCB), NULL, C, 4 * C);
        gelu(a->act, a->fc, N * 4 * C);
        linear(out, a->act, at(w, l, OUTW), at(w, l, OUTB), a->x2, 4 * C, C);
    }
    norm(lnf, meanf, rstdf, x_out, w + LNFW, w + LNFB);
    double loss = 0.0;
    if (blas)
        product(logits, lnf, 0, w + WTE, 1, N, V, C, 0.0f);
#pragma omp parallel for reduction(+ : loss)
    for (int n = 0; n < N; n++) {
        float *z = logits + n * V, most = -INFINITY, sum = 0.0f;
        int target = token[n / T * (T + 1) + n % T + 1];
        for (int i = 0; i < V && !blas; i++) {
            z[i] = 0.0f;
            for (int c = 0; c < C; c++)
                z[i] += lnf[n * C + c] * w[WTE + i * C + c];
        }
        for (int i = 0; i < V; i++)
            most = fmaxf(most, z[i]);
        loss -= z[target] - most;
        for (int i = 0; i < V; i++)
            sum += z[i] = expf(z[i] - most);
        loss += logf(sum);
        for (int i = 0; i < V; i++)
            z[i] = (z[i] / sum - (i == target)) / N;
    }
    return loss / N;
}

/* Of the head's product. */
static void head_backward(void)
{
    if (blas) {
        product(d_a, logits, 0, w + WTE, 0, N, C, V, 0.0f);
        product(g + WTE, logits, 1, lnf, 0, V, C, N, 1.0f);
        return;
    }
#pragma omp parallel for
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            float sum = 0.0f;
            for (int i = 0; i < V; i++)
                sum += logits[n * V + i] * w[WTE + i * C + c];
            d_a[n * C + c] = sum;
        }
#pragma omp parallel for
    for (int i = 0; i < V; i++)
        for (int n = 0; n < N; n++)
            for (int c = 0; c < C; c++)
                g[WTE + i * C + c] += logits[n * V + i] * lnf[n * C + c];
}

static void backward(const int32_t *token)
{
    memset(g, 0, PARAMETERS * sizeof *g);
    memset(d_x, 0, sizeof d_x);
    head_backward();
    norm_backward(d_x, g + LNFW, g + LNFB, d_a, x_out, w + LNFW, meanf, rstdf);
    for (int l = L; l-- > 0;) {
        const layer_t *a = &layer[l];
        linear_backward(d_wide, at(g, l, OUTW), at(g, l, OUTB), d_x, a->act, at(w, l, OUTW), 4 * C, C);
        gelu_backward(d_wide, a->fc, N * 4 * C);
        linear_backward(d_a, at(g, l, FCW), at(g, l, FCB), d_wide, a->ln2, at(w, l, FCW), C, 4 * C);
        norm_backward(d_x, at(g, l, LN2W), at(g, l, LN2B), d_a, a->x2, at(w, l, LN2W), a->mean2, a->rstd2);
        linear_backward(d_a, at(g, l, PROJW), at(g, l, PROJB), d_x, a->attn, at(w, l, PROJW), C, C);
        attention_backward(a, d_a);
        linear_backward(d_a, at(g, l, QKVW), at(g, l, QKVB), d_qkv, a->ln1, at(w, l, QKVW), C, 3 * C);
        norm_backward(d_x, at(g, l, LN1W), at(g, l, LN1B), d_a, a->x, at(w, l, LN1W), a->mean1, a->rstd1);
    }
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            g[WTE + token[n / T * (T + 1) + n % T] * C + c] += d_x[n * C + c];
            g[WPE + n % T * C + c] += d_x[n * C + c];
        }
}

static void update(int step)
{
    double square = 0.0;
    for (size_t i = 0; i < PARAMETERS; i++)
        square += (double)g[i] * g[i];
    float clip = square > 1.0 ? (float)(1.0 / sqrt(square)) : 1.0f;
    float c1 = 1.0f - powf(0.9f, (float)step), c2 = 1.0f - powf(0.99f, (float)step);
#pragma omp parallel for
    for (size_t i = 0; i < PARAMETERS; i++) {
        float gi = g[i] * clip;
        m[i] = 0.9f * m[i] + 0.1f * gi;
        v[i] = 0.99f * v[i] + 0.01f * gi * gi;
        w[i] -= 1e-3f * (m[i] / c1) / (sqrtf(v[i] / c2) + 1e-8f);
    }
}

static int read_all(const char *path, void *to, size_t bytes)
{
    FILE *in = fopen(path, "rb");
    size_t got = in ? fread(to, 1, bytes, in) : 0;
    if (in)
        fclose(in);
    if (got != bytes)
        fprintf(stderr, "plain_gpt: %s: %zu bytes of %zu\n", path, got, bytes);
    return got == bytes;
}

/* The matrix at `wt`, from [in,out] to [out,in]. */
static void transpose(float *wt, int in, int out)
{
    static float was[C * 4 * C];
    memcpy(was, wt, (size_t)in * out * sizeof *wt);
    for (int i = 0; i < in; i++)
        for (int o = 0; o < out; o++)
            wt[o * in + i] = was[i * out + o];
}

static void turn_weights(void)
{
    for (int l = 0; l < L; l++) {
        transpose(at(w, l, QKVW), C, 3 * C);
        transpose(at(w, l, PROJW), C, C);
        transpose(at(w, l, FCW), C, 4 * C);
        transpose(at(w, l, OUTW), 4 * C, C);
    }
}

int main(int argc, char **argv)
{
    textbook = argc > 1 && strcmp(argv[1], "--textbook") == 0;
    blas = argc > 1 && strcmp(argv[1], "--blas") == 0;
    argv += textbook + blas;
    argc -= textbook + blas;
    int steps = argc == 4 ? atoi(argv[3]) : 0;
    size_t bytes = (size_t)steps * B * (T + 1) * sizeof(int32_t);
    int32_t *tokens = malloc(bytes ? bytes : 1);
    if (steps < 1) {
        fprintf(stderr, "usage: plain_gpt [--textbook | --blas] WEIGHTS TOKENS STEPS\n");
        return 2;
    }
    w = calloc(PARAMETERS, 4 * sizeof *w);
    layer = calloc(L, sizeof *layer);
    logits = calloc(N, V * sizeof *logits);
    if (!tokens || !w || !layer || !logits) {
        fprintf(stderr, "plain_gpt: no memory\n");
        return 1;
    }
    g = w + PARAMETERS;
    m = g + PARAMETERS;
    v = m + PARAMETERS;
    if (!read_all(argv[1], w, PARAMETERS * sizeof *w) || !read_all(argv[2], tokens, bytes))
        return 2;
    if (textbook)
        turn_weights();
    for (int s = 0; s < steps; s++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        double loss = forward(tokens + (size_t)s * B * (T + 1));
        backward(tokens + (size_t)s * B * (T + 1));
        update(s + 1);
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%.6f %.6f\n", loss,
               (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    }
    free(logits);
    free(layer);
    free(w);
    free(tokens);
    return 0;
}
