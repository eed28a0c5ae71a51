/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/driver.c: main of a fuzz target without libFuzzer: runs it once on every file that it is given,
 * or that lies in a folder that it is given. A crash, a sanitizer's report or a broken promise ends it; no
 * input is an error. */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static int runs;

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 0;
    }
    size_t room = 1 << 20, size;
    uint8_t *data = malloc(room);
    size = data != NULL ? fread(data, 1, room, file) : 0;
    fclose(file);
    /* in a block of just its size, so that a sanitizer sees the end */
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (data != NULL && exact != NULL) {
        memcpy(exact, data, size);
        fprintf(stderr, "%s\n", path); /* the last line before a crash names the input */
        LLVMFuzzerTestOneInput(exact, size);
        runs++;
    }
    free(data);
    free(exact);
    return 1;
}

static int run(const char *path)
{
    struct stat info;
    struct dirent *entry;
    char inner[4096];
    int ok = 1;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return run_file(path);
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            ok &= run_file(inner);
    }
    if (dir != NULL)
        closedir(dir);
    return ok;
}

int main(int argc, char **argv)
{
    int ok = 1;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        ok &= run(argv[i]);
    printf("%d inputs\n", runs);
    return !(ok && runs > 0);
}
