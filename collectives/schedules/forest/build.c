/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/forest/build.c: the geometry of forests (see forest.h): places, rounds, and the
 * canonical nodes inside a subtree. run.c makes schedules of them. */
#include "collectives/schedules/forest/forest.h"

int coll_forest_init(coll_builder_t *b, coll_forest_t *f, int n, int rounds)
{
    size_t un = (size_t)n;
    *f = (coll_forest_t){.n = n, .rounds = rounds};
    int *memory = coll_scratch(b, 5 * un + (size_t)rounds + 1, sizeof *memory);
    if (!memory)
        return 0;
    f->parent = memory;
    f->round = memory + un;
    f->by_round = memory + 2 * un;
    f->size = memory + 3 * un;
    f->start = memory + 4 * un;
    f->first = memory + 5 * un;
    return 1;
}

void coll_forest_finish(coll_forest_t *f)
{
    for (int t = 0; t <= f->rounds; t++)
        f->first[t] = 0;
    for (int v = 1; v < f->n; v++)
        f->first[f->round[v] + 1]++;
    for (int t = 0; t < f->rounds; t++)
        f->first[t + 1] += f->first[t];
    for (int v = 1; v < f->n; v++) /* moves first[t] to the end of round t */
        f->by_round[f->first[f->round[v]]++] = v;
    for (int t = f->rounds; t > 0; t--)
        f->first[t] = f->first[t - 1];
    f->first[0] = 0;
    for (int v = 0; v < f->n; v++)
        f->size[v] = 1;
    for (int i = 0; i < f->n - 1; i++)
        f->size[f->parent[f->by_round[i]]] += f->size[f->by_round[i]];
}

static int sign_of(const coll_forest_t *f, int block)
{
    return (f->paired && (block & 1)) != f->flip ? -1 : 1;
}

static int wrap(long x, int n)
{
    return (int)(x < 0 ? x + n : x >= n ? x - n : x);
}

int coll_forest_rank(const coll_forest_t *f, int block, int place)
{
    return wrap((long)block + (long)sign_of(f, block) * place, f->n);
}

int coll_forest_block(const coll_forest_t *f, int rank, int place)
{
    /* n is even where trees are paired: the block is odd if rank + place is */
    int parity = (rank + place) & 1;
    return wrap((long)rank - (long)sign_of(f, parity) * place, f->n);
}

/* The maximal nodes inside the ranks lo..hi-1, added to a list. */
static size_t add_nodes(int n, int lo, int hi, coll_node_t *list, size_t count)
{
    for (int at = lo; at < hi; at = list[count - 1].hi)
        list[count++] = coll_node_first_inside(n, at, hi);
    return count;
}

size_t coll_forest_nodes(const coll_forest_t *f, int block, int place, coll_node_t *list)
{
    int n = f->n, size = f->size[place];
    int end = wrap((long)f->start[place] + size - 1, n);
    int first = coll_forest_rank(f, block, sign_of(f, block) > 0 ? f->start[place] : end);
    int beyond = first > n - size ? size - (n - first) : 0; /* ranks that wrap round */
    if (size == n)
        return add_nodes(n, 0, n, list, 0);
    size_t count = add_nodes(n, 0, beyond, list, 0);
    return add_nodes(n, first, first + size - beyond, list, count);
}

int coll_forest_blocks(coll_builder_t *b, const coll_args_t *a, const int *position, int half, int halves,
                       coll_forest_blocks_t *out)
{
    size_t n = (size_t)a->n;
    coll_range_t *at = coll_scratch(b, n, sizeof *at);
    int *places = coll_scratch(b, n, sizeof *places);
    if (!at || !places)
        return 0;
    int shards = a->op == COLL_ALL_REDUCE;
    size_t before = shards && half ? coll_shard(a->count, halves, half).offset : 0;
    size_t count = shards ? coll_shard(a->count, halves, half).count : 0;
    for (int o = 0; o < a->n; o++) {
        places[o] = shards && position ? position[o] : o;
        coll_range_t whole =
            shards ? coll_shard(count, a->n, places[o]) : (coll_range_t){a->displs[o], a->counts[o]};
        if (!shards && halves > 1) {
            coll_range_t part = coll_shard(whole.count, halves, half);
            whole = (coll_range_t){whole.offset + part.offset, part.count};
        }
        at[o] = (coll_range_t){before + whole.offset, whole.count};
    }
    *out = (coll_forest_blocks_t){.at = at, .position = places, .in_out = shards, .channel = half};
    if (a->op == COLL_REDUCE_SCATTER)
        out->out = at[a->rank].offset - a->displs[a->rank];
    return 1;
}
