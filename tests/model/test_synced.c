/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_synced.c: a file of weights is synced while it is written, so that no call waits for the
 * disk longer than for a few megabytes. A program of its own, as fsync and fdatasync are the test's here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "model/formats/safetensors.h"

static size_t synced, syncs, largest; /* bytes on disk; calls; bytes of the call that had most to do */

static int sync_here(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    size_t bytes = (size_t)info.st_size - synced;
    largest = bytes > largest ? bytes : largest;
    synced = (size_t)info.st_size;
    syncs++;
    return 0;
}

int fsync(int fd)
{
    return sync_here(fd);
}

int fdatasync(int fd)
{
    return sync_here(fd);
}

static void little_at_a_time(void **unused)
{
    (void)unused;
    char path[] = "/tmp/gyre-synced-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    const size_t bytes[] = {5 * MODEL_SAFETENSORS_SYNC / 2, 8, MODEL_SAFETENSORS_SYNC, 0};
    char *data = calloc(bytes[0], 1);
    assert_non_null(data);
    model_safetensors_t file = {0};
    for (size_t i = 0; i < 4; i++)
        model_safetensors_tensor(&file, (const char *[]){"a", "b", "c", "d"}[i], "U8", &bytes[i], 1,
                                 bytes[i]);
    assert_int_equal(model_safetensors_begin(&file, path), GYRE_OK);
    size_t all = file.data + bytes[0] + bytes[1] + bytes[2];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(model_safetensors_put(&file, data, bytes[i]), GYRE_OK);
    assert_int_equal(model_safetensors_commit(&file), GYRE_OK);
    assert_int_equal(synced, all);
    assert_true(largest <= MODEL_SAFETENSORS_SYNC);
    assert_int_equal(syncs, 4);
    free(data);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(little_at_a_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
