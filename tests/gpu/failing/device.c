/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/failing/device.c: collectives, registered memory, messages and a graph on a device, as a program
 * does it that gives up at its first error, and as its own calls of CUDA fail. Two processes share the
 * emulator's device. */
#include "tests/failing/scenario.h"

#include <cuda_runtime_api.h>
#include <gyre/cuda.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/settings/settings.h"

enum { COUNT = 3000 };

struct device_job {
    float *in, *out;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    gyre_cuda_registration_t *registered;
};

static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};

#define SET(name, value) STEP("the settings", base_settings_set(name, value, "the test"))
/* A call of the program's own. */
#define CUDA(call) STEP(#call, own(call, #call))

static gyre_status_t own(cudaError_t rc, const char *call)
{
    return rc == cudaSuccess
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_SYSTEM, "the program's %s: %s", call, cudaGetErrorString(rc));
}

/* All elements of the output are `want`. */
static gyre_status_t holds(job_t *job, float want)
{
    static float host[COUNT];
    const struct device_job *d = job->device;
    CUDA(cudaMemcpyAsync(host, d->out, sizeof host, cudaMemcpyDeviceToHost, d->stream));
    CUDA(cudaStreamSynchronize(d->stream));
    STEP("comm_error", gyre_comm_error(job->world)); /* else the stream has ended without a result */
    for (int i = 0; i < COUNT; i++)
        job->wrong |= host[i] < want || host[i] > want;
    return GYRE_OK;
}

static gyre_status_t begin(job_t *job, double patience)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    static float ones[COUNT];
    struct device_job *d = job->device = calloc(1, sizeof *d);
    config.init_timeout_s = config.timeout_s = patience;
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    SET(SET_ALGO, "auto");
    SET(SET_CUDA_STAGING, "64K");
    SET(SET_CUDA_BLOCKS, "2");
    SET(SET_CUDA_ONE_SHOT, "1K"); /* registered memory serves calls that are longer */
    STEP("init", gyre_init(&config, &job->world));
    CUDA(cudaMalloc((void **)&d->in, sizeof ones));
    CUDA(cudaMalloc((void **)&d->out, sizeof ones));
    CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    CUDA(cudaMemcpyAsync(d->in, ones, sizeof ones, cudaMemcpyHostToDevice, d->stream));
    CUDA(cudaStreamSynchronize(d->stream));
    STEP("prepare_cuda", gyre_comm_prepare_cuda(job->world));
    STEP("all_reduce", gyre_all_reduce(d->in, d->out, COUNT, GYRE_FLOAT32, sum, job->world));
    STEP("all_reduce_stream",
         gyre_all_reduce_stream(d->out, d->out, COUNT, GYRE_FLOAT32, sum, job->world, d->stream));
    return holds(job, (float)(job->n * job->n));
}

static gyre_status_t messages(job_t *job)
{
    const struct device_job *d = job->device;
    const int peer = (job->rank + 1) % job->n;
    STEP("group_start", gyre_group_start());
    gyre_status_t sent = gyre_send_stream(d->in, COUNT, GYRE_FLOAT32, peer, job->world, d->stream);
    gyre_status_t received = gyre_recv_stream(d->out, COUNT, GYRE_FLOAT32, peer, job->world, d->stream);
    gyre_status_t ended = gyre_group_end();
    STEP("send_stream", sent);
    STEP("recv_stream", received);
    STEP("group_end", ended);
    return holds(job, 1);
}

static gyre_status_t in_registered(job_t *job)
{
    struct device_job *d = job->device;
    STEP("register_cuda", gyre_comm_register_cuda(job->world, d->in, COUNT * sizeof *d->in, &d->registered));
    STEP("all_gather of registered memory",
         gyre_all_gather_stream(d->in, d->out, COUNT / 2, GYRE_FLOAT32, job->world, d->stream));
    CUDA(cudaStreamSynchronize(d->stream));
    STEP("deregister_cuda", gyre_comm_deregister_cuda(job->world, d->registered));
    return GYRE_OK;
}

/* A schedule in a graph that runs twice. */
static gyre_status_t in_a_graph(job_t *job)
{
    struct device_job *d = job->device;
    SET(SET_ALGO, "ring");
    CUDA(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal));
    gyre_status_t taken =
        gyre_all_reduce_stream(d->in, d->out, COUNT, GYRE_FLOAT32, sum, job->world, d->stream);
    cudaError_t captured = cudaStreamEndCapture(d->stream, &d->graph);
    STEP("all_reduce in a graph", taken);
    CUDA(captured);
    CUDA(cudaGraphInstantiate(&d->exec, d->graph, 0));
    CUDA(cudaGraphLaunch(d->exec, d->stream));
    CUDA(cudaGraphLaunch(d->exec, d->stream));
    return holds(job, (float)job->n);
}

gyre_status_t device_direct(job_t *job, double patience)
{
    SET(SET_CUDA_PATH, "direct");
    gyre_status_t st = begin(job, patience);
    if (st == GYRE_OK)
        st = messages(job);
    if (st == GYRE_OK)
        st = in_registered(job);
    return st == GYRE_OK ? in_a_graph(job) : st;
}

gyre_status_t device_staged(job_t *job, double patience)
{
    SET(SET_CUDA_PATH, "staged");
    gyre_status_t st = begin(job, patience);
    return st == GYRE_OK ? messages(job) : st;
}

void device_end(job_t *job)
{
    struct device_job *d = job->device;
    if (!d)
        return;
    if (d->exec)
        (void)cudaGraphExecDestroy(d->exec);
    if (d->graph)
        (void)cudaGraphDestroy(d->graph);
    if (d->stream)
        (void)cudaStreamDestroy(d->stream);
    (void)cudaFree(d->in);
    (void)cudaFree(d->out);
    free(d);
}
