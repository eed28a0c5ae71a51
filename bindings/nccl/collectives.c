/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/collectives.c: what moves data: NCCL's calls, and the calls of gyre/cuda.h that do it. */
#include "bindings/nccl/shim.h"

static const gyre_type_t types[ncclNumTypes] = {
    [ncclInt8] = GYRE_INT8,
    [ncclUint8] = GYRE_UINT8,
    [ncclInt32] = GYRE_INT32,
    [ncclUint32] = GYRE_UINT32,
    [ncclInt64] = GYRE_INT64,
    [ncclUint64] = GYRE_UINT64,
    [ncclFloat16] = GYRE_FLOAT16,
    [ncclFloat32] = GYRE_FLOAT32,
    [ncclFloat64] = GYRE_FLOAT64,
    [ncclBfloat16] = GYRE_BFLOAT16,
    [ncclFloat8e4m3] = GYRE_FLOAT8_E4M3,
    [ncclFloat8e5m2] = GYRE_FLOAT8_E5M2,
};

gyre_type_t shim_type(ncclDataType_t type)
{
    return types[type];
}

static ncclResult_t check(shim_call_t *call)
{
    const ncclResult_t result = shim_check(call->name, call->comm);
    if (result != ncclSuccess)
        return result;
    if ((unsigned)call->type >= ncclNumTypes)
        return shim_fail(ncclInvalidArgument, "%s: datatype %d is not one of 0 to %d", call->name,
                         (int)call->type, ncclNumTypes - 1);
    if (call->peer < 0 || call->peer >= call->comm->size)
        return shim_fail(ncclInvalidArgument, "%s: %s %d is not a rank of the communicator, 0 to %d",
                         call->name, call->kind >= SHIM_SEND ? "peer" : "root", call->peer,
                         call->comm->size - 1);
    return call->kind <= SHIM_REDUCE_SCATTER ? shim_op(call) : ncclSuccess;
}

/* Messages of a rank to itself: the first send of the group goes to the first receive, and so on. */
ncclResult_t shim_pair(shim_call_t *call, shim_call_t *all, size_t n)
{
    shim_call_t *other = NULL;
    if (call->kind < SHIM_SEND || call->peer != call->comm->rank || call->done)
        return ncclSuccess;
    for (size_t i = 0; i < n && !other; i++) {
        shim_call_t *it = &all[i];
        if (it->comm == call->comm && it->peer == call->peer && !it->done && !it->other && it != call &&
            it->kind == (call->kind == SHIM_SEND ? SHIM_RECV : SHIM_SEND))
            other = it;
    }
    if (!other)
        return shim_fail(ncclInvalidUsage,
                         "%s: rank %d %s itself, and the group has no call for the other end", call->name,
                         call->peer, call->kind == SHIM_SEND ? "sends to" : "receives from");
    const shim_call_t *send = call->kind == SHIM_SEND ? call : other;
    const shim_call_t *recv = call->kind == SHIM_SEND ? other : call;
    if (send->count != recv->count || send->type != recv->type)
        return shim_fail(ncclInvalidArgument,
                         "ncclRecv: rank %d sends itself %zu elements of datatype %d and "
                         "receives %zu of datatype %d: they must be equal",
                         call->peer, send->count, (int)send->type, recv->count, (int)recv->type);
    call->other = other;
    other->done = 1;
    return ncclSuccess;
}

/* What `next` gets from here on runs after what `first` has got. */
static cudaError_t follow(cudaStream_t first, cudaStream_t next)
{
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return error;
    error = cudaEventRecord(event, first);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(next, event, 0);
    (void)cudaEventDestroy(event); /* once the streams are past it */
    return error;
}

ncclResult_t shim_meet(const shim_call_t *call, int enqueued)
{
    if (!call->other || call->stream == call->other->stream)
        return ncclSuccess;
    const int sends = call->kind == SHIM_SEND;
    const cudaStream_t send = (sends ? call : call->other)->stream;
    const cudaStream_t recv = (sends ? call->other : call)->stream;
    int before = 0;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess)
        error = cudaSetDevice(call->comm->device); /* of the event, as of the streams */
    if (error == cudaSuccess)
        error = enqueued ? follow(recv, send) : follow(send, recv);
    (void)cudaSetDevice(before);
    return error == cudaSuccess
               ? ncclSuccess
               : shim_cuda(call->name, "ordering the two streams of a message to itself", error);
}

