/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/nodelist.h: Slurm's compressed lists of hosts, such as "n[0-3,7],m05" or "r[1-2]n[08-11]-ib".
 * A pure function; the text comes from outside. */
#ifndef COMM_LAUNCH_NODELIST_H
#define COMM_LAUNCH_NODELIST_H

#include <stddef.h>

/* Writes the first host of the list, NUL-terminated, into host[room]. Returns 1, or 0 if any part of the list
 * is malformed or the name does not fit. */
int comm_nodelist_first(const char *text, size_t bytes, char *host, size_t room);

#endif
