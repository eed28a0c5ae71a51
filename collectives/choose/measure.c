/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/measure.c: how long this machine takes for what collectives are made of: coll_cost_t,
 * in about a tenth of a second.
 *
 * Everything is done several times within its share of the time, and the best counts (the median where the
 * scheduler is what is measured): a disturbed sample says nothing about the machine. How much longer all
 * samples took than so many of the best ones would is kept, too (coll_measure): others had the cores then.
 * What needs two cores is done with a second thread on a neighbouring core. Nothing here can fail: what could
 * not be measured keeps its built-in value. */
#include "collectives/choose/tune.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/order.h"
#include "base/thread/cacheline.h"
#include "base/thread/futex.h"
#include "collectives/kernels/kernels.h"
#include "topo/topo.h"

enum {
    REGION = 16 << 20, /* of memory to work on: well beyond a second-level cache */
    SMALL = 128 << 10, /* well within one */
    PAGED = REGION,    /* in small pages, as most of malloc's memory: the kernel looks up each */
    GIVE_UP_NS = 30 * 1000 * 1000
};

void coll_cost_builtin(coll_cost_t *out)
{
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
    /* Of the machine in docs/performance.md, rounded. call, step and message are nowhere measured but by
     * gyre-perf --tune: they need a job. */
    *out = (coll_cost_t){.call = 90,
                         .step = 20,
                         .line = 60,
                         .message = 130,
                         .yield = 800,
                         .wake = 5000,
                         .copy_cache = 30,
                         .copy_memory = 9,
                         .reduce_cache = 50,
                         .reduce_memory = 14,
                         .peer_cache = 12,
                         .peer_memory = 9,
                         .peer_write = 10,
                         .peer_stage = 15,
                         .turn_write = 10,
                         .turn_load = 12,
                         .total_memory = 32,
                         .cma_call = 600,
                         .cma_rate = 9,
                         .cma_memory = 4,
                         .copy_pages = 8,
                         .cache_bytes = l2 > 0 ? (size_t)l2 : (size_t)1 << 20,
                         .cores = cores > 0 ? (int)cores : 1};
}

/* ---- what one thread can do ---------------------------------------------------------------------------- */

typedef struct {
    unsigned char *memory; /* [REGION + PAGED] */
    double share;          /* ns for one measurement */
    double took, at_best;  /* ns of all samples so far, and of as many of the best */
    cpu_set_t before;      /* the calling thread's binding */
    int cpus[COLL_MEASURE_CPUS], ncpus, allowed;
} bench_t;

typedef enum { WORK_COPY, WORK_REDUCE, WORK_CMA } work_t;

static void move_piece(work_t work, unsigned char *to, unsigned char *from, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {from, bytes};
    if (work == WORK_COPY)
        coll_kernel_copy(to, from, bytes);
    else if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)bytes)
        from[0] = 0; /* checked once before: cma_works */
}

static void work_once(work_t work, unsigned char *memory, size_t bytes)
{
    if (work == WORK_REDUCE) { /* two inputs of half the bytes each */
        const void *from[2] = {memory, memory + bytes / 2};
        coll_kernel_reduce(GYRE_SUM, GYRE_FLOAT32, memory + bytes, from, 2, bytes / 2 / sizeof(float));
    } else {
        move_piece(work, memory + bytes, memory, bytes);
    }
    __asm__ volatile("" ::: "memory"); /* each time counts */
}

static void note(bench_t *b, double took, double at_best)
{
    b->took += took;
    b->at_best += at_best;
}

/* ns of one pass over `bytes` at `memory` (which has twice as many): the best seen. */
static double time_of(bench_t *b, work_t work, unsigned char *memory, size_t bytes)
{
    const int repeats = bytes < 4096 ? 64 : bytes < (1u << 20) ? 8 : 1;
    const base_time_t begun = base_now();
    double best = 1e30, all = 0;
    base_time_t now = begun;
    int counted = 0;
    for (int round = 0; round < 3 || (double)(now - begun) < b->share; round++) {
        base_time_t from = base_now();
        for (int i = 0; i < repeats; i++)
            work_once(work, memory, bytes);
        now = base_now();
        double took = (double)(now - from) / repeats;
        if (round == 0) /* warms up */
            continue;
        best = took < best ? took : best;
        all += took;
        counted++;
        if (now - begun > GIVE_UP_NS)
            break;
    }
    note(b, all * repeats, best * repeats * counted);
    return best > 1 ? best : 1;
}

