/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/verify.c: replicas of the same weights must hold the same bits; who does not is named.
 *
 * State that lives on from step to step is hashed slice by slice, another slice of each row in every step, so
 * that the cost is spread evenly: a flipped bit stays until its slice comes up. Weights that each update
 * makes anew (the all-gather of stages 1 and 2, rounding from master weights) are hashed whole in every step:
 * by the next one a flipped bit would be gone, and what it did to the gradients would not. What travels is
 * one hash and its complement, of which the minimum over the group is taken: they belong together only if
 * all are equal. Only then, hashes by row. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "optim/store/internal.h"

static gyre_comm_t *comm_of(const optim_zero_t *zero, zero_group_t group)
{
    return group == ZERO_GROUP_DP   ? zero->groups.dp
           : group == ZERO_GROUP_TP ? zero->groups.tp
                                    : zero->groups.tied;
}

static const char *const group_name[ZERO_GROUPS] = {"data-parallel", "tensor-parallel", "tied"};

/* 1 if the ranks of the group hold the same of row r. */
static int replicated(const optim_zero_t *zero, zero_group_t group, size_t r)
{
    const model_param_t *row = &zero->plan.params->row[r];
    if (row->alias != MODEL_NONE)
        return 0; /* its embedding is looked at */
    return group == ZERO_GROUP_DP   ? zero->plan.config.stage < 3
           : group == ZERO_GROUP_TP ? row->cut < 0
                                    : row->twin;
}

/* 1 if every update makes the weights anew, from another rank's or from master weights. */
static int made_anew(const optim_zero_t *zero)
{
    int stage = zero->plan.config.stage;
    return zero_half(zero) || (!zero_alone(zero) && (stage == 1 || stage == 2));
}

/* Weights as the model has them, and master weights and moments where they are in memory and replicated. */
size_t zero_hashed(const optim_zero_t *zero, zero_group_t group, size_t r, zero_piece_t piece[ZERO_PIECES])
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = &plan->params->row[r];
    const zero_bucket_t *k = &plan->bucket[plan->bucket_of[r]];
    size_t pieces = 0, lo, hi;
    int held = zero_plan_part(&zero->plan, r, &lo, &hi), sliced = !made_anew(zero);
    if (!replicated(zero, group, r))
        return 0;
    if (plan->config.stage < 3)
        piece[pieces++] = (zero_piece_t){zero->weights + row->offset * plan->weight_bytes, row->count,
                                         plan->weight_bytes, sliced};
    else if (held)
        piece[pieces++] = (zero_piece_t){zero->weights + (k->at + lo - k->first) * plan->weight_bytes,
                                         hi - lo, plan->weight_bytes, sliced};
    if (!held || (group == ZERO_GROUP_DP && plan->config.stage > 0))
        return pieces;
    const size_t at = k->at + lo - k->first;
    const zero_view_t view = {.v = zero->v ? zero->v + k->second : NULL};
    const float *const state[] = {zero->master ? zero->master + at : NULL, zero->m ? zero->m + at : NULL,
                                  zero_second(zero, &view, r, lo)};
    for (size_t i = 0; i < 3; i++)
        if (state[i])
            piece[pieces++] = (zero_piece_t){(const char *)state[i], hi - lo, sizeof(float), 1};
    return pieces;
}

typedef struct {
    uint64_t rank, hash;
} vote_t;

/* Who of n voters stands against the most common hash: names, or all where there is no majority. */
static void name_row(optim_zero_t *zero, zero_group_t group, const char *row, const vote_t *vote, size_t n)
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
static gyre_status_t find_drift(optim_zero_t *zero, zero_group_t group, const uint64_t *hash)
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
        vote_t mine = {zero->world_rank, hash[r]};
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

static gyre_status_t compare(optim_zero_t *zero, zero_group_t group, size_t part, size_t parts, int *drifted)
{
    gyre_comm_t *comm = comm_of(zero, group);
    const model_params_t *params = zero->plan.params;
    uint64_t all = 0;
    if (!comm || gyre_comm_size(comm) < 2)
        return GYRE_OK;
    uint64_t *hash = calloc(params->rows + 1, sizeof *hash);
    if (!hash)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the hashes of %zu rows", params->rows);
    gyre_status_t status = zero->on->hash(zero, group, part, parts, hash);
    for (size_t r = 0; r < params->rows; r++)
        if (replicated(zero, group, r))
            all = base_hash64(&hash[r], sizeof hash[r], all);
    uint64_t ends[2] = {all, ~all};
    if (status == GYRE_OK)
        status = gyre_all_reduce(ends, ends, 2, GYRE_UINT64, GYRE_OP(GYRE_MIN), comm);
    if (status == GYRE_OK && ends[0] != ~ends[1]) {
        *drifted = 1;
        status = find_drift(zero, group, hash);
    }
    free(hash);
    return status;
}

gyre_status_t zero_verify_part(optim_zero_t *zero, size_t part, size_t parts, int *drifted)
{
    gyre_status_t status = GYRE_OK;
    *drifted = 0;
    for (int group = 0; status == GYRE_OK && group < ZERO_GROUPS; group++)
        status = compare(zero, (zero_group_t)group, part, parts, drifted);
    return status;
}

/* All rows of one store. */
static gyre_status_t verify(optim_zero_t *zero, int *drifted)
{
    gyre_status_t status = GYRE_OK;
    for (size_t b = 0; status == GYRE_OK && b < zero->plan.buckets; b++)
        status = zero_weights_wait(zero, b);
    if (status == GYRE_OK)
        status = zero_verify_part(zero, 0, 1, drifted);
    return status;
}

gyre_status_t optim_zero_verify(optim_zero_t *zero)
{
    optim_zero_t *experts = zero_of_experts(zero);
    int drifted = 0, experts_drifted = 0;
    /* a rank that finds a drift takes part in what others, which cannot see it, still compare */
    gyre_status_t status = verify(zero, &drifted);
    if (status == GYRE_OK && experts)
        status = verify(experts, &experts_drifted);
    if (status == GYRE_OK && drifted)
        return gyre_fail(GYRE_ERR_MISMATCH, "%s", zero->drift);
    return status == GYRE_OK && experts_drifted ? gyre_fail(GYRE_ERR_MISMATCH, "%s", experts->drift) : status;
}
