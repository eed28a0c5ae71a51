/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/machine.c: what a reader of figures must know: the ranks, the speed of memory, the load of
 * the machine. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine/cgroup.h"

const char *perf_cores_text(const cpu_set_t *set, char *text, size_t bytes)
{
    size_t at = 0;
    snprintf(text, bytes, "unknown");
    for (size_t cpu = 0; cpu < CPU_SETSIZE && at < bytes; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        size_t last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        const char *comma = at ? "," : "";
        at += (size_t)(last > cpu ? snprintf(text + at, bytes - at, "%s%zu-%zu", comma, cpu, last)
                                  : snprintf(text + at, bytes - at, "%s%zu", comma, cpu));
        cpu = last;
    }
    return text;
}

/* GB/s of copying `bytes` over and over, at least three times and for about 20 ms: the best of what was
 * seen. */
static double copy_rate(unsigned char *to, const unsigned char *from, size_t bytes)
{
    double best = 0.0;
    int rounds = 0;
    const int repeats = bytes < (1u << 20) ? 64 : 1;
    base_time_t end = base_now() + 20 * 1000 * 1000;
    do {
        base_time_t start = base_now();
        for (int i = 0; i < repeats; i++) {
            memcpy(to, from, bytes);
            __asm__ volatile("" ::: "memory"); /* each copy counts */
        }
        double rate = (double)bytes * repeats / (double)(base_now() - start);
        best = rate > best ? rate : best;
    } while (++rounds < 3 || base_now() < end);
    return best;
}

/* Two buffers that leave a small container most of its memory: beyond it the kernel ends the process. */
static size_t large_enough(void)
{
    const size_t wish = 64u << 20, least = 1u << 20;
    const uint64_t memory = base_cgroup_limits("").memory;
    return memory / 16 >= wish ? wish : base_max_size((size_t)(memory / 16) & ~(least - 1), least);
}

static void measure_copies(perf_machine_t *m)
{
    m->large_bytes = large_enough();
    m->cache_bytes = 128u << 10;
    unsigned char *from = malloc(m->large_bytes), *to = malloc(m->large_bytes);
    if (from && to) { /* otherwise the rates stay 0 and the header shows that */
        memset(from, 1, m->large_bytes);
        memset(to, 0, m->large_bytes);
        m->large_gbs = copy_rate(to, from, m->large_bytes);
        m->cache_gbs = copy_rate(to, from, m->cache_bytes);
    }
    free(from);
    free(to);
}

gyre_status_t perf_machine_probe(gyre_comm_t *comm, int iters, perf_machine_t *m)
{
    const int rank = gyre_comm_rank(comm), n = gyre_comm_size(comm);
    perf_rank_info_t self = {.pid = (int32_t)getpid()};
    *m = (perf_machine_t){0};
    if (gethostname(self.host, sizeof self.host - 1) != 0)
        snprintf(self.host, sizeof self.host, "unknown");
    if (sched_getaffinity(0, sizeof self.cpus, &self.cpus) != 0)
        CPU_ZERO(&self.cpus);
    if (rank == 0) {
        m->ranks = calloc((size_t)n, sizeof *m->ranks);
        if (!m->ranks)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the names of %d ranks", n);
        if (getloadavg(m->load, 3) != 3)
            m->load[0] = m->load[1] = m->load[2] = -1.0;
        if (iters >= PERF_FEW_ITERS)
            measure_copies(m);
    }
    return gyre_gather(&self, m->ranks, sizeof self, GYRE_UINT8, 0, comm);
}

void perf_machine_free(perf_machine_t *m)
{
    free(m->ranks);
    m->ranks = NULL;
}

gyre_status_t perf_memory_use(gyre_comm_t *world, const gyre_comm_t *comm, perf_memory_use_t *use)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    struct rusage process = {0};
    gyre_status_t status = gyre_comm_stats(comm, &stats);

    getrusage(RUSAGE_SELF, &process);
    uint64_t figures[] = {stats.shared_bytes, stats.private_bytes, (uint64_t)process.ru_maxrss * 1024};
    if (status == GYRE_OK)
        status = gyre_all_reduce(figures, figures, 3, GYRE_UINT64, GYRE_OP(GYRE_MAX), world);
    *use = (perf_memory_use_t){figures[0], figures[1], figures[2]};
    return status;
}
