/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/execute.cc: runs a kernel's blocks on the CPU.
 *
 * A block runs on one OS thread, its threads are fibers there. A fiber runs one thread of the block after
 * another as long as none of them has to wait; when one waits (a barrier, a meeting of a warp's lanes,
 * GYRE_SPIN), its fiber is put aside and another goes on. So a kernel without barriers is a plain loop, and a
 * switch costs some nanoseconds. Fibers never change their OS thread: __shared__ is thread-local storage, and
 * compilers may keep its address.
 *
 * The thread of the stream runs blocks itself; helpers join it, as many as there are processors, and one more
 * for each block that waits for something outside of itself: all blocks of a grid make progress, up to
 * MAX_WORKERS at once.
 *
 * A block in which no thread can go on any more is a kernel's error; that is said, and every later call
 * fails.
 *
 * Longer than 600 lines: blocks, fibers and meetings share the state of one block. No other file sees that.
 */
#include "tests/emulated/emulated.h"
#include "tests/emulated/machine.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

__thread emulated_place emulated_here;

namespace emulated
{

static const unsigned MAX_THREADS = 1024, MAX_WORKERS = 512;
static const size_t STACK = 64 * 1024, DYNAMIC_BYTES = 227 * 1024;
/* From one stack to the next. A power of two would put the tops of all into the same lines of a cache. */
static const size_t STRIDE = STACK + 9 * 64;
static const uint64_t CANARY = 0x6779726567797265u;

extern "C" void emulated_switch(void **save, void *load);
extern "C" void emulated_fiber_start(void);
/* Saves what the System V ABI says a call keeps, and goes on with the other stack. */
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        ".type emulated_switch, @function\n"
        "emulated_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emulated_switch, .-emulated_switch\n");

/* The lanes of one mask that meet; two sets of slots, since the slow ones still read when the quick meet
 * again. */
struct Meeting {
    unsigned mask, arrived;
    int kind;
    unsigned turn;
    struct Fiber *waiting[32];
    void (*last)(emulated_slots *);
    emulated_slots slots[2];
};

struct Fiber {
    void *stack_pointer;
    char *stack;
    uint3 thread; /* the thread that runs on it */
    unsigned linear;
};

struct Copy {
    void *to;
    const void *from;
    int bytes;
};
/* cp.async: done only when the thread waits, so that a wait that is missing shows. */
struct Copies {
    std::deque<std::vector<Copy>> groups; /* the last one is open */
};

struct Worker {
    void *home; /* the OS thread's own stack while fibers run */
    char *stacks;
    char *dynamic_shared;
    std::vector<Fiber> fibers;
    std::vector<Fiber *> idle;
    Fiber *self;
    /* the block */
    Kernel *kernel;
    struct Launch *launch;
    unsigned threads, next, live;
    bool backwards, waits;
    unsigned idle_rounds;
    /* of `ready`, from its front: fibers that look again whether what they wait for has come */
    size_t looking;
    std::deque<Fiber *> ready, yielded;
    std::vector<Fiber *> at_barrier;
    int votes, vote_result; /* how many threads say yes at this barrier, and at the last */
    std::vector<Meeting *> meetings[MAX_THREADS / 32];
    unsigned warp_alive[MAX_THREADS / 32];
    std::vector<Copies> copies;
    std::vector<unsigned char> copying;
    bool failed;
};

struct Launch {
    Kernel *kernel;
    unsigned long total;
    std::atomic<unsigned long> next{0};
    std::atomic<int> error{cudaSuccess};
    unsigned helpers = 0, wanted = 0; /* under the pool's lock */
};

static __thread Worker *worker;

/* ---- the pool ------------------------------------------------------------------------------------------ */
/* its threads outlive main: never destroyed */
static std::mutex &pool_lock = *new std::mutex;
static std::condition_variable &pool_work = *new std::condition_variable,
                               &pool_done = *new std::condition_variable;
static std::deque<Launch *> &pool_queue = *new std::deque<Launch *>; /* launches that want helpers */
static unsigned pool_threads, pool_idle;

static void run_blocks(Launch *launch);

static void pool_thread(void)
{
    watch_segments();
    std::unique_lock<std::mutex> lock(pool_lock);
    for (;;) {
        pool_idle++;
        pool_work.wait(lock, [] { return !pool_queue.empty(); });
        pool_idle--;
        Launch *launch = pool_queue.front();
        if (--launch->wanted == 0)
            pool_queue.pop_front();
        launch->helpers++;
        lock.unlock();
        run_blocks(launch);
        lock.lock();
        if (--launch->helpers == 0)
            pool_done.notify_all();
    }
}

