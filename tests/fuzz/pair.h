/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/pair.h: an input as two files of one folder: {u16 bytes, the first file, the second file}. */
#ifndef TESTS_FUZZ_PAIR_H
#define TESTS_FUZZ_PAIR_H

#include "tests/fuzz/fuzz.h"

static char pair_folder[] = "/tmp/gyre-fuzz-XXXXXX";
static char pair_path[2][64];

static void pair_remove(void)
{
    unlink(pair_path[0]);
    unlink(pair_path[1]);
    rmdir(pair_folder);
}

/* Makes the folder; the end of the process removes it. Returns LLVMFuzzerInitialize's value. */
static int pair_make(const char *first, const char *second)
{
    FUZZ_CHECK(mkdtemp(pair_folder) != NULL);
    snprintf(pair_path[0], sizeof(pair_path[0]), "%s/%s", pair_folder, first);
    snprintf(pair_path[1], sizeof(pair_path[1]), "%s/%s", pair_folder, second);
    return atexit(pair_remove);
}

static void pair_put(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void pair_write(fuzz_input_t *in)
{
    size_t bytes = fuzz_byte(in);
    bytes |= (size_t)fuzz_byte(in) << 8;
    const uint8_t *first = fuzz_bytes(in, &bytes);
    pair_put(pair_path[0], first, bytes);
    pair_put(pair_path[1], in->at, in->left);
}

#endif
