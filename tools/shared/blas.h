/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/blas.h: tools that multiply, where the address space is limited (ulimit -v). */
#ifndef GYRE_SHARED_BLAS_H
#define GYRE_SHARED_BLAS_H

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "model/kernels/kernels.h"

/* First in main. OpenBLAS starts a thread for each core when it is loaded. They ask for 128 MiB each, again
 * and again if they get none, and the process cannot end before. Nothing here uses them (model_matmul_init),
 * so the program is started anew without them. */
static inline void blas_leave_out_threads(char **argv)
{
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY || model_matmul_threads() < 2)
        return;
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0 && setenv("OMP_NUM_THREADS", "1", 1) == 0)
        (void)execv("/proc/self/exe", argv); /* where that fails, it goes on as it is */
}

#endif