/* Asks for `count` more threads that run blocks of the launch. */
static void want_helpers(Launch *launch, unsigned count)
{
    std::lock_guard<std::mutex> lock(pool_lock);
    if (count == 0)
        return;
    if (launch->wanted == 0)
        pool_queue.push_back(launch);
    launch->wanted += count;
    unsigned asked = 0;
    for (Launch *each : pool_queue)
        asked += each->wanted;
    while (pool_idle < asked && pool_threads < MAX_WORKERS) {
        pool_threads++;
        asked--;
        std::thread(pool_thread).detach();
    }
    pool_work.notify_all();
}

/* ---- fibers -------------------------------------------------------------------------------------------- */
static Worker *make_worker(void)
{
    Worker *fresh = new Worker();
    void *area = mmap(NULL, MAX_THREADS * STRIDE + DYNAMIC_BYTES + 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        fprintf(stderr, "emulated CUDA: no address space for the stacks of a block\n");
        abort();
    }
    fresh->stacks = (char *)area;
    fresh->dynamic_shared = fresh->stacks + MAX_THREADS * STRIDE;
    fresh->fibers.resize(MAX_THREADS);
    fresh->copies.resize(MAX_THREADS);
    fresh->copying.resize(MAX_THREADS);
    return fresh;
}

static void prepare(Fiber *fiber)
{
    memcpy(fiber->stack, &CANARY, sizeof(CANARY));
    void **top = (void **)(fiber->stack + STACK);
    *--top = NULL; /* a return address that is never used; aligns the start as after a call */
    *--top = (void *)emulated_fiber_start;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    fiber->stack_pointer = top;
}

static void check_stack(Fiber *fiber)
{
    if (memcmp(fiber->stack, &CANARY, sizeof(CANARY)) != 0) {
        fprintf(stderr, "emulated CUDA: kernel %s needs more than %zu bytes of stack per thread\n",
                worker->kernel->name, STACK);
        abort();
    }
}

static void tell_stuck(Worker *w)
{
    unsigned at_meetings = 0;
    for (unsigned i = 0; i < MAX_THREADS / 32; i++)
        for (Meeting *meeting : w->meetings[i])
            at_meetings += (unsigned)__builtin_popcount(meeting->arrived);
    say("kernel %s, block (%u, %u, %u): no thread can go on: %zu of %u wait at __syncthreads, %u in a warp's "
        "instruction (shuffle, vote, mma, __syncwarp) that other lanes of its mask do not reach",
        w->kernel->name, blockIdx.x, blockIdx.y, blockIdx.z, w->at_barrier.size(), w->live, at_meetings);
}

/* The fiber to run now, or NULL for home (the block is done, or stuck). */
static Fiber *pick(Worker *w)
{
    for (;;) {
        if (w->failed)
            return NULL;
        if (!w->ready.empty()) {
            Fiber *fiber = w->ready.front();
            w->ready.pop_front();
            if (w->looking > 0)
                w->looking--;
            else
                w->idle_rounds = 0;
            return fiber;
        }
        if (w->next < w->threads) {
            Fiber *fiber = w->idle.back();
            w->idle.pop_back();
            prepare(fiber);
            return fiber;
        }
        if (w->live == 0)
            return NULL;
        if (w->yielded.empty()) {
            tell_stuck(w);
            w->failed = true;
            return NULL;
        }
        /* Only threads that wait for others are left: the rest of the grid needs threads of its own. */
        if (!w->waits) {
            w->waits = true;
            if (w->launch->next.load() < w->launch->total)
                want_helpers(w->launch, 1);
        }
        if (w->launch->error.load() != cudaSuccess || sticky() != cudaSuccess) {
            w->failed = true; /* the thread that it waits for will not come */
            return NULL;
        }
        if (++w->idle_rounds < 8)
            sched_yield();
        else
            usleep(w->idle_rounds < 200 ? 20 : w->idle_rounds < 1000 ? 200 : 1000);
        w->ready.swap(w->yielded);
        w->looking = w->ready.size();
    }
}

static void go(Worker *w, void **save, Fiber *fiber)
{
    if (fiber == NULL) {
        w->self = NULL;
        emulated_switch(save, w->home);
        return;
    }
    w->self = fiber;
    emulated_here.thread = fiber->thread;
    emulated_switch(save, fiber->stack_pointer);
}

/* The running thread waits; when its fiber is put into a list again, it goes on. */
static void wait_here(Worker *w)
{
    Fiber *self = w->self, *other = pick(w);
    if (other == self) {
        return;
    }
    go(w, &self->stack_pointer, other);
}

