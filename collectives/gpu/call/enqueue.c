/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/enqueue.c: enqueues a call on device memory. The call's buffers are checked, it is
 * ordered after the communicator's earlier calls, and the communicator's path enqueues it. Ordinary calls run
 * on a stream of the communicator's own, and become requests that end with the event after them.
 *
 * Calls are numbered, and posted on the call board, together with those on host memory. A rank that makes
 * another call than its peers, or the same on memory of the other kind, is thus detected as on the host
 * (blame.c). */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/device/ranges.h"
#include "base/error.h"
#include "base/grow.h"

enum { STOP_SECONDS = 2 /* that a failing communicator waits for its streams */ };
/* Any: they set calls on registered memory, and captured ones that run otherwise, apart from others. */
#define REGISTERED_SIG 0x52656775u
#define CAPTURED_SIG   0x43617074u

/* ---- buffers and devices ------------------------------------------------------------------------------- */

/* *device: the device of the call's buffers; -1: no buffer is on a device. */
static gyre_status_t find_device(const coll_call_t *c, int *device)
{
    const void *buffers[2] = {c->send, c->recv};
    const char *names[2] = {"send", "recv"};
    const char *host = NULL, *there = NULL;
    *device = -1;
    if (base_device_count(BASE_CUDA) == 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "%s: no CUDA device: %s", c->name,
                         base_device_why_not(BASE_CUDA));
    for (int i = 0; i < 2; i++) {
        const size_t count = i == 0 ? c->send_count : c->recv_count;
        if (!buffers[i])
            continue;
        const base_device_t of = base_device_of(buffers[i]);
        if (of.kind != BASE_CUDA) {
            host = count > 0 ? names[i] : host;
            continue;
        }
        if (there && of.index != *device)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s: %s is on CUDA device %d and %s on device %d: both must be on one", c->name,
                             there, *device, names[i], of.index);
        *device = of.index;
        there = names[i];
    }
    if (host && there)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s: %s is in host memory and %s in the memory of CUDA device %d: both must be of one kind",
            c->name, host, there, *device);
    if (host && c->comm->team)
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%s: %s is in host memory: ranks of one process (gyre_cuda_comms_create) work on device "
            "memory only; host memory takes a process per rank (gyre_init)",
            c->name, host);
    if (host)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s_stream: %s is in host memory; on streams buffers are on the device", c->name,
                         host);
    return GYRE_OK;
}

/* The communicator is ready for its device, and `device` (-1: any) is it. */
static gyre_status_t check_device(const char *name, gyre_comm_t *comm, int device, int capturing)
{
    if (!comm->cuda) {
        if (capturing)
            return gyre_fail(GYRE_ERR_UNSUPPORTED,
                             "%s: the communicator's first call on device memory cannot be captured: call "
                             "gyre_comm_prepare_cuda before",
                             name);
        if (device < 0) {
            cudaError_t rc = cudaGetDevice(&device);
            if (rc != cudaSuccess)
                return coll_cuda_failed(rc, "cudaGetDevice");
        }
        return coll_cuda_prepare(comm, device);
    }
    if (device >= 0 && device != comm->cuda->device)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: buffers are on CUDA device %d, but this communicator works on device %d", name,
                         device, comm->cuda->device);
    return GYRE_OK;
}

/* The default stream is the communicator's device's, once it has one. */
static gyre_status_t is_capturing(const gyre_comm_t *comm, gyre_cuda_stream_t stream, int *capturing)
{
    enum cudaStreamCaptureStatus status;
    int before = 0;
    gyre_status_t st = comm->cuda ? coll_cuda_enter(comm->cuda, &before) : GYRE_OK;
    if (st != GYRE_OK)
        return st;
    cudaError_t rc = cudaStreamIsCapturing(stream, &status);
    if (comm->cuda)
        coll_cuda_exit(comm->cuda, before);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaStreamIsCapturing(%p)", (void *)stream);
    *capturing = status != cudaStreamCaptureStatusNone;
    return GYRE_OK;
}

