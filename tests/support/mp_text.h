/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/mp_text.h: a folder of all ranks with a text to train on. */
#ifndef TESTS_SUPPORT_MP_TEXT_H
#define TESTS_SUPPORT_MP_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/mp.h"

/* Collective. folder: as for mkdtemp, `bytes` with its NUL; it has `lines` lines in the file "text" then. */
static inline void mp_make_text(gyre_comm_t *world, char *folder, size_t bytes, int lines)
{
    if (gyre_comm_rank(world) == 0) {
        char path[64];
        MP_CHECK(mkdtemp(folder), "%s", folder);
        snprintf(path, sizeof path, "%s/text", folder);
        FILE *text = fopen(path, "w");
        MP_CHECK(text, "%s", path);
        for (int i = 0; i < lines; i++)
            fprintf(text, "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23);
        MP_CHECK(fclose(text) == 0, "%s", path);
    }
    MP_OK(gyre_broadcast(folder, folder, bytes, GYRE_UINT8, 0, world));
}

/* After gyre_finalize, by one rank: the others have left, too. */
static inline void mp_remove_folder(const char *folder)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    MP_CHECK(system(command) == 0, "%s", command);
}

#endif
