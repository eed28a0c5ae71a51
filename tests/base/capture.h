/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/capture.h: what was written on stderr between two points. */
#ifndef TESTS_BASE_CAPTURE_H
#define TESTS_BASE_CAPTURE_H

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct {
    int saved, memory;
} capture_t;

static inline capture_t capture_begin(void)
{
    capture_t capture = {dup(STDERR_FILENO), memfd_create("stderr", MFD_CLOEXEC)};
    dup2(capture.memory, STDERR_FILENO);
    return capture;
}

/* text: [bytes], always terminated. */
static inline void capture_end(capture_t capture, char *text, size_t bytes)
{
    dup2(capture.saved, STDERR_FILENO);
    ssize_t n = pread(capture.memory, text, bytes - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    close(capture.saved);
    close(capture.memory);
}

#endif
