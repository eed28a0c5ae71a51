/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/window.h: what the owner of a window (window.c) and the ranks that map it (map.c) agree on. */
#ifndef COMM_MEMORY_WINDOW_H
#define COMM_MEMORY_WINDOW_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <gyre/status.h>

/* Bytes of a page of the running system: 4 KiB, or 16 or 64 KiB on some ARM machines. Also the bytes of the
 * control page, the last page of a window. */
static inline size_t mem_page(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

typedef struct {
    _Atomic uint32_t closed; /* 1: the owner has freed the window */
} mem_control_t;

/* Makes a window of whole pages that are already mapped from `fd`. control: the page after them, mapped
 * anywhere. On success fd and control belong to the window. */
gyre_status_t comm_window_adopt(void *base, size_t bytes, int fd, mem_control_t *control);
/* Undoes comm_window_adopt: peers drop their mappings, and the window's memory is given back to the system.
 * Does not touch [base, + bytes), which must be mapped from elsewhere by now. */
void comm_window_retire(const void *base);
int comm_window_touches(const void *from, size_t bytes); /* 1: some of it lies in a window */

#endif
