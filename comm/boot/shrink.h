/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/shrink.h: a new membership of a running job: without the ranks that died, or with newcomers.
 *
 * All ranks that are left agree on the members of the job. An epoch numbers the membership. The agreement
 * works while the tree is cut, and while more ranks die:
 *
 *  1. The leader is the lowest member that a rank does not know to be dead. Every other rank that calls
 *     comm_boot_shrink dials the leader and sends it the ranks that it knows to be dead.
 *  2. The leader waits for the others and dials each rank that does not come. A dead rank's host refuses. A
 *     silent rank does not answer for GYRE_HEARTBEAT. A rank that is busy elsewhere beats: the leader waits
 *     for it until the caller's patience ends.
 *  3. When all ranks that are not dead have come, the leader sends them the new membership.
 *  4. If the leader dies meanwhile, the next rank becomes the leader. It asks all that are left before it
 *     decides. So it finds a rank that already has a decision of the dead leader, and passes that decision
 *     on.
 *  5. Every rank connects to its parent in the tree over the new members. A barrier ends the agreement.
 *
 * A rank that was found dead stays dead: if it comes back, it gets BOOT_EXPELLED. If the parts of a job are
 * alive but do not hear each other, at most one part goes on: see GYRE_QUORUM in shrink.c. */
#ifndef COMM_BOOT_SHRINK_H
#define COMM_BOOT_SHRINK_H

#include "comm/boot/reconnect.h"

/* Under the lock, from the watcher's thread. In this order: a contact of ours is connected; a contact came in
 * that is a rank of the job, wants to become one, or is neither; a contact sent a message. */
void boot_shrink_opened(comm_boot_t *boot, boot_contact_t *contact);
void boot_shrink_member(comm_boot_t *boot, boot_contact_t *contact);
void boot_shrink_newcomer(comm_boot_t *boot, boot_contact_t *contact);
void boot_shrink_no_place(comm_boot_t *boot, boot_contact_t *contact);
void boot_shrink_said(comm_boot_t *boot, boot_contact_t *contact, const boot_message_t *m);

/* A membership travels as u32 epoch, u32 size (rank numbers given out), u32 n, n x u32 member, ascending.
 *
 * Under the lock, for grow.c, too. is_sane: 0: it is malformed. keep: to be taken up; 0: no memory.
 * keep_sane: the same, checked before; 0: it is malformed; -1: no memory. take_up makes the kept membership
 * the present one, and rewire connects the tree over it. */
enum { BOOT_VIEW_HEAD = 12 };
int boot_shrink_is_sane(const unsigned char *data, size_t bytes);
int boot_shrink_keep(comm_boot_t *boot, const unsigned char *data, size_t bytes);
int boot_shrink_keep_sane(comm_boot_t *boot, const unsigned char *data, size_t bytes);
gyre_status_t boot_shrink_take_up(comm_boot_t *boot);
gyre_status_t boot_shrink_rewire(comm_boot_t *boot, base_time_t deadline);
/* grow.c: a newcomer learns its rank and where the others are. FORMAT, NO_MEMORY. */
gyre_status_t boot_grow_take_welcome(comm_boot_t *boot, const boot_message_t *m);

#endif
