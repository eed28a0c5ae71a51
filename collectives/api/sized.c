/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/sized.c: structs that carry their size, between a program and a library of other age. */
#include "collectives/api/sized.h"

#include <gyre/version.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

/* No struct of any version is larger: such a size was never set. */
enum { LARGEST = 4096 };

static gyre_status_t check_size(size_t given, size_t least, size_t known, const char *call)
{
    if (given < least || given > LARGEST || given % sizeof(size_t) != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: the struct's size is %zu, not %zu: set `size` to sizeof of the struct", call,
                         given, known);
    return GYRE_OK;
}

gyre_status_t coll_sized_read(void *own, size_t size, size_t least, const void *given, const char *call)
{
    size_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    gyre_status_t st = check_size(bytes, least, size, call);
    for (size_t i = size; st == GYRE_OK && i < bytes; i++)
        if (((const uint8_t *)given)[i] != 0)
            st = gyre_fail(
                GYRE_ERR_INVALID,
                "%s: the struct has %zu bytes, and byte %zu is not zero, but Gyre %s knows the first %zu: "
                "leave newer fields zero, or use the library of the program's headers",
                call, bytes, i, gyre_version(), size);
    if (st == GYRE_OK)
        memcpy(own, given, bytes < size ? bytes : size);
    return st;
}

gyre_status_t coll_sized_write(void *given, size_t least, const void *own, size_t size, const char *call)
{
    size_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    gyre_status_t st = check_size(bytes, least, size, call);
    if (st != GYRE_OK)
        return st;
    memcpy(given, own, bytes < size ? bytes : size);
    memcpy(given, &bytes, sizeof bytes);
    if (bytes > size)
        memset((uint8_t *)given + size, 0, bytes - size);
    return GYRE_OK;
}
