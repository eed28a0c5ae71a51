/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz.h: what the fuzz targets share. A target is one file fuzz_NAME.c with
 * LLVMFuzzerTestOneInput, for one parser of bytes that come from outside; tests/fuzz/corpus/NAME holds inputs
 * that reach far, and every input that once broke something. `make fuzz` builds the targets with
 * libFuzzer; `make check` runs each corpus once (driver.c). */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* What a target prepares once; it may lack it. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Errors are what fuzzing is after: they are not logged, in any target. */
__attribute__((constructor)) static void fuzz_quiet(void)
{
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE);
}

/* A promise of the parser; broken, it is a finding. */
#define FUZZ_CHECK(condition) \
    do {                      \
        if (!(condition))     \
            abort();          \
    } while (0)

/* The input as a NUL-terminated string, to be freed. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The input as a file: returns its path, the same each time. For readers that want one. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

/* Takes the input apart: the next byte, the next `n` bytes (fewer at the end). */
typedef struct {
    const uint8_t *at;
    size_t left;
} fuzz_input_t;

static inline uint8_t fuzz_byte(fuzz_input_t *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static inline const uint8_t *fuzz_bytes(fuzz_input_t *in, size_t *n)
{
    const uint8_t *from = in->at;
    if (*n > in->left)
        *n = in->left;
    in->at += *n;
    in->left -= *n;
    return from;
}

#endif
