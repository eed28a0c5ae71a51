/* SPDX-License-Identifier: Apache-2.0 */
/* base/folder.h: writing a whole folder, so that a reader never sees half of it and a failure leaves the old
 * one.
 *
 * The new folder is made next to its place, synced, and exchanged with the old one at one stroke. Where a
 * file system cannot exchange (NFS), the old one is renamed first: for a moment neither has the name, and a
 * process that is killed then leaves both, whole, as NAME.tmp-PID-N and NAME.tmp-PID-N.old. */
#ifndef BASE_FOLDER_H
#define BASE_FOLDER_H

#include <gyre/status.h>

typedef struct {
    char *target; /* owned: the place, links resolved, without a slash at its end */
    char *made;   /* owned: the new folder, to be filled by the caller: files only */
} base_folder_t;

/* Makes the new folder. IO: `path` is no folder, or nothing can be written next to it. INVALID: it cannot be
 * exchanged, being a mount point or the working folder. NO_MEMORY. On success commit or abandon must
 * follow. */
gyre_status_t base_folder_begin(const char *path, base_folder_t *folder);
/* What base_folder_begin would return now. Leaves nothing. */
gyre_status_t base_folder_check(const char *path);
/* Puts what was written into its place and frees. Files of the old folder that have the name of a new one, or
 * for which `replaced` returns 1, are removed; everything else in it is kept. IO: the old folder is as it
 * was; if only the renaming failed, the new one is kept and the message names it. */
gyre_status_t base_folder_commit(base_folder_t *folder, int (*replaced)(const char *name));
/* Leaves the old folder as it was; removes the new one. Zeros are allowed. */
void base_folder_abandon(base_folder_t *folder);

/* Names are safe on disk after this. Some file systems cannot sync folders: there is nothing to be done then.
 * IO. */
gyre_status_t base_folder_sync(const char *path);
/* Removes a folder that holds files only, or what else has the name: of a link the link alone. 0 or errno's
 * value. */
int base_folder_remove(const char *path);

#endif
