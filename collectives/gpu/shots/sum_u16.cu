/* collectives/gpu/shots/sum_u16.cu: the collectives' kernels that add 16-bit integers, signed and unsigned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/shots/sums.h"

COLL_CUDA_SUMS(u16)
