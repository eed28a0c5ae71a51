/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/lock.h: one run at a time writes to a folder of checkpoints.
 *
 * The process that writes holds a lock (flock) on FOLDER/lock, in which it names itself. The kernel lets the
 * lock go when that process ends, however it ends; a file system that hosts share does so for a host that is
 * lost, after the time that its protocol says (NFS 4: 90 s). The file that stays is taken over, that of
 * another user too where this one may replace files in the folder. Where a file system has no locks, the file
 * alone says who has it: a process that lives on this host. Of several that find none at once the last one to
 * sign the file has it. Nothing is known then of a process on another host, in a container with its own
 * process numbers, or hidden in /proc. */
#ifndef OPTIM_CHECKPOINT_LOCK_H
#define OPTIM_CHECKPOINT_LOCK_H

#include <gyre/status.h>

typedef struct optim_lock optim_lock_t;

/* Makes the folder if it is not there, and takes its lock, for which it waits at most `patience` seconds; a
 * warning says for whom. INVALID: another run has it; the message names its process. IO, NO_MEMORY. That the
 * file system has no locks is logged. */
gyre_status_t optim_lock_take(const char *folder, double patience, optim_lock_t **out);
/* Removes the file and frees. lock NULL: nothing. */
void optim_lock_leave(optim_lock_t *lock);

#endif
