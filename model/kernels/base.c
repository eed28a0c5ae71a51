/* model/kernels/base.c: the kernels compiled for the compiler's default target. */
#include "model/kernels/instances.h"

#define MODEL_REAL_BITS 32
#define MODEL_TABLE     model_table_f32_base
#include "model/kernels/instance.inc"
#undef MODEL_REAL_BITS
#undef MODEL_TABLE
#define MODEL_REAL_BITS 64
#define MODEL_TABLE     model_table_f64_base
#include "model/kernels/instance.inc"
