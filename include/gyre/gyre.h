/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/gyre.h: all headers of libgyre. Compile and link with `pkg-config --cflags --libs gyre`, run with
 * `ucx-run -n 4 ./a.out`. docs/tutorials/link.md is a tutorial, gyre(7) an overview.
 *
 *     gyre_comm_t *world;                                       // on each rank (process) of the job
 *     gyre_init(NULL, &world);                                  // join it
 *     gyre_all_reduce(x, sum, count, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world);
 *     gyre_finalize(world);                                     // leave it
 *
 * Every call returns a gyre_status_t; GYRE_OK is 0.
 *
 *     status.h       status codes, gyre_last_error
 *     types.h        element types, reductions, operations of the program's own
 *     comm.h         joining a job, communicators, memory that ranks share, recovery from failures
 *     collectives.h  collectives, send and recv, requests, groups
 *     plan.h         persistent operations        bucket.h  reductions of many tensors
 *     exact.h        exact sums                   cuda.h    operations on device memory, in stream order */
#ifndef GYRE_GYRE_H
#define GYRE_GYRE_H

#include <gyre/bucket.h>
#include <gyre/collectives.h>
#include <gyre/comm.h>
#include <gyre/cuda.h>
#include <gyre/exact.h>
#include <gyre/plan.h>
#include <gyre/status.h>
#include <gyre/types.h>
#include <gyre/version.h>

#endif
