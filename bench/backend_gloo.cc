/* SPDX-License-Identifier: Apache-2.0 */
/* bench/backend_gloo.cc: Gloo over TCP on the loopback device, its only transport between processes of a
 * host, for the benchmark loop (peers.h). Arguments: RANK SIZE DIRECTORY ring|bcube; the ranks find each
 * other through files in the directory, the last word is the algorithm of all_reduce (Gloo's default is the
 * ring).
 *
 * Gloo's reduce_scatter exists in place only, as an object bound to a buffer, and destroys its input. To do
 * the same work as the others, a call copies the input into such a buffer and its own block out again. */
#include "bench/peers.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

std::shared_ptr<gloo::transport::Device> device;
std::shared_ptr<gloo::rendezvous::Context> world;
/* of communicators, over the world's connections */
std::unique_ptr<gloo::rendezvous::ContextFactory> factory;
gloo::AllreduceOptions::Algorithm all_reduce_algorithm = gloo::AllreduceOptions::Algorithm::RING;
std::string last_error;

/* reduce_scatter's buffer and the object bound to it, for the count of the last call */
struct scatter_state {
    std::vector<float> buffer;
    std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> algorithm;
    size_t count = 0;
} scatter;

/* Gloo throws; the loop wants a code. */
template <typename F> int guarded(F &&f)
{
    try {
        f();
        return 0;
    } catch (const std::exception &e) {
        last_error = e.what();
        return 1;
    }
}

int start(int argc, char **argv, int *rank, int *size)
{
    if (argc != 4) {
        fprintf(stderr, "backend_gloo: wants RANK SIZE DIRECTORY ring|bcube\n");
        return 1;
    }
    *rank = atoi(argv[0]);
    *size = atoi(argv[1]);
    if (strcmp(argv[3], "bcube") == 0)
        all_reduce_algorithm = gloo::AllreduceOptions::Algorithm::BCUBE;
    int rc = guarded([&] {
        gloo::transport::tcp::attr attr("127.0.0.1");
        device = gloo::transport::tcp::CreateDevice(attr);
        gloo::rendezvous::FileStore store(argv[2]);
        world = std::make_shared<gloo::rendezvous::Context>(*rank, *size);
        world->connectFullMesh(store, device);
        factory.reset(new gloo::rendezvous::ContextFactory(world));
    });
    if (rc)
        fprintf(stderr, "gloo: %s\n", last_error.c_str());
    return rc;
}

void sum_up(const std::shared_ptr<gloo::Context> &context, float *send, float *recv, size_t count)
{
    gloo::AllreduceOptions options(context);
    options.setInput(send, count);
    options.setOutput(recv, count);
    options.setAlgorithm(all_reduce_algorithm);
    void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
}

int all_reduce(float *send, float *recv, size_t count)
{
    return guarded([&] { sum_up(world, send, recv, count); });
}

int split(float *, float *, size_t)
{
    return guarded([&] { factory->makeContext(device); });
}

int first_call(float *send, float *recv, size_t count)
{
    return guarded([&] { sum_up(factory->makeContext(device), send, recv, count); });
}

int reduce_scatter(float *send, float *recv, size_t count)
{
    return guarded([&] {
        size_t n = static_cast<size_t>(world->size);
        if (scatter.count != count) {
            scatter.algorithm.reset();
            scatter.buffer.assign(n * count, 0.0f);
            std::vector<float *> pointers{scatter.buffer.data()};
            std::vector<int> blocks(n, static_cast<int>(count));
            scatter.algorithm.reset(new gloo::ReduceScatterHalvingDoubling<float>(
                world, pointers, static_cast<int>(n * count), blocks));
            scatter.count = count;
        }
        memcpy(scatter.buffer.data(), send, n * count * sizeof(float));
        scatter.algorithm->run();
        memcpy(recv, scatter.buffer.data(), count * sizeof(float));
    });
}

int all_gather(float *send, float *recv, size_t count)
{
    return guarded([&] {
        gloo::AllgatherOptions options(world);
        options.setInput(send, count);
        options.setOutput(recv, count * static_cast<size_t>(world->size));
        gloo::allgather(options);
    });
}

int broadcast(float *, float *recv, size_t count)
{
    return guarded([&] {
        gloo::BroadcastOptions options(world);
        options.setOutput(recv, count);
        options.setRoot(0);
        gloo::broadcast(options);
    });
}

int all_to_all(float *send, float *recv, size_t count)
{
    return guarded([&] {
        size_t n = static_cast<size_t>(world->size);
        gloo::AlltoallOptions options(world);
        options.setInput(send, n * count);
        options.setOutput(recv, n * count);
        gloo::alltoall(options);
    });
}

int barrier(float *, float *, size_t)
{
    return guarded([&] {
        gloo::BarrierOptions options(world);
        gloo::barrier(options);
    });
}

const char *error(int)
{
    return last_error.c_str();
}

const char *version()
{
    return "Gloo (TCP)";
}

void finish()
{
    /* Destructors of connections wait for their peers: leave them to the end of the process. */
    scatter.algorithm.release();
    factory.release();
    fflush(nullptr);
    _Exit(0);
}

} // namespace

extern "C" const bench_backend_t bench_backend = {
    start,
    {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, split, first_call},
    nullptr,
    nullptr,
    error,
    version,
    finish,
};
