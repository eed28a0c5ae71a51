/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/members/circle.h: some members of the job agree and exchange, while the others do other
 * work.
 *
 * What they say goes along the bootstrap's tree, in letters that the watchers of the ranks on the way pass
 * on. A circle is known by a communicator, a tag, and the list of its members. All calls have the deadline
 * that comm_circle_open got. Needs the watcher. */
#ifndef COMM_BOOT_MEMBERS_CIRCLE_H
#define COMM_BOOT_MEMBERS_CIRCLE_H

#include "comm/boot/bootstrap.h"

typedef struct comm_circle comm_circle_t;

/* call: its name, for errors, with what distinguishes it from others under way ("... (tag 7)"). ranks:
 * [n], the members by their numbers in communicator `comm`; world: the same by their ranks in the job.
 * rank: which of them this process is. All are borrowed. INVALID: this process is in a circle of the same
 * communicator and tag, or one has failed. Waits for nobody. */
gyre_status_t comm_circle_open(comm_boot_t *boot, const char *call, uint64_t comm, uint64_t tag,
                               const int *ranks, const int *world, int n, int rank, base_time_t deadline,
                               comm_circle_t **out);
/* 64 bits that all its members have, and no other circle of the job has. */
uint64_t comm_circle_id(const comm_circle_t *circle);
/* Collective over the circle: a comm_all_gather_fn. An error is that of all its members. MISMATCH: a member
 * came with another list. TIMEOUT: names those that did not come. PEER_DEAD, or the error of the
 * communicator. */
gyre_status_t comm_circle_gather(void *circle, const void *mine, size_t bytes, void *all);
/* Collective, frees the circle. Returns `mine` if that is an error, which the others then get as ABORTED; OK
 * if all are. */
gyre_status_t comm_circle_close(comm_circle_t *circle, gyre_status_t mine);
/* This process opens no further circle of communicator `comm` with `tag`: nothing is kept of them. Without
 * this call that is so once the communicator has ended. */
void comm_circle_forget(comm_boot_t *boot, uint64_t comm, uint64_t tag);

#endif
