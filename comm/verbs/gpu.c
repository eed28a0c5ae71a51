/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/gpu.c: GPUDirect RDMA: the group's range of device memory (comm/lend.h), registered with its
 * rails. */
#include "comm/verbs/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/device/rdma.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/verbs/verbs.h"
#include "topo/topo.h"

/* ---- the choice ---------------------------------------------------------------------------------------- */

static void undo(const verbs_gpu_calls_t *calls, int rails, void **made)
{
    for (int r = 0; r < rails; r++) {
        if (made[r])
            calls->dereg(made[r]);
        made[r] = NULL;
    }
}

static int by_dmabuf(const verbs_gpu_calls_t *calls, void *const *rail, const char *const *names, int rails,
                     void *ptr, size_t bytes, void **made, char *why, size_t why_bytes)
{
    size_t offset = 0;
    int fd = -1, r;

    if (calls->dmabuf(ptr, bytes, &fd, &offset) != GYRE_OK) {
        snprintf(why, why_bytes, "%s", gyre_last_error());
        return 0;
    }
    for (r = 0; r < rails; r++) {
        made[r] = calls->reg_dmabuf(rail[r], fd, offset, ptr, bytes);
        if (!made[r]) {
            snprintf(why, why_bytes, "%s takes no dma-buf: %s", names[r], strerror(errno));
            undo(calls, rails, made);
            break;
        }
    }
    calls->close(fd); /* a registration keeps what it needs */
    return r == rails;
}

static int by_address(const verbs_gpu_calls_t *calls, void *const *rail, const char *const *names, int rails,
                      void *ptr, size_t bytes, void **made, char *why, size_t why_bytes)
{
    for (int r = 0; r < rails; r++) {
        made[r] = calls->reg(rail[r], ptr, bytes);
        if (!made[r]) {
            snprintf(why, why_bytes, "%s does not register a GPU's addresses: %s; is nvidia-peermem loaded?",
                     names[r], strerror(errno));
            undo(calls, rails, made);
            return 0;
        }
    }
    return 1;
}

int verbs_gpu_register(const verbs_gpu_calls_t *calls, comm_rdma_t want, void *const *rail,
                       const char *const *names, int rails, void *ptr, size_t bytes, void **made, char *text,
                       size_t text_bytes)
{
    char first[240] = "", second[200] = "";

    for (int r = 0; r < rails; r++)
        made[r] = NULL;
    if (want == COMM_RDMA_OFF) {
        snprintf(text, text_bytes, "GYRE_CUDA_RDMA=off");
        return 0;
    }
    if (want != COMM_RDMA_PEERMEM) {
        if (by_dmabuf(calls, rail, names, rails, ptr, bytes, made, first, sizeof first)) {
            snprintf(text, text_bytes, "GPUDirect RDMA by dma-buf");
            return 1;
        }
    }
    if (want != COMM_RDMA_DMABUF) {
        if (by_address(calls, rail, names, rails, ptr, bytes, made, second, sizeof second)) {
            snprintf(text, text_bytes, "GPUDirect RDMA by nvidia-peermem%s%s%s", first[0] ? " (" : "", first,
                     first[0] ? ")" : "");
            return 1;
        }
    }
    snprintf(text, text_bytes, "%s%s%s", first, first[0] && second[0] ? "; " : "", second);
    return 0;
}

uint32_t verbs_gpu_near(const int *distance, int rails)
{
    uint32_t near = 0;
    int least = distance[0];

    for (int r = 1; r < rails; r++)
        least = distance[r] < least ? distance[r] : least;
    for (int r = 0; r < rails; r++)
        near |= (uint32_t)(distance[r] == least) << r;
    return near;
}

/* ---- the real thing ------------------------------------------------------------------------------------ */

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ };

static void *reg_dmabuf(void *user, int fd, size_t offset, void *ptr, size_t bytes)
{
    const verbs_rail_t *rail = user;

    return ibv_reg_dmabuf_mr(rail->pd, offset, bytes, (uintptr_t)ptr, fd, ACCESS);
}

static void *reg(void *user, void *ptr, size_t bytes)
{
    const verbs_rail_t *rail = user;

    return ibv_reg_mr(rail->pd, ptr, bytes, ACCESS);
}

static void dereg(void *registration)
{
    ibv_dereg_mr(registration);
}

static void close_fd(int fd)
{
    close(fd);
}

