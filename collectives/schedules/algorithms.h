/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/algorithms.h: what the rest of the library may ask about an algorithm. All of it
 * stands in the algorithm's one row of collectives/schedules/algorithms.def, so that nothing else needs to
 * know algorithms by name. */
#ifndef COLLECTIVES_SCHEDULES_ALGORITHMS_H
#define COLLECTIVES_SCHEDULES_ALGORITHMS_H

#include "collectives/schedules/canonical.h"
#include "collectives/schedules/schedule.h"

typedef enum {
    COLL_FLAT = 1,       /* every rank exchanges with every other: n connections, n messages at each rank */
    COLL_TWO_FORMS = 2,  /* all_reduce: coll_args_t.one_shot selects its latency form */
    COLL_TRY_CHUNKS = 4, /* reductions of long vectors: tuning also measures other lengths of chunks */
    COLL_LONG = 8,       /* its schedule grows with n^2: the model predicts it for few ranks only */
    COLL_BY_PARTS = 16, /* served where coll_args_t.host is given; useful where there are two parts or more */
    COLL_REACHES = 32,  /* works in other ranks' memory: served where coll_args_t.place > 0 */
    COLL_AT_ONCE = 64,  /* a reduction takes the inputs of all ranks in one step: coll_args_t.exact */
    COLL_OF_LEAVES = 128 /* for coll_args_t.leaves, and only for it; nobody chooses it by name */
} coll_trait_t;

/* 1 if the algorithm has the trait. */
int coll_algo_is(coll_algo_t algo, coll_trait_t trait);
/* In how many parts it cuts a vector before it cuts chunks; 0: one per rank. */
int coll_algo_parts(coll_algo_t algo);

/* What its need of TMP depends on: the same on all ranks. */
typedef struct {
    coll_op_t op;
    int n;
    int one_shot, fast_order;
    int scaled;         /* a scaled sum: the caller also needs TMP for the scaled input */
    int even_parts;     /* all hosts (cells) have as many ranks */
    size_t part_places; /* coll_places_by_parts of the host map */
    int leaves;         /* of all ranks; and coll_leaf_nodes of the rank with the most, and of all */
    size_t most_nodes, all_nodes;
} coll_tmp_ask_t;

/* A bound of the elements of TMP per element of the longest block, for blocks of many elements; 0: TMP does
 * not grow. */
size_t coll_tmp_factor(coll_algo_t algo, const coll_tmp_ask_t *ask);
/* A bound of TMP in chunks, however long the vector; 0: TMP grows with the vector. */
size_t coll_tmp_places(coll_algo_t algo, const coll_tmp_ask_t *ask);
/* coll_tmp_ask_t.part_places: the most of any rank. host: [n] 0..hosts-1. O(n hosts) time. */
size_t coll_places_by_parts(const int *host, int n, int hosts);

/* The nodes of the canonical tree over all leaves that make up those of `rank`; each leaf with exact. leaves:
 * coll_args_t.leaves; nodes: room for all, or NULL. -> how many. */
int coll_leaf_nodes(const int *leaves, int n, int rank, int exact, coll_node_t *nodes);

/* The names of all algorithms, each after a blank: " ring tree ...". */
extern const char coll_algo_names[];

#endif
