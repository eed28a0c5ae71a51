/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/memory.h: how much memory the kernel of this machine can still give. */
#ifndef BASE_MACHINE_MEMORY_H
#define BASE_MACHINE_MEMORY_H

#include <stdint.h>

typedef struct {
    uint64_t available; /* bytes, without swapping */
    uint64_t swap;      /* bytes that are free */
} base_memory_t;

/* UINT64_MAX, 0: /proc does not say. */
base_memory_t base_memory_now(void);

#endif
