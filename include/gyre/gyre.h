/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/gyre.h: everything libgyre offers. Link with `pkg-config --cflags --libs gyre`. */
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
