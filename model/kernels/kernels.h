/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/kernels.h: the arithmetic of the model in float, for several instruction sets.
 * tests/model/f64 compiles the same sources for double, for gradient checks.
 *
 * The operators are Gyre's (*.inc here, compiled once per type and instruction set); matrix products are the
 * BLAS's. No operator contracts a*b+c into a fused multiply-add and every sum has a fixed number of lanes.
 * All instruction sets thus give the same bits and differ in speed only. */
#ifndef MODEL_KERNELS_KERNELS_H
#define MODEL_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/types.h"

typedef enum {
    MODEL_ISA_BEST = 0, /* the fastest that this machine has */
    MODEL_ISA_BASE = 1, /* what the compiler's default target offers */
    MODEL_ISA_AVX2 = 2,
    MODEL_ISA_AVX512 = 3
} model_isa_t;
#define MODEL_ISA_COUNT 4

const char *model_isa_name(model_isa_t isa);

/* Holds the BLAS to one thread in this process. Idempotent; models call it when they are created. */
void model_matmul_init(void);
/* That the BLAS would use by itself, or has started when it was loaded. */
int model_matmul_threads(void);
/* NO_MEMORY: the address space is limited (ulimit -v), and the BLAS would not find room for `threads` that
 * multiply. It would ask for it without end. */
gyre_status_t model_matmul_room(size_t threads);
/* The kind of processor whose kernels the BLAS took. Products have the same bits only on processors with the
 * same kind. Static storage. */
const char *model_matmul_kind(void);
/* 1: large products are divided among the threads of a rank (model/kernels/products/matmul.c); 0: this BLAS's
 * pieces do not have the bits of the whole, so they are not. Takes 50 ms at the first call. */
int model_matmul_divides(void);
/* 1: the processor multiplies tiles of bfloat16 (Intel's AMX), and the kernel lets this process use them. */
int model_matmul_has_bf16(void);
/* What an error says where it is 0: why. Static storage. */
const char *model_matmul_no_bf16(void);
/* That the tiles of a large product are packed in. */
#define MODEL_PACK_BYTES ((size_t)10 * 1024 * 1024 + 64)

/* The slope of ALiBi for head h of H (Press et al. 2022): 2^(-8 (h + 1) / H) for a power of two; for others
 * the slopes of the power of two below it, then every second one of the power of two above. */
double model_alibi_slope(size_t h, size_t H);

/* The numbers for a tensor's dropout: a function of the run's seed, the sequence, the step, and the place in
 * the model (layer, and site below 4: 0 the embedding, 1 attention's branch, 2 the MLP's, 3 attention's
 * weights). *below: of 2^32, for a probability. */
void model_dropout_key(uint64_t seed, uint64_t sequence, uint64_t step, size_t layer, unsigned site,
                       uint32_t key[4]);
uint32_t model_dropout_below(double probability);

/* The frequency of pair i of `half`, in radians per position; what cosines and sines are multiplied by. */
double model_rope_frequency(const model_rope_t *rope, size_t i, size_t half);
double model_rope_attention(const model_rope_t *rope);

/* Positions of a block of attention, of queries or of keys (model/kernels/attention/api.inc); a power of
 * two. */
#define MODEL_ATTENTION_BLOCK ((size_t)128)

/* The first position that one at t sees: with itself the last `window`; 0: all. */
static inline size_t model_first_seen(size_t t, size_t window)
{
    return window > 0 && t + 1 > window ? t + 1 - window : 0;
}

/* Some rows of a document's scores, of which a row sees its own column and those before it, of these the last
 * `window` with its own (0: all), and in rows below `prefix` all columns below it. */
typedef struct {
    size_t first, rows;   /* positions first .. first + rows - 1 */
    size_t from, columns; /* which see none but from .. from + columns - 1 */
    size_t prefix, window;
} model_scores_t;

#include "model/kernels/real.h"
#include "model/kernels/table.inc"
#include "model/kernels/attention/api.inc"
#undef real
#undef real_bits_t
#undef REAL
#undef REAL_TYPE

#endif
