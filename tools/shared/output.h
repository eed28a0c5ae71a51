/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/output.h: a tool says when what it prints does not arrive, as on a full disk. */
#ifndef GYRE_SHARED_OUTPUT_H
#define GYRE_SHARED_OUTPUT_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* At a tool's end: its exit status, `failed` instead of `code` if standard output did not take all that was
 * printed. A tool that was started without one is not asked for what it prints. */
static inline int output_end(const char *program, int code, int failed)
{
    errno = 0;
    const int lost = fflush(stdout) != 0 || ferror(stdout), why = errno;
    if (!lost || (fcntl(STDOUT_FILENO, F_GETFD) < 0 && errno == EBADF))
        return code;
    fprintf(stderr, "%s: cannot write standard output: %s\n", program,
            why ? strerror(why) : "a part of it is missing");
    return code ? code : failed;
}

#endif
