/* collectives/gpu/sums/exact_f32.cu: the collectives' kernels that round sums of IEEE binary32 once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/exact.h"

COLL_CUDA_EXACT(f32)
