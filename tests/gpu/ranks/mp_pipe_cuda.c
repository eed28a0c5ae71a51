/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2, and in check-long: 4 */
/* tests/gpu/ranks/mp_pipe_cuda.c: boundary tensors between ranks in stream order: every schedule, few
 * micro-batches and many, tensors longer than all that can be on its way. Each stage makes tensors that
 * contain their origin, and keeps what it got; nothing is waited for before the end of a step. Then a stage
 * that fails: the step ends on all ranks. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "pipeline/run/executor.h"
#include "tests/gpu/ranks/mp_gpu.h"

enum { LONGEST = 70001, MOST = 10, CHUNKS = 2 };

static int n, rank, step; /* step: of a run, whose tensors are its own */
static gyre_comm_t *world, *comm;
static cudaStream_t stream;

typedef struct {
    pipe_shape_t shape;
    size_t counts[MOST];
    /* on the device: [CHUNKS][MOST][2][LONGEST]: by forward, backward; what came, forward's as it is in
     * backward */
    char *made, *kept;
    const void *in[CHUNKS][MOST];
    int fails; /* in forward of the second micro-batch of the last stage */
} toy_t;

static size_t place(int chunk, int mb, int backward)
{
    return (size_t)((chunk * MOST + mb) * 2 + backward) * LONGEST;
}

static void fill(char *to, size_t bytes, int stage, int mb, int backward)
{
    uint64_t seed =
        (uint64_t)step * 1000000 + (uint64_t)stage * 1000 + (uint64_t)mb * 10 + (uint64_t)backward;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)(random_next(&seed) >> 56);
}

static gyre_status_t copy(void *to, const void *from, size_t bytes)
{
    cudaError_t rc =
        to && from ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream) : cudaSuccess;
    return rc == cudaSuccess ? GYRE_OK : gyre_fail(GYRE_ERR_SYSTEM, "%s", cudaGetErrorString(rc));
}

static gyre_status_t forward(void *user, int chunk, int mb, const void *in, void *out)
{
    toy_t *toy = user;
    toy->in[chunk][mb] = in;
    if (toy->fails && mb == 1 && !out)
        return gyre_fail(GYRE_ERR_INVALID, "no more");
    return copy(out, toy->made + place(chunk, mb, 0), toy->counts[mb]);
}

static gyre_status_t backward(void *user, int chunk, int mb, const void *d_out, void *d_in, unsigned flags)
{
    toy_t *toy = user;
    (void)flags;
    gyre_status_t st = copy(toy->kept + place(chunk, mb, 0), toy->in[chunk][mb], toy->counts[mb]);
    if (st == GYRE_OK)
        st = copy(toy->kept + place(chunk, mb, 1), d_out, toy->counts[mb]);
    return st == GYRE_OK ? copy(d_in, toy->made + place(chunk, mb, 1), toy->counts[mb]) : st;
}

static gyre_status_t backward_weight(void *user, int chunk, int mb, unsigned flags)
{
    (void)user, (void)chunk, (void)mb, (void)flags;
    return GYRE_OK;
}

/* What a rank's chunks made, and what they got. */
static void check(const toy_t *toy)
{
    static char got[LONGEST], want[LONGEST];
    const int stages = toy->shape.ranks * toy->shape.chunks;
    for (int chunk = 0; chunk < toy->shape.chunks; chunk++)
        for (int mb = 0; mb < toy->shape.micro_batches; mb++)
            for (int back = 0; back < 2; back++) {
                const int stage = pipe_stage_of(&toy->shape, rank, chunk),
                          from = back ? stage + 1 : stage - 1;
                if (from < 0 || from >= stages)
                    continue;
                CUDA(cudaMemcpy(got, toy->kept + place(chunk, mb, back), toy->counts[mb],
                                cudaMemcpyDeviceToHost));
                fill(want, toy->counts[mb], from, mb, back);
                MP_CHECK(memcmp(got, want, toy->counts[mb]) == 0,
                         "%s, %d micro-batches: stage %d got a wrong %s of micro-batch %d",
                         pipe_kind_name(toy->shape.kind), toy->shape.micro_batches, stage,
                         back ? "gradient" : "activation", mb);
            }
}

