/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/unfinished.h: a signal that ends a tool leaves no half of the file that the tool writes. */
#ifndef GYRE_SHARED_UNFINISHED_H
#define GYRE_SHARED_UNFINISHED_H

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char unfinished_name[PATH_MAX];

/* Only what is async-signal-safe (signal-safety(7)). The signal has its default action again. */
static inline void unfinished_end(int number)
{
    (void)unlink(unfinished_name);
    (void)raise(number);
}

/* After base_file_begin, for one file of a process: from here on SIGHUP, SIGINT and SIGTERM, unless ignored,
 * remove what was written before they end the process. The name is gone after commit or abandon. */
static inline void unfinished_watch(const base_file_t *file)
{
    static const int number[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = unfinished_end, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    if (!file->temporary || strlen(file->temporary) >= sizeof unfinished_name)
        return;
    snprintf(unfinished_name, sizeof unfinished_name, "%s", file->temporary);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (sigaction(number[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            (void)sigaction(number[i], &action, NULL);
}

#endif
