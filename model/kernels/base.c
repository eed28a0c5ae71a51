/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/base.c: the kernels compiled for the compiler's default target. */
#include "model/kernels/instances.h"

#define MODEL_TABLE model_table_f32_base
#include "model/kernels/instance.inc"
