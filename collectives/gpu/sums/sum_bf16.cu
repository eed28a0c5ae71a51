/* collectives/gpu/sums/sum_bf16.cu: the collectives' kernels that add bfloat16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/sums.h"

COLL_CUDA_SUMS(bf16)
