/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/descriptors.h: how many descriptors this process has open, for tests of what is left. */
#ifndef TESTS_DESCRIPTORS_H
#define TESTS_DESCRIPTORS_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Those of files whose names have `part` in them. The one that counts is among all. Ends the process where
 * /proc does not say. */
static inline int descriptors_of(const char *part)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    if (!all) {
        perror("/proc/self/fd");
        exit(1);
    }
    for (const struct dirent *e; (e = readdir(all));) {
        char to[256] = "";
        count += readlinkat(dirfd(all), e->d_name, to, sizeof to - 1) > 0 && strstr(to, part) != NULL;
    }
    closedir(all);
    return count;
}

static inline int descriptors(void)
{
    return descriptors_of("");
}

/* As descriptors(); it waits up to 5 s for at most `most` of them. A thread of the library may hold one for a
 * moment, now or when `most` was counted: compare with <=. */
static inline int descriptors_settle(int most)
{
    int count = descriptors();
    for (int turn = 0; count > most && turn < 500; turn++) {
        usleep(10000);
        count = descriptors();
    }
    return count;
}

#endif
