/* comm/shm/link.h: how the messages of a link over shared memory went; for tests.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef COMM_SHM_LINK_H
#define COMM_SHM_LINK_H

#include "comm/link.h"

extern const comm_transport_ops_t comm_shm, comm_self;

/* See comm/shm/link.c. */
typedef enum { COMM_SHM_EAGER, COMM_SHM_WINDOW, COMM_SHM_CMA, COMM_SHM_BULK, COMM_SHM_WAYS } comm_shm_way_t;
uint64_t comm_shm_sent(const comm_link_t *link, comm_shm_way_t way);

#endif
