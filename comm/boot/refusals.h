/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/refusals.h: the log lines about connections that are refused.
 *
 * The first refusal of each kind logs a warning. From time to time, and at the end, one line logs the counts.
 * So a flood of strangers does not fill the log. */
#ifndef COMM_BOOT_REFUSALS_H
#define COMM_BOOT_REFUSALS_H

#include <stddef.h>

#include "base/clock.h"

typedef enum {
    BOOT_REFUSED_SLOW,    /* did not prove in time who it is, or a newcomer needed its place */
    BOOT_REFUSED_STRANGE, /* speaks something else */
    BOOT_REFUSED_VERSION, /* speaks another version of our protocol */
    BOOT_REFUSED_SECRET,  /* does not know the secret */
    BOOT_REFUSED_CLOSED,  /* went away before it had said anything of use */
    BOOT_REFUSED_GARBLED, /* knew the secret and then sent garbage */
    BOOT_REFUSED_MEMORY,  /* we had no memory for it */
    BOOT_REFUSED_KINDS
} boot_refused_t;

typedef struct {
    unsigned long long count[BOOT_REFUSED_KINDS];
    unsigned long long told; /* of all: how many the lines so far account for */
    base_time_t told_at;
} boot_refusals_t; /* all zero: none yet */

/* Counts one. where: what refuses, such as "bootstrap"; who: the peer; why: a sentence about it ("it
 * ..."). */
void boot_refuse(boot_refusals_t *refusals, boot_refused_t kind, const char *where, const char *who,
                 const char *why);
/* "2 too slow, 1 no memory"; empty: none was refused. */
void boot_refusals_text(const boot_refusals_t *refusals, char *text, size_t bytes);
/* The line with the numbers, if there were more than those that had a warning of their own. */
void boot_refusals_sum(boot_refusals_t *refusals, const char *where);

#endif
