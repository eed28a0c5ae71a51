/* SPDX-License-Identifier: Apache-2.0 */
/* base/memory_file.h: memory that processes share by passing a descriptor: files without a name.
 *
 * Such a file is a memfd: nobody can shrink it, which would turn loads into SIGBUS, and it takes memory for
 * pages that are used only. Where the system forbids memfd_create (a seccomp filter, vm.memfd_noexec=2), it
 * is a file without a name in /dev/shm, /tmp or /var/tmp, whichever has room. That one gets all its blocks at
 * once, so that a file system that fills up later causes no SIGBUS. Either kind ends with its last user. */
#ifndef BASE_MEMORY_FILE_H
#define BASE_MEMORY_FILE_H

#include <stdint.h>

/* A new file of `bytes` zeros; close-on-exec, and none of the descriptors 0, 1 and 2. sparse: the length that
 * a memfd gets if it may be so long; 0: none but `bytes`. name: what /proc shows. -1: errno says why. */
int base_memory_file(const char *name, uint64_t bytes, uint64_t sparse);
/* Maps all of the file's `bytes` for reading and writing, shared; from 2 MiB on where huge pages fit.
 * MAP_FAILED: errno says why. */
void *base_memory_file_map(int fd, uint64_t bytes);
/* Takes the memory of [base, base + bytes), the beginning of such a mapping, whose pages nobody has used, at
 * once and in huge pages. Returns for how many bytes that went well: 0 before Linux 6.1, where huge pages
 * are not of 2 MiB, or without memory. The other pages come when they are used. */
uint64_t base_memory_file_fill(void *base, uint64_t bytes);
/* Gives the memory of [at, at + bytes) back to the system; it reads as zeros then. -1: it is as it was, since
 * the file is not a memfd (EOPNOTSUPP), or for the errno of fallocate. */
int base_memory_file_give_back(int fd, uint64_t at, uint64_t bytes);

#endif
