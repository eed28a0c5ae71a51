/* collectives/gpu/sums/exact_bf16.cu: the collectives' kernels that round sums of bfloat16 once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/exact.h"

COLL_CUDA_EXACT(bf16)
