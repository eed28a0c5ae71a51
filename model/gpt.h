/* model/gpt.h: a GPT-2-style decoder, forward and backward, one sequence at a time, for float and double.
 *
 * Learned positions, LayerNorm before each block, GELU (tanh form), head tied to the token embedding (Radford et
 * al. 2019). Parameters are one flat buffer laid out by model_params_t. A model object holds the activations of one
 * sequence: forward fills them, backward consumes them. One thread at a time; objects are independent. */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "model/kernels.h"
#include "model/params.h"

/* Row `row` of the parameter table has its final gradient. Called in the table's order. An answer other than
 * GYRE_OK ends backward, which returns it. */
typedef gyre_status_t (*model_ready_fn)(void *user, size_t row);

#define MODEL_REAL_BITS 32
#include "model/real.h"
#include "model/gpt_api.inc"
#undef MODEL_REAL_BITS
#define MODEL_REAL_BITS 64
#include "model/real.h"
#include "model/gpt_api.inc"
#undef MODEL_REAL_BITS
#undef real
#undef real_bits_t
#undef REAL

#endif
