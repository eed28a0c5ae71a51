/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/files.h: files in a folder of the test's own. Include after cmocka.h and a `folder`, a
 * template of mkdtemp. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stdio.h>
#include <stdlib.h>

/* The path of a file there; valid for three more calls. */
static inline char *at(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

/* The group's: removes the folder. */
static inline int teardown(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
