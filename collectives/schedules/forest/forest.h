/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/forest.h: collectives in which every block has a tree of its own (Bine, Swing,
 * PAT), as one engine.
 *
 * A forest says, for each block, along which tree the contributions of all ranks flow to the block's owner
 * (reduce_scatter) and, the other way round, along which tree the block flows from its owner to all ranks
 * (all_gather). All trees are one tree over *places* 0..n-1, owner at place 0, laid around the ring of ranks:
 * the tree of block o puts place v on rank o + v or on rank o - v (modulo n). The edge above place v is used
 * in round round[v] of the reduction; the gather goes through the rounds backwards. What travels between two
 * ranks in one round goes as one message, cut where it grows longer than a chunk.
 *
 * Order of combination. What has flowed together at some rank belongs to an arbitrary set of ranks, no node
 * of the canonical tree. As in the canonical ring, what travels is then the list of the partial results of
 * the maximal nodes inside that set, and a rank combines siblings only: so the bits are those of every other
 * algorithm. With fast_order it is one partial result. */
#ifndef COLLECTIVES_SCHEDULES_FOREST_FOREST_H
#define COLLECTIVES_SCHEDULES_FOREST_FOREST_H

#include "collectives/schedules/generator.h"

typedef struct {
    int n, rounds;
    int paired;    /* odd blocks' trees are the mirror images of the even ones' (n even) */
    int flip;      /* all of them mirrored */
    int *parent;   /* [n] place above; parent[0] = -1 */
    int *round;    /* [n] later than those of all places below */
    int *start;    /* [n] the subtree's places are start, start + 1, ... (modulo n) */
    int *by_round; /* [n - 1] places in the order of their rounds */
    int *first;    /* [rounds + 1] where a round starts in by_round */
    int *size;     /* [n] how many they are */
} coll_forest_t;

/* Blocks as an engine sees them. */
typedef struct {
    coll_range_t *at; /* [n] block o in IN (reduction) or in OUT (gather) */
    int *position;    /* [n] messages list their blocks by ascending position */
    size_t out;       /* reduction: where the owner's result goes in OUT */
    int in_out;       /* reduction: block o's place in OUT is free for partial results (all_reduce) */
    int channel;
} coll_forest_blocks_t;

/* Memory for a forest over n ranks with `rounds` rounds; 0 (kept in the builder) if there is none. */
int coll_forest_init(coll_builder_t *b, coll_forest_t *f, int n, int rounds);
/* Fills in the rest from parent, round and start. */
void coll_forest_finish(coll_forest_t *f);

int coll_forest_rank(const coll_forest_t *f, int block, int place);
/* The block whose tree puts `place` on `rank`. */
int coll_forest_block(const coll_forest_t *f, int rank, int place);
/* The maximal nodes of the canonical tree inside the ranks of the subtree of `place` in block's tree, in rank
 * order. `list` has [n] entries. */
size_t coll_forest_nodes(const coll_forest_t *f, int block, int place, coll_node_t *list);

/* Blocks of the call, or their halves: part `half` of 2, or (0 of 1) all. position: NULL: as the ranks. */
int coll_forest_blocks(coll_builder_t *b, const coll_args_t *a, const int *position, int half, int halves,
                       coll_forest_blocks_t *out);

/* all_gather: copies this rank's own block (or half) from IN to its place in OUT, unless it lies there
 * already. */
void coll_forest_own(coll_builder_t *b, const coll_args_t *a, const coll_forest_blocks_t *blocks);
void coll_forest_reduce(coll_builder_t *b, const coll_args_t *a, const coll_forest_t *f,
                        const coll_forest_blocks_t *blocks);
/* The blocks' owners have them in OUT. */
void coll_forest_gather(coll_builder_t *b, const coll_args_t *a, const coll_forest_t *f,
                        const coll_forest_blocks_t *blocks);

/* The Bine and Swing trees (collectives/schedules/forest/bine.c). position[n]: an order of the blocks in
 * which those that travel together are neighbours. */
int coll_negabinary_forest(coll_builder_t *b, int n, int paired, int flip, coll_forest_t *f, int *position);
/* all_reduce with whole vectors between the same partners. */
void coll_negabinary_doubling(coll_builder_t *b, const coll_args_t *a);

#endif
