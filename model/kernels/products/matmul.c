/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/products/matmul.c: the only caller of the BLAS.
 *
 * OpenBLAS multiplies small matrices in place, and copies both into packed panels from a million
 * multiplications on (its "small matrix" kernels, which it has for AVX-512). The products of one sequence are
 * of about that size: copying takes as long as a third of the multiplications. Such a product is therefore
 * cut into tiles of C that stay below that size. K is never cut, so every element is the sum of the same
 * numbers in the same order. Among the small kernels the one for C = A B^T has half the speed of the others:
 * B is transposed first, a panel at a time.
 *
 * A larger product is cut into a piece of C for each thread of a rank (base/thread/team.h). OpenBLAS
 * (driver/level3/level3.c) cuts K in a way that depends on K only, and rows and columns in blocks from the
 * first on; what is left at the end has kernels of its own. So a piece that begins at a block and is not
 * small has the bits of the whole product. That is tried once in each process, on products with all kinds of
 * ends (model_matmul_divides); if it did not hold, larger products would stay whole.
 *
 * The choice of tiles depends on the shape and the BLAS's kernels only, so equal shapes give equal bits. */
#include <cblas.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread/team.h"
#include "model/kernels/kernels.h"
#include "model/random.h"

/* Multiplications from which OpenBLAS packs (its kernel/x86_64/sgemm_small_kernel_permit_skylakex.c). */
#define SMALL_PRODUCT ((size_t)1000000)
/* Beyond these the panels, packed once, are as fast, measured with and without in turns: multiplications, of
 * A B and A^T B and of A B^T; and K. */
#define LARGEST_TILED      ((size_t)1 << 24)
#define LARGEST_TRANSPOSED ((size_t)1 << 26)
#define LARGEST_K          256
/* Of the address space, for each thread that multiplies: OpenBLAS 0.3 on x86-64, seen by strace. */
#define BLAS_BUFFER ((size_t)128 << 20)
/* Columns of a tile; its rows are a multiple of ROW_STEP, which the kernels like. */
#define TILE_COLUMNS 64
#define ROW_STEP     16
/* Multiplications from which the panels are dealt out to threads: waking these takes as long as fewer. */
#define DIVIDED ((size_t)1 << 21)
/* Pieces of a packed product begin at multiples of EDGE_STEP, which is one of the blocks of rows and columns
 * that every kernel has, and have at least so many multiplications: more than any kernel for small products
 * takes. */
#define EDGE_STEP      ((size_t)64)
#define SMALLEST_PIECE ((size_t)1 << 23)

void model_matmul_init(void)
{
    openblas_set_num_threads(1);
}

int model_matmul_threads(void)
{
    return openblas_get_num_threads();
}

gyre_status_t model_matmul_room(size_t threads)
{
    static _Atomic size_t granted; /* to so many threads: OpenBLAS keeps what it has */
    struct rlimit space;
    const size_t before = granted;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY || threads <= before)
        return GYRE_OK;
    const size_t bytes = (threads - before) * BLAS_BUFFER;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no address space for OpenBLAS, which takes %zu MiB for each of %zu threads",
                         BLAS_BUFFER >> 20, threads);
    munmap(at, bytes);
    granted = threads;
    return GYRE_OK;
}

const char *model_matmul_kind(void)
{
    return openblas_get_corename();
}

/* 1 if the BLAS took kernels for which it has small ones. */
static int has_small_kernels(void)
{
    const char *kind = model_matmul_kind();
    return strcmp(kind, "SkylakeX") == 0 || strcmp(kind, "Cooperlake") == 0 ||
           strcmp(kind, "SapphireRapids") == 0;
}