static void flush_copies(Worker *w, unsigned thread, size_t keep);

static void release_barrier(Worker *w)
{
    w->vote_result = w->votes;
    w->votes = 0;
    for (Fiber *fiber : w->at_barrier)
        w->ready.push_back(fiber);
    w->at_barrier.clear();
}

static void complete(Worker *w, Meeting *meeting)
{
    emulated_slots *slots = &meeting->slots[meeting->turn & 1];
    slots->arrived = meeting->arrived;
    if (meeting->last != NULL)
        meeting->last(slots);
    for (unsigned bits = meeting->arrived; bits != 0; bits &= bits - 1) {
        Fiber *fiber = meeting->waiting[__builtin_ctz(bits)];
        if (fiber != NULL)
            w->ready.push_back(fiber);
    }
    meeting->arrived = 0;
    meeting->turn++;
}

static void thread_ends(Worker *w)
{
    unsigned linear = w->self->linear, warp = linear / 32;
    if (w->copying[linear])
        flush_copies(w, linear, 0);
    wgmma_thread_ends();
    check_stack(w->self);
    w->live--;
    w->warp_alive[warp] &= ~(1u << linear % 32);
    if (!w->at_barrier.empty() && w->at_barrier.size() == w->live)
        release_barrier(w);
    for (Meeting *meeting : w->meetings[warp])
        if (meeting->arrived != 0 && meeting->arrived == (meeting->mask & w->warp_alive[warp]))
            complete(w, meeting);
}

extern "C" void emulated_fiber_start(void)
{
    Worker *w = worker;
    for (;;) {
        while (w->next < w->threads && w->ready.empty()) {
            unsigned order = w->next++, linear = w->backwards ? w->threads - 1 - order : order;
            const dim3 &size = w->kernel->block;
            Fiber *self = w->self;
            self->linear = linear;
            self->thread = make_uint3(linear % size.x, linear / size.x % size.y, linear / (size.x * size.y));
            emulated_here.thread = self->thread;
            w->kernel->run(w->kernel->closure);
            thread_ends(w);
        }
        Fiber *self = w->self;
        w->idle.push_back(self);
        Fiber *other = pick(w);
        if (other == self)
            continue; /* it was the idle one to be picked */
        void *nowhere;
        go(w, &nowhere, other);
    }
}

static void run_block(Worker *w, unsigned long index)
{
    Kernel *kernel = w->kernel;
    const dim3 &grid = kernel->grid, &block = kernel->block;
    w->threads = w->live = block.x * block.y * block.z;
    w->next = 0;
    w->failed = w->waits = false;
    w->idle_rounds = 0;
    w->looking = 0;
    const char *order = getenv("EMULATED_ORDER");
    w->backwards = order == NULL || order[0] == 'm' ? index % 2 != 0 : order[0] == 'r';
    w->idle.clear();
    for (unsigned i = w->threads; i-- > 0;) {
        w->fibers[i].stack = w->stacks + i * STRIDE;
        w->idle.push_back(&w->fibers[i]);
    }
    w->ready.clear();
    w->yielded.clear();
    w->at_barrier.clear();
    w->votes = 0;
    wgmma_block();
    for (unsigned i = 0; i * 32 < w->threads; i++) {
        unsigned lanes = w->threads - 32 * i;
        w->warp_alive[i] = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
        for (Meeting *meeting : w->meetings[i])
            meeting->arrived = 0;
    }
    emulated_here.block = make_uint3((unsigned)(index % grid.x), (unsigned)(index / grid.x % grid.y),
                                     (unsigned)(index / ((unsigned long)grid.x * grid.y)));
    emulated_here.block_size = make_uint3(block.x, block.y, block.z);
    emulated_here.grid_size = make_uint3(grid.x, grid.y, grid.z);
    emulated_here.dynamic_shared = w->dynamic_shared;
    memset(w->dynamic_shared, 0xff, kernel->dynamic_bytes); /* what was never written is NaN */
    Fiber *first = pick(w);
    go(w, &w->home, first);
    if (w->failed) {
        for (unsigned i = 0; i < w->threads; i++) {
            w->copies[i].groups.clear();
            w->copying[i] = 0;
        }
        w->launch->error.store(cudaErrorLaunchFailure);
    }
}

static void run_blocks(Launch *launch)
{
    if (worker == NULL)
        worker = make_worker();
    worker->launch = launch;
    worker->kernel = launch->kernel;
    while (launch->error.load() == cudaSuccess) {
        unsigned long index = launch->next.fetch_add(1);
        if (index >= launch->total)
            break;
        run_block(worker, index);
    }
}

