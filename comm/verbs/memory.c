/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/memory.c: the memory that adapters may access.
 *
 * Registering memory pins its pages and is a system call, so the result is cached by address. A cache has a
 * known bug: if the memory is unmapped and something else is mapped there, the adapter still reads the old
 * pages. Other libraries hook malloc and munmap against it. Here are no hooks. The cache holds only memory
 * whose end this library itself causes: windows (comm/memory/window.c), which gyre_mem_alloc makes and
 * gyre_mem_register adopts. A window is registered as a whole when it is first used, under a number that is
 * never given again. comm/memory/window.c calls window_gone before it unmaps a window, and returns none of
 * its pages to the system while it is registered.
 *
 * All other memory goes through registered buffers of this transport (link.c), with no system call. That
 * costs a copy at each end in addition to the transfer. */
#include "comm/verbs/verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/memory/memory.h"
#include "comm/verbs/windows.h"

/* ---- registering --------------------------------------------------------------------------------------- */

/* Registers [ptr, + bytes) of the host's memory with one rail; for a device's memory see gpu.c. NO_MEMORY:
 * the system refuses (ulimit -l). Quiet. */
static gyre_status_t verbs_register(const verbs_rail_t *rail, void *ptr, size_t bytes, unsigned access,
                                    struct ibv_mr **mr)
{
    *mr = ibv_reg_mr(rail->pd, ptr, bytes, access);
    if (*mr)
        return GYRE_OK;
    return gyre_fail_quiet(
        GYRE_ERR_NO_MEMORY,
        "%zu bytes cannot be registered with %s: %s; raise the memory that a process may lock "
        "(ulimit -l, or LimitMEMLOCK= of the service that starts the job)",
        bytes, rail->name, strerror(errno));
}

gyre_status_t verbs_region_create(verbs_rail_t *const *rail, int rails, size_t bytes, unsigned access,
                                  verbs_region_t *region)
{
    gyre_status_t status = GYRE_OK;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *region = (verbs_region_t){0};
    if (base == MAP_FAILED)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "no memory for message buffers of %zu bytes",
                               bytes);
    region->base = base;
    region->bytes = bytes;
    for (int r = 0; r < rails && status == GYRE_OK; r++)
        status = verbs_register(rail[r], base, bytes, IBV_ACCESS_LOCAL_WRITE | access, &region->mr[r]);
    if (status != GYRE_OK) {
        verbs_region_free(region);
        return gyre_fail(status, "%s", gyre_last_error());
    }
    return GYRE_OK;
}

void verbs_region_free(verbs_region_t *region)
{
    for (int r = 0; r < VERBS_RAILS; r++) {
        if (region->mr[r])
            ibv_dereg_mr(region->mr[r]);
    }
    if (region->base)
        munmap(region->base, region->bytes);
    *region = (verbs_region_t){0};
}

/* ---- windows ------------------------------------------------------------------------------------------- */

/* One registrar: the adapters of this process. */
typedef struct {
    struct ibv_mr *mr[VERBS_RAILS];
} grip_t;

static int grip(void *user, void *base, size_t bytes, verbs_keys_t *keys, void **out)
{
    const comm_verbs_group_t *vg = user;
    grip_t *made = calloc(1, sizeof *made);

    for (int r = 0; made && r < vg->all_rails; r++) { /* other groups may use other ones */
        if (verbs_register(&vg->all[r], base, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                           &made->mr[r]) != GYRE_OK) {
            log_warning("verbs: messages from and to a buffer are copied: %s", gyre_last_error());
            while (--r >= 0)
                ibv_dereg_mr(made->mr[r]);
            free(made);
            return 0;
        }
        keys->lkey[r] = made->mr[r]->lkey;
        keys->rkey[r] = made->mr[r]->rkey;
    }
    *out = made;
    return made != NULL;
}

static void let_go(void *user, void *gripped)
{
    grip_t *made = gripped;

    (void)user;
    for (int r = 0; r < VERBS_RAILS; r++) {
        if (made->mr[r])
            ibv_dereg_mr(made->mr[r]);
    }
    free(made);
}

static verbs_windows_t windows = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = let_go};

static void window_gone(uint64_t id)
{
    verbs_windows_gone(&windows, id);
}

typedef struct {
    comm_verbs_group_t *vg;
    verbs_keys_t keys; /* by rails of the process */
} taking_t;

/* Called under the lock of comm/memory/window.c: the window cannot end meanwhile. */
static void take(void *user, uint64_t id, void *base, size_t bytes)
{
    taking_t *taking = user;

    verbs_windows_find(&windows, id, base, bytes, grip, taking->vg, &taking->keys);
}

int verbs_window_keys(comm_verbs_group_t *vg, const void *ptr, size_t bytes, verbs_keys_t *keys)
{
    verbs_keys_t *known;
    uint64_t id;
    size_t offset;

    if (vg->lent.base && (uintptr_t)ptr - (uintptr_t)vg->lent.base < vg->lent.bytes) {
        *keys = vg->lent.keys;
        return 1;
    }
    if (!comm_mem_find(ptr, bytes, &id, &offset))
        return 0;
    known = &vg->known[id % (sizeof vg->known / sizeof *vg->known)];
    if (known->window != id) {
        taking_t taking = {.vg = vg};
        *known = (verbs_keys_t){0};
        if (!comm_mem_hold(id, window_gone, take, &taking))
            return 0;
        *known = (verbs_keys_t){.window = id, .usable = taking.keys.usable, .near = ~0u};
        for (int r = 0; r < vg->rails; r++) {
            known->lkey[r] = taking.keys.lkey[vg->rail[r]->number];
            known->rkey[r] = taking.keys.rkey[vg->rail[r]->number];
        }
    }
    *keys = *known;
    return known->usable;
}

void verbs_windows_drop(void)
{
    verbs_windows_free(&windows);
}