static const verbs_gpu_calls_t calls = {base_device_dmabuf, close_fd, reg_dmabuf, reg, dereg};

/* The rails nearest to the device; all of them if the machine does not report distances. */
static uint32_t near_rails(base_device_t device, verbs_rail_t *const *rail, int rails, char *text,
                           size_t text_bytes)
{
    int distance[VERBS_RAILS] = {0};
    char pci[32];
    topo_t *topo;
    size_t used = 0;

    if (rails > 1 && base_device_pci(device, pci, sizeof pci) == GYRE_OK) {
        if (topo_load(NULL, &topo) != GYRE_OK) {
            log_info("verbs: all adapters count as equally near to CUDA device %d: %s", device.index,
                     gyre_last_error());
        } else {
            for (int r = 0; r < rails; r++)
                distance[r] = topo_gpu_distance(topo, pci, rail[r]->name);
            topo_free(topo);
        }
    }
    const uint32_t near = verbs_gpu_near(distance, rails);
    for (int r = 0; r < rails && used < text_bytes; r++) {
        if (near & 1u << r)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", rail[r]->name);
    }
    return near;
}

static int register_with(verbs_rail_t *const *rail, int rails, void *base, size_t bytes, void **made,
                         char *text, size_t text_bytes)
{
    void *users[VERBS_RAILS];
    const char *names[VERBS_RAILS];

    for (int r = 0; r < rails; r++) {
        users[r] = rail[r];
        names[r] = rail[r]->name;
    }
    return verbs_gpu_register(&calls, (comm_rdma_t)base_setting_int(SET_CUDA_RDMA), users, names, rails, base,
                              bytes, made, text, text_bytes);
}

gyre_status_t verbs_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                         comm_lent_t *out)
{
    comm_verbs_group_t *vg = verbs_of(group);
    verbs_lent_t *lent = &vg->lent;
    void *made[VERBS_RAILS];
    char how[280], over[100] = "";

    if (lent->base)
        return gyre_fail(GYRE_ERR_INTERNAL, "device memory is lent already");
    out->works = register_with(vg->rail, vg->rails, base, bytes, made, how, sizeof how);
    if (!out->works) {
        snprintf(out->why, sizeof out->why, "%s", how);
        return GYRE_OK;
    }
    lent->keys =
        (verbs_keys_t){.usable = 1, .near = near_rails(device, vg->rail, vg->rails, over, sizeof over)};
    for (int r = 0; r < vg->rails; r++) {
        lent->mr[r] = made[r];
        lent->keys.lkey[r] = lent->mr[r]->lkey;
        lent->keys.rkey[r] = lent->mr[r]->rkey;
    }
    lent->bytes = bytes;
    lent->base = base;
    snprintf(out->why, sizeof out->why, "%s, over %s", how, over);
    return GYRE_OK;
}

void verbs_reclaim(comm_group_t *group)
{
    verbs_lent_t *lent = &verbs_of(group)->lent;

    for (int r = 0; r < VERBS_RAILS; r++) {
        if (lent->mr[r])
            ibv_dereg_mr(lent->mr[r]);
    }
    *lent = (verbs_lent_t){0};
}

/* ---- gyre-doctor --------------------------------------------------------------------------------------- */

int verbs_try_device(base_device_t device, char *text, size_t bytes)
{
    enum { SOME = 2 << 20 };
    verbs_rail_t *all, *rail[VERBS_RAILS];
    void *made[VERBS_RAILS], *memory = NULL;
    char how[280], over[100] = "";
    int count, works = 0;

    if (verbs_rails_open(1, &all, &count) != GYRE_OK) {
        snprintf(text, bytes, "no: %s", gyre_last_error());
        return 0;
    }
    for (int r = 0; r < count; r++)
        rail[r] = &all[r];
    if (base_device_alloc(device, SOME, &memory) != GYRE_OK) {
        snprintf(text, bytes, "not known: %s", gyre_last_error());
    } else {
        works = register_with(rail, count, memory, SOME, made, how, sizeof how);
        if (works) {
            near_rails(device, rail, count, over, sizeof over);
            undo(&calls, count, made);
        }
        snprintf(text, bytes, works ? "%s, over %s" : "no, through pinned host memory: %s", how, over);
        base_device_free(device, memory);
    }
    verbs_rails_close();
    return works;
}