static int cma_works(unsigned char *memory)
{
    struct iovec here = {memory + 64, 64}, there = {memory, 64};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 64;
}

static void measure_alone(bench_t *b, coll_cost_t *out)
{
    const size_t large = REGION / 2;
    out->copy_cache = SMALL / time_of(b, WORK_COPY, b->memory, SMALL);
    out->reduce_cache = SMALL / time_of(b, WORK_REDUCE, b->memory, SMALL);
    out->copy_memory = (double)large / time_of(b, WORK_COPY, b->memory, large);
    out->reduce_memory = (double)large / time_of(b, WORK_REDUCE, b->memory, large);
    if (!cma_works(b->memory))
        return;
    unsigned char *const paged = b->memory + REGION + PAGED - 2 * SMALL; /* which fetch_rate does not time */
    double eight = time_of(b, WORK_CMA, paged, 8), block = time_of(b, WORK_CMA, paged, SMALL);
    out->cma_call = eight;
    if (block > eight)
        out->cma_rate = SMALL / (block - eight);
}

/* ---- what takes two ------------------------------------------------------------------------------------ */

typedef enum { JOB_PONG, JOB_FILL, JOB_LOAD, JOB_TURN, JOB_FETCH, JOB_SLEEP, JOB_YIELD, JOB_END } job_t;

/* Each word on a line of its own: a line's flight is what is measured. */
typedef struct {
    _Alignas(64) _Atomic uint32_t ping;
    _Alignas(64) _Atomic uint32_t pong;
    _Alignas(64) _Atomic uint32_t orders; /* given so far; release publishes the job */
    _Atomic uint32_t done;                /* orders carried out; release publishes what was written */
    _Atomic int stop;
    job_t job;
    work_t work;                   /* JOB_FETCH */
    unsigned char *memory, *paged; /* paged: JOB_FETCH: there it gets what it puts to memory */
    size_t bytes;
    int cpu, home; /* of the second thread, of the first */
} pair_t;

static void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* not allowed: then it runs where it runs */
}

/* Waits until *word is `value`, the way of the job; 0: the pair must stop, or the wait is too long. */
static int await(pair_t *p, _Atomic uint32_t *word, uint32_t value, job_t how)
{
    base_time_t limit = 0;
    for (uint32_t turns = 1; atomic_load_explicit(word, memory_order_acquire) != value; turns++) {
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return 0;
        if (how == JOB_YIELD) {
            sched_yield();
        } else if (how == JOB_SLEEP) {
            uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
            if (seen != value)
                base_futex_wait(word, seen, base_now() + GIVE_UP_NS);
        } /* JOB_PONG: no pause, which would take as long as the flight itself */
        if (turns % 256 == 0 || how == JOB_SLEEP) {
            base_time_t now = base_now();
            limit = limit ? limit : now + GIVE_UP_NS;
            if (now > limit)
                return 0;
        }
    }
    return 1;
}

/* A quarter of PAGED in pieces, in an order that the processor does not foresee: STEP is odd. */
enum { PIECE = 32 << 10, PIECES = PAGED / 4 / PIECE, STEP = 97 };
_Static_assert((PIECES & (PIECES - 1)) == 0, "each piece once");

/* Gets what lies at `from` in small pages, piece by piece, to the same place, which the cache holds. */
static void fetch(work_t work, unsigned char *to, unsigned char *from, double *took)
{
    for (size_t i = 0; i < PIECES; i++) {
        const base_time_t since = base_now();
        move_piece(work, to, from + i * STEP % PIECES * PIECE, PIECE);
        took[i] = (double)(base_now() - since + 1);
    }
}

static void say(_Atomic uint32_t *word, uint32_t value, job_t how)
{
    atomic_store_explicit(word, value, memory_order_release);
    if (how == JOB_SLEEP)
        base_futex_wake(word, 1);
}

/* The second thread: carries out orders until the last. */
static void *second(void *arg)
{
    pair_t *p = arg;
    bind_to(p->cpu);
    for (uint32_t order = 1;; order++) {
        while (atomic_load_explicit(&p->orders, memory_order_acquire) != order)
            base_relax();
        const job_t job = p->job;
        if (job == JOB_END)
            return NULL;
        if (job == JOB_FILL) {
            memset(p->memory, (int)order, p->bytes);
        } else if (job == JOB_LOAD || job == JOB_TURN) {
            coll_kernel_copy(p->memory + REGION / 4, p->memory, p->bytes);
            if (job == JOB_TURN)
                base_take(p->memory, p->bytes);
        } else if (job == JOB_FETCH) {
            double took[PIECES];
            fetch(p->work, p->memory, p->paged, took);
        } else {
            if (job == JOB_YIELD)
                bind_to(p->home);
            for (uint32_t i = 1; await(p, &p->ping, i, job); i++)
                say(&p->pong, i, job);
            bind_to(p->cpu);
        }
        atomic_store_explicit(&p->done, order, memory_order_release);
    }
}

