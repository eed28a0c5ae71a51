/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/cost.h: what a machine's primitive operations cost.
 *
 * Times are in nanoseconds, rates in bytes per nanosecond (= GB/s). The costs are measured once per machine
 * (collectives/choose/tune.h) and are the same on all ranks of a job. They are used by the choice of an
 * algorithm (collectives/choose/select.c), by the prediction that `gyre-perf --explain` prints, and by the
 * simulator (collectives/proof/simulate/simulate.h) when it stands for one host. */
#ifndef COLLECTIVES_CHOOSE_COST_H
#define COLLECTIVES_CHOOSE_COST_H

#include <stddef.h>

#include "base/checked.h"

typedef struct {
    double call;    /* a collective call that exchanges nothing */
    double step;    /* the executor's work for one step of a schedule */
    double line;    /* from a store on one core to its sight on another: one cache line's flight */
    double message; /* a small message over a link: post, flight, receive */
    double yield;   /* handing the core to another rank of this core, where ranks outnumber cores */
    double wake;    /* waking a sleeping rank */

    double copy_cache,
        copy_memory; /* one thread's memcpy within its second-level cache, and beyond all caches */
    double reduce_cache, reduce_memory; /* bytes of *input* that one thread adds up, likewise */
    double peer_cache,
        peer_memory;   /* loading what another core has just written: from its cache, and beyond */
    double peer_write; /* storing where another core has just loaded, within the cache */
    double peer_stage; /* storing where another core has loaded, too long ago for its cache */
    /* Storing where another core has just loaded and then stored a word of each line, and loading so. A
     * line that another core has written is handed over; one that it has only read may have to be asked
     * back first. */
    double turn_write, turn_load;
    /* bytes read and written by all cores (up to 8) together beyond the caches: the contention bound */
    double total_memory;
    double cma_call, cma_rate; /* process_vm_readv: per call, and bytes in small pages, within the cache */
    /* The same and memcpy where no cache of the core holds these pages, nor what the kernel knows of them,
     * while another core does the same. */
    double cma_memory, copy_pages;
    size_t cache_bytes; /* the working set of one core up to which the *_cache rates hold */
    int cores;          /* that the system would allow a process on the host */

    double net_latency, net_rate; /* between hosts; 0: unknown */
} coll_cost_t;

/* 1: who reads a message in shared memory had better take its lines, too (base/thread/cacheline.h). */
static inline int coll_cost_takes(const coll_cost_t *cost)
{
    const double surely = 0.9; /* of the time without */
    return cost->turn_write > 0 && cost->turn_load > 0 && cost->peer_write > 0 && cost->peer_cache > 0 &&
           1 / cost->turn_write + 1 / cost->turn_load <
               surely * (1 / cost->peer_write + 1 / cost->peer_cache);
}

/* GB/s of storing a message in a ring, and of loading it. */
static inline double coll_cost_ring_write(const coll_cost_t *cost)
{
    return coll_cost_takes(cost) ? cost->turn_write : cost->peer_write;
}

static inline double coll_cost_ring_load(const coll_cost_t *cost)
{
    return coll_cost_takes(cost) ? cost->turn_load : cost->peer_cache;
}

/* Bytes up to which a message surely costs less in two copies, into a ring and out of it, than by the kernel.
 * call: ns of a call of the kernel. */
static inline size_t coll_cost_ring_best(const coll_cost_t *cost, double call)
{
    const double surely = 0.75; /* of the kernel's time */
    if (cost->peer_write <= 0 || cost->peer_cache <= 0 || cost->cma_rate <= 0)
        return 0;
    const double more = 1 / coll_cost_ring_write(cost) + 1 / coll_cost_ring_load(cost) -
                        surely / cost->cma_rate; /* ns per byte */
    const double bytes = more > 0 ? surely * call / more : (double)cost->cache_bytes;
    return bytes < (double)cost->cache_bytes ? (size_t)bytes : cost->cache_bytes;
}

/* 1: a broadcast among n ranks surely takes less if the root copies it to memory that its peers can map, in
 * chunks that they read while a cache holds them, than if each looks up all of its pages by the kernel. The
 * root's own memory comes from beyond the caches either way. */
static inline int coll_cost_stages_pay(const coll_cost_t *cost, int n)
{
    const double surely = 0.75; /* of the kernel's time */
    if (n < 2 || cost->peer_stage <= 0 || cost->peer_cache <= 0 || cost->copy_memory <= 0 ||
        cost->cma_memory <= 0)
        return 0;
    const double stage = 1 / cost->copy_memory + 1 / cost->peer_stage;
    return 1 / cost->peer_cache + stage / (n - 1) < surely / cost->cma_memory;
}

/* 1: a sum of any length among n ranks takes no more if all stage their vectors in one place, where peers
 * have written, than if each has the kernel read a part of all inputs and write it to all results. */
static inline int coll_cost_stages_sums(const coll_cost_t *cost, int n)
{
    return cost->peer_cache > 0 && cost->cma_rate > 0 &&
           1 / cost->peer_cache < (double)(n - 1) / n / cost->cma_rate;
}

/* Staged copies take turns in so many bytes, so that each goes to where peers read long ago (peer_stage):
 * what they have just read costs several times as much to write (peer_write). With the program's buffers,
 * which they come from and are read into, that is more than a second-level cache. At most what needs no
 * window of its own. */
static inline size_t coll_cost_stage_room(const coll_cost_t *cost)
{
    return base_min_size(cost->cache_bytes, (size_t)768 << 10);
}

#endif
