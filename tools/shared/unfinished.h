/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/unfinished.h: a signal that ends a tool leaves no half of the file that the tool writes. */
#ifndef GYRE_SHARED_UNFINISHED_H
#define GYRE_SHARED_UNFINISHED_H

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char unfinished_name[PATH_MAX];                /* "": there is nothing to remove */
static _Atomic int unfinished_known, unfinished_came; /* 1: the name says it; a signal */

/* Only what is async-signal-safe (signal-safety(7)). While the file is made, unfinished_begin ends the
 * process: either it sees the signal, or this sees the name. */
static inline void unfinished_end(int number)
{
    atomic_store(&unfinished_came, number);
    if (!atomic_load(&unfinished_known))
        return;
    (void)unlink(unfinished_name);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* base_file_begin, for one file of a process: SIGHUP, SIGINT and SIGTERM, unless ignored, remove what was
 * written before they end the process, from before the file is made. The name is gone after commit or
 * abandon. What is no regular file keeps nothing, and a pipe may wait for its reader: signals then do what
 * they always do. */
static inline gyre_status_t unfinished_begin(const char *path, base_file_t *file)
{
    static const int number[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = unfinished_end};
    struct sigaction before;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return base_file_begin(path, file);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (sigaction(number[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            (void)sigaction(number[i], &action, NULL);
    const gyre_status_t status = base_file_begin(path, file);
    if (status == GYRE_OK && file->temporary && strlen(file->temporary) < sizeof unfinished_name)
        snprintf(unfinished_name, sizeof unfinished_name, "%s", file->temporary);
    atomic_store(&unfinished_known, 1);
    if (atomic_load(&unfinished_came))
        unfinished_end(atomic_load(&unfinished_came));
    return status;
}

#endif