static void give_order(pair_t *p, job_t job)
{
    atomic_store_explicit(&p->stop, 0, memory_order_relaxed);
    p->job = job;
    atomic_fetch_add_explicit(&p->orders, 1, memory_order_release);
}

/* Waits for it as long as it takes: the thread always comes to an end once it runs. */
static void await_done(pair_t *p)
{
    uint32_t order = atomic_load_explicit(&p->orders, memory_order_relaxed);
    for (uint32_t turns = 1; atomic_load_explicit(&p->done, memory_order_acquire) != order; turns++)
        if (turns % 64 == 0)
            sched_yield();
        else
            base_relax();
}

enum { BATCHES = 32, ROUNDS_MOST = 1000 };

/* ns from one thread to the other: of batches of `rounds` there and back, the one at `part` (0: best, 0.5:
 * median). 0: no answer. */
static double ping_pong(bench_t *b, pair_t *p, job_t how, uint32_t rounds, double part)
{
    double took[BATCHES];
    int batches = 0, answered = 1;
    uint32_t i = 0;
    atomic_store_explicit(&p->ping, 0, memory_order_relaxed);
    atomic_store_explicit(&p->pong, 0, memory_order_relaxed);
    give_order(p, how);
    const base_time_t begun = base_now();
    while (answered && batches < BATCHES && (batches < 2 || (double)(base_now() - begun) < b->share)) {
        base_time_t from = base_now();
        for (uint32_t last = i + rounds; i < last && answered;) {
            say(&p->ping, ++i, how);
            answered = await(p, &p->pong, i, how);
        }
        if (answered)
            took[batches++] = (double)(base_now() - from) / rounds / 2;
    }
    atomic_store_explicit(&p->stop, 1, memory_order_relaxed);
    base_futex_wake(&p->ping, 1); /* it looks at `stop` after each wake */
    if (how == JOB_SLEEP)
        say(&p->ping, i + 2,
            how); /* no value that it waits for, but a change: a sleep that begins now ends at once */
    await_done(p);
    if (batches == 0)
        return 0;
    qsort(took, (size_t)batches, sizeof *took, base_order_double);
    for (int k = 0; how == JOB_PONG && k < batches; k++) /* what the scheduler does has no best */
        note(b, took[k] * rounds * 2, took[0] * rounds * 2);
    return took[(int)(part * (batches - 1))];
}

/* Rate of copying what the other core has just written (JOB_FILL), or to where it has just read
 * (JOB_LOAD; JOB_TURN: and taken the lines, base/thread/cacheline.h). takes: lines that were copied are
 * taken, too. part: 1: best, 0.5: median. places: they take turns, and the other core reads what was
 * written the time before; with many of them, that has left both caches when it is written again. */
static double peer_rate(bench_t *b, pair_t *p, job_t job, int takes, size_t bytes, size_t places, double part)
{
    double rate[ROUNDS_MOST];
    int rounds = 0;
    size_t turns = 0;
    unsigned char *to = b->memory + REGION / 2;
    const base_time_t begun = base_now();
    p->bytes = bytes;
    while (rounds < ROUNDS_MOST && (rounds < 3 || (double)(base_now() - begun) < b->share)) {
        unsigned char *const from = b->memory + (turns + 1) % places * bytes;
        p->memory = b->memory + turns % places * bytes;
        give_order(p, job);
        await_done(p);
        const base_time_t since = base_now();
        if (job == JOB_FILL)
            coll_kernel_copy(to, from, bytes);
        else
            coll_kernel_copy(from, to, bytes);
        if (takes)
            base_take(from, bytes);
        __asm__ volatile("" ::: "memory");
        const double took = (double)(base_now() - since + 1);
        if (turns++ >= places || places == 1) /* before that, nobody has read there */
            rate[rounds++] = (double)bytes / took;
        if (rounds > 0 && base_now() - begun > GIVE_UP_NS)
            break;
    }
    qsort(rate, (size_t)rounds, sizeof *rate, base_order_double);
    const double counts = rate[(int)(part * (rounds - 1))];
    for (int i = 0; i < rounds; i++)
        note(b, (double)bytes / rate[i], (double)bytes / counts);
    return counts;
}

