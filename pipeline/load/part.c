/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/part.c: opens a model on each rank, compares the ranks, finds the rank's place, and reads
 * what belongs there. */
#include "pipeline/load/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"
#include "model/network/hf_config.h"
#include "pipeline/agree/agree.h"

typedef struct {
    pipe_part_config_t config;
    pipe_part_t *part;
} opening_t;

static gyre_status_t find_degrees(const pipe_part_config_t *c, pipe_part_t *part)
{
    const size_t ranks = (size_t)gyre_comm_size(part->world),
                 layers = pipe_source_model(part->source)->layers;
    const size_t pp = c->pp > 0   ? c->pp
                      : c->tp > 0 ? base_max_size(1, ranks / c->tp)
                                  : 1,
                 tp = c->tp > 0 ? c->tp : base_max_size(1, ranks / pp);
    if (tp > ranks || pp > ranks || tp * pp != ranks)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--tp %zu times --pp %zu is not the number of ranks, %zu: every rank computes", tp,
                         pp, ranks);
    if (pp > layers)
        return gyre_fail(GYRE_ERR_INVALID, "--pp %zu: the model has %zu layers, and each stage needs one", pp,
                         layers);
    const pipe_layout_t layout = {.tp = tp, .pp = pp, .dp = 1, .chunks = 1};
    part->place = pipe_layout_place(&layout, (size_t)gyre_comm_rank(part->world));
    part->tp = (model_tp_t){.rank = part->place.tp, .size = tp};
    part->stages = pp;
    pipe_layout_layers(&layout, layers, part->place.pp, &part->first, &part->layers);
    part->embed = part->place.pp == 0;
    part->head = part->place.pp + 1 == pp;
    return GYRE_OK;
}

/* Without a word to the other ranks. */
static gyre_status_t open_model(void *user)
{
    const opening_t *o = user;
    pipe_part_t *part = o->part;
    gyre_status_t status = pipe_source_open(&o->config.source, &part->source);
    if (status == GYRE_OK && pipe_source_model(part->source)->prefix)
        status = gyre_fail(GYRE_ERR_UNSUPPORTED,
                           "--load %s: a model with prefix masks fills blanks; only gyre-train's sample does",
                           o->config.source.path);
    if (status == GYRE_OK)
        status = find_degrees(&o->config, part);
    return status == GYRE_OK ? model_params_create(pipe_source_model(part->source), &part->whole) : status;
}

/* What a rank has opened. */
typedef struct {
    uint64_t model, checkpoint; /* hashes; 0: it is no checkpoint */
} opened_t;

typedef struct {
    const char *path;
    opened_t mine, first; /* first: rank 0's */
} comparison_t;

static gyre_status_t compare(void *user)
{
    const comparison_t *c = user;
    const opened_t *mine = &c->mine, *first = &c->first;
    if (mine->model != first->model)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--load %s: this rank has found another model there than rank 0: all ranks must see "
                         "the same files",
                         c->path);
    if (mine->checkpoint != first->checkpoint)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--load %s: this rank has found another checkpoint there than rank 0: all ranks must "
            "see the same files",
            c->path);
    return GYRE_OK;
}

/* Hosts may have other files under one name. */
static gyre_status_t compare_ranks(const opening_t *o)
{
    const pipe_source_t *source = o->part->source;
    comparison_t c = {.path = o->config.source.path, .mine = {.checkpoint = pipe_source_hash(source)}};
    gyre_status_t status = model_config_hash(pipe_source_model(source), &c.mine.model);
    status = pipe_agree(o->part->world, status, NULL);
    c.first = c.mine;
    if (status == GYRE_OK)
        status = gyre_broadcast(&c.first, &c.first, sizeof c.first, GYRE_UINT8, 0, o->part->world);
    return status == GYRE_OK ? pipe_by_all(o->part->world, compare, &c, NULL) : status;
}

static gyre_status_t make_groups(pipe_part_t *part)
{
    const int tp = (int)part->place.tp, pp = (int)part->place.pp;
    gyre_status_t status = gyre_comm_split(part->world, pp, tp, &part->group);
    part->tp.comm = part->tp.size > 1 ? part->group : NULL;
    return status == GYRE_OK ? gyre_comm_split(part->world, tp, pp, &part->pp) : status;
}

static gyre_status_t read_part(void *user)
{
    pipe_part_t *part = ((const opening_t *)user)->part;
    const size_t layers = part->whole->config.layers;
    unsigned char *has = calloc(layers, 1);
    if (!has)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %zu layers", layers);
    memset(has + part->first, 1, part->layers);
    const model_slice_t slice = {.tp_rank = part->tp.rank,
                                 .tp_size = part->tp.size,
                                 .has = has,
                                 .embed = part->embed,
                                 .head = part->head};
    gyre_status_t status = model_params_slice(part->whole, &slice, &part->slice);
    free(has);
    if (status == GYRE_OK)
        status = base_team_create(part->threads, "--threads", &part->team);
    if (status == GYRE_OK && !(part->weights = calloc(part->slice->total, sizeof *part->weights)))
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu weights", part->slice->total);
    if (status == GYRE_OK)
        status = pipe_source_read(part->source, part->whole, part->slice, part->weights);
    return status == GYRE_OK ? model_matmul_room(base_team_threads(part->team)) : status;
}

gyre_status_t pipe_part_open(gyre_comm_t *world, const pipe_part_config_t *config, pipe_part_t *out)
{
    opening_t opening = {.config = *config, .part = out};
    *out = (pipe_part_t){.world = world};
    gyre_status_t status = pipe_source_choose(world, &opening.config.source, NULL);
    if (status == GYRE_OK)
        status = pipe_by_all(world, open_model, &opening, NULL);
    if (status == GYRE_OK)
        status = compare_ranks(&opening);
    out->threads = config->threads;
    if (status == GYRE_OK && config->threads == 0)
        status = pipe_threads_share(world, &out->threads);
    if (status == GYRE_OK)
        status = make_groups(out);
    return status == GYRE_OK ? pipe_by_all(world, read_part, &opening, NULL) : status;
}

void pipe_part_close(pipe_part_t *part)
{
    gyre_comm_destroy(part->pp);
    gyre_comm_destroy(part->group);
    model_params_destroy(part->slice);
    model_params_destroy(part->whole);
    pipe_source_close(part->source);
    free(part->weights);
    base_team_destroy(part->team);
    *part = (pipe_part_t){0};
}

int pipe_part_last(const pipe_part_t *part)
{
    return (int)((part->stages - 1) * part->tp.size);
}
