/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/shard.h: how a bucket is cut over ranks: one rule for the optimiser, the planner and
 * checkpoints. */
#ifndef OPTIM_STORE_SHARD_H
#define OPTIM_STORE_SHARD_H

#include <stddef.h>

#define OPTIM_SHARD_UNIT 16 /* elements: shards of fp32 begin on cache lines of their bucket */

/* Rank `rank`'s elements [*first, *first + *count) of a bucket of `total`: runs of whole units that differ by
 * one unit at most, in rank order; what is left of a unit is the last run's. Where ranks * OPTIM_SHARD_UNIT
 * divides the total all are equal. */
static inline void optim_shard_cut(size_t total, size_t ranks, size_t rank, size_t *first, size_t *count)
{
    size_t units = (total + OPTIM_SHARD_UNIT - 1) / OPTIM_SHARD_UNIT, each = units / ranks,
           more = units % ranks;
    size_t from = (rank * each + (rank < more ? rank : more)) * OPTIM_SHARD_UNIT;
    size_t end = from + (each + (rank < more ? 1 : 0)) * OPTIM_SHARD_UNIT;
    *first = from < total ? from : total;
    *count = (end < total ? end : total) - *first;
}

#endif