/* Rate of getting what lies in small pages at `from`, half of PAGED, on both cores at once. Once only: nobody
 * has used it since it was prepared, so no cache holds it, nor what the kernel knows of its pages. The median
 * of all pieces. */
static double fetch_rate(bench_t *b, pair_t *p, work_t work, unsigned char *from)
{
    double took[PIECES], all = 0;
    p->work = work;
    p->memory = b->memory + REGION / 2;
    p->paged = from + PAGED / 4;
    give_order(p, JOB_FETCH);
    fetch(work, b->memory, from, took);
    await_done(p);
    for (int i = 0; i < PIECES; i++)
        all += took[i];
    qsort(took, PIECES, sizeof *took, base_order_double);
    note(b, all, took[PIECES / 2] * PIECES);
    return PIECE / took[PIECES / 2];
}

static void measure_pair(bench_t *b, coll_cost_t *out)
{
    pair_t *p = aligned_alloc(_Alignof(pair_t), sizeof *p);
    pthread_t thread;
    if (!p)
        return;
    memset(p, 0, sizeof *p);
    p->cpu = b->cpus[1];
    p->home = b->cpus[0];
    if (pthread_create(&thread, NULL, second, p) == 0) {
        double line = ping_pong(b, p, JOB_PONG, 64, 0), wake = ping_pong(b, p, JOB_SLEEP, 8, 0.5),
               yield = ping_pong(b, p, JOB_YIELD, 16, 0.5);
        out->line = line > 0 ? line : out->line;
        out->wake = wake > 0 ? wake : out->wake;
        out->yield = yield > 0 ? yield : out->yield;
        out->peer_cache = peer_rate(b, p, JOB_FILL, 0, SMALL, 1, 1);
        out->peer_write = peer_rate(b, p, JOB_LOAD, 0, SMALL, 1, 0.5);
        out->turn_write = peer_rate(b, p, JOB_TURN, 0, SMALL, 1, 0.5);
        out->turn_load = peer_rate(b, p, JOB_FILL, 1, SMALL, 1, 1);
        out->peer_stage = peer_rate(b, p, JOB_LOAD, 0, SMALL,
                                    base_min_size(2 * out->cache_bytes, REGION / 4) / SMALL + 2, 0.5);
        out->peer_memory = peer_rate(b, p, JOB_FILL, 0, REGION / 2, 1, 1);
        unsigned char *const paged = b->memory + REGION;
        out->copy_pages = fetch_rate(b, p, WORK_COPY, paged);
        if (cma_works(b->memory))
            out->cma_memory = fetch_rate(b, p, WORK_CMA, paged + PAGED / 2);
        give_order(p, JOB_END);
        pthread_join(thread, NULL);
    }
    free(p);
}

/* ---- what takes all ------------------------------------------------------------------------------------ */

typedef struct {
    unsigned char *memory;
    size_t bytes; /* of each half */
    int cpu;
    _Atomic int *running, *stop;
    double rate; /* read and written */
} mover_t;

static void *move(void *arg)
{
    mover_t *m = arg;
    double copied = 0;
    bind_to(m->cpu);
    atomic_fetch_add(m->running, 1);
    const base_time_t begun = base_now();
    do {
        coll_kernel_copy(m->memory + m->bytes, m->memory, m->bytes);
        copied += (double)m->bytes;
    } while (!atomic_load_explicit(m->stop, memory_order_relaxed));
    m->rate = 2 * copied / (double)(base_now() - begun + 1);
    return NULL;
}

/* All cores (at most COLL_MEASURE_CPUS) copy for a while, each its own part of the region. */
static void measure_all(const bench_t *b, coll_cost_t *out)
{
    _Atomic int running = 0, stop = 0;
    pthread_t threads[COLL_MEASURE_CPUS];
    mover_t movers[COLL_MEASURE_CPUS];
    const size_t part = (size_t)REGION / (size_t)b->ncpus / 2 & ~(size_t)4095;
    int started = 0;
    double sum = 0;
    for (int i = 0; i < b->ncpus; i++) {
        movers[i] = (mover_t){.memory = b->memory + 2 * part * (size_t)i,
                              .bytes = part,
                              .cpu = b->cpus[i],
                              .running = &running,
                              .stop = &stop};
        if (pthread_create(&threads[started], NULL, move, &movers[i]) != 0)
            break;
        started++;
    }
    for (base_time_t limit = base_now() + GIVE_UP_NS; atomic_load(&running) < started && base_now() < limit;)
        sched_yield();
    struct timespec pause = {.tv_nsec = (long)b->share};
    nanosleep(&pause, NULL);
    atomic_store_explicit(&stop, 1, memory_order_relaxed);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        sum += movers[i].rate;
    }
    out->total_memory = started == b->ncpus && sum > 2 * out->copy_memory ? sum : 2 * out->copy_memory;
}

