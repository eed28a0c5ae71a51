/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/blas.h: tools that multiply, where the address space is limited (ulimit -v). */
#ifndef GYRE_SHARED_BLAS_H
#define GYRE_SHARED_BLAS_H

#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "model/kernels/kernels.h"

/* First in main. OpenBLAS starts a thread for each core when it is loaded. They ask for 128 MiB each, again
 * and again if they get none, and the process cannot end before. Nothing here uses them (model_matmul_init),
 * so the program is started anew without them. */
static inline void blas_leave_out_threads(char **argv)
{
    char path[PATH_MAX]; /* not the link: the process would have its name */
    struct rlimit space;
    ssize_t n;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY || model_matmul_threads() < 2 ||
        (n = readlink("/proc/self/exe", path, sizeof path - 1)) < 0)
        return;
    path[n] = 0;
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0 && setenv("OMP_NUM_THREADS", "1", 1) == 0)
        (void)execv(path, argv); /* where that fails, it goes on as it is */
}

#endif
