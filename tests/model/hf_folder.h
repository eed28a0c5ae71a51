/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/hf_folder.h: a folder of files of its own for a test program of Hugging Face's folders. Its
 * cmocka headers come first. */
#ifndef TESTS_HF_FOLDER_H
#define TESTS_HF_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/gyre-hf-XXXXXX";

static inline void path_of(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static inline void write_text(const char *name, const char *text)
{
    char path[256];
    path_of(path, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Removes what is in it. */
static inline void clear(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* For cmocka_run_group_tests. */
static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#endif
