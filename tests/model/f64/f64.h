/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/f64/f64.h: kernels, stages and the plain store in double, for gradient checks. Names end in
 * _f64. */
#ifndef TESTS_MODEL_F64_F64_H
#define TESTS_MODEL_F64_F64_H

#include "model/kernels/kernels.h"
#include "model/network/stage/plain_store.h"
#include "model/network/stage/stage.h"

#undef MODEL_REAL_BITS
#define MODEL_REAL_BITS 64
#include "model/kernels/real.h"
#include "model/kernels/table.inc"
#include "model/kernels/attention/api.inc"
#include "model/network/stage/api.inc"
#include "model/network/stage/plain_store_api.inc"
#undef real
#undef real_bits_t
#undef REAL
#undef REAL_TYPE

/* Positions of a block of the head; 0: all. */
extern size_t f64_block;

#endif
