/* collectives/gpu/sums/sum_u16.cu: the collectives' kernels that add 16-bit integers, signed and unsigned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/sums.h"

COLL_CUDA_SUMS(u16)
