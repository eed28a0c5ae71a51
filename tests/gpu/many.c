/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/many.c: all programs of tests/gpu in one file, for the bundle (tools/gpu-bundle): as single
 * programs, each would contain the libraries and all kernels. Their `main`s are renamed to NAME_main by
 * objcopy; PROGRAMS, on the compiler's command line, is a list of X(NAME). A program that is not in the list
 * but lies in this one's folder is run instead.
 *
 * usage: many NAME [ARGUMENT...] A main without parameters is called with two, which the ABI of x86-64
 * allows. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define X(name) int name##_main(int argc, char **argv);
PROGRAMS
#undef X

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} programs[] = {
#define X(name) {#name, name##_main},
    PROGRAMS
#undef X
};

/* Returns if there is no such program. */
static void run_neighbour(char **argv)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length < 0 || (size_t)length >= sizeof path || strchr(argv[0], '/'))
        return;
    path[length] = 0;
    char *name = strrchr(path, '/') + 1;
    if (strlen(argv[0]) >= sizeof path - (size_t)(name - path))
        return;
    strcpy(name, argv[0]);
    execv(path, argv);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof programs / sizeof programs[0];
    for (size_t i = 0; argc > 1 && i < count; i++)
        if (strcmp(argv[1], programs[i].name) == 0)
            return programs[i].main(argc - 1, argv + 1);
    if (argc > 1)
        run_neighbour(argv + 1);
    fprintf(stderr, "usage: many NAME [ARGUMENT...], and NAME is one of\n");
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "    %s\n", programs[i].name);
    return 2;
}