/* ---- order --------------------------------------------------------------------------------------------- */

/* The number of the capture that the stream is in. */
static gyre_status_t capture_of(cudaStream_t stream, unsigned long long *id)
{
    enum cudaStreamCaptureStatus status;
#if CUDART_VERSION >= 13000
    cudaError_t rc = cudaStreamGetCaptureInfo(stream, &status, id, NULL, NULL, NULL, NULL);
#else
    cudaError_t rc = cudaStreamGetCaptureInfo(stream, &status, id, NULL, NULL, NULL);
#endif
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaStreamGetCaptureInfo(%p)", (void *)stream);
}

/* The place of a capture that has had operations; -1: it has none. No capture has the number 0. */
static int find_capture(const coll_cuda_t *c, unsigned long long id)
{
    for (int i = 0; i < COLL_CUDA_CAPTURES; i++)
        if (c->captures[i].id == id)
            return i;
    return -1;
}

static gyre_status_t follow_captured(const coll_cuda_t *c, cudaStream_t stream)
{
    unsigned long long id = 0;
    gyre_status_t st = capture_of(stream, &id);
    const int at = find_capture(c, id);
    if (st != GYRE_OK || at < 0)
        return st;
    cudaError_t rc = cudaStreamWaitEvent(stream, c->captures[at].newest, 0);
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaStreamWaitEvent(%p)", (void *)stream);
}

/* Operations of a communicator run one after the other, on whatever streams: they share flags and staging
 * memory. Also on what looks like the same stream: a handle may be that of a new one, or of one per thread.
 * Those of one capture, too: its streams are branches of a graph, which run at once. */
gyre_status_t coll_cuda_follow(coll_cuda_t *c, cudaStream_t stream, int capturing)
{
    if (capturing)
        return follow_captured(c, stream);
    if (!c->any)
        return GYRE_OK;
    cudaError_t rc = cudaStreamWaitEvent(stream, c->newest, 0);
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaStreamWaitEvent(%p)", (void *)stream);
}

/* A capture that has no place takes that of the one that has had its own for longest. */
static gyre_status_t note_captured(coll_cuda_t *c, cudaStream_t stream)
{
    unsigned long long id = 0;
    gyre_status_t st = capture_of(stream, &id);
    if (st != GYRE_OK)
        return st;
    int at = find_capture(c, id);
    if (at < 0)
        at = (int)(c->begun++ % COLL_CUDA_CAPTURES);
    c->captures[at].id = id;
    cudaError_t rc = cudaEventRecord(c->captures[at].newest, stream);
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaEventRecord on stream %p", (void *)stream);
}

static gyre_status_t note_newest(coll_cuda_t *c, cudaStream_t stream, int capturing)
{
    if (capturing)
        return note_captured(c, stream);
    cudaError_t rc = cudaEventRecord(c->newest, stream);
    c->on = stream;
    c->any = 1;
    return rc == cudaSuccess ? GYRE_OK : coll_cuda_failed(rc, "cudaEventRecord on stream %p", (void *)stream);
}

gyre_status_t coll_cuda_note_call(coll_cuda_t *c, cudaStream_t stream, int capturing, gyre_status_t status)
{
    if (status == GYRE_OK)
        return note_newest(c, stream, capturing);
    if (capturing)
        return status;
    if (cudaEventRecord(c->newest, stream) == cudaSuccess) {
        c->on = stream;
        c->any = 1;
    } else {
        (void)cudaGetLastError(); /* the call's own error is the better story */
    }
    return status;
}

coll_cuda_capture_t coll_cuda_captures(const gyre_comm_t *comm, const char **why)
{
    const coll_cuda_t *c = comm->cuda;
    *why = c ? c->why : "not used on a device yet";
    if (!c)
        return COLL_CUDA_CAPTURE_LATER;
    if (c->path == COLL_CUDA_STAGED)
        return COLL_CUDA_CAPTURE_NEVER;
    return c->stream_waits ? COLL_CUDA_CAPTURE_WAITS : COLL_CUDA_CAPTURE_FREELY;
}

