/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/gpu_facts.c: what this GPU's own operations cost, without anything of Gyre's but kernels
 * of a few lines (tests/gpu/facts.cu): launches, events, copies, flags, reads of host memory, other
 * processes. They explain a goal that is missed. A part of gpu-check.
 *
 * usage: gpu_facts [--tiny] [--alive]
 * A line for each figure: what, median of 7 rounds, unit, [least to most]. A row that fails is a line
 * "failed: ROW; why", and the others go on. --tiny: small and few, to see that the program works (the
 * emulator). --alive: only whether a kernel and a copy work. Exit status: 0; 1 a row failed; 2 there is no
 * GPU. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "tests/gpu/facts.h"
#include "tests/gpu/rows.h"

enum { ROUNDS = 7, WORDS = 64 };

static int tiny;
static cudaStream_t stream, other;
static uint32_t *pinned; /* WORDS words of host memory, zero but for what rows write */
static int child;        /* the socket to the second process */

static double seconds_since(base_time_t from)
{
    return (double)(base_now() - from) / 1e9;
}

/* Prints figure = scale x seconds, or scale / seconds if it is a rate. */
static void tell(const char *unit, double *seconds, int count, double scale, int rate)
{
    for (int i = 0; i < count; i++)
        seconds[i] = rate ? scale / seconds[i] : scale * seconds[i];
    const spread_t s = spread_of(seconds, count);
    printf("%-66s %10.3f %s [%.3f to %.3f]\n", row.name, s.median, unit, s.least, s.most);
    fflush(stdout);
}

/* ---- one row: `call` does its work `count` times, and waits for it ------------------------------------- */

typedef struct {
    int count, blocks, as_peers;
    size_t bytes;
    char *to, *from;
    enum cudaMemcpyKind kind;
    cudaGraphExec_t graph;
    cudaEvent_t event;
    facts_parameters_t parameters;
} work_t;
typedef void call_t(work_t *w);

static void timed(const char *name, const char *unit, call_t *call, work_t *w)
{
    double seconds[ROUNDS];
    const int rounds = tiny ? 1 : ROUNDS;
    snprintf(row.name, sizeof(row.name), "%s", name);
    call(w); /* loads what is loaded at its first use */
    for (int i = 0; i < rounds; i++) {
        const base_time_t from = base_now();
        call(w);
        seconds[i] = seconds_since(from) / w->count;
    }
    if (strcmp(unit, "GB/s") == 0)
        tell(unit, seconds, rounds, (double)w->bytes / 1e9, 1);
    else
        tell(unit, seconds, rounds, 1e6, 0);
}

/* ---- launches and events ------------------------------------------------------------------------------- */

