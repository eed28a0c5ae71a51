/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/products/amx.c: products of bfloat16 numbers with sums in float, by the tiles of Intel's AMX.
 *
 * A tile register holds 16 rows of 64 bytes. TDPBF16PS adds to a tile of C, 16 x 16 floats, the product of a
 * tile of A, 16 rows of 32 terms, and one of B, 16 rows of a pair of terms for each of 16 columns. Both are
 * first rounded to bfloat16 and packed into such tiles, a block at a time:
 *
 *     A, rows x terms      panels of 32 rows:    per step of 32 terms 2 tiles   [row][term]
 *     B, terms x columns   panels of 32 columns: per step of 32 terms 2 tiles   [pair of terms][column][2]
 *
 * The kernel multiplies a panel of A by one of B into 4 tiles of C. What does not fill a tile is 0.
 *
 * Order of sums: an element of C begins with 0, or with what is there, and every 32 terms from the first on
 * add one number to it. That is the sum of the even terms' products plus that of the odd ones', each from the
 * first on, fused (Intel's Software Developer's Manual, TDPBF16PS). Denormals count as 0, before and after.
 * So an element depends on its row of A, its column of B and K alone: not on M and N, blocks or threads. A
 * sum may be cut after any multiple of 32 terms, as model_matmul_block cuts it, and continued with `add`. */
#include "model/kernels/instances.h"

#include <stdint.h>

#include "base/machine/tiles.h"

#if MODEL_HAVE_X86_TARGETS && defined(__linux__) && __GNUC__ >= 11
#define HAVE_AMX 1
#else
#define HAVE_AMX 0
#endif

#if !HAVE_AMX

int model_matmul_has_bf16(void)
{
    return 0;
}

const char *model_matmul_no_bf16(void)
{
    const char *why = base_tiles_missing();
    return why ? why : "this build is without bfloat16 tiles: build with GCC 11 or newer";
}

void model_matmul_bf16_f32(void *pack, int trans_a, int trans_b, size_t M, size_t N, size_t K, const float *A,
                           size_t lda, const float *B, size_t ldb, int add, float *C, size_t ldc)
{
    (void)pack;
    model_matmul_f32(trans_a, trans_b, M, N, K, 1, A, lda, B, ldb, add ? 1 : 0, C, ldc); /* never called */
}

#else

#include "base/checked.h"
#include "base/thread/team.h"

