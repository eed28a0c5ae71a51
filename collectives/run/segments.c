/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/segments.c: where a long operation is cut.
 *
 * Two things bound an operation: its TMP must fit the scratch budget, and its schedule must stay short. An
 * operation that is too long is cut into segments: slices of every block (or of the vector) that run one
 * after the other. Reductions are element-wise, so the cuts change no bits. At each cut the pipeline runs
 * empty. So an algorithm whose TMP is a fixed number of chunks for any vector gets shorter chunks instead of
 * shorter segments. Where to cut depends only on facts that all ranks know. */
#include "base/checked.h"
#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "collectives/schedules/algorithms.h"
#include "collectives/run/plan.h"
#include "collectives/run/reach/stage.h"

enum {
    CHUNK_LEAST = 16 << 10, /* bytes */
    /* Of a pipeline, which costs a few to empty: on one host 128 MiB of the longest, 256 KiB; between hosts,
     * where chunks are shorter, and hierarchical's the more so the more hosts, 128 MiB of 128 KiB to 16
     * MiB of 16 KiB. */
    SEGMENT_CHUNKS = 512,
    SEGMENT_CHUNKS_BETWEEN = 1024
};

/* Counts of the blocks are known to every rank, so that every rank can cut alike. */
static int may_cut(const coll_shape_t *s)
{
    return s->op != COLL_BARRIER && (coll_op_is_vector(s->op) || s->uniform || s->op == COLL_REDUCE_SCATTER ||
                                     s->op == COLL_ALL_GATHER);
}

static coll_tmp_ask_t tmp_ask(const gyre_comm_t *comm, const coll_plan_t *p)
{
    size_t most_nodes = 0, all_nodes = 0;
    for (int r = 0; comm->leaves && r < comm->n; r++) {
        const size_t nodes = (size_t)coll_leaf_nodes(comm->leaves, comm->n, r, p->exact, NULL);
        most_nodes = base_max_size(most_nodes, nodes);
        all_nodes += nodes;
    }
    return (coll_tmp_ask_t){.op = p->shape.op,
                            .n = comm->n,
                            .one_shot = p->one_shot,
                            .fast_order = p->shape.order == GYRE_ORDER_FAST,
                            .scaled = p->shape.scaled,
                            .even_parts = comm->even_parts,
                            .part_places = comm->part_places,
                            .leaves = p->inputs,
                            .most_nodes = most_nodes,
                            .all_nodes = all_nodes};
}

static size_t longest_of(const coll_shape_t *s, int n)
{
    if (coll_op_is_vector(s->op))
        return s->count;
    size_t max = 0;
    for (int r = 0; s->counts && r < n; r++)
        max = base_max_size(max, s->counts[r]);
    return max;
}

size_t coll_longest_block(const coll_shape_t *shape, int n)
{
    return may_cut(shape) ? longest_of(shape, n) : 0;
}

/* Pipelines of chunks run in one go, as far as their TMP fits the budget with chunks that are worth a
 * message. */
static int size_pipeline(const gyre_comm_t *comm, coll_plan_t *p, size_t longest)
{
    const coll_tmp_ask_t ask = tmp_ask(comm, p);
    const size_t places = coll_tmp_places(p->algo, &ask),
                 budget = (size_t)base_setting_int(SET_SCRATCH) / p->esize;
    const size_t blocks = coll_op_is_vector(p->shape.op) ? 1 : (size_t)comm->n;
    if (!places || p->shape.scaled || !may_cut(&p->shape))
        return 0;
    const size_t chunk = base_min_size(p->chunk, budget / places & ~(size_t)63);
    if (chunk < base_min_size(p->chunk, CHUNK_LEAST / p->esize))
        return 0;
    const size_t chunks = comm->hosts < 2 ? SEGMENT_CHUNKS : SEGMENT_CHUNKS_BETWEEN;
    const size_t most = base_max_size(chunks / blocks, 4) * chunk;
    p->chunk = chunk;
    p->cut.count = base_min_size(longest, most);
    p->cut.n = longest > most ? (uint32_t)((longest + most - 1) / most) : 1;
    return 1;
}

void coll_size_segments(const gyre_comm_t *comm, coll_plan_t *p)
{
    const size_t blocks = coll_op_is_vector(p->shape.op) ? 1 : (size_t)comm->n;
    const size_t longest = longest_of(&p->shape, comm->n);
    if (size_pipeline(comm, p, longest))
        return;
    const coll_tmp_ask_t ask = tmp_ask(comm, p);
    const size_t budget = (size_t)base_setting_int(SET_SCRATCH) / p->esize;
    const size_t factor = coll_tmp_factor(p->algo, &ask);
    p->cut.count = longest;
    p->cut.n = 1;
    p->fine_cut.count = coll_stage_segment(comm, p);
    if (p->fine_cut.count > 0)
        p->fine_cut.n = (uint32_t)((longest + p->fine_cut.count - 1) / p->fine_cut.count);
    if (factor == 0) /* TMP does not grow with the vector */
        return;
    size_t per = budget / ((factor + (p->shape.scaled ? 1 : 0)) * blocks);
    per = base_max_size(per & ~(size_t)63, 1024);
    if (may_cut(&p->shape) && longest > per) {
        p->cut.count = per;
        p->cut.n = (uint32_t)((longest + per - 1) / per);
    }
}
