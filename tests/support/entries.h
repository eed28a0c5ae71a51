/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/entries.h: what lies in a folder. Included after cmocka.h. */
#ifndef TESTS_SUPPORT_ENTRIES_H
#define TESTS_SUPPORT_ENTRIES_H

#include <dirent.h>

/* Entries of the folder, hidden ones too. */
static inline size_t entries(const char *path)
{
    size_t n = 0;
    DIR *all = opendir(path);
    assert_non_null(all);
    while (readdir(all))
        n++;
    closedir(all);
    return n - 2;
}

#endif
