/* collectives/gpu/sums/sum_u32.cu: the collectives' kernels that add 32-bit integers, signed and unsigned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/sums.h"

COLL_CUDA_SUMS(u32)
