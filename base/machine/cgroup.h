/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/cgroup.h: how much processor and memory the control groups of this process (a container's, a
 * batch system's, systemd's) leave it: the least of its own group and those around it. Versions 1 and 2. And
 * the processors that its affinity leaves it. */
#ifndef BASE_MACHINE_CGROUP_H
#define BASE_MACHINE_CGROUP_H

#include <stdint.h>

typedef struct {
    double cpus;     /* processors' worth of time, such as 0.5; 0: no limit */
    uint64_t memory; /* bytes; UINT64_MAX: no limit */
    uint64_t left;   /* of it, bytes that no process of the group uses now; UINT64_MAX: no limit */
} base_cgroup_t;

/* root: a folder in which proc/self/cgroup and sys/fs/cgroup lie; "": the system's. What cannot be read is no
 * limit. */
base_cgroup_t base_cgroup_limits(const char *root);
/* Processors that the calling thread may run on. 1: they are more than CPU_SETSIZE. */
int base_cpus_allowed(void);

#endif
