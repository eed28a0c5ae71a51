/* SPDX-License-Identifier: Apache-2.0 */
/* optim/convert.h: fp32 to and from the 16-bit floats, in bulk. Rounding to nearest even, denormals kept, the
 * same bits as in collectives (docs/contract.md). */
#ifndef OPTIM_CONVERT_H
#define OPTIM_CONVERT_H

#include "model/network/stage/stage.h"

/* type: MODEL_BFLOAT16 or MODEL_FLOAT16. No overlap. */
void optim_round(model_precision_t type, const float *from, uint16_t *to, size_t n);
void optim_expand(model_precision_t type, const uint16_t *from, float *to, size_t n);

#endif