static void multiply(int trans_a, int trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
                     size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    static _Thread_local int held;
    if (!held) /* an OpenBLAS with OpenMP asks each thread */
        model_matmul_init();
    held = 1;
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans,
                (int)M, (int)N, (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
}

static int tiles_pay(int trans_b, size_t product, size_t K)
{
    if (product == 0 || K > LARGEST_K || product > (trans_b ? LARGEST_TRANSPOSED : LARGEST_TILED))
        return 0;
    return (trans_b || product > SMALL_PRODUCT) && has_small_kernels();
}

/* ---- pieces for threads -------------------------------------------------------------------------------- */

typedef struct {
    int trans_a, trans_b;
    size_t M, N, K;
    float alpha;
    const float *A;
    size_t lda;
    const float *B;
    size_t ldb;
    float beta;
    float *C;
    size_t ldc;
    size_t down, across; /* pieces of C */
} product_t;

/* A panel of TILE_COLUMNS columns of C, in tiles. */
static void tile_panel(void *arg, size_t at)
{
    float panel[LARGEST_K * TILE_COLUMNS]; /* 64 KiB on the stack */
    const product_t *p = arg;
    const size_t n = at * TILE_COLUMNS, K = p->K, columns = base_min_size(TILE_COLUMNS, p->N - n);
    const size_t ld = p->trans_b ? columns : p->ldb;
    const size_t rows = SMALL_PRODUCT / (columns * K) / ROW_STEP * ROW_STEP; /* at least ROW_STEP */
    const float *b = p->trans_b ? panel : p->B + n;
    if (p->trans_b)
        model_kernels_f32(MODEL_ISA_BEST)->transpose(panel, p->B + n * p->ldb, columns, K, p->ldb);
    for (size_t m = 0; m < p->M; m += rows)
        multiply(p->trans_a, 0, base_min_size(rows, p->M - m), columns, K, p->alpha,
                 p->A + (p->trans_a ? m : m * p->lda), p->lda, b, ld, p->beta, p->C + m * p->ldc + n, p->ldc);
}

/* The first row or column of piece i of p. */
static size_t edge(size_t n, size_t i, size_t p)
{
    return i == p ? n : i * (n / EDGE_STEP) / p * EDGE_STEP;
}

static void multiply_piece(void *arg, size_t at)
{
    const product_t *p = arg;
    const size_t r = at / p->across, c = at % p->across;
    const size_t m = edge(p->M, r, p->down), n = edge(p->N, c, p->across);
    multiply(p->trans_a, p->trans_b, edge(p->M, r + 1, p->down) - m, edge(p->N, c + 1, p->across) - n, p->K,
             p->alpha, p->A + (p->trans_a ? m : m * p->lda), p->lda, p->B + (p->trans_b ? n * p->ldb : n),
             p->ldb, p->beta, p->C + m * p->ldc + n, p->ldc);
}

/* Multiplications of the smallest piece of a grid. */
static size_t smallest_piece(const product_t *p, size_t down, size_t across)
{
    return (p->M / EDGE_STEP / down * EDGE_STEP) * (p->N / EDGE_STEP / across * EDGE_STEP) * p->K;
}

/* Chooses p->down x p->across pieces, at most `most`, and of those that use most threads the grid that packs
 * least: each piece packs its rows of A and columns of B. */
static void choose_grid(product_t *p, size_t most)
{
    size_t least = SIZE_MAX;
    most = base_min_size(most, p->M * p->N * p->K / SMALLEST_PIECE);
    p->down = p->across = 1;
    for (; most > 1 && least == SIZE_MAX; most--)
        for (size_t down = 1; down <= most; down++) {
            const size_t across = most / down, packed = down * p->N + across * p->M;
            if (most % down != 0 || smallest_piece(p, down, across) < SMALLEST_PIECE || packed >= least)
                continue;
            least = packed;
            p->down = down;
            p->across = across;
        }
}

/* 1: pieces of some products, of all kinds and with all kinds of edges, have the bits of the whole. None is
 * smaller than SMALLEST_PIECE. */
static int try_pieces(void)
{
    enum { SIDE = 6 * EDGE_STEP, MOST = SIDE + 37, LONG = 1500 };
    static const size_t shape[][3] = {{SIDE, SIDE + 1, 256},
                                      {SIDE + 37, SIDE + 12, 257},
                                      {SIDE + 8, SIDE + 17, 700},
                                      {SIDE + 11, SIDE + 32, LONG}};
    float *a = malloc(sizeof(float) * MOST * LONG), *b = malloc(sizeof(float) * MOST * LONG);
    float *c = malloc(sizeof(float) * 2 * MOST * MOST);
    int same = a && b && c;
    for (size_t i = 0; same && i < MOST * LONG; i++) {
        a[i] = (float)model_random_normal(1, MODEL_RANDOM_PROBE, 0, i);
        b[i] = (float)model_random_normal(1, MODEL_RANDOM_PROBE, 1, i);
    }
    for (size_t i = 0; same && i < 4 * sizeof shape / sizeof *shape; i++) {
        const size_t M = shape[i / 4][0], N = shape[i / 4][1], K = shape[i / 4][2];
        const int trans_a = i & 1, trans_b = i >> 1 & 1;
        const float beta = (float)((i ^ i >> 1 ^ i >> 2) & 1);
        product_t p = {trans_a, trans_b,         M,    N, K, 1, a, trans_a ? M : K,
                       b,       trans_b ? K : N, beta, c, N, 2, 2};
        for (size_t j = 0; j < 2 * M * N; j++)
            c[j] = a[j % (M * N)];
        multiply(trans_a, trans_b, M, N, K, 1, a, p.lda, b, p.ldb, beta, c + M * N, N);
        for (size_t j = 0; j < p.down * p.across; j++)
            multiply_piece(&p, j);
        same = memcmp(c, c + M * N, M * N * sizeof(float)) == 0;
    }
    free(a);
    free(b);
    free(c);
    return same;
}

int model_matmul_divides(void)
{
    enum { UNKNOWN, NO, YES };
    static int answer; /* of this process's BLAS */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == UNKNOWN) {
        known = try_pieces() ? YES : NO;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

/* ---- blocks of a sum ----------------------------------------------------------------------------------- */

/* How OpenBLAS (driver/level3/level3.c) cuts K: into `split` terms; of what is left and less than twice that,
 * a half that is a multiple of `step`. split 0: not known. */
typedef struct {
    unsigned short split, step;
} terms_t;

static size_t next_terms(terms_t terms, size_t left)
{
    if (left >= (size_t)2 * terms.split)
        return terms.split;
    return left > terms.split ? (left / 2 + terms.step - 1) / terms.step * terms.step : left;
}

enum { PROBE_SIDE = 160, PROBE_LONGEST = 2114 };
/* Of these lengths one at least tells any two of the orders that are tried apart. */
static const size_t probe_terms[] = {PROBE_LONGEST, 1634, 1122, 738, 418};
enum { PROBES = sizeof probe_terms / sizeof probe_terms[0] };

/* c [SIDE,SIDE] = a^T b over `count` terms from `from` on. */
static void add_terms(const float *a, const float *b, float *c, size_t from, size_t count)
{
    multiply(1, 0, PROBE_SIDE, PROBE_SIDE, count, 1, a + from * PROBE_SIDE, PROBE_SIDE, b + from * PROBE_SIDE,
             PROBE_SIDE, from > 0 ? 1 : 0, c, PROBE_SIDE);
}

static int terms_agree(terms_t terms, const float *a, const float *b, const float *whole, float *c)
{
    for (size_t i = 0; i < PROBES; i++) {
        for (size_t k = 0, count; k < probe_terms[i]; k += count) {
            count = next_terms(terms, probe_terms[i] - k);
            add_terms(a, b, c, k, count);
        }
        if (memcmp(c, whole + i * PROBE_SIDE * PROBE_SIDE, sizeof(float) * PROBE_SIDE * PROBE_SIDE) != 0)
            return 0;
    }
    return 1;
}

static terms_t find_terms(void)
{
    static const unsigned short split[] = {320, 384, 256, 352, 448, 192, 224, 240,
                                           288, 336, 512, 640, 768, 128, 1024};
    static const unsigned short step[] = {16, 8, 4, 32};
    const size_t longest = (size_t)PROBE_SIDE * PROBE_LONGEST, square = PROBE_SIDE * PROBE_SIDE;
    float *a = malloc(sizeof(float) * longest), *b = malloc(sizeof(float) * longest);
    float *c = malloc(sizeof(float) * (PROBES + 1) * square);
    terms_t found = {0, 0};
    const int ok = a && b && c;
    for (size_t i = 0; ok && i < longest; i++) {
        a[i] = (float)model_random_normal(1, MODEL_RANDOM_PROBE, 2, i);
        b[i] = (float)model_random_normal(1, MODEL_RANDOM_PROBE, 3, i);
    }
    for (size_t i = 0; ok && i < PROBES; i++)
        add_terms(a, b, c + (i + 1) * square, 0, probe_terms[i]);
    for (size_t i = 0; ok && found.split == 0 && i < sizeof split / sizeof *split; i++)
        for (size_t j = 0; found.split == 0 && j < sizeof step / sizeof *step; j++) {
            const terms_t terms = {split[i], step[j]};
            found = terms_agree(terms, a, b, c + square, c) ? terms : found;
        }
    free(a);
    free(b);
    free(c);
    return found;
}

static terms_t known_terms(void)
{
    static uint32_t answer; /* of this process's BLAS: 1 + split * 2^8 + step * 2^24; 0: not asked yet */
    uint32_t known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {
        const terms_t found = find_terms();
        known = 1 + ((uint32_t)found.split << 8) + ((uint32_t)found.step << 24);
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return (terms_t){(unsigned short)(known >> 8), (unsigned short)(known >> 24)};
}

/* A product that is packed whole, and so are its parts, has one order. */
static int packs(size_t M, size_t N, size_t K)
{
    size_t product;
    return !base_mul(M, N, &product) || !base_mul(product, K, &product) || product > LARGEST_TRANSPOSED;
}

int model_matmul_may_cut_f32(size_t M, size_t N, size_t K)
{
    return packs(M / 2, N, K);
}

size_t model_matmul_block_f32(size_t M, size_t N, size_t K)
{
    if (!model_matmul_may_cut_f32(M, N, K) || !model_matmul_divides())
        return M;
    const terms_t terms = known_terms();
    for (size_t m = 0; terms.split > 0 && m < M;) {
        const size_t next = next_terms(terms, M - m);
        if (m > 0 && next < terms.split)
            return M; /* a half, of what the BLAS would halve again with the terms before it */
        m += next;
        if (m % EDGE_STEP == 0 && packs(m, N, K) && packs(M - m, N, K))
            return m;
    }
    return M;
}

void model_matmul_f32(int trans_a, int trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
                      size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    product_t p = {trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, 1, 1};
    if (tiles_pay(trans_b, M * N * K, K)) {
        const size_t panels = (N + TILE_COLUMNS - 1) / TILE_COLUMNS;
        if (M * N * K >= DIVIDED)
            base_each(panels, tile_panel, &p);
        else
            for (size_t at = 0; at < panels; at++)
                tile_panel(&p, at);
        return;
    }
    const size_t threads = base_team_here();
    if (threads > 1 && M * N * K >= 4 * SMALLEST_PIECE && model_matmul_divides())
        choose_grid(&p, threads);
    if (p.down * p.across > 1)
        base_each(p.down * p.across, multiply_piece, &p);
    else
        multiply(trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}
