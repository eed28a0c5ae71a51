/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/part.h: the part of a model that a rank computes with, in tensor and pipeline parallelism. */
#ifndef PIPELINE_LOAD_PART_H
#define PIPELINE_LOAD_PART_H

#include <gyre/gyre.h>

#include "base/thread/team.h"
#include "pipeline/load/source.h"
#include "pipeline/plan/layout.h"

typedef struct {
    pipe_source_config_t source;
    size_t threads; /* of each rank; 0: its share of the processors */
    size_t tp, pp;  /* degrees, whose product is the number of ranks; 0: tp what pp leaves over, pp 1 */
} pipe_part_config_t;

typedef struct {
    gyre_comm_t *world;      /* borrowed */
    gyre_comm_t *group, *pp; /* the ranks of this stage; those of all stages with this rank's place in each */
    model_tp_t tp;           /* the first of them, as stages take it */
    size_t stages;
    pipe_place_t place;
    size_t first, layers; /* this stage's, of the whole model */
    int embed, head;      /* 1: it has the embedding; final norm and head */
    pipe_source_t *source;
    model_params_t *whole, *slice; /* tables of all rows; of this rank's */
    float *weights;                /* [slice->total] */
    size_t threads;                /* of this rank */
    base_team_t *team;             /* of them */
} pipe_part_t;

/* Opens the model and reads this rank's part. Collective; an error is that of every rank, and the first rank
 * that failed has logged it: those of pipe_source_open and pipe_source_read; INVALID: degrees that do not fit
 * ranks or layers, ranks that have found other models or checkpoints; UNSUPPORTED: prefix masks; NO_MEMORY.
 * pipe_part_close follows in any case. */
gyre_status_t pipe_part_open(gyre_comm_t *world, const pipe_part_config_t *config, pipe_part_t *out);
void pipe_part_close(pipe_part_t *part);
/* A rank of the last stage, of `world`: what that stage has computed, all of its ranks have. */
int pipe_part_last(const pipe_part_t *part);

#endif
