/* SPDX-License-Identifier: Apache-2.0 */
/* comm/yields.c: slices of time lost in yields (see yields.h).
 *
 * The constants are orders of magnitude. They tell turns of microseconds from slices of milliseconds, and
 * what n ranks pay for sleeps from what two ranks pay. */
#include "comm/yields.h"

#define US ((base_time_t)1000)
/* Of a program that computes. */
#define SLICE (4000 * US)
/* A yield that takes less is no slice, whatever else it is. */
#define LEAST_SLICE (1000 * US)
/* What a rank does in its turn, in addition to ringing others. */
#define WORK (50 * US)
/* Ringing a rank that sleeps: a system call, an interrupt of its core and a switch. */
#define RING (2 * US)
/* A wake-up takes so long even if there is only one. */
#define LEAST_PRICE (20 * US)
/* Copying: 2 GB/s, since all cores do. */
#define BYTES_PER_NS 2
enum { FIRST_PART = 8, WORTH_MOST = 256 };

static int32_t get(const _Atomic int32_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void put(_Atomic int32_t *value, int32_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

void comm_yields_begin(comm_yields_t *yields, int ranks, int cores)
{
    base_time_t per_core = (ranks + cores - 1) / cores;
    base_time_t price = per_core * ranks * RING; /* each rank of a core rings all others */

    if (price < LEAST_PRICE)
        price = LEAST_PRICE;
    yields->turns = per_core * WORK + 2 * price; /* ringing may take twice as long as expected */
    if (yields->turns < LEAST_SLICE)
        yields->turns = LEAST_SLICE;
    yields->per_core = per_core;
    yields->worth = price < SLICE ? (int32_t)(SLICE / price) : 1;
    yields->first = (yields->worth + FIRST_PART - 1) / FIRST_PART;
    put(&yields->doubled, 0);
    put(&yields->sleeps, 0);
    put(&yields->waits, 0);
    put(&yields->lost, 0);
}

void comm_yields_wait(comm_yields_t *yields)
{
    int32_t waits = get(&yields->waits), doubled = get(&yields->doubled);

    put(&yields->lost, 0);
    if (waits >= yields->worth) {
        waits = 0;
        if (doubled > 0)
            put(&yields->doubled, doubled - 1);
    }
    put(&yields->waits, waits + 1);
}

static void add(_Atomic int64_t *sum, int64_t more)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + more, memory_order_relaxed);
}

void comm_yields_took(comm_yields_t *yields, base_time_t before, base_time_t after, size_t bytes)
{
    int32_t doubled = get(&yields->doubled);
    const base_time_t turns = yields->turns + yields->per_core * (base_time_t)(bytes / BYTES_PER_NS);

    add(&yields->count, 1);
    add(&yields->ns, after - before);
    if (after - before <= turns || get(&yields->lost))
        return;
    put(&yields->lost, 1);
    put(&yields->waits, 0);
    put(&yields->sleeps, yields->first << doubled);
    if (yields->first << doubled < yields->worth * WORTH_MOST)
        put(&yields->doubled, doubled + 1);
}

int comm_yields_pay(const comm_yields_t *yields)
{
    return get(&yields->sleeps) == 0;
}

void comm_yields_slept(comm_yields_t *yields)
{
    int32_t left = get(&yields->sleeps);

    if (left > 0)
        put(&yields->sleeps, left - 1);
}

void comm_yields_woke(comm_yields_t *yields, base_time_t before, base_time_t after)
{
    add(&yields->sleep_ns, after - before);
}
