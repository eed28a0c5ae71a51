/* collectives/gpu/sums/sum_f64.cu: the collectives' kernels that add IEEE binary64.
 * SPDX-License-Identifier: Apache-2.0 */
#include "collectives/gpu/sums/sums.h"

COLL_CUDA_SUMS(f64)