int model_matmul_has_bf16(void)
{
    enum { UNKNOWN, NO, YES };
    static int answer; /* of this process */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == UNKNOWN) {
        known = model_kernels_f32(MODEL_ISA_AVX512) && !base_tiles_missing() ? YES : NO;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

const char *model_matmul_no_bf16(void)
{
    const char *why = base_tiles_missing();
    return why ? why : "the kernels for bfloat16 tiles need AVX-512, which this process does not use";
}

#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

enum {
    SIDE = 16,          /* rows of a tile */
    STEP = 32,          /* terms of a tile */
    TILE = SIDE * STEP, /* numbers of a tile */
    PANEL = 2 * SIDE,   /* rows or columns of a panel */
    COLUMNS = 512       /* that a thread takes at a time: 1 MiB of B */
};
/* Multiplications from which threads divide a product: waking them takes as long as fewer. */
#define DIVIDED ((size_t)1 << 22)

/* Of what is packed at a time, which all threads wait for. Terms are a multiple of STEP, the others of
 * PANEL. */
typedef struct {
    size_t rows, columns, terms;
} blocks_t;
static const blocks_t large = {2048, 3072, 1024}, small = {128, 128, 128};
_Static_assert(MODEL_PACK_BYTES == (2048 + 3072) * 1024 * 2 + 64, "a block of A, one of B, aligned");

/* A block of an operand. `along`: terms follow one another in memory; else rows (of A) or columns do. */
typedef struct {
    const float *from;
    size_t ld;
    int along, is_a;
    size_t n, terms; /* rows or columns */
    uint16_t *to;
} operand_t;

static size_t steps_of(size_t terms)
{
    return (terms + STEP - 1) / STEP;
}

static __mmask16 first(size_t n)
{
    return n >= SIDE ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* The 16 x 16 pairs of a tile, rows for columns. */
static void turn(__m512i r[SIDE])
{
    __m512i t[SIDE];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* to: lower 16 of `even`, `odd`, rounded, side by side. */
static __m512i pairs(__m512 even, __m512 odd)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

/* A tile of at most SIDE rows or columns and STEP terms, the first of which is at `from`. */
static void pack_tile(const operand_t *o, uint16_t *to, const float *from, size_t n, size_t terms)
{
    __m512i r[SIDE];
    for (size_t i = 0; i < SIDE; i++) {
        __m512 low = _mm512_setzero_ps(), high = low;
        if (o->along && i < n) {
            low = _mm512_maskz_loadu_ps(first(terms), from + i * o->ld);
            if (terms > SIDE)
                high = _mm512_maskz_loadu_ps(first(terms - SIDE), from + i * o->ld + SIDE);
        } else if (!o->along && 2 * i < terms) {
            low = _mm512_maskz_loadu_ps(first(n), from + 2 * i * o->ld);
            if (2 * i + 1 < terms)
                high = _mm512_maskz_loadu_ps(first(n), from + (2 * i + 1) * o->ld);
        }
        r[i] = o->along ? (__m512i)_mm512_cvtne2ps_pbh(high, low) : pairs(low, high);
    }
    if (o->along != o->is_a)
        turn(r);
    for (size_t i = 0; i < SIDE; i++)
        _mm512_store_si512(to + i * STEP, r[i]);
}

/* The tiles of both halves of a panel for one step. */
static void pack_step(const operand_t *o, size_t panel, size_t step)
{
    uint16_t *to = o->to + (panel * steps_of(o->terms) + step) * 2 * TILE;
    for (size_t half = 0; half < 2; half++) {
        const size_t n = panel * PANEL + half * SIDE, k = step * STEP;
        const size_t left = o->n - base_min_size(n, o->n);
        pack_tile(o, to + half * TILE,
                  o->from + (left == 0  ? 0
                             : o->along ? n * o->ld + k
                                        : k * o->ld + n),
                  base_min_size(SIDE, left), base_min_size(STEP, o->terms - k));
    }
}

/* Threads pack both operands at once. A piece follows memory: a panel, or a step of all panels. */
typedef struct {
    operand_t a, b;
    size_t of_a; /* pieces of a that are packed; those of b come after them */
} packing_t;

static size_t panels_of(size_t n)
{
    return (n + PANEL - 1) / PANEL;
}

static size_t pieces_of(const operand_t *o)
{
    return o->along ? panels_of(o->n) : steps_of(o->terms);
}

static void pack_piece(void *arg, size_t at)
{
    const packing_t *p = arg;
    const operand_t *o = at < p->of_a ? &p->a : &p->b;
    const size_t piece = at < p->of_a ? at : at - p->of_a,
                 count = o->along ? steps_of(o->terms) : panels_of(o->n);
    for (size_t i = 0; i < count; i++)
        pack_step(o, o->along ? piece : i, o->along ? i : piece);
}

/* A block of C. */
typedef struct {
    const uint16_t *a, *b;
    size_t rows, columns, steps;
    int add;
    float *c;
    size_t ld;
} product_t;

static void load_shapes(void)
{
    struct {
        uint8_t palette, start, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = SIDE;
    }
    _tile_loadconfig(&shapes);
}

/* c [PANEL,PANEL], rows `ld` apart. */
static void multiply_panels(const uint16_t *a, const uint16_t *b, size_t steps, int add, float *c, size_t ld)
{
    const size_t bytes = ld * sizeof *c;
    if (add) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + SIDE, bytes);
        _tile_loadd(2, c + SIDE * ld, bytes);
        _tile_loadd(3, c + SIDE * ld + SIDE, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t i = 0; i < steps; i++, a += 2 * TILE, b += 2 * TILE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + SIDE, bytes);
    _tile_stored(2, c + SIDE * ld, bytes);
    _tile_stored(3, c + SIDE * ld + SIDE, bytes);
}

/* The same at the end of rows or columns. */
static void multiply_edge(const product_t *p, const uint16_t *a, const uint16_t *b, float *c, size_t rows,
                          size_t columns)
{
    float edge[PANEL * PANEL] __attribute__((aligned(64))) = {0};
    for (size_t r = 0; p->add && r < rows; r++)
        memcpy(edge + r * PANEL, c + r * p->ld, columns * sizeof *c);
    multiply_panels(a, b, p->steps, p->add, edge, PANEL);
    for (size_t r = 0; r < rows; r++)
        memcpy(c + r * p->ld, edge + r * PANEL, columns * sizeof *c);
}

/* A panel of A by COLUMNS of B, which the second-level cache holds for the panels that follow. */
static void multiply_piece(void *arg, size_t at)
{
    const product_t *p = arg;
    const size_t panel = p->steps * 2 * TILE, m = at % panels_of(p->rows) * PANEL,
                 begin = at / panels_of(p->rows) * COLUMNS, end = base_min_size(p->columns, begin + COLUMNS),
                 rows = base_min_size(PANEL, p->rows - m);
    load_shapes();
    for (size_t n = begin; n < end; n += PANEL) {
        const size_t columns = base_min_size(PANEL, end - n);
        const uint16_t *a = p->a + m / PANEL * panel, *b = p->b + n / PANEL * panel;
        float *c = p->c + m * p->ld + n;
        if (rows == PANEL && columns == PANEL)
            multiply_panels(a, b, p->steps, p->add, c, p->ld);
        else
            multiply_edge(p, a, b, c, rows, columns);
    }
    _tile_release();
}

static void each(int divided, size_t n, void (*piece)(void *arg, size_t at), void *arg)
{
    if (divided)
        base_each(n, piece, arg);
    else
        for (size_t at = 0; at < n; at++)
            piece(arg, at);
}

/* pack: of blocks->terms * (blocks->rows + blocks->columns) numbers, aligned to 64 bytes. */
static void multiply(uint16_t *pack, const blocks_t *blocks, int trans_a, int trans_b, size_t M, size_t N,
                     size_t K, const float *A, size_t lda, const float *B, size_t ldb, int add, float *C,
                     size_t ldc)
{
    const int divided = base_team_here() > 1 && M * N * K >= DIVIDED;
    packing_t p = {.a = {.ld = lda, .along = !trans_a, .is_a = 1, .to = pack},
                   .b = {.ld = ldb, .along = trans_b, .to = pack + blocks->terms * blocks->rows}};
    for (size_t k = 0; k == 0 || k < K; k += blocks->terms) { /* no terms are a product, too */
        p.a.terms = p.b.terms = base_min_size(blocks->terms, K - k);
        for (size_t m = 0; m < M; m += blocks->rows)
            for (size_t n = 0; n < N; n += blocks->columns) {
                p.a.n = base_min_size(blocks->rows, M - m);
                p.a.from = A + (trans_a ? k * lda + m : m * lda + k);
                p.b.n = base_min_size(blocks->columns, N - n);
                p.b.from = B + (trans_b ? n * ldb + k : k * ldb + n);
                p.of_a = n == 0 ? pieces_of(&p.a) : 0;
                const size_t of_b = m == 0 || N > blocks->columns ? pieces_of(&p.b) : 0;
                product_t c = {p.a.to,       p.b.to,          p.a.n, p.b.n, steps_of(p.a.terms),
                               add || k > 0, C + m * ldc + n, ldc};
                each(divided, p.of_a + of_b, pack_piece, &p);
                each(divided, panels_of(c.rows) * ((c.columns + COLUMNS - 1) / COLUMNS), multiply_piece, &c);
            }
    }
}

void model_matmul_bf16_f32(void *pack, int trans_a, int trans_b, size_t M, size_t N, size_t K, const float *A,
                           size_t lda, const float *B, size_t ldb, int add, float *C, size_t ldc)
{
    if (pack) {
        uint16_t *at = (uint16_t *)(((uintptr_t)pack + 63) / 64 * 64);
        multiply(at, &large, trans_a, trans_b, M, N, K, A, lda, B, ldb, add, C, ldc);
    } else {
        uint16_t here[(128 + 128) * 128] __attribute__((aligned(64))); /* 64 KiB on the stack, for `small` */
        multiply(here, &small, trans_a, trans_b, M, N, K, A, lda, B, ldb, add, C, ldc);
    }
}

#endif