gyre_status_t coll_cuda_replayed(gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    int before;
    gyre_status_t st = coll_cuda_enter(comm->cuda, &before);
    if (st != GYRE_OK)
        return st;
    st = note_newest(comm->cuda, stream, 0);
    coll_cuda_exit(comm->cuda, before);
    return st;
}

/* The call gets its number and stands on the board. */
static void number(gyre_comm_t *comm, comm_call_t *as)
{
    coll_drive(comm);
    as->seq = ++comm->seq;
    coll_post_call(comm, as);
    coll_stop_driving(comm);
}

/* A call that has its number cannot be taken back: the others have made it, too. */
gyre_status_t coll_cuda_fail_numbered(gyre_comm_t *comm, gyre_status_t status)
{
    coll_drive(comm);
    coll_comm_fail(comm, NULL, status, NULL);
    coll_stop_driving(comm);
    return status;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static gyre_status_t take_event(coll_cuda_t *c, cudaEvent_t *event)
{
    if (c->spare_events > 0) {
        *event = c->events[--c->spare_events];
        return GYRE_OK;
    }
    cudaError_t rc = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    c->comm->allocations++;
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaEventCreateWithFlags on device %d", c->device);
}

/* The caller is driving. */
static void give_event(coll_cuda_t *c, cudaEvent_t event)
{
    if (base_grow(&c->events, &c->events_room, (size_t)c->spare_events, 1, sizeof event))
        c->events[c->spare_events++] = event;
    else
        (void)cudaEventDestroy(event);
}

void coll_cuda_drop_events(coll_cuda_t *c)
{
    for (int i = 0; i < c->spare_events; i++)
        (void)cudaEventDestroy(c->events[i]);
    free(c->events);
    if (c->newest)
        (void)cudaEventDestroy(c->newest);
    for (int i = 0; i < COLL_CUDA_CAPTURES; i++)
        if (c->captures[i].newest)
            (void)cudaEventDestroy(c->captures[i].newest);
}

static void give_up(gyre_comm_t *comm, gyre_request_t *r)
{
    give_event(comm->cuda, r->event);
}

/* A request for what is on the communicator's own stream so far; waited for, or given to the caller. */
static gyre_status_t as_request(coll_cuda_t *c, const comm_call_t *as, const coll_call_t *call)
{
    gyre_comm_t *comm = c->comm;
    cudaEvent_t event;
    coll_drive(comm);
    gyre_request_t *r = coll_request_new_driving(comm);
    gyre_status_t st = r ? take_event(c, &event) : GYRE_ERR_NO_MEMORY;
    cudaError_t rc = st == GYRE_OK ? cudaEventRecord(event, c->stream) : cudaSuccess;
    if (rc != cudaSuccess) {
        st = coll_cuda_failed(rc, "cudaEventRecord on device %d", c->device);
        give_event(c, event);
    }
    if (st != GYRE_OK) {
        if (r) { /* nobody got it: the communicator has no operation under way for it */
            comm->open--;
            coll_request_free_driving(r);
        }
        coll_comm_fail(comm, NULL, st, NULL);
        coll_stop_driving(comm);
        return st;
    }
    r->kind = COLL_REQ_DEVICE;
    r->call = *as;
    r->event = event;
    r->finished = call->finished;
    r->user = call->user;
    coll_request_of(r, call->under_way);
    r->started = base_now();
    r->deadline = r->started + comm->timeout_ns;
    if (comm->device_head)
        comm->device_tail->device_next = r;
    else
        comm->device_head = r;
    comm->device_tail = r;
    comm_recorder_begin(comm->world->recorder, &r->call, r->started);
    coll_stop_driving(comm);
    return coll_request_start(r, call->request);
}

static int advance(gyre_comm_t *comm)
{
    int moved = 0;
    while (comm->device_head) {
        gyre_request_t *r = comm->device_head;
        cudaError_t rc = coll_cuda_query(comm->cuda, r->event);
        if (rc == cudaErrorNotReady)
            break;
        if (rc != cudaSuccess || coll_cuda_read(&comm->cuda->board->mismatch)) {
            if (rc != cudaSuccess)
                coll_cuda_failed(rc, "an operation on CUDA device %d", comm->cuda->device);
            r->peer = (int)coll_cuda_read(&comm->cuda->board->mismatch) - 1;
            coll_comm_fail(comm, r, rc != cudaSuccess ? GYRE_ERR_SYSTEM : GYRE_ERR_MISMATCH, NULL);
            return 1;
        }
        if (coll_cuda_mail_wrong(comm->cuda)) { /* which ends collectives, too */
            coll_comm_fail(comm, NULL, GYRE_ERR_MISMATCH, NULL);
            return 1;
        }
        comm->device_head = r->device_next;
        if (!comm->device_head)
            comm->device_tail = NULL;
        give_event(comm->cuda, r->event);
        coll_request_finish(r, GYRE_OK);
        moved = 1;
    }
    return moved;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static gyre_status_t enqueue(coll_cuda_t *c, const coll_call_t *call, comm_call_t *as, coll_algo_t algo,
                             const coll_cuda_places_t *places, cudaStream_t stream, int capturing)
{
    gyre_status_t st = coll_cuda_follow(c, stream, capturing);
    if (st != GYRE_OK)
        return st;
    number(c->comm, as);
    st = c->path == COLL_CUDA_PEERS ? coll_cuda_enqueue_peers(c, call, as, algo, places, stream, capturing)
         : coll_cuda_wire_takes(c, &call->shape) ? coll_cuda_enqueue_wire(c, call, as->sig, stream)
         : coll_cuda_hosts_take(c, &call->shape) ? coll_cuda_enqueue_hosts(c, call, stream)
                                                 : coll_cuda_enqueue_staged(c, call, stream);
    st = coll_cuda_note_call(c, stream, capturing, st);
    return st == GYRE_OK ? GYRE_OK : coll_cuda_fail_numbered(c->comm, st);
}

gyre_status_t coll_cuda_start(const coll_call_t *call)
{
    gyre_comm_t *comm = call->comm;
    int device, before, capturing = 0;
    gyre_status_t st = find_device(call, &device);
    if (st == GYRE_OK && call->streamed)
        st = is_capturing(comm, call->stream, &capturing);
    if (st == GYRE_OK)
        st = check_device(call->name, comm, device, capturing);
    if (st == GYRE_OK && comm->team && call->streamed && !capturing)
        st = coll_cuda_team_stream(call->name, comm, call->stream);
    coll_cuda_t *c = comm->cuda;
    if (st == GYRE_OK && capturing && c->path == COLL_CUDA_STAGED)
        st = gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%s: the stream is being captured, but operations of this communicator are staged through the "
            "host (%s), which no graph can repeat",
            call->name, c->why);
    if (st == GYRE_OK && c->path == COLL_CUDA_PEERS && !coll_cuda_adds(&call->shape))
        st = gyre_fail(GYRE_ERR_UNSUPPORTED,
                       "%s: device code has no %s%s of %s: reduce in host memory, or with "
                       "GYRE_CUDA_PATH=staged, which goes through it",
                       call->name, coll_op_scans(call->shape.op) ? "prefix by " : "",
                       gyre_redop_name(call->shape.redop), gyre_type_name(call->shape.type));
    if (st == GYRE_OK && c->path == COLL_CUDA_STAGED)
        st = coll_cuda_check_staged(c, call->name, &call->shape);
    coll_algo_t algo;
    if (st == GYRE_OK) /* an invalid name is reported before others depend on this call */
        st = coll_cuda_choose(c, &call->shape, &algo, NULL);
    if (st == GYRE_OK)
        st = coll_cuda_enter(c, &before);
    if (st != GYRE_OK)
        return coll_refuse(st);
    coll_cuda_places_t places;
    const int registered = coll_cuda_in_registered(c, call, algo, &places);
    const int alone = capturing && coll_cuda_differs_captured(c, &call->shape, registered);
    comm_call_t as = {.op = (uint8_t)call->shape.op,
                      .type = (uint8_t)call->shape.type,
                      .redop = (uint8_t)call->shape.redop,
                      .flags = (uint8_t)(COMM_CALL_DEVICE | (call->shape.scaled ? COMM_CALL_SCALED : 0) |
                                         (registered ? COMM_CALL_REGISTERED : 0) |
                                         (capturing ? COMM_CALL_CAPTURED : 0) | (call->v ? COMM_CALL_V : 0)),
                      .root = call->shape.root,
                      .sig = coll_cuda_sig(c, &call->shape, algo) ^ (registered ? REGISTERED_SIG : 0) ^
                             (alone ? CAPTURED_SIG : 0),
                      .count = call->shown,
                      .comm = (uint32_t)comm->id,
                      .user_tag = call->tag};
    base_range_begin(call->name,
                     base_max_size(call->send_count, call->recv_count) * gyre_type_size(call->shape.type));
    st = enqueue(c, call, &as, algo, registered ? &places : NULL, call->streamed ? call->stream : c->stream,
                 capturing);
    base_range_end();
    if (st == GYRE_OK && !call->streamed)
        st = as_request(c, &as, call);
    coll_cuda_exit(c, before);
    return st;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* A message of these buffers can go on the stream. */
static gyre_status_t check_message(const coll_call_t *call, gyre_cuda_stream_t stream)
{
    const char *name = call->name;
    gyre_comm_t *comm = call->comm;
    int device, capturing = 0;
    gyre_status_t st = find_device(call, &device);
    if (st == GYRE_OK && comm->team)
        st = coll_cuda_team_default(name, comm, stream);
    if (st == GYRE_OK)
        st = is_capturing(comm, stream, &capturing);
    if (st == GYRE_OK && capturing)
        st = gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "%s: messages are numbered by the host when they are enqueued, which no graph can repeat", name);
    if (st == GYRE_OK && !comm->cuda)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "%s: all ranks of the communicator must have prepared it for device memory: call "
                       "gyre_comm_prepare_cuda (or a collective on device memory) first",
                       name);
    return st == GYRE_OK ? check_device(name, comm, device, 0) : st;
}