/* Prints which thread of which kernel touched what, and calls the signal's earlier handler. */
static struct sigaction before_us;
static void segment(int, siginfo_t *info, void *)
{
    char text[160], line[400];
    Worker *w = worker;
    if (let_in(info->si_addr, w != NULL && w->self != NULL))
        return;
    if (w != NULL && w->self != NULL) {
        if (!describe(info->si_addr, text, sizeof(text)))
            snprintf(text, sizeof(text), "no device memory");
        int n = snprintf(line, sizeof(line),
                         "emulated CUDA: kernel %s, block (%u, %u, %u), thread (%u, %u, %u) touches %p: %s\n",
                         w->kernel->name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                         threadIdx.z, info->si_addr, text);
        if (write(2, line, (size_t)n) < 0)
            abort();
    } else if (describe(info->si_addr, text, sizeof(text))) {
        int n = snprintf(line, sizeof(line), "emulated CUDA: host code touches device memory, %p: %s\n",
                         info->si_addr, text);
        if (write(2, line, (size_t)n) < 0)
            abort();
    }
    sigaction(SIGSEGV, &before_us, NULL); /* and again */
}

void watch_segments(void)
{
    static thread_local bool open; /* a thread may be made by one that has blocked all signals */
    if (!open) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        open = true;
    }
    struct sigaction now;
    if (sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction != segment) {
        struct sigaction ours = {};
        ours.sa_sigaction = segment;
        ours.sa_flags = SA_SIGINFO;
        before_us = now;
        sigaction(SIGSEGV, &ours, NULL);
    }
}

cudaError_t execute(Kernel &kernel)
{
    watch_segments();
    Touch touch;
    Launch launch;
    launch.kernel = &kernel;
    launch.total = (unsigned long)kernel.grid.x * kernel.grid.y * kernel.grid.z;
    static const unsigned processors = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned long extra = launch.total - 1;
    want_helpers(&launch, (unsigned)(extra < processors - 1 ? extra : processors - 1));
    run_blocks(&launch);
    std::unique_lock<std::mutex> lock(pool_lock);
    if (launch.wanted != 0) { /* nothing is left for threads that have not come */
        launch.wanted = 0;
        for (auto it = pool_queue.begin(); it != pool_queue.end(); ++it)
            if (*it == &launch) {
                pool_queue.erase(it);
                break;
            }
    }
    pool_done.wait(lock, [&] { return launch.helpers == 0; });
    return (cudaError_t)launch.error.load();
}

/* ---- cp.async ------------------------------------------------------------------------------------------ */
static void do_copies(const std::vector<Copy> &group)
{
    for (const Copy &copy : group) {
        memcpy(copy.to, copy.from, (size_t)copy.bytes);
        memset((char *)copy.to + copy.bytes, 0, (size_t)(16 - copy.bytes));
    }
}

static void flush_copies(Worker *w, unsigned thread, size_t keep)
{
    std::deque<std::vector<Copy>> &groups = w->copies[thread].groups;
    while (groups.size() > keep) {
        if (!groups.front().empty())
            wgmma_copied();
        do_copies(groups.front());
        groups.pop_front();
    }
    if (groups.empty())
        w->copying[thread] = 0;
}

} // namespace emulated

using namespace emulated;

void emulated_copy_later(void *to, const void *from, int bytes)
{
    Worker *w = worker;
    unsigned thread = w->self->linear;
    if (bytes < 0 || bytes > 16)
        emulated_fatal("cp.async of 16 bytes: the valid ones are 0 to 16");
    std::deque<std::vector<Copy>> &groups = w->copies[thread].groups;
    w->copying[thread] = 1;
    if (groups.empty())
        groups.emplace_back();
    groups.back().push_back({to, from, bytes});
}

void emulated_copy_group(void)
{
    Worker *w = worker;
    unsigned thread = w->self->linear;
    std::deque<std::vector<Copy>> &groups = w->copies[thread].groups;
    w->copying[thread] = 1;
    if (groups.empty())
        groups.emplace_back();
    groups.emplace_back(); /* the next one is open */
}

void emulated_copy_wait(int keep)
{
    Worker *w = worker;
    if (w->copying[w->self->linear])
        flush_copies(w, w->self->linear, (size_t)keep + 1); /* and the open one */
}

/* ---- a block's threads meet ---------------------------------------------------------------------------- */
unsigned emulated_lane(void)
{
    return worker->self->linear % 32;
}

