/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/scalar.c: the kernels for any machine: no instruction beyond the compiler's
 * baseline. */
#define KERNEL_TABLE coll_kernels_scalar
#define KERNEL_NAME  "scalar"
#define KERNEL_ALL_TYPES
#include "collectives/kernels/template.h"
