/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/f64/attention.c: attention in blocks, compiled for double. */
#include "tests/model/f64/f64.h"

#include "model/kernels/attention/blocks.c"
