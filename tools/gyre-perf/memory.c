/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/memory.c: --memory cuda: buffers on this rank's device. They are filled and checked in a
 * mirror, host memory of one slot, and copied whole, guards included. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>

#include "base/device/device.h"
#include "base/error.h"

static base_device_t device_of(const perf_buffers_t *b)
{
    return (base_device_t){BASE_CUDA, b->device};
}

gyre_status_t perf_memory_open(const perf_options_t *o, perf_buffers_t *b, size_t bytes)
{
    void *send, *recv;
    b->mirror = calloc(1, b->slot_bytes + 2 * PERF_GUARD_BYTES + o->misalign);
    if (!b->mirror)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a buffer of %zu bytes; a smaller -e helps",
                         b->slot_bytes);
    gyre_status_t status = base_device_alloc(device_of(b), bytes, &send);
    if (status != GYRE_OK)
        return status;
    b->send = send;
    status = base_device_alloc(device_of(b), bytes, &recv);
    if (status == GYRE_OK) {
        b->recv = recv;
        status = base_stream_create(device_of(b), &b->stream);
    }
    return status;
}

gyre_status_t perf_memory_register(const perf_options_t *o, perf_buffers_t *b, gyre_comm_t *comm)
{
    const size_t bytes = b->slot_bytes * (size_t)perf_slots(o);
    b->comm = comm;
    gyre_status_t status = gyre_comm_register_cuda(comm, b->send, bytes, &b->registered[0]);
    return status == GYRE_OK ? gyre_comm_register_cuda(comm, b->recv, bytes, &b->registered[1]) : status;
}

void perf_memory_unregister(perf_buffers_t *b)
{
    for (int i = 0; i < 2; i++) {
        if (b->registered[i]) /* the library logs errors here; they change nothing */
            (void)gyre_comm_deregister_cuda(b->comm, b->registered[i]);
        b->registered[i] = NULL;
    }
}

void perf_memory_close(perf_buffers_t *b)
{
    perf_memory_unregister(b);
    /* the library logs errors here; they change nothing */
    if (b->send)
        (void)base_device_free(device_of(b), b->send);
    if (b->recv)
        (void)base_device_free(device_of(b), b->recv);
    if (b->stream)
        (void)base_stream_destroy(b->stream);
    b->stream = NULL;
    free(b->mirror);
    b->mirror = NULL;
}

gyre_status_t perf_memory_ready(const perf_buffers_t *b, gyre_comm_t *comm)
{
    if (!b->cuda)
        return GYRE_OK;
    return gyre_all_reduce(b->recv, b->recv, 1, GYRE_UINT8, GYRE_OP(GYRE_MAX), comm);
}

unsigned char *perf_memory_on_host(const perf_place_t *p, unsigned char *base)
{
    return p->mirror ? p->mirror : base;
}

/* A copy that is over when it returns. */
static gyre_status_t copy(void *to, const void *from, size_t bytes)
{
    base_stream_t *host;
    gyre_status_t status = base_stream_create((base_device_t){BASE_HOST, 0}, &host);
    if (status != GYRE_OK)
        return status;
    status = base_stream_copy(host, to, from, bytes);
    gyre_status_t ended = base_stream_destroy(host);
    return status == GYRE_OK ? ended : status;
}

gyre_status_t perf_memory_upload(const perf_case_t *c, const perf_place_t *p, unsigned char *base)
{
    return p->mirror
               ? copy(base - PERF_GUARD_BYTES, p->mirror - PERF_GUARD_BYTES, c->bytes + 2 * PERF_GUARD_BYTES)
               : GYRE_OK;
}

gyre_status_t perf_memory_download(const perf_case_t *c, const perf_place_t *p, unsigned char *base)
{
    return p->mirror
               ? copy(p->mirror - PERF_GUARD_BYTES, base - PERF_GUARD_BYTES, c->bytes + 2 * PERF_GUARD_BYTES)
               : GYRE_OK;
}
