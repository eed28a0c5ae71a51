/* comm/boot/shrink.h: a new membership of a running job: without the ranks that died, or with newcomers.
 *
 * The members of a job, numbered by an epoch, are agreed on by all that are left. It works while the tree is cut, and while more
 * ranks die:
 *
 *     Every rank that calls comm_boot_shrink dials the lowest member that it does not know to be dead, and tells it which
 *     are; a rank that is itself that one waits for the others. Whoever does not come is dialled: that tells a dead one (its
 *     host refuses) from a silent one (nothing answers for GYRE_HEARTBEAT) from one that is busy elsewhere (it beats, and is
 *     waited for until the caller's patience ends). When all that are not dead have come, it tells them the new membership.
 *     If it dies meanwhile, the next one does the same; it asks all that are left before it decides, so that it meets
 *     anybody who has a decision of the dead one already, and passes that on.
 *     Then everybody connects to its parent in the tree over the new members, and a barrier ends it.
 *
 * Who is found dead stays dead: if it comes back it is told so (BOOT_EXPELLED). Of a job whose parts merely do not
 * hear each other one part goes on at most: see GYRE_QUORUM in shrink.c. */
#ifndef COMM_BOOT_SHRINK_H
#define COMM_BOOT_SHRINK_H

#include "comm/boot/reconnect.h"

/* Under the lock, from the watcher's thread: a visitor of ours is connected; one came in that says that it is
 * a rank of the job, that wants to become one, or that is nothing of the kind; one says something. */
void boot_shrink_opened(comm_boot_t *boot, boot_visitor_t *visitor);
void boot_shrink_member(comm_boot_t *boot, boot_visitor_t *visitor);
void boot_shrink_newcomer(comm_boot_t *boot, boot_visitor_t *visitor);
void boot_shrink_no_place(comm_boot_t *boot, boot_visitor_t *visitor);
void boot_shrink_said(comm_boot_t *boot, boot_visitor_t *visitor, const boot_message_t *m);

/* Under the lock, for grow.c, too: keeps a membership (sane: after looking at it) to be taken up, 0: memory; makes it the
 * present one; connects the tree over it. */
int boot_shrink_keep(comm_boot_t *boot, const unsigned char *data, size_t bytes);
int boot_shrink_keep_sane(comm_boot_t *boot, const unsigned char *data, size_t bytes);
gyre_status_t boot_shrink_take_up(comm_boot_t *boot);
gyre_status_t boot_shrink_rewire(comm_boot_t *boot, base_time_t deadline);
/* grow.c: a newcomer learns its rank and where the others are. FORMAT, NO_MEMORY. */
gyre_status_t boot_grow_take_welcome(comm_boot_t *boot, const boot_message_t *m);

#endif
