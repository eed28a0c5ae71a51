/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/cma.h: reading and writing another process's memory through the kernel (process_vm_readv and
 * process_vm_writev). */
#ifndef COMM_MEMORY_CMA_H
#define COMM_MEMORY_CMA_H

#include <stddef.h>
#include <stdint.h>

/* Tries to read and write (what it holds) a word of process `pid`. 0: not allowed or not the expected
 * value. */
int comm_cma_works(int pid, uint64_t address, uint64_t expected);
/* ns of reading a word there: the median of some calls, between processes, which takes longer than one's own
 * memory. */
double comm_cma_call_ns(int pid, uint64_t address);
/* Reads `bytes` at `address` of process `pid`. 0 or an errno value. */
int comm_cma_read(int pid, uint64_t address, void *to, size_t bytes);
int comm_cma_write(int pid, uint64_t address, const void *from, size_t bytes);

/* Lets the ranks of this host reach this process where Yama would not, as GYRE_PTRACER says, until
 * comm_cma_forbid. Without effect elsewhere. */
void comm_cma_allow(void);
void comm_cma_forbid(void);

#endif