void emulated_barrier(void)
{
    Worker *w = worker;
    w->at_barrier.push_back(w->self);
    if (w->at_barrier.size() == w->live)
        release_barrier(w);
    wait_here(w);
}

int __syncthreads_count(int predicate)
{
    Worker *w = worker;
    w->votes += predicate != 0;
    emulated_barrier();
    return w->vote_result;
}

void emulated_spin(void)
{
    Worker *w = worker;
    w->yielded.push_back(w->self);
    wait_here(w);
}

const emulated_slots *emulated_meet(unsigned mask, int kind, const void *bring, size_t bytes,
                                    void (*last)(emulated_slots *))
{
    Worker *w = worker;
    unsigned linear = w->self->linear, lane = linear % 32, warp = linear / 32;
    Meeting *meeting = NULL;
    if (!(mask >> lane & 1))
        emulated_fatal("a warp's instruction whose mask does not name the lane that executes it");
    for (Meeting *each : w->meetings[warp])
        if (each->mask == mask) {
            meeting = each;
            break;
        }
    if (meeting == NULL) {
        meeting = new Meeting();
        meeting->mask = mask;
        w->meetings[warp].push_back(meeting);
    }
    if (meeting->arrived == 0) {
        meeting->kind = kind;
        meeting->last = last;
    } else if (meeting->kind != kind) {
        emulated_fatal("lanes of one warp and mask wait in different instructions");
    }
    emulated_slots *slots = &meeting->slots[meeting->turn & 1];
    if (bytes > 0)
        memcpy(slots->lane[lane], bring, bytes);
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == (mask & w->warp_alive[warp])) {
        meeting->waiting[lane] = NULL; /* goes on at once */
        complete(w, meeting);
    } else {
        meeting->waiting[lane] = w->self;
        wait_here(w);
    }
    return slots;
}

/* Each lane brought a[4], b[2] and d[4]; d becomes the sum, in the fragments' layout
 * (base/device/kernel.h). Rows of d are vectors, which add in the order of k. */
__attribute__((target_clones("avx2", "default"))) void emulated_mma_all(emulated_slots *slots)
{
    typedef float row_t __attribute__((vector_size(32)));
    float a[16][16];
    union {
        float at[16][8];
        row_t row[16];
    } b, d;
    auto widen = [](uint32_t bits, bool upper) {
        return emulated_bits<float>(upper ? bits & 0xffff0000u : bits << 16);
    };
    if (slots->arrived != 0xffffffffu)
        emulated_fatal("mma.sync in a warp of which lanes have ended");
    for (unsigned lane = 0; lane < 32; lane++) {
        uint32_t word[6];
        unsigned group = lane / 4, t = lane % 4;
        memcpy(word, slots->lane[lane], sizeof(word));
#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; i++) {
            float *to = &a[group + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
            to[0] = widen(word[i], false);
            to[1] = widen(word[i], true);
        }
#pragma GCC unroll 2
        for (unsigned i = 0; i < 2; i++) {
            b.at[2 * t + 8 * i][group] = widen(word[4 + i], false);
            b.at[2 * t + 8 * i + 1][group] = widen(word[4 + i], true);
        }
        memcpy(&d.at[group][2 * t], slots->lane[lane] + 24, 8);
        memcpy(&d.at[group + 8][2 * t], slots->lane[lane] + 32, 8);
    }
    for (unsigned m = 0; m < 16; m++) {
        row_t sum = d.row[m];
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; k++)
            sum += a[m][k] * b.row[k];
        d.row[m] = sum;
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned group = lane / 4, t = lane % 4;
        memcpy(slots->lane[lane] + 24, &d.at[group][2 * t], 8);
        memcpy(slots->lane[lane] + 32, &d.at[group + 8][2 * t], 8);
    }
}

/* Each lane brought the address of 16 bytes, which take its place. */
void emulated_read_rows(emulated_slots *slots)
{
    if (slots->arrived != 0xffffffffu)
        emulated_fatal("ldmatrix in a warp of which lanes have ended");
    for (unsigned lane = 0; lane < 32; lane++) {
        const void *row;
        memcpy(&row, slots->lane[lane], sizeof(row));
        memcpy(slots->lane[lane], row, 16);
    }
}

/* A kernel's error that a GPU would answer with a trap or with nonsense: the process ends, with the place. */
void emulated_fatal(const char *what)
{
    Worker *w = worker;
    if (w != NULL && w->self != NULL)
        fprintf(stderr, "emulated CUDA: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n",
                w->kernel->name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                what);
    else
        fprintf(stderr, "emulated CUDA: %s\n", what);
    abort();
}
