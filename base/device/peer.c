/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/peer.c: see peer.h. */
#include "base/device/peer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/device/cuda.h"
#include "base/error.h"
#include "base/machine/identity.h"

_Static_assert(sizeof(base_device_handle_t) == 128, "a handle travels as it is");

/* An allocation that is mapped, or the pointers of this process itself (begin NULL), which need no
 * mapping. */
typedef struct import {
    struct import *next;
    uint64_t process;
    unsigned char handle[64];
    int index;
    char *begin;
    uint64_t bytes; /* of the mapping, as far as a caller has given them */
    int users;
} import_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static import_t *imports; /* under the lock; few */

static pthread_once_t identified = PTHREAD_ONCE_INIT;
static uint64_t host_id, process_id; /* 0: unknown */

static void identify(void)
{
    host_id = base_machine(0);
    if (getrandom(&process_id, sizeof(process_id), 0) != (ssize_t)sizeof(process_id))
        process_id = 0;
}

static gyre_status_t identities(void)
{
    pthread_once(&identified, identify);
    if (host_id == 0 || process_id == 0)
        return gyre_fail_quiet(GYRE_ERR_SYSTEM, "device memory of other processes: %s cannot be read",
                               host_id == 0 ? "/proc/sys/kernel/random/boot_id"
                                            : "the kernel's random numbers");
    return GYRE_OK;
}

uint64_t base_device_process(void)
{
    pthread_once(&identified, identify);
    return process_id;
}

gyre_status_t base_device_export(const void *ptr, base_device_handle_t *handle)
{
    base_device_handle_t out = {0};
    void *begin;
    size_t bytes;
    int index;
    if (!base_cuda_of(ptr, &index))
        return gyre_fail_quiet(GYRE_ERR_INVALID, "device export of %p: it is not memory of a CUDA device",
                               ptr);
    gyre_status_t status = identities();
    if (status == GYRE_OK)
        status = base_cuda_range(ptr, &begin, &bytes);
    if (status == GYRE_OK)
        status = base_cuda_identity(index, out.device);
    if (status == GYRE_OK)
        status = base_cuda_ipc_export(begin, out.handle);
    if (status != GYRE_OK)
        return status;
    out.host = host_id;
    out.process = process_id;
    out.pid = (int32_t)getpid();
    out.index = index;
    out.offset = (uint64_t)((const char *)ptr - (const char *)begin);
    out.bytes = bytes - out.offset;
    out.address = (uint64_t)(uintptr_t)ptr;
    *handle = out;
    return GYRE_OK;
}

/* The mapping of the handle's allocation, opened if there is none; under the lock. */
static gyre_status_t open_import(base_device_t on, const base_device_handle_t *handle, import_t **found)
{
    void *begin = NULL;
    for (import_t *each = imports; each != NULL; each = each->next)
        if (each->process == handle->process && each->index == on.index &&
            memcmp(each->handle, handle->handle, sizeof(each->handle)) == 0) {
            *found = each;
            return GYRE_OK;
        }
    import_t *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "device import: no memory left");
    gyre_status_t status = base_cuda_ipc_open(on.index, handle->handle, &begin);
    if (status != GYRE_OK) {
        char why[320];
        snprintf(why, sizeof(why), "%s", gyre_last_error());
        free(fresh);
        return gyre_fail_quiet(
            status,
            "memory of process %d (its device %d) cannot be mapped: %s; "
            "do both processes run in the same container, by the same user, and is the other one alive?",
            (int)handle->pid, (int)handle->index, why);
    }
    fresh->process = handle->process;
    memcpy(fresh->handle, handle->handle, sizeof(fresh->handle));
    fresh->index = on.index;
    fresh->begin = begin;
    fresh->next = imports;
    imports = fresh;
    *found = fresh;
    return GYRE_OK;
}

gyre_status_t base_device_import(base_device_t on, const base_device_handle_t *handle, void **ptr)
{
    import_t *import = NULL;
    gyre_status_t status = identities();
    if (status != GYRE_OK)
        return status;
    int count = base_cuda_count();
    if (on.kind != BASE_CUDA || on.index < 0 || on.index >= count)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                               "device import: there is no CUDA device %d here (%d of them)", on.index,
                               count);
    if (handle->host != host_id)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED,
                               "device import: the memory of process %d is on another host",
                               (int)handle->pid);
    if (handle->process == process_id) {
        status = base_cuda_reach(on.index, handle->index);
        if (status == GYRE_OK)
            *ptr = (void *)(uintptr_t)handle->address;
        return status;
    }
    pthread_mutex_lock(&lock);
    status = open_import(on, handle, &import);
    if (status == GYRE_OK) {
        import->users++;
        if (import->bytes < handle->offset + handle->bytes)
            import->bytes = handle->offset + handle->bytes;
        *ptr = import->begin + handle->offset;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

gyre_status_t base_device_unimport(void *ptr)
{
    import_t **at, *import;
    gyre_status_t status = GYRE_OK;
    int index;
    if (ptr == NULL)
        return GYRE_OK;
    pthread_mutex_lock(&lock);
    for (at = &imports; (import = *at) != NULL; at = &import->next)
        if ((char *)ptr >= import->begin && (uint64_t)((char *)ptr - import->begin) < import->bytes)
            break;
    if (import == NULL) {
        pthread_mutex_unlock(&lock);
        /* memory of this process was never mapped */
        return base_cuda_of(ptr, &index)
                   ? GYRE_OK
                   : gyre_fail_quiet(GYRE_ERR_INVALID, "device unimport of %p: it was not imported", ptr);
    }
    if (--import->users == 0) {
        *at = import->next;
        status = base_cuda_ipc_close(import->index, import->begin);
        free(import);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int base_device_imports(void)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (import_t *each = imports; each != NULL; each = each->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}
