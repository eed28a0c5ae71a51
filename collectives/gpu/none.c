/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/none.c: a build without CUDA: calls on device memory return that error. */
#include "collectives/gpu/gpu.h"

#ifndef GYRE_CUDA

#include "base/error.h"

static gyre_status_t none(const char *name)
{
    return coll_refuse(
        gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: no CUDA device: %s", name, base_device_why_not(BASE_CUDA)));
}

/* A call on a communicator. */
static gyre_status_t none_of(const char *name, const gyre_comm_t *comm)
{
    gyre_status_t st = coll_check_live(name, comm);
    return st == GYRE_OK ? none(name) : coll_refuse(st);
}

gyre_status_t gyre_comm_prepare_cuda(gyre_comm_t *comm)
{
    return none_of("gyre_comm_prepare_cuda", comm);
}

gyre_status_t gyre_cuda_comms_create(int n, const int *devices, gyre_comm_t **comms)
{
    (void)n, (void)devices, (void)comms;
    return none("gyre_cuda_comms_create");
}

gyre_status_t coll_cuda_start(const coll_call_t *call)
{
    return none(call->name);
}

gyre_status_t coll_cuda_message(const char *name, coll_req_kind_t kind, void *buffer, size_t count,
                                gyre_type_t type, int peer, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    (void)kind, (void)buffer, (void)count, (void)type, (void)peer, (void)comm, (void)stream;
    return none(name);
}

gyre_status_t coll_cuda_copy(const char *name, const void *from, void *to, size_t count, gyre_type_t type,
                             gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)comm, (void)stream;
    return none(name);
}

int coll_cuda_where(const gyre_comm_t *comm, int rank, char bus[COLL_CUDA_BUS])
{
    (void)comm, (void)rank;
    bus[0] = '\0';
    return -1;
}

void coll_cuda_set(gyre_comm_t *comm)
{
    (void)comm;
}

int coll_cuda_stop(gyre_comm_t *comm)
{
    (void)comm;
    return 1;
}

void coll_cuda_end(gyre_comm_t *comm)
{
    (void)comm;
}

void coll_cuda_free(gyre_comm_t *comm)
{
    (void)comm;
}

void coll_cuda_leave(int all_ended)
{
    (void)all_ended;
}

gyre_status_t gyre_comm_register_cuda(gyre_comm_t *comm, void *buffer, size_t bytes,
                                      gyre_cuda_registration_t **registration)
{
    (void)buffer, (void)bytes, (void)registration;
    return none_of("gyre_comm_register_cuda", comm);
}

gyre_status_t gyre_comm_deregister_cuda(gyre_comm_t *comm, gyre_cuda_registration_t *registration)
{
    (void)registration;
    return none_of("gyre_comm_deregister_cuda", comm);
}

gyre_status_t gyre_comm_peers_cuda(gyre_comm_t *comm, const gyre_cuda_registration_t *registration,
                                   gyre_cuda_peers_t *peers)
{
    (void)registration, (void)peers;
    return none_of("gyre_comm_peers_cuda", comm);
}

gyre_status_t coll_cuda_explain(gyre_comm_t *comm, const coll_shape_t *shape, int registered,
                                coll_cuda_explanation_t *out)
{
    (void)comm, (void)shape, (void)registered, (void)out;
    return none("explain");
}

#endif