/* Gyre has such messages in its exchange with neighbours. It goes on the receive's stream. */
static ncclResult_t to_itself(const shim_call_t *call)
{
    const shim_call_t *send = call->kind == SHIM_SEND ? call : call->other;
    const shim_call_t *recv = call->kind == SHIM_SEND ? call->other : call;
    const int self = call->peer;
    const gyre_status_t st =
        gyre_neighbor_exchange_stream(send->send, &send->count, NULL, 1, &self, recv->recv, &recv->count,
                                      NULL, 1, &self, types[recv->type], call->comm->gyre, recv->stream);
    return st == GYRE_OK ? ncclSuccess : shim_status(call->name, st);
}

ncclResult_t shim_enqueue(const shim_call_t *call)
{
    gyre_comm_t *comm = call->comm->gyre;
    const gyre_type_t type = types[call->type];
    const void *send = call->send;
    void *recv = call->recv;
    gyre_status_t st = GYRE_ERR_INTERNAL;

    if (call->done)
        return ncclSuccess;
    if (call->other)
        return to_itself(call);
    switch (call->kind) {
    case SHIM_ALL_REDUCE:
        st = gyre_all_reduce_stream(send, recv, call->count, type, call->redop, comm, call->stream);
        break;
    case SHIM_REDUCE:
        st = gyre_reduce_stream(send, recv, call->count, type, call->redop, call->peer, comm, call->stream);
        break;
    case SHIM_REDUCE_SCATTER:
        st = gyre_reduce_scatter_stream(send, recv, call->count, type, call->redop, comm, call->stream);
        break;
    case SHIM_BROADCAST:
        st = gyre_broadcast_stream(send, recv, call->count, type, call->peer, comm, call->stream);
        break;
    case SHIM_ALL_GATHER:
        st = gyre_all_gather_stream(send, recv, call->count, type, comm, call->stream);
        break;
    case SHIM_ALL_TO_ALL:
        st = gyre_all_to_all_stream(send, recv, call->count, type, comm, call->stream);
        break;
    case SHIM_GATHER:
        st = gyre_gather_stream(send, recv, call->count, type, call->peer, comm, call->stream);
        break;
    case SHIM_SCATTER:
        st = gyre_scatter_stream(send, recv, call->count, type, call->peer, comm, call->stream);
        break;
    case SHIM_SEND:
        st = gyre_send_stream(send, call->count, type, call->peer, comm, call->stream);
        break;
    case SHIM_RECV:
        st = gyre_recv_stream(recv, call->count, type, call->peer, comm, call->stream);
        break;
    default:
        break;
    }
    return st == GYRE_OK ? ncclSuccess : shim_status(call->name, st);
}

/* op: of reductions; peer: or root. */
static ncclResult_t submit(shim_kind_t kind, const char *name, const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, int peer, ncclComm_t comm,
                           cudaStream_t stream)
{
    shim_call_t call = {.kind = kind,
                        .name = name,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op,
                        .peer = peer,
                        .comm = comm,
                        .stream = stream};
    const ncclResult_t result = check(&call);
    return shim_refused(result == ncclSuccess ? shim_submit(&call) : result);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_ALL_REDUCE, __func__, send, recv, count, type, op, 0, comm, stream);
}
SHIM_API(ncclAllReduce);

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_REDUCE, __func__, send, recv, count, type, op, root, comm, stream);
}
SHIM_API(ncclReduce);

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_REDUCE_SCATTER, __func__, send, recv, count, type, op, 0, comm, stream);
}
SHIM_API(ncclReduceScatter);

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_BROADCAST, __func__, send, recv, count, type, ncclSum, root, comm, stream);
}
SHIM_API(ncclBroadcast);

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return submit(SHIM_BROADCAST, __func__, buffer, buffer, count, type, ncclSum, root, comm, stream);
}
SHIM_API(ncclBcast);

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return submit(SHIM_ALL_GATHER, __func__, send, recv, count, type, ncclSum, 0, comm, stream);
}
SHIM_API(ncclAllGather);

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream)
{
    return submit(SHIM_ALL_TO_ALL, __func__, send, recv, count, type, ncclSum, 0, comm, stream);
}
SHIM_API(ncclAlltoAll);

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_GATHER, __func__, send, recv, count, type, ncclSum, root, comm, stream);
}
SHIM_API(ncclGather);

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    return submit(SHIM_SCATTER, __func__, send, recv, count, type, ncclSum, root, comm, stream);
}
SHIM_API(ncclScatter);

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return submit(SHIM_SEND, __func__, send, NULL, count, type, ncclSum, peer, comm, stream);
}
SHIM_API(ncclSend);

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return submit(SHIM_RECV, __func__, NULL, recv, count, type, ncclSum, peer, comm, stream);
}
SHIM_API(ncclRecv);
