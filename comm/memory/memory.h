/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/memory.h: windows: memory of our own that local peers can map (memfd; no file, no ptrace
 * right).
 *
 * Process-wide. A window is named by (owner, id) with ids never used twice; the table of windows is read
 * without locks on the data path. The first window of a process may exist before gyre_init; the watcher
 * learns of it when it starts. */
#ifndef COMM_MEMORY_MEMORY_H
#define COMM_MEMORY_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#include "comm/watch/watch.h"

/* See gyre_mem_alloc; its pages come when they are used. */
gyre_status_t comm_mem_alloc(size_t bytes, void **ptr);
/* The same for memory in which `users` processes, this one among them, work by load and store. Its contents
 * live until all of them have let go: this one by comm_mem_free, the others by comm_mapping_leave. */
gyre_status_t comm_mem_alloc_shared(size_t bytes, uint32_t users, void **ptr);
/* As comm_mem_alloc, but taken at once where it fits into huge pages. */
gyre_status_t comm_mem_alloc_now(size_t bytes, void **ptr);
gyre_status_t comm_mem_free(void *ptr);
size_t comm_mem_allocated(const void *ptr); /* bytes of the allocation that begins there; 0: none does */
/* See gyre_mem_register. */
gyre_status_t comm_mem_register(void *ptr, size_t bytes);
gyre_status_t comm_mem_deregister(void *ptr);
size_t comm_mem_registered(const void *ptr); /* bytes of the range that begins there; 0: none does */
/* 1 if [ptr, ptr + bytes) lies in one window: its id and the offset of ptr in it. */
int comm_mem_find(const void *ptr, size_t bytes, uint64_t *id, size_t *offset);
/* The same, for a buffer that peers are to work in: they see what is in it now. Only at the ends of
 * registered memory do they work in copies (comm/memory/window.h), which this makes. *address: where peers
 * reach all of it through the kernel; ptr, if there are no such ends. */
int comm_mem_show(const void *ptr, size_t bytes, uint64_t *id, size_t *offset, uint64_t *address);
/* Brings what peers have written to [ptr, ptr + bytes) of a window to where it belongs, at such ends. */
void comm_mem_fetch(void *ptr, size_t bytes);
/* For a caller that keeps something for a window, such as a registration with an adapter. 0: there is no such
 * window.
 *
 * The caller keeps it by the window's number, which is never given again. Calls take(user, id, base, bytes)
 * under the lock of windows, so that the window cannot end meanwhile. From then on none of the window's
 * memory goes back to the system while the window lives. gone(id) is called before the window ends, under the
 * same lock. `gone` is the same function in all calls. */
int comm_mem_hold(uint64_t id, void (*gone)(uint64_t id),
                  void (*take)(void *user, uint64_t id, void *base, size_t bytes), void *user);
/* Offers all windows, present and future, through `watch`, too; NULL: through none any more. */
gyre_status_t comm_mem_attach(comm_watch_t *watch);
void comm_mem_detach(comm_watch_t *watch); /* no longer through this one */

/* A peer's window, mapped here. It stays mapped while it is held, whatever its owner does; it is dropped when
 * the next window is mapped after the owner has freed it and nobody holds it. */
typedef struct comm_mapping comm_mapping_t;

/* Maps a peer's window here, cached by (address of owner, id). *at: where [offset, offset + bytes) of the
 * window lies. *held: the caller's, until comm_mapping_release. IN_PROGRESS: the owner's watcher has not
 * handed the window over by `until`; call again with the same `fetch` (all zero at first), or drop the fetch.
 * Any other status: mapping is not possible. */
gyre_status_t comm_mem_map(comm_watch_t *watch, const unsigned char owner[32], uint64_t id, size_t offset,
                           size_t bytes, comm_watch_fetch_t *fetch, base_time_t until, const void **at,
                           comm_mapping_t **held);
/* Once more, by a thread for which it is held already. */
void comm_mapping_hold(comm_mapping_t *mapping);
void comm_mapping_release(comm_mapping_t *mapping); /* NULL: nothing */
/* The same, by a process that was a user of this window (comm_mem_alloc_shared). */
void comm_mapping_leave(comm_mapping_t *mapping);
int comm_mapping_freed(const comm_mapping_t *mapping); /* 1: the owner has freed the window */
void comm_mem_unmap_all(void);                         /* at finalize: those that nobody holds */

#endif
