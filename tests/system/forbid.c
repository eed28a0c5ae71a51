/* SPDX-License-Identifier: Apache-2.0 */
/* tests/system/forbid.c: forbid CALL... -- PROGRAM ARGUMENT...: runs the program where these system calls
 * fail with EPERM. Exit status 99: there may be no filter here. */
#include <stdio.h>
#include <unistd.h>

#include "tests/support/forbid.h"

int main(int argc, char **argv)
{
    int n = 1;
    while (n < argc && strcmp(argv[n], "--") != 0)
        n++;
    if (n + 1 >= argc) {
        fputs("usage: forbid CALL... -- PROGRAM ARGUMENT...\n", stderr);
        return 2;
    }
    if (forbid(argv + 1, n - 1) != 0) {
        perror("forbid: seccomp");
        return 99;
    }
    execvp(argv[n + 1], argv + n + 1);
    perror(argv[n + 1]);
    return 127;
}
