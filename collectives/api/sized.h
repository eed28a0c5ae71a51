/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/sized.h: structs of the installed headers whose first field, `size_t size`, is the size
 * that the caller was compiled with. They may grow at their end; docs/abi.md has the rules. */
#ifndef COLL_API_SIZED_H
#define COLL_API_SIZED_H

#include <stddef.h>

#include <gyre/status.h>

/* Copies a caller's struct over the library's own, which holds the defaults of missing fields.
 *
 * own: [size]; least: the smallest size that the call accepts; given: the caller's struct; call: its name
 * for errors. INVALID, and own is as it was: the caller's size is less than `least`, more than 4096 or not a
 * multiple of 8, or a byte after the `size` bytes that this library knows is not zero. */
gyre_status_t coll_sized_read(void *own, size_t size, size_t least, const void *given, const char *call);

/* Copies the library's struct to a caller's; the caller's `size` stays, and bytes that this library does not
 * know become zero. INVALID: a wrong size, as above; the caller's other bytes are not read. */
gyre_status_t coll_sized_write(void *given, size_t least, const void *own, size_t size, const char *call);

#endif
