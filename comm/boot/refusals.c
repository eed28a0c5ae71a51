/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/refusals.c: see refusals.h. */
#include "comm/boot/refusals.h"

#include <stdio.h>

#include "base/log.h"

#define SUM_SECONDS 60.0 /* between two lines with numbers while it goes on */

static const char *const names[BOOT_REFUSED_KINDS] = {
    "too slow",     "no Gyre process", "another version", "without the secret",
    "closed early", "garbled",         "no memory"};

static unsigned long long total(const boot_refusals_t *refusals)
{
    unsigned long long n = 0;
    for (int k = 0; k < BOOT_REFUSED_KINDS; k++)
        n += refusals->count[k];
    return n;
}

void boot_refusals_text(const boot_refusals_t *refusals, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int k = 0; k < BOOT_REFUSED_KINDS && used < bytes - 1; k++)
        if (refusals->count[k] > 0) {
            int n = snprintf(text + used, bytes - used, "%s%llu %s", used > 0 ? ", " : "", refusals->count[k],
                             names[k]);
            used += n > 0 ? (size_t)n : 0;
        }
}

void boot_refusals_sum(boot_refusals_t *refusals, const char *where)
{
    char text[256];
    unsigned long long all = total(refusals);
    if (all == refusals->told)
        return;
    boot_refusals_text(refusals, text, sizeof(text));
    log_warning("%s: %llu connections were refused in all (%s)", where, all, text);
    refusals->told = all;
    refusals->told_at = base_now();
}

void boot_refuse(boot_refusals_t *refusals, boot_refused_t kind, const char *where, const char *who,
                 const char *why)
{
    if (refusals->count[kind]++ == 0) {
        log_warning("%s: refused a connection from %s: %s (more of this kind are only counted)", where, who,
                    why);
        refusals->told++;
        refusals->told_at = base_now();
        return;
    }
    log_debug("%s: refused a connection from %s: %s", where, who, why);
    if (base_now() - refusals->told_at > (base_time_t)(SUM_SECONDS * 1e9))
        boot_refusals_sum(refusals, where);
}