gyre_status_t coll_cuda_copy(const char *name, const void *from, void *to, size_t count, gyre_type_t type,
                             gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    int before;
    const coll_call_t call = {
        .name = name, .comm = comm, .send = from, .recv = to, .send_count = count, .recv_count = count};
    gyre_status_t st = check_message(&call, stream);
    if (st == GYRE_OK)
        st = coll_cuda_enter(comm->cuda, &before);
    if (st != GYRE_OK)
        return coll_refuse(st);
    st = coll_cuda_follow(comm->cuda, stream, 0);
    if (st == GYRE_OK) {
        cudaError_t rc =
            cudaMemcpyAsync(to, from, count * gyre_type_size(type), cudaMemcpyDeviceToDevice, stream);
        if (rc != cudaSuccess)
            st = coll_cuda_failed(rc, "cudaMemcpyAsync on stream %p", (void *)stream);
        st = coll_cuda_note_call(comm->cuda, stream, 0, st);
    }
    coll_cuda_exit(comm->cuda, before);
    return st == GYRE_OK ? st : coll_refuse(st);
}

gyre_status_t coll_cuda_message(const char *name, coll_req_kind_t kind, void *buffer, size_t count,
                                gyre_type_t type, int peer, gyre_comm_t *comm, gyre_cuda_stream_t stream)
{
    const coll_call_t call = {.name = name,
                              .comm = comm,
                              .send = kind == COLL_REQ_SEND ? buffer : NULL,
                              .recv = kind == COLL_REQ_SEND ? NULL : buffer,
                              .send_count = count,
                              .recv_count = count};
    gyre_status_t st = check_message(&call, stream);
    if (st == GYRE_OK && peer == comm->rank)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: a message on device memory to oneself: use a copy", name);
    if (st != GYRE_OK)
        return coll_refuse(st);
    coll_cuda_message_t m = {.c = comm->cuda,
                             .kind = kind,
                             .buffer = buffer,
                             .bytes = count * gyre_type_size(type),
                             .as = {.op = COLL_SENDRECV,
                                    .type = (uint8_t)type,
                                    .flags = (uint8_t)(COMM_CALL_DEVICE | COMM_CALL_P2P |
                                                       (kind == COLL_REQ_RECV ? COMM_CALL_RECV : 0)),
                                    .root = peer,
                                    .count = count,
                                    .comm = (uint32_t)comm->id,
                                    .user_tag = comm->options.tag},
                             .stream = stream};
    base_range_begin(name, m.bytes);
    st = coll_cuda_enqueue_message(&m);
    base_range_end();
    return st == GYRE_OK ? st : coll_refuse(st);
}

