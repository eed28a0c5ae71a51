/* model/kernels.h: the arithmetic of the model, for float and double, for several instruction sets.
 *
 * The operators are ours (kernels_*.inc, compiled once per type and instruction set); matrix products are the
 * BLAS's. No operator contracts a*b+c into a fused multiply-add and every sum has a fixed number of lanes, so all
 * instruction sets give the same bits: which one is chosen is a matter of speed only. */
#ifndef MODEL_KERNELS_H
#define MODEL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t model_token_t;

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
/* The kind of processor that the BLAS has kernels for and took: products are the same bits only where it is the same.
 * Static storage. */
const char *model_matmul_kind(void);

#define MODEL_REAL_BITS 32
#include "model/real.h"
#include "model/kernels_table.inc"
#undef MODEL_REAL_BITS
#define MODEL_REAL_BITS 64
#include "model/real.h"
#include "model/kernels_table.inc"
#undef MODEL_REAL_BITS
#undef real
#undef real_bits_t
#undef REAL

#endif
