/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/memory.c: memory that ranks of one host share: comm/memory/, but not while an operation of
 * this process uses it. */
#include "base/error.h"
#include "collectives/run/communicator.h"
#include "comm/memory/memory.h"

/* INVALID: an operation has a buffer there. */
static gyre_status_t check_idle(const char *name, const void *ptr, size_t bytes)
{
    char text[160];
    comm_call_t call;
    if (bytes == 0 || (!coll_group_uses(ptr, bytes, &call) && !coll_registry_uses(ptr, bytes, &call)))
        return GYRE_OK;
    coll_call_text(&call, text, sizeof text);
    return gyre_fail(GYRE_ERR_INVALID,
                     "%s: %s has not finished and uses the %zu bytes at %p: wait for it first", name, text,
                     bytes, ptr);
}

gyre_status_t gyre_mem_alloc(size_t bytes, void **ptr)
{
    return comm_mem_alloc(bytes, ptr);
}

gyre_status_t gyre_mem_free(void *ptr)
{
    gyre_status_t st = check_idle("gyre_mem_free", ptr, comm_mem_allocated(ptr));
    return st == GYRE_OK ? comm_mem_free(ptr) : st;
}

gyre_status_t gyre_mem_register(void *ptr, size_t bytes)
{
    return comm_mem_register(ptr, bytes);
}

gyre_status_t gyre_mem_deregister(void *ptr)
{
    gyre_status_t st = check_idle("gyre_mem_deregister", ptr, comm_mem_registered(ptr));
    return st == GYRE_OK ? comm_mem_deregister(ptr) : st;
}