static void launches(work_t *w)
{
    for (int i = 0; i < w->count; i++)
        CUDA(facts_empty(stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void launches_with_parameters(work_t *w)
{
    for (int i = 0; i < w->count; i++)
        CUDA(facts_parameters(&w->parameters, pinned, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void launch_and_wait(work_t *w)
{
    for (int i = 0; i < w->count; i++) {
        CUDA(facts_empty(stream));
        CUDA(cudaStreamSynchronize(stream));
    }
}

static void graph(work_t *w)
{
    (void)w;
    CUDA(cudaGraphLaunch(w->graph, stream));
    CUDA(cudaStreamSynchronize(stream));
}

/* `call` launches w->count times, here into a graph. */
static void graph_row(const char *name, work_t *w, int with_parameters)
{
    cudaGraph_t captured;
    snprintf(row.name, sizeof(row.name), "%s", name);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < w->count; i++)
        CUDA(with_parameters ? facts_parameters(&w->parameters, pinned, stream) : facts_empty(stream));
    CUDA(cudaStreamEndCapture(stream, &captured));
    CUDA(cudaGraphInstantiate(&w->graph, captured, 0));
    CUDA(cudaGraphDestroy(captured));
    timed(name, "us", graph, w);
    CUDA(cudaGraphExecDestroy(w->graph));
}

static void events(work_t *w)
{
    for (int i = 0; i < w->count; i++)
        CUDA(cudaEventRecord(w->event, stream));
    CUDA(cudaStreamSynchronize(stream));
}

/* From one stream to the other and back, a kernel each time. */
static void event_chain(work_t *w)
{
    for (int i = 0; i < w->count; i++) {
        const cudaStream_t from = i % 2 ? other : stream, to = i % 2 ? stream : other;
        CUDA(facts_empty(from));
        CUDA(cudaEventRecord(w->event, from));
        CUDA(cudaStreamWaitEvent(to, w->event, 0));
    }
    CUDA(cudaStreamSynchronize(w->count % 2 ? other : stream));
}

static void event_row(const char *name, call_t *call, work_t *w)
{
    snprintf(row.name, sizeof(row.name), "%s", name);
    CUDA(cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming));
    timed(name, "us", call, w);
    CUDA(cudaEventDestroy(w->event));
}

static void launch_rows(void)
{
    work_t w = {.count = tiny ? 4 : 200};
    ROW(timed("launch, and wait for it", "us", launch_and_wait, &w));
    ROW(timed("launches in a stream, each", "us", launches, &w));
    ROW(timed("launches in a stream with 2.7 KB of parameters, each", "us", launches_with_parameters, &w));
    ROW(graph_row("launches in a graph, each", &w, 0));
    ROW(graph_row("launches in a graph with 2.7 KB of parameters, each", &w, 1));
    ROW(event_row("event recorded, each", events, &w));
    ROW(event_row("kernel, event, the other stream waits: each", event_chain, &w));
}

/* ---- copies and memory --------------------------------------------------------------------------------- */

static void copies(work_t *w)
{
    for (int i = 0; i < w->count; i++) {
        CUDA(cudaMemcpyAsync(w->to, w->from, w->bytes, w->kind, stream));
        CUDA(cudaStreamSynchronize(stream));
    }
}

static void clears(work_t *w)
{
    for (int i = 0; i < w->count; i++)
        CUDA(cudaMemsetAsync(w->to, 0, w->bytes, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void reads(work_t *w)
{
    for (int i = 0; i < w->count; i++)
        CUDA(facts_read(w->blocks, w->as_peers, w->from, w->bytes / 16, pinned, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void copy_rows(char *host, const char *what, size_t bytes)
{
    char name[120];
    work_t w = {.count = 1, .bytes = bytes};
    char *device = device_memory(bytes);
    for (int back = 0; back < 2; back++) {
        w.to = back ? host : device;
        w.from = back ? device : host;
        w.kind = back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
        snprintf(name, sizeof(name), "copy of %s memory %s the device, %zu MiB", what, back ? "from" : "to",
                 bytes >> 20);
        timed(name, "GB/s", copies, &w);
        w.bytes = 8;
        w.count = tiny ? 2 : 50;
        snprintf(name, sizeof(name), "copy of %s memory %s the device, 8 bytes, and wait", what,
                 back ? "from" : "to");
        timed(name, "us", copies, &w);
        w.bytes = bytes;
        w.count = 1;
    }
}

/* Long enough that the device's cache does not hold it. */
static void memory_rows(void)
{
    char name[120];
    int processors = 0;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    work_t w = {.count = tiny ? 1 : 4, .bytes = tiny ? 1 << 16 : (size_t)1 << 29};
    w.to = device_memory(w.bytes);
    timed("device memory, cleared", "GB/s", clears, &w);
    w.from = w.to; /* zero from here on */
    const int blocks[] = {1, 12, 24, 48, 96, processors, 4 * processors};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        for (w.as_peers = 0; w.as_peers < 2; w.as_peers++) {
            w.blocks = blocks[i];
            const size_t all = w.bytes;
            if (w.blocks < 24)
                w.bytes /= 8;
            snprintf(name, sizeof(name), "device memory, read by %d blocks of 512%s", w.blocks,
                     w.as_peers ? ", volatile" : "");
            timed(name, "GB/s", reads, &w);
            w.bytes = all;
        }
    w.from = device_memory(w.bytes);
    w.kind = cudaMemcpyDeviceToDevice;
    w.count = 1;
    timed("device memory, copied (bytes of one side)", "GB/s", copies, &w);
}

/* ---- words that the host or another kernel sees -------------------------------------------------------- */

static void chase(work_t *w)
{
    CUDA(facts_chase(w->from, w->count, pinned, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void add(work_t *w)
{
    CUDA(facts_add((uint32_t *)(void *)w->to, w->count, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void release(work_t *w)
{
    CUDA(facts_release((uint32_t *)(void *)w->to, (uint32_t *)(void *)w->from, w->count, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void word_rows(void)
{
    const int count = tiny ? 4 : 1000;
    char *device = device_memory(256), *host = (char *)(pinned + 16);
    CUDA(cudaMemsetAsync(device, 0, 256, stream));
    work_t w = {.count = count, .from = device};
    timed("one thread reads 16 bytes of device memory", "us", chase, &w);
    w.from = (char *)(pinned + 48);
    timed("one thread reads 16 bytes of host memory", "us", chase, &w);
    w.to = device;
    timed("one thread adds to device memory, system scope", "us", add, &w);
    w.to = host;
    timed("one thread adds to host memory, system scope", "us", add, &w);
    w.to = device;
    w.from = NULL;
    timed("release to device memory", "us", release, &w);
    w.from = host;
    timed("release to device memory after three stores to the host", "us", release, &w);
    w.to = (char *)(pinned + 32);
    w.from = NULL;
    timed("release to host memory", "us", release, &w);
}

/* ---- there and back ------------------------------------------------------------------------------------ */

enum { LOOKS = 2000000 }; /* some seconds */

static long looks(void)
{
    return tiny ? 200000 : LOOKS;
}

/* All `count` exchanges have happened: the last word is there. */
static void arrived(const uint32_t *word, uint32_t want)
{
    uint32_t is = 0;
    CUDA(cudaMemcpy(&is, word, sizeof(is), cudaMemcpyDefault));
    if (is != want)
        failed("flags", "the other side did not answer in time");
}

static void flags_of_kernels(void)
{
    const int count = tiny ? 3 : 1000, rounds = tiny ? 1 : ROUNDS;
    double seconds[ROUNDS];
    snprintf(row.name, sizeof(row.name), "flags of two kernels, there and back");
    uint32_t *words = device_memory(1024), *mine = words, *theirs = words + 64;
    CUDA(cudaMemset(words, 0, 1024));
    CUDA(cudaDeviceSynchronize());
    for (int i = -1; i < rounds; i++) {
        const base_time_t from = base_now();
        const uint32_t first = (uint32_t)((i + 1) * count);
        CUDA(facts_flags(theirs, mine, first, count, 1, looks(), stream));
        CUDA(facts_flags(mine, theirs, first, count, 0, looks(), other));
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaStreamSynchronize(other));
        if (i >= 0)
            seconds[i] = seconds_since(from) / count;
        arrived(mine, first + (uint32_t)count);
    }
    tell("us", seconds, rounds, 1e6, 0);
}

static void flags_with_host(void)
{
    const int count = tiny ? 3 : 1000, rounds = tiny ? 1 : ROUNDS;
    double seconds[ROUNDS];
    uint32_t *gpu = pinned + 8, *host = pinned + 24;
    snprintf(row.name, sizeof(row.name), "flags of a kernel and the host, there and back");
    __atomic_store_n(gpu, 0, __ATOMIC_RELEASE);
    for (int i = -1; i < rounds; i++) {
        const uint32_t first = (uint32_t)((i + 1) * count);
        const base_time_t from = base_now();
        CUDA(facts_flags(host, gpu, first, count, 1, looks(), stream));
        for (uint32_t n = first + 1; n <= first + (uint32_t)count; n++) {
            while (__atomic_load_n(host, __ATOMIC_ACQUIRE) != n)
                if (seconds_since(from) > 5)
                    failed("flags", "the kernel did not answer in 5 s");
            __atomic_store_n(gpu, n, __ATOMIC_RELEASE);
        }
        CUDA(cudaStreamSynchronize(stream));
        if (i >= 0)
            seconds[i] = seconds_since(from) / count;
    }
    tell("us", seconds, rounds, 1e6, 0);
}

/* Of the driver: streams write words, and wait for them. */
typedef int (*word_fn)(cudaStream_t stream, unsigned long long address, uint32_t value, unsigned flags);
static word_fn stream_wait, stream_write;

static void find_stream_words(void)
{
    void *wait = NULL, *write = NULL;
    ours(base_device_driver("cuStreamWaitValue32", &wait), "cuStreamWaitValue32");
    ours(base_device_driver("cuStreamWriteValue32", &write), "cuStreamWriteValue32");
    memcpy(&stream_wait, &wait, sizeof(wait));
    memcpy(&stream_write, &write, sizeof(write));
}

/* `on` writes first + 1, ... to `theirs`, and waits for each in `mine`; the one that begins writes first. */
static void stream_words(cudaStream_t on, uint32_t *theirs, uint32_t *mine, uint32_t first, int count,
                         int begins)
{
    enum { EQUAL = 1 };
    int rc = 0;
    for (uint32_t i = 1; i <= (uint32_t)count && rc == 0; i++) {
        if (begins)
            rc = stream_write(on, (unsigned long long)(uintptr_t)theirs, first + i, 0);
        if (rc == 0)
            rc = stream_wait(on, (unsigned long long)(uintptr_t)mine, first + i, EQUAL);
        if (rc == 0 && !begins)
            rc = stream_write(on, (unsigned long long)(uintptr_t)theirs, first + i, 0);
    }
    if (rc != 0)
        failed("cuStreamWaitValue32 or cuStreamWriteValue32", "the driver refuses");
}

static void words_of_streams(void)
{
    const int count = tiny ? 3 : 100, rounds = tiny ? 1 : ROUNDS;
    double seconds[ROUNDS];
    snprintf(row.name, sizeof(row.name), "words that streams wait for, two streams, there and back");
    find_stream_words();
    uint32_t *words = device_memory(1024), *mine = words, *theirs = words + 64;
    CUDA(cudaMemset(words, 0, 1024));
    CUDA(cudaDeviceSynchronize());
    for (int i = -1; i < rounds; i++) {
        const uint32_t first = (uint32_t)((i + 1) * count);
        const base_time_t from = base_now();
        stream_words(stream, theirs, mine, first, count, 1);
        stream_words(other, mine, theirs, first, count, 0);
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaStreamSynchronize(other));
        if (i >= 0)
            seconds[i] = seconds_since(from) / count;
    }
    tell("us", seconds, rounds, 1e6, 0);
}

/* ---- two processes: the second is started before CUDA, and does what the first sends ------------------- */

typedef struct {
    enum { OPEN, FLAGS, STREAMS, LEAVE } what;
    int count;
    uint32_t first;
    cudaIpcMemHandle_t memory;
} order_t;

typedef struct {
    double seconds;
    char why[160]; /* "": done */
} answer_t;

static answer_t follow(const order_t *order)
{
    static uint32_t *words;
    answer_t a = {0};
    const base_time_t from = base_now();
    row.open = 1;
    if (setjmp(row.end) != 0) {
        snprintf(a.why, sizeof(a.why), "in the second process, as printed above");
        return a;
    }
    snprintf(row.name, sizeof(row.name), "second process");
    if (order->what == OPEN) {
        CUDA(cudaIpcOpenMemHandle((void **)&words, order->memory, cudaIpcMemLazyEnablePeerAccess));
        a.seconds = seconds_since(from);
        find_stream_words();
    } else if (order->what == FLAGS) {
        CUDA(facts_flags(words, words + 64, order->first, order->count, 0, looks(), stream));
    } else if (order->what == STREAMS) {
        stream_words(stream, words, words + 64, order->first, order->count, 0);
    } else {
        CUDA(cudaIpcCloseMemHandle(words));
    }
    return a;
}

static void second_process(int socket)
{
    order_t order;
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (read(socket, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
        const answer_t a = follow(&order);
        if (write(socket, &a, sizeof(a)) != (ssize_t)sizeof(a) || order.what == LEAVE)
            break;
        (void)cudaStreamSynchronize(stream);
    }
    _exit(0);
}

static double ask(order_t order)
{
    answer_t a;
    if (write(child, &order, sizeof(order)) != (ssize_t)sizeof(order) ||
        read(child, &a, sizeof(a)) != (ssize_t)sizeof(a))
        failed("the second process", "it has ended");
    if (*a.why)
        failed("the second process", a.why);
    return a.seconds;
}

/* Without MPS the two take turns on the GPU: the time is that of changing between them. */
static void between_processes(uint32_t *words, const char *name, int what)
{
    const int count = tiny ? 2 : 10, rounds = tiny ? 1 : ROUNDS;
    double seconds[ROUNDS];
    snprintf(row.name, sizeof(row.name), "%s", name);
    uint32_t *mine = words, *theirs = words + 64;
    CUDA(cudaMemset(words, 0, 1024));
    CUDA(cudaDeviceSynchronize());
    for (int i = -1; i < rounds; i++) {
        const uint32_t first = (uint32_t)((i + 1) * count);
        (void)ask((order_t){.what = what, .count = count, .first = first});
        const base_time_t from = base_now();
        if (what == STREAMS)
            stream_words(stream, theirs, mine, first, count, 1);
        else
            CUDA(facts_flags(theirs, mine, first, count, 1, looks(), stream));
        CUDA(cudaStreamSynchronize(stream));
        if (i >= 0)
            seconds[i] = seconds_since(from) / count;
        arrived(mine, first + (uint32_t)count);
    }
    tell("us", seconds, rounds, 1e6, 0);
}

static void process_rows(void)
{
    order_t open = {.what = OPEN};
    snprintf(row.name, sizeof(row.name), "memory of another process, opened");
    uint32_t *words = device_memory(2 << 20); /* an allocation of its own, which is what is opened */
    CUDA(cudaIpcGetMemHandle(&open.memory, words));
    double seconds = ask(open);
    tell("us", &seconds, 1, 1e6, 0);
    find_stream_words();
    between_processes(words, "words that streams wait for, two processes, there and back", STREAMS);
    between_processes(words, "flags of two processes' kernels, there and back", FLAGS);
    (void)ask((order_t){.what = LEAVE});
}

/* ---- the program --------------------------------------------------------------------------------------- */

static void everything(void)
{
    const size_t bytes = tiny ? 1 << 20 : (size_t)256 << 20;
    launch_rows();
    char *pageable = calloc(1, bytes), *locked = NULL;
    snprintf(row.name, sizeof(row.name), "copies");
    ROW({
        CUDA(cudaHostAlloc((void **)&locked, bytes, cudaHostAllocDefault));
        memset(locked, 0, bytes);
        copy_rows(locked, "pinned", bytes);
    });
    if (pageable)
        ROW(copy_rows(pageable, "pageable", bytes));
    ROW(memory_rows());
    ROW(word_rows());
    ROW(flags_of_kernels());
    ROW(flags_with_host());
    ROW(words_of_streams());
    ROW(process_rows());
    (void)cudaFreeHost(locked);
    free(pageable);
}

/* A kernel that adds up, and a copy. */
static void alive(void)
{
    uint32_t sum = 0, *counter = device_memory(sizeof(*counter));
    snprintf(row.name, sizeof(row.name), "the device takes work");
    CUDA(cudaMemsetAsync(counter, 0, sizeof(*counter), stream));
    CUDA(facts_add(counter, 3, stream));
    CUDA(cudaMemcpyAsync(pinned, counter, sizeof(sum), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    memcpy(&sum, pinned, sizeof(sum));
    if (sum != 3)
        failed("a kernel", "it did not add up");
    printf("alive\n");
}

int main(int argc, char **argv)
{
    int only_alive = 0, sockets[2] = {-1, -1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            tiny = 1;
        } else if (strcmp(argv[i], "--alive") == 0) {
            only_alive = 1;
        } else {
            fprintf(stderr, "usage: gpu_facts [--tiny] [--alive]\n");
            return 1;
        }
    }
    base_device_prepare_process();
    signal(SIGPIPE, SIG_IGN); /* the second process may end */
    pid_t pid = -1;
    if (!only_alive && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0) {
        pid = fork(); /* before CUDA, which a fork does not survive */
        if (pid == 0) {
            close(sockets[0]);
            char first;
            if (read(sockets[1], &first, 1) == 1) /* there is a GPU */
                second_process(sockets[1]);
            _exit(0);
        }
        close(sockets[1]);
        child = sockets[0];
    }
    if (base_device_count(BASE_CUDA) == 0) {
        fprintf(stderr, "gpu_facts: %s\n", base_device_why_not(BASE_CUDA));
        return 2;
    }
    double seconds;
    const base_time_t from = base_now();
    CUDA(cudaSetDevice(0));
    CUDA(cudaHostAlloc((void **)&pinned, WORDS * sizeof(*pinned), cudaHostAllocMapped));
    seconds = seconds_since(from);
    memset(pinned, 0, WORDS * sizeof(*pinned));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    if (only_alive) {
        ROW(alive());
        return row.failures != 0;
    }
    snprintf(row.name, sizeof(row.name), "context, with the first pinned memory");
    tell("ms", &seconds, 1, 1e3, 0);
    if (write(child, "g", 1) != 1)
        fprintf(stderr, "gpu_facts: the second process has ended\n");
    everything();
    close(child);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return row.failures != 0;
}