/* ---- where --------------------------------------------------------------------------------------------- */

/* The core that holds all of the set. -1: several, or the system does not say. */
static int core_of(const char *folder, const cpu_set_t *set)
{
    uint64_t mask[sizeof *set / sizeof(uint64_t)];
    memcpy(mask, set, sizeof mask);
    return topo_one_core(folder, mask, sizeof mask / sizeof *mask);
}

int coll_measure_cpus(const char *folder, const cpu_set_t *own, const cpu_set_t *all, int here,
                      int cpus[COLL_MEASURE_CPUS])
{
    const int bound = CPU_COUNT(own) == 1 || core_of(folder, own) >= 0;
    const cpu_set_t *set = bound ? all : own;
    int cores[COLL_MEASURE_CPUS], n = 0;
    here = here >= 0 && here < CPU_SETSIZE && CPU_ISSET((size_t)here, set) ? here : 0;
    for (int i = 0; i < CPU_SETSIZE && n < COLL_MEASURE_CPUS; i++) {
        int cpu = (here + i) % CPU_SETSIZE, core, seen = 0;
        cpu_set_t one;
        if (!CPU_ISSET((size_t)cpu, set))
            continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        core = core_of(folder, &one);
        for (int k = 0; k < n; k++)
            seen |= core >= 0 && cores[k] == core;
        if (!seen) {
            cores[n] = core;
            cpus[n++] = cpu;
        }
    }
    return n;
}

/* This thread's binding, and what the system would allow it. 0: it does not say. */
static int bindings(cpu_set_t *own, cpu_set_t *all)
{
    CPU_ZERO(own);
    if (sched_getaffinity(0, sizeof *own, own) != 0)
        return 0;
    memset(all, 0xff, sizeof *all);
    if (sched_setaffinity(0, sizeof *all, all) != 0 || sched_getaffinity(0, sizeof *all, all) != 0)
        *all = *own;
    (void)sched_setaffinity(0, sizeof *own, own);
    return 1;
}

int coll_measure_cores(void)
{
    cpu_set_t own, all;
    return bindings(&own, &all) ? CPU_COUNT(&all) : 0;
}

double coll_measure(double seconds, coll_cost_t *out)
{
    coll_cost_t cost;
    cpu_set_t all;
    bench_t b = {.share = seconds * 1e9 / 18}; /* 16 measurements, and the memory to prepare */
    coll_cost_builtin(&cost);
    *out = cost;
    b.memory = mmap(NULL, REGION + PAGED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.memory == MAP_FAILED)
        return 1;
    (void)madvise(b.memory, REGION, MADV_HUGEPAGE); /* fewer faults, if the system has such pages */
    (void)madvise(b.memory + REGION, PAGED, MADV_NOHUGEPAGE);
    memset(b.memory, 0, REGION + PAGED);
    if (bindings(&b.before, &all)) {
        b.allowed = CPU_COUNT(&all);
        b.ncpus = coll_measure_cpus(NULL, &b.before, &all, sched_getcpu(), b.cpus);
    }
    if (b.ncpus > 0)
        bind_to(b.cpus[0]);
    measure_alone(&b, &cost);
    if (b.ncpus > 1)
        measure_pair(&b, &cost);
    else
        cost.peer_cache = cost.peer_write = cost.peer_stage = cost.turn_write = cost.turn_load =
            cost.copy_cache,
        cost.peer_memory = cost.copy_pages = cost.copy_memory, cost.cma_memory = cost.cma_rate;
    if (b.ncpus > 1)
        measure_all(&b, &cost);
    else
        cost.total_memory = 2 * cost.copy_memory;
    if (b.allowed > 0) {
        cost.cores = b.allowed;
        (void)sched_setaffinity(0, sizeof b.before, &b.before);
    }
    munmap(b.memory, REGION + PAGED);
    *out = cost;
    return b.took / b.at_best;
}
