/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/peer.h: memory of a CUDA device that another rank reads and writes directly.
 *
 * The owner describes a place in its memory by plain bytes, which travel as they are; a receiver, in the same
 * process or another of the same host, turns them into a pointer of its own: in the same process the pointer
 * itself, with access between the two devices, in another one a mapping by CUDA IPC. One mapping serves all
 * places of an allocation, is counted, and goes with its last user, so that memory which the owner frees is
 * not held by forgotten mappings.
 *
 * The owner must not free the memory, nor end, before the others have given it up; keeping that order is the
 * caller's.
 *
 * Whether memory can be shared is found out by trying: errors are recorded, not logged; a caller that has
 * no other way logs them. */
#ifndef BASE_DEVICE_PEER_H
#define BASE_DEVICE_PEER_H

#include <stdint.h>

#include "base/device/device.h"

/*   0  8   host (boot id, hashed)            56  8   the place, in the owner
 *   8  8   process (random)                  64 64   CUDA's handle of the allocation
 *  16 16   device (UUID)
 *  32  8   offset of the place in its allocation
 *  40  8   bytes from there to the allocation's end
 *  48  4   pid       52  4   device's ordinal in the owner */
typedef struct {
    uint64_t host, process;
    unsigned char device[16];
    uint64_t offset, bytes;
    int32_t pid, index;
    uint64_t address;
    unsigned char handle[64];
} base_device_handle_t;

/* Describes `ptr`, anywhere in CUDA memory of this process (not in an import). INVALID: it is not such
 * memory. */
gyre_status_t base_device_export(const void *ptr, base_device_handle_t *handle);
/* As `process` in every description by this process; 0: it is not known. */
uint64_t base_device_process(void);
/* A pointer to the place for device `on` of this process; the memory from there on is handle->bytes long.
 * UNSUPPORTED: another host, or devices that do not reach one another. Thread-safe. */
gyre_status_t base_device_import(base_device_t on, const base_device_handle_t *handle, void **ptr);
/* Gives back one import, by the pointer that it gave; work of streams that uses it is waited for. INVALID:
 * it is not an import. */
gyre_status_t base_device_unimport(void *ptr);
/* Mappings that are open now, for tests and reports. */
int base_device_imports(void);

#endif
