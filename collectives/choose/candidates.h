/* collectives/choose/candidates.h: the algorithms and forms that come into question for a call: what gyre-perf --tune measures, what the
 * cost model compares, and what --explain names as runner-up. */
#ifndef COLLECTIVES_CHOOSE_CANDIDATES_H
#define COLLECTIVES_CHOOSE_CANDIDATES_H

#include "collectives/run/plan.h"
#include "collectives/proof/simulate.h"
#include "collectives/choose/tune.h"

enum { COLL_CANDIDATES_MOST = 24 };

/* Those that serve a call like args (op, n, uniform, host, root) of `bytes` (as gyre-perf's first column) on `parts` hosts, or
 * cells of one host. list: [COLL_CANDIDATES_MOST], as lines that a tuning file could have, without ranges. Returns how many. */
int coll_candidates(const coll_args_t *args, int parts, uint64_t bytes, coll_tune_line_t *list);

/* Predicted time of a call like args, of `bytes`, by an algorithm in a form, for a communicator on one host. Equal blocks, root
 * 0, out of place: what all ranks know. chunk in bytes. 0: nothing can be said (several hosts, more than 64 ranks, not
 * served, no memory). */
double coll_model_ns(const gyre_comm_t *comm, const coll_args_t *args, uint64_t bytes, coll_algo_t algo,
                     int one_shot, uint64_t chunk, coll_memory_t memory);
/* The same for the exchange of outboxes (small messages, one host), by a closed formula: a call, the flight of a line, and
 * reading what the others posted. */
double coll_model_exchange_ns(const gyre_comm_t *comm, coll_op_t op, uint64_t bytes);

/* Replaces the rules' choice by one that is predicted to be much faster in memory of either kind; 1 if it did. What it
 * says is kept in comm->modelled. */
int coll_model_choose(gyre_comm_t *comm, const coll_args_t *args, uint64_t bytes, coll_choice_t *choice);

/* ---- explain.c ---- */
/* What runs for a call and why, and what the model thinks of it. */
typedef struct {
    coll_choice_t choice;
    int exchange; /* 1: path "exchange", without a schedule; then algo, chunk and channels mean nothing */
    const char *path, *transport;
    uint32_t channels, segments;
    uint64_t bytes, chunk;   /* as in gyre-perf's first column; bytes of a chunk */
    double predicted;        /* ns; 0: the model says nothing */
    coll_tune_line_t second; /* the best predicted other one; algo AUTO: none */
    double second_predicted; /* ns */
    char why[288];
} coll_explanation_t;
/* Not collective; builds the plan if it is not there. memory: of the buffers. Errors: those of coll_plan_get. */
gyre_status_t coll_explain(gyre_comm_t *comm, const coll_shape_t *shape, coll_memory_t memory,
                           coll_explanation_t *out);

#endif
