/* optim/zero_verify.c: replicas of the same weights must hold the same bits; who does not is named.
 *
 * State that lives on from step to step is hashed slice by slice, another slice of each row in every step, so that the cost is
 * spread evenly: a flipped bit stays until its slice comes up. Weights that each update makes anew (the all-gather of stages 1
 * and 2, rounding from master weights) are hashed whole in every step: by the next one a flipped bit would be gone, and what it
 * did to the gradients would not. What travels is one hash and its complement, of which the minimum over the group is taken:
 * they belong together only if all are equal. Only then, hashes by row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "optim/zero_internal.h"

typedef enum { GROUP_DP, GROUP_TP, GROUP_TIED, GROUPS } group_t;

static gyre_comm_t *comm_of(const optim_zero_t *zero, group_t group)
{
    return group == GROUP_DP ? zero->groups.dp : group == GROUP_TP ? zero->groups.tp : zero->groups.tied;
}

static const char *const group_name[GROUPS] = {"data-parallel", "tensor-parallel", "tied"};

/* 1 if the ranks of the group hold the same of row r. */
static int replicated(const optim_zero_t *zero, group_t group, size_t r)
{
    const model_param_t *row = &zero->plan.params->row[r];
    if (row->alias != MODEL_NONE)
        return 0; /* its embedding is looked at */
    return group == GROUP_DP ? zero->plan.config.stage < 3 : group == GROUP_TP ? row->cut < 0 : row->twin;
}

/* 1 if every update makes the weights anew, from another rank's or from master weights. */
static int made_anew(const optim_zero_t *zero)
{
    int stage = zero->plan.config.stage;
    return zero_half(zero) || (!zero_alone(zero) && (stage == 1 || stage == 2));
}

/* Slice `part` of `parts` of n elements. */
static uint64_t hash_slice(const char *data, size_t n, size_t bytes, size_t part, size_t parts, uint64_t seed)
{
    size_t each = (n + parts - 1) / parts, lo = part * each < n ? part * each : n,
           hi = lo + each < n ? lo + each : n;
    return lo < hi ? base_hash64(data + lo * bytes, (hi - lo) * bytes, seed) : seed;
}

/* Weights as the model has them, and master weights and moments where they are in memory and replicated. */
static uint64_t hash_row(const optim_zero_t *zero, group_t group, size_t r, size_t part, size_t parts)
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = &plan->params->row[r];
    const zero_bucket_t *k = &plan->bucket[plan->bucket_of[r]];
    uint64_t hash = 0;
    size_t lo, hi, weight_part = made_anew(zero) ? 0 : part, weight_parts = made_anew(zero) ? 1 : parts;
    int held = zero_row_part(zero, r, &lo, &hi);
    if (plan->config.stage < 3)
        hash = hash_slice(zero->weights + row->offset * plan->weight_bytes, row->count, plan->weight_bytes,
                          weight_part, weight_parts, hash);
    else if (held)
        hash = hash_slice(zero->weights + (k->at + lo - k->first) * plan->weight_bytes, hi - lo,
                          plan->weight_bytes, weight_part, weight_parts, hash);
    if (!held || (group == GROUP_DP && plan->config.stage > 0))
        return hash;
    const float *state[] = {zero->master, zero->m, zero->v};
    for (size_t i = 0; i < 3; i++)
        if (state[i])
            hash = hash_slice((const char *)(state[i] + k->at + lo - k->first), hi - lo, sizeof(float), part,
                              parts, hash);
    return hash;
}

typedef struct {
    uint64_t rank, hash;
} vote_t;

/* Who of n voters stands against the most common hash: names, or all where there is no majority. */
static void name_row(optim_zero_t *zero, group_t group, const char *row, const vote_t *vote, size_t n)
{
    size_t best = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t j = 0; j < n; j++)
            same += vote[j].hash == vote[i].hash;
        if (same > most) {
            most = same;
            best = i;
        }
    }
    char who[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < n && at < sizeof who - 24; i++)
        if (2 * most <= n || vote[i].hash != vote[best].hash)
            at += (size_t)snprintf(who + at, sizeof who - at, "%s%llu", at ? ", " : "",
                                   (unsigned long long)vote[i].rank);
    snprintf(zero->drift, sizeof zero->drift,
             "%s: %s %s of %zu %s replicas %s: faulty memory, or machines whose arithmetic differs "
             "(gyre-doctor compares "
             "them); start again from a checkpoint without that rank",
             row, 2 * most <= n ? "ranks" : "rank", who, n, group_name[group],
             2 * most <= n ? "hold different bits" : "holds other bits than the rest");
}

/* The hashes differ: row by row, with the ranks' numbers, over the group. */
static gyre_status_t find_drift(optim_zero_t *zero, group_t group, size_t part, size_t parts)
{
    gyre_comm_t *comm = comm_of(zero, group);
    const model_params_t *params = zero->plan.params;
    size_t n = (size_t)gyre_comm_size(comm);
    vote_t *all = calloc(n, sizeof *all);
    gyre_status_t status =
        all ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the hashes of %zu ranks", n);
    int found = 0;
    for (size_t r = 0; status == GYRE_OK && r < params->rows; r++) {
        if (!replicated(zero, group, r))
            continue;
        vote_t mine = {zero->world_rank, hash_row(zero, group, r, part, parts)};
        status = gyre_all_gather(&mine, all, 2, GYRE_UINT64, comm);
        int differs = 0;
        for (size_t p = 1; p < n; p++)
            differs |= all[p].hash != all[0].hash;
        if (status == GYRE_OK && differs && !found) {
            found = 1;
            name_row(zero, group, params->row[r].name, all, n);
        }
    }
    free(all);
    return status;
}

static gyre_status_t compare(optim_zero_t *zero, group_t group, size_t part, size_t parts, int *drifted)
{
    gyre_comm_t *comm = comm_of(zero, group);
    uint64_t hash = 0;
    if (!comm || gyre_comm_size(comm) < 2)
        return GYRE_OK;
    for (size_t r = 0; r < zero->plan.params->rows; r++)
        if (replicated(zero, group, r)) {
            uint64_t one = hash_row(zero, group, r, part, parts);
            hash = base_hash64(&one, sizeof one, hash);
        }
    uint64_t ends[2] = {hash, ~hash};
    gyre_status_t status = gyre_all_reduce(ends, ends, 2, GYRE_UINT64, GYRE_OP(GYRE_MIN), comm);
    if (status != GYRE_OK || ends[0] == ~ends[1])
        return status;
    *drifted = 1;
    return find_drift(zero, group, part, parts);
}

gyre_status_t zero_verify_part(optim_zero_t *zero, size_t part, size_t parts, int *drifted)
{
    gyre_status_t status = GYRE_OK;
    *drifted = 0;
    for (int group = 0; status == GYRE_OK && group < GROUPS; group++)
        status = compare(zero, (group_t)group, part, parts, drifted);
    return status;
}

gyre_status_t optim_zero_verify(optim_zero_t *zero)
{
    int drifted = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t b = 0; status == GYRE_OK && b < zero->plan.buckets; b++)
        status = zero_weights_wait(zero, b);
    if (status == GYRE_OK)
        status = zero_verify_part(zero, 0, 1, &drifted);
    return status == GYRE_OK && drifted ? gyre_fail(GYRE_ERR_MISMATCH, "%s", zero->drift) : status;
}
