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
    /* Processes for which its contents live: its owner, and those with which it was allocated together
     * (comm_mem_alloc_shared). The last one to let go gives its memory back. */
    _Atomic uint32_t users;
} mem_control_t;

/* One user less; 1: it was the last. Acquire and release: the others' accesses come before what follows. */
static inline int mem_control_leave(mem_control_t *control)
{
    return atomic_fetch_sub_explicit(&control->users, 1, memory_order_acq_rel) == 1;
}

/* Where a window lies in its owner's address space. Only of memory that came from elsewhere are the ends not
 * those of pages:
 *
 *         start   mapped             mapped_end  end
 *           |       |                     |       |
 *     |.....=========|===================|=====.....|      = the window   . others' memory   | page
 *
 * The pages at the ends are the owner's alone, since other memory lies there. What peers map in their place
 * is a copy of the window's part of them: comm_mem_show, comm_mem_fetch. */
typedef struct {
    uintptr_t start, end;
    uintptr_t mapped, mapped_end; /* whole pages: what is mapped from the window's descriptor */
    unsigned char *copy; /* the owner's mapping of all that peers map; NULL: there are no such ends */
} mem_span_t;

/* Makes a window of memory whose whole pages are already mapped from `fd`, at the offsets that they have from
 * the first page that the span touches. On success fd and the mapping `copy`, of these pages and the control
 * page, belong to the window, and *id is its number. */
gyre_status_t comm_window_adopt(const mem_span_t *span, int fd, uint64_t *id);
/* Undoes comm_window_adopt: peers drop their mappings, and the window's memory is given back to the system.
 * Does not touch the span, which must be mapped from elsewhere by now. */
void comm_window_retire(uint64_t id);
int comm_window_touches(const void *from, size_t bytes); /* 1: some of it is mapped from a window */

#endif
