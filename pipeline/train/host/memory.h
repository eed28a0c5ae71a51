/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/host/memory.h: whether a host can give what its ranks need. */
#ifndef PIPELINE_TRAIN_HOST_MEMORY_H
#define PIPELINE_TRAIN_HOST_MEMORY_H

#include <stdint.h>

#include <gyre/gyre.h>

/* bytes: what this rank needs. NO_MEMORY: the host has not what its ranks need together, nor has the control
 * group that they share, or this rank's own. Collective. */
gyre_status_t train_host_check(gyre_comm_t *comm, uint64_t bytes);

#endif