/* ---- failure ------------------------------------------------------------------------------------------- */

/* What runs ends at its next look at that word. */
static void begin_to_stop(coll_cuda_t *c)
{
    c->stop_until = base_deadline(STOP_SECONDS);
    __atomic_store_n(&c->board->abort, 1, __ATOMIC_RELEASE);
    if (c->shadow)
        (void)gyre_comm_abort(c->shadow, c->comm->error_text);
    coll_cuda_hosts_abort(c, c->comm->error_text);
}

static void release(coll_cuda_t *c)
{
    coll_cuda_release(c);
    coll_cuda_hosts_release(c);
}

/* Streams that have much of the program's own work before an operation may take longer than they are waited
 * for: what is enqueued there ends as soon as it begins. */
int coll_cuda_stop(gyre_comm_t *comm)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000};
    coll_cuda_t *c = comm->cuda;
    const coll_cuda_t *whole = c ? atomic_load(&c->whole) : NULL;
    if (!c || (whole && !atomic_load(&whole->stopped)))
        return 1; /* a part is stopped by the whole, which the guard or the proxy fails next */
    const int first = !atomic_exchange(&c->stopped, 1);
    if (first)
        begin_to_stop(c);
    if (whole) /* it waits, for all parts at once: they wait for each other on streams */
        return 1;
    if (first || coll_cuda_is_guard())
        release(c); /* once in any case: work without an event after it must not wait, either */
    while (coll_cuda_still_runs(c) && base_now() < c->stop_until) {
        if (coll_cuda_is_guard())
            return 0;
        nanosleep(&pause, NULL);
        release(c);
    }
    (void)cudaGetLastError();
    return 1;
}

int coll_cuda_where(const gyre_comm_t *comm, int rank, char bus[COLL_CUDA_BUS])
{
    bus[0] = '\0';
    if (!comm->cuda)
        return -1;
    if (comm->cuda->places) {
        snprintf(bus, COLL_CUDA_BUS, "%s", comm->cuda->places[rank].bus);
        return comm->cuda->places[rank].device;
    }
    const int device = comm->team->rank[rank].device;
    if (cudaDeviceGetPCIBusId(bus, COLL_CUDA_BUS, device) != cudaSuccess)
        snprintf(bus, COLL_CUDA_BUS, "?");
    return device;
}

void coll_cuda_attach(gyre_comm_t *comm, coll_cuda_t *part)
{
    static const coll_device_ops_t ops = {.advance = advance,
                                          .stop = coll_cuda_stop,
                                          .give_up = give_up,
                                          .late = coll_cuda_late,
                                          .group_end = coll_cuda_group_end};
    comm->cuda = part;
    comm->device_ops = part ? &ops : NULL;
}

#endif
