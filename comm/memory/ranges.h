/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/ranges.h: where the windows of this process lie, for comm_mem_find, comm_mem_show and
 * comm_mem_fetch (comm/memory/memory.h). These are called for every large message and take no lock: they read
 * a sorted array guarded by a sequence number, and read again if a change came between. The array is changed
 * under the lock of comm/memory/window.c. */
#ifndef COMM_MEMORY_RANGES_H
#define COMM_MEMORY_RANGES_H

#include "comm/memory/window.h"

/* Makes room for one more range. NO_MEMORY. */
gyre_status_t mem_ranges_reserve(void);
void mem_ranges_insert(uint64_t id, const void *base, const mem_span_t *span);
void mem_ranges_remove(uint64_t id);

#endif
