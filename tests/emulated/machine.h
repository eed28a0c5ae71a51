/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/machine.h: what the emulator's parts know of one another.
 *
 *   execute.cc   runs a kernel's blocks: fibers, barriers, warps, the pool of OS threads
 *   wgmma.cc     products of warpgroups
 *   memory.cc    device memory and mapped host memory: who owns an address, and who else may map it
 *   stream.cc    streams (an OS thread each), events, and the capture of streams into graphs
 *   copy.cc      copies, fills, host functions and kernels as a stream's work
 *   runtime.cc   the device that it pretends to be, errors, the driver's entry points
 *   fail.cc      calls that fail because a test wants it
 *
 * What it reads of the environment (none of it Gyre's): EMULATED_DEVICES (1), EMULATED_MEMORY in MiB per
 * device (8192), EMULATED_PEERS (1: devices reach one another's memory), EMULATED_SWITCH (1: NVLink joins
 * every two of them; 0: devices 2k and 2k + 1, and PCIe the others), EMULATED_PROCESSORS (4, per device;
 * blocks all run at once, whatever it says), EMULATED_MEMORY_CLOCK (1200000, kHz; 0: unknown),
 * EMULATED_SHARED (227, KiB of shared memory per block),
 * EMULATED_WAITS (1; 0: streams cannot wait for words of memory), EMULATED_ORDER (mixed | forward |
 * reverse: the order in which a block's threads run between barriers; mixed: forward in even blocks,
 * backwards in odd ones), EMULATED_GUARD (0; 1: host code that touches device memory ends the process, as
 * it would with a GPU, but for moments at which a kernel or a copy runs). */
#ifndef EMULATED_MACHINE_H
#define EMULATED_MACHINE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stddef.h>
#include <stdint.h>

namespace emulated
{

/* ---- execute.cc ---- */
struct Kernel {
    const char *name;
    dim3 grid, block;
    size_t dynamic_bytes;
    void (*run)(void *closure);
    void (*drop)(void *closure);
    void *closure;
    ~Kernel() { drop(closure); }
};
/* Runs all blocks; cudaSuccess, or why the kernel was given up. */
cudaError_t execute(Kernel &kernel);

/* ---- wgmma.cc: of the thread of a block that runs now ---- */
void wgmma_block(void);       /* a block begins */
void wgmma_copied(void);      /* copies of this thread have arrived */
void wgmma_thread_ends(void); /* what it has not waited for is an error */

/* ---- memory.cc ---- */
enum class Place { UNKNOWN, DEVICE, PINNED };
struct Where {
    Place place;
    int device;
    char *base;    /* of the allocation */
    size_t bytes;  /* of the allocation */
    bool imported; /* another process's */
};
/* The allocation that `pointer` lies in. */
Where where(const void *pointer);
/* So many there are: of this process's own on devices, or all others (of peers, and pinned). */
size_t allocations(bool own);
/* Whether [pointer, pointer + bytes) is either no device memory at all or inside one allocation. */
bool inside(const void *pointer, size_t bytes);

/* The device works on its memory as long as one of these lives. */
struct Touch {
    Touch();
    ~Touch();
};
/* Opens what lies at an address for the thread that has failed there; false: it may not touch that. For a
 * signal handler. device_code: it is in a kernel. */
bool let_in(const void *address, bool device_code);
/* Reads a word of this process's device memory without a Touch; false: it takes one. */
bool peek(const void *word, void *to, size_t bytes);
/* Prints which thread touches memory that it may not touch. */
void watch_segments(void);
/* What lies at an address of the device, in words; false: no device's. For a signal handler. */
bool describe(const void *address, char *text, size_t bytes);

/* ---- copy.cc ---- */
/* The driver has loaded the kernel, before its first launch. */
void note_loaded(const void *kernel);

/* ---- stream.cc ---- */
/* Puts work at the end of a stream (or into the graph that captures it). */
cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<cudaError_t()> run);
/* Waits for everything that all streams hold. */
cudaError_t drain_all(void);
/* Whether this thread may not make a call now that is not safe while streams are captured; if so the
 * captures are broken. */
bool any_capture_of_this_thread(void);
bool captured(cudaStream_t stream);
/* What its stream was asked for cannot be captured. */
void break_capture(cudaStream_t stream);
size_t handles(void); /* streams, events and graphs */

/* ---- runtime.cc ---- */
int device_count(void);
size_t device_bytes(void);
bool peers_reach(void);
int current_device(void);
/* The call opens a context on the thread's device, as CUDA's do that look at streams and events. */
void open_current(void);
/* Keeps the error for cudaGetLastError and returns it. */
cudaError_t fail(cudaError_t rc);
/* What a kernel did wrong is every later call's answer, as on a GPU. */
void set_sticky(cudaError_t rc);
cudaError_t sticky(void);
/* One line on stderr: what a GPU would not say. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern thread_local bool in_host_function;

/* ---- fail.cc ---- */
/* Counts a call of CUDA; not cudaSuccess: it is to fail so. */
cudaError_t planned(const char *call);
#define MAY_FAIL                                                           \
    if (cudaError_t planned_ = planned(__func__); planned_ != cudaSuccess) \
        return planned_;

} // namespace emulated

#endif
