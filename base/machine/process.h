/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/process.h: what /proc says of other processes of this machine. */
#ifndef BASE_MACHINE_PROCESS_H
#define BASE_MACHINE_PROCESS_H

/* 1: a debugger traces it. 0 also where /proc does not say. */
int base_process_traced(int pid);

/* 1: one of its threads runs, or waits for a core. None does in a process that is stopped (SIGSTOP, Ctrl-Z),
 * frozen, or blocked as a whole. 0 also where /proc does not say. */
int base_process_runs(int pid);

#endif