static void prepare(toy_t *toy)
{
    static char made[LONGEST];
    CUDA(cudaMemset(toy->kept, 0, place(CHUNKS, 0, 0)));
    for (int chunk = 0; chunk < toy->shape.chunks; chunk++)
        for (int mb = 0; mb < toy->shape.micro_batches; mb++)
            for (int back = 0; back < 2; back++) {
                fill(made, toy->counts[mb], pipe_stage_of(&toy->shape, rank, chunk), mb, back);
                CUDA(cudaMemcpy(toy->made + place(chunk, mb, back), made, toy->counts[mb],
                                cudaMemcpyHostToDevice));
            }
    CUDA(cudaDeviceSynchronize());
}

static void run(toy_t *toy, pipe_kind_t kind, int micro_batches)
{
    toy->shape = (pipe_shape_t){.kind = kind,
                                .ranks = n,
                                .chunks = kind == PIPE_INTERLEAVED || kind == PIPE_ZB_V ? 2 : 1,
                                .micro_batches = micro_batches};
    for (int mb = 0; mb < micro_batches; mb++)
        toy->counts[mb] = mb % 3 == 2 ? 1000 : LONGEST - (size_t)mb;
    const base_device_t device = {BASE_CUDA, 0};
    pipe_schedule_t *schedule;
    pipe_executor_t *executor;
    pipe_links_t *links;
    MP_OK(pipe_schedule_create(&toy->shape, &schedule));
    MP_OK(pipe_links_create(device, stream, &links));
    const pipe_executor_config_t config = {.call = {forward, backward, backward_weight},
                                           .user = toy,
                                           .count = LONGEST,
                                           .counts = toy->counts,
                                           .type = GYRE_INT8,
                                           .grad_type = GYRE_INT8,
                                           .device = device,
                                           .links = links};
    MP_OK(pipe_executor_create(comm, schedule, &config, &executor));
    MP_OK(pipe_links_connect(links, comm, schedule));
    for (step = 0; step < 2; step++) {
        pipe_report_t report;
        prepare(toy);
        pipe_executor_watch(executor, step);
        const gyre_status_t st = pipe_executor_step(executor);
        CUDA(cudaStreamSynchronize(stream));
        if (toy->fails) {
            const base_time_t until = base_deadline(20);
            while (pipe_links_error(links) == GYRE_OK && base_now() < until)
                usleep(1000);
            MP_CHECK(pipe_links_error(links) != GYRE_OK, "rank %d: %s", rank, gyre_status_string(st));
            break;
        }
        MP_OK(st);
        MP_OK(pipe_links_error(links));
        check(toy);
        pipe_executor_report(executor, &report);
        MP_CHECK(report.span_s > 0 && report.wait_s >= 0 && report.wait_s <= report.span_s,
                 "%g s of waits in %g s", report.wait_s, report.span_s);
    }
    pipe_links_leave(links);
    pipe_executor_destroy(executor);
    pipe_links_destroy(links);
    pipe_schedule_destroy(schedule);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(base_settings_set(SET_CUDA_BLOCKS, "2", "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, "64K", "test"));
    toy_t toy = {0};
    CUDA(cudaMalloc((void **)&toy.made, place(CHUNKS, 0, 0)));
    CUDA(cudaMalloc((void **)&toy.kept, place(CHUNKS, 0, 0)));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int kind = 0; kind < PIPE_KIND_END; kind++)
        run(&toy, (pipe_kind_t)kind, kind % 2 ? n : 2 * n);
    MP_OK(base_settings_set(SET_CUDA_PATH, "staged", "test")); /* as between hosts */
    run(&toy, PIPE_1F1B, n);
    MP_OK(base_settings_set(SET_CUDA_PATH, "auto", "test"));
    toy.fails = 1;
    run(&toy, PIPE_1F1B, 2 * n); /* the last of this communicator */
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_finalize(world));
    return 0;
}
