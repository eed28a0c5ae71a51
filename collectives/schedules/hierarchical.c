/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/schedules/hierarchical.c: first within hosts, then between them, so that the slow links carry
 * little.
 *
 * Hosts may have any ranks and any sizes. For each rank r every other host has one rank that stands in for
 * r, its deputy: the one with r's index on its own host, modulo the host's size. Ranks on r's host need no
 * deputy.
 *
 *  reductions  Rank r is to have block r. On each host the ranks send r's deputy there their block r (on r's
 *              own host: r itself), which adds what forms maximal canonical subtrees inside its host's set
 *              of ranks (whole hosts, if a host's ranks are an aligned block; single contributions in the
 *              worst case, if ranks are dealt out in turn) and sends these pieces to r, which finishes the
 *              tree. reduce_scatter ends here; for all_reduce (shards as blocks) an all_gather follows, for
 *              reduce the blocks go to root.
 *  all_gather  Rank r sends its block to its host's ranks and to its deputies, which send it to theirs: each
 *              byte crosses once per ordered pair of hosts.
 *  broadcast   In as many parts as the largest host has ranks. Part j goes down a binomial tree of hosts,
 *              from one host's deputy for j to the next host's, and from each to the ranks of its host.
 *  barrier     Ranks report to their host's first rank; these run a dissemination barrier and let theirs go.
 *
 * Reductions and all_gather go in rounds of one chunk per block. So that the links between hosts never wait
 * for a round to end, the stages of several rounds overlap: a rank sends other hosts their pieces AHEAD
 * rounds before it needs theirs, and takes in the results of others AHEAD rounds after it sent its own.
 * Between two ranks messages are sent and received in the same order, since both lags are the same:
 *
 *      step i:   pieces(i + AHEAD) out    own block(i) finished and out    blocks(i - AHEAD) in
 *
 * TMP: reductions: n pieces of a chunk, and SETS times a chunk for each block that a rank is deputy for.
 * Setting up needs O(n) memory and O(n log n) time per rank. */
#include <stdlib.h>

#include "collectives/schedules/generator.h"

enum { AHEAD = 2, SETS = AHEAD + 1 };

typedef struct {
    coll_builder_t *b;
    const coll_args_t *a;
    int *host;             /* [n] dense host numbers, in order of their first rank */
    int *index;            /* [n] index among the host's ranks */
    int *member;           /* [n] ranks sorted by host, then rank */
    int *first;            /* [hosts + 1] where each host starts in member */
    int hosts, mine, most; /* most: ranks of the largest host */
} hosts_t;

typedef struct {
    int name, rank;
} named_t;

static int name_order(const void *x, const void *y)
{
    const named_t *p = x, *q = y;
    if (p->name != q->name)
        return p->name < q->name ? -1 : 1;
    return p->rank < q->rank ? -1 : p->rank > q->rank;
}

static int size_of(const hosts_t *h, int host)
{
    return h->first[host + 1] - h->first[host];
}

/* Names hosts by where their first rank is in args->order: hosts of one switch follow each other then, so
 * that a tree of hosts crosses switches rarely. named, first: [n]. */
static void name_by_order(const coll_args_t *a, named_t *named, int *first)
{
    for (int i = 0; i < a->n; i++)
        named[i] = (named_t){a->host[a->order[i]], i};
    qsort(named, (size_t)a->n, sizeof *named, name_order);
    for (int i = 0, at = 0; i < a->n; i++) {
        at = i == 0 || named[i].name != named[i - 1].name ? named[i].rank : at;
        first[a->order[named[i].rank]] = at;
    }
    for (int r = 0; r < a->n; r++)
        named[r] = (named_t){first[r], r};
}

/* Makes dense numbers of the caller's: hosts numbered by their order among the names. */
static int find_hosts(hosts_t *h, coll_builder_t *b, const coll_args_t *a)
{
    size_t n = (size_t)a->n;
    named_t *named = coll_scratch(b, n, sizeof *named);
    *h = (hosts_t){.b = b, .a = a};
    h->host = coll_scratch(b, n, sizeof *h->host);
    h->index = coll_scratch(b, n, sizeof *h->index);
    h->member = coll_scratch(b, n, sizeof *h->member);
    h->first = coll_scratch(b, n + 1, sizeof *h->first);
    if (!named || !h->host || !h->index || !h->member || !h->first)
        return 0;
    for (int r = 0; r < a->n; r++)
        named[r] = (named_t){a->host[r], r};
    if (a->order)
        name_by_order(a, named, h->index);
    qsort(named, n, sizeof *named, name_order);
    for (int i = 0; i < a->n; i++) {
        if (i == 0 || named[i].name != named[i - 1].name)
            h->first[h->hosts++] = i;
        h->member[i] = named[i].rank;
        h->host[named[i].rank] = h->hosts - 1;
        h->index[named[i].rank] = i - h->first[h->hosts - 1];
    }
    h->first[h->hosts] = a->n;
    h->mine = h->host[a->rank];
    for (int i = 0; i < h->hosts; i++)
        h->most = size_of(h, i) > h->most ? size_of(h, i) : h->most;
    return 1;
}

static int member_of(const hosts_t *h, int host, int index)
{
    return h->member[h->first[host] + index % size_of(h, host)];
}

/* The rank that stands in for `rank` on a host: itself on its own. */
static int deputy(const hosts_t *h, int host, int rank)
{
    return h->host[rank] == host ? rank : member_of(h, host, h->index[rank]);
}

/* The blocks that a rank of this host has to do with: those it is deputy for, then its own. list: [n]. */
static int list_blocks(const hosts_t *h, int keeper, int *list)
{
    int count = 0;
    for (int host = 0; host < h->hosts; host++)
        for (int i = h->index[keeper]; host != h->mine && i < size_of(h, host); i += size_of(h, h->mine))
            list[count++] = member_of(h, host, i);
    list[count++] = keeper;
    return count;
}

/* ---- reductions ------------------------------------------------------------------------------------------
 */

/* A partial result that is at hand. */
typedef struct {
    coll_node_t node;
    coll_ref_t at;
} partial_t;

typedef struct {
    hosts_t *h;
    partial_t *pieces;   /* [n] */
    partial_t *leaves;   /* [ranks of this host] */
    int *blocks;         /* [n] */
    coll_ref_t *sources; /* [n] */
    int *starts;         /* [hosts + 1] a host's pieces are nodes[starts[host]] ... */
    coll_node_t *nodes;  /* [n] maximal nodes within each host's ranks, by host */
    /* TMP. What is received within the host and what becomes of it stays until it has been sent: SETS of
     * them. */
    coll_ref_t contributions; /* [SETS or 1][slots][stride] */
    coll_ref_t sums;          /* [SETS][per_set][stride] of blocks for others, then of the own block */
    coll_ref_t rest;          /* [n][stride] pieces from other hosts */
    size_t stride, slots, per_set;
    int loose;       /* some contributions are passed on as they are: they need SETS as well */
    coll_ref_t pool; /* where the next sum goes */
} reduction_t;

static int in_host(const hosts_t *h, int rank, int host)
{
    return rank < h->a->n && h->host[rank] == host;
}

/* The maximal canonical nodes inside the set of ranks of one host, in rank order. */
static int list_nodes(const hosts_t *h, int host, coll_node_t *nodes)
{
    int count = 0, size = size_of(h, host);
    for (int i = 0; i < size;) {
        int lo = member_of(h, host, i), run = 1;
        while (i + run < size && in_host(h, lo + run, host))
            run++;
        for (int at = lo; at < lo + run; at = nodes[count - 1].hi)
            nodes[count++] = coll_node_first_inside(h->a->n, at, lo + run);
        i += run;
    }
    return count;
}

/* What a host's ranks need: see set_up_reduction, which counts the same for one rank. */
typedef struct {
    size_t size, nodes;
    int loose;
} share_t;

static share_t share_of(const int *host, int n, int which)
{
    share_t s = {0};
    for (int lo = 0, hi; lo < n; lo = hi) {
        for (hi = lo + 1; hi < n && host[hi] == host[lo]; hi++) {
        }
        if (host[lo] != which)
            continue;
        s.size += (size_t)(hi - lo);
        for (int at = lo; at < hi; s.nodes++) {
            coll_node_t node = coll_node_first_inside(n, at, hi);
            s.loose |= coll_node_size(node) == 1;
            at = node.hi;
        }
    }
    return s;
}

size_t coll_hierarchical_places(const coll_tmp_ask_t *ask)
{
    return ask->part_places;
}

/* Sums need TMP: 4 n chunks where all hosts have as many ranks, and what rounding adds. */
size_t coll_hierarchical_factor(const coll_tmp_ask_t *ask)
{
    const size_t n = (size_t)ask->n;
    if (ask->one_shot || ask->op == COLL_BROADCAST || ask->op == COLL_ALL_GATHER)
        return coll_plain_factor(ask);
    return ask->even_parts ? base_min_size(6, n + 2) : n + 2;
}

size_t coll_places_by_parts(const int *host, int n, int hosts)
{
    size_t nodes = 0, most = 1;
    int even = 1;
    for (int h = 0; h < hosts; h++) {
        share_t s = share_of(host, n, h);
        nodes += s.nodes;
        even &= s.size * (size_t)hosts == (size_t)n;
    }
    for (int h = 0; h < hosts; h++) {
        share_t s = share_of(host, n, h);
        size_t blocks = (size_t)hosts + (even ? 0 : ((size_t)n - s.size) / s.size);
        size_t slots = s.size * (s.loose ? blocks * SETS : 1);
        most = base_max_size(most, slots + (blocks - 1) * s.nodes * SETS + s.nodes + nodes + nodes);
    }
    return most;
}

static int set_up_reduction(reduction_t *r, hosts_t *h, size_t most)
{
    size_t n = (size_t)h->a->n, blocks;
    *r = (reduction_t){.h = h, .stride = base_round_up(base_min_size(h->a->chunk, most), 64)};
    r->pieces = coll_scratch(h->b, n, sizeof *r->pieces);
    r->sources = coll_scratch(h->b, n, sizeof *r->sources);
    r->starts = coll_scratch(h->b, (size_t)h->hosts + 1, sizeof *r->starts);
    r->nodes = coll_scratch(h->b, n, sizeof *r->nodes);
    r->leaves = coll_scratch(h->b, (size_t)size_of(h, h->mine), sizeof *r->leaves);
    r->blocks = coll_scratch(h->b, n, sizeof *r->blocks);
    if (!r->pieces || !r->leaves || !r->blocks || !r->sources || !r->starts || !r->nodes)
        return 0;
    for (int i = 0; i < h->hosts; i++)
        r->starts[i + 1] = r->starts[i] + list_nodes(h, i, r->nodes + r->starts[i]);
    blocks = (size_t)list_blocks(h, h->a->rank, r->blocks);
    for (int i = r->starts[h->mine]; i < r->starts[h->mine + 1]; i++)
        r->loose |= coll_node_size(r->nodes[i]) == 1;
    r->slots = (size_t)size_of(h, h->mine) * (r->loose ? blocks : 1);
    r->contributions = coll_tmp_slots(h->b, r->slots * (r->loose ? SETS : 1), r->stride);
    /* Of the own block: the host's pieces, and as many sums as all pieces at most. */
    size_t here = (size_t)(r->starts[h->mine + 1] - r->starts[h->mine]), all = (size_t)r->starts[h->hosts];
    r->per_set = (blocks - 1) * here;
    r->sums = coll_tmp_slots(h->b, r->per_set * SETS + here + all, r->stride);
    r->rest = coll_tmp_slots(h->b, all, r->stride);
    return 1;
}

static coll_ref_t new_sum(reduction_t *r)
{
    coll_ref_t sum = r->pool;
    r->pool = coll_ref_add(sum, r->stride);
    return sum;
}

/* Adds up the pieces that make up `node`, the list's first *used ones of n; 1 step where they are equal
 * blocks (the canonical tree over equal aligned blocks is the canonical tree over their number), else by
 * halves. to: where the result of this node goes if it takes a step (buf IN: to a new sum). */
static coll_ref_t combine(reduction_t *r, coll_node_t node, const partial_t *pieces, int *used, coll_ref_t to,
                          size_t count, int final)
{
    int first = *used, equal = 1, last = first, total = r->h->a->n;
    if (coll_node_equal(pieces[first].node, node) && !final) {
        ++*used;
        return pieces[first].at;
    }
    int size = coll_node_size(pieces[first].node);
    for (; pieces[last].node.hi < node.hi; last++)
        equal &= coll_node_size(pieces[last].node) == size;
    equal &= coll_node_size(pieces[last].node) == size ||
             (pieces[last].node.hi == total && coll_node_size(pieces[last].node) < size);
    coll_ref_t two[2];
    uint32_t nsources = 2;
    const coll_ref_t *sources = two;
    if (equal) {
        nsources = (uint32_t)(last - first + 1);
        for (int i = first; i <= last; i++)
            r->sources[i - first] = pieces[i].at;
        sources = r->sources;
        *used = last + 1;
    } else {
        int split = coll_node_split(node);
        coll_ref_t anywhere = coll_in(0);
        two[0] = combine(r, (coll_node_t){node.lo, split}, pieces, used, anywhere, count, 0);
        two[1] = combine(r, (coll_node_t){split, node.hi}, pieces, used, anywhere, count, 0);
    }
    if (to.buf == COLL_IN)
        to = new_sum(r);
    coll_add_reduce(r->h->b, 0, to, sources, nsources, count, final ? COLL_FINAL : 0);
    return to;
}

/* Receives chunk k's contributions of this host to the j-th of the blocks, which this rank is deputy for or
 * owns, and adds up what it can. Returns the number of pieces. */
static int reduce_in_host(reduction_t *r, size_t k, int j, coll_range_t part, partial_t *pieces)
{
    hosts_t *h = r->h;
    int size = size_of(h, h->mine), own = h->index[h->a->rank], count = 0, used = 0;
    size_t slot = r->loose ? (k % SETS) * r->slots + (size_t)j * (size_t)size : 0;
    for (int i = 0; i < size; i++) {
        int from = member_of(h, h->mine, i);
        r->leaves[i] = (partial_t){{from, from + 1}, coll_in(part.offset)};
        if (i != own)
            r->leaves[i].at = coll_ref_add(r->contributions, (slot + (size_t)i) * r->stride);
    }
    for (int i = 1; i < size; i++) {
        int at = own >= i ? own - i : own - i + size;
        coll_add_recv(h->b, 0, member_of(h, h->mine, at), r->leaves[at].at, part.count);
    }
    for (int i = r->starts[h->mine]; i < r->starts[h->mine + 1]; i++, count++) {
        pieces[count].node = r->nodes[i];
        pieces[count].at = combine(r, r->nodes[i], r->leaves, &used, coll_in(0), part.count, 0);
    }
    return count;
}

/* Receives the pieces of the other hosts for this rank's block and finishes the tree. Returns where the
 * result is. */
static coll_ref_t finish_block(reduction_t *r, coll_range_t part, int count, coll_ref_t to)
{
    hosts_t *h = r->h;
    size_t slot = 0;
    int used = 0;
    for (int i = 1; i < h->hosts; i++) {
        int host = h->mine >= i ? h->mine - i : h->mine - i + h->hosts;
        for (int k = r->starts[host]; k < r->starts[host + 1]; k++) {
            r->pieces[count] = (partial_t){r->nodes[k], coll_ref_add(r->rest, slot++ * r->stride)};
            coll_add_recv(h->b, 0, deputy(h, host, h->a->rank), r->pieces[count++].at, part.count);
        }
    }
    qsort(r->pieces, (size_t)count, sizeof *r->pieces, coll_node_order);
    return combine(r, (coll_node_t){0, h->a->n}, r->pieces, &used, to, part.count, 1);
}

static coll_range_t reduced_part(const hosts_t *h, int block, size_t k)
{
    return coll_chunk(coll_reduced_block(h->a, block), h->a->chunk, k);
}

/* Sends this rank's contributions to chunk k to the ranks of its host that own the block (own) or are
 * deputies for it. */
static void contribute(reduction_t *r, size_t k, int own)
{
    hosts_t *h = r->h;
    for (int i = 1, size = size_of(h, h->mine); i < size; i++) {
        int keeper = member_of(h, h->mine, h->index[h->a->rank] + i), n = list_blocks(h, keeper, r->blocks);
        for (int j = own ? n - 1 : 0; j < (own ? n : n - 1); j++) {
            coll_range_t part = reduced_part(h, r->blocks[j], k);
            coll_add_send(h->b, 0, keeper, coll_in(part.offset), part.count);
        }
    }
}

/* Chunk k of the blocks that this rank is deputy for, to their owners. */
static void send_pieces(reduction_t *r, size_t k)
{
    hosts_t *h = r->h;
    int n = list_blocks(h, h->a->rank, r->blocks);
    r->pool = coll_ref_add(r->sums, (k % SETS) * r->per_set * r->stride);
    for (int j = 0; j + 1 < n; j++) {
        coll_range_t part = reduced_part(h, r->blocks[j], k);
        int count = reduce_in_host(r, k, j, part, r->pieces);
        for (int i = 0; i < count; i++)
            coll_add_send(h->b, 0, r->blocks[j], r->pieces[i].at, part.count);
    }
}

/* Chunk k of this rank's own block. to: as in combine. Returns where the result is. */
static coll_ref_t own_block(reduction_t *r, size_t k, coll_ref_t to)
{
    hosts_t *h = r->h;
    coll_range_t part = reduced_part(h, h->a->rank, k);
    int n = list_blocks(h, h->a->rank, r->blocks);
    r->pool = coll_ref_add(r->sums, SETS * r->per_set * r->stride);
    return finish_block(r, part, reduce_in_host(r, k, n - 1, part, r->pieces), to);
}

/* ---- all_gather --------------------------------------------------------------------------------------- */

static void send_to_host(const hosts_t *h, coll_ref_t from, size_t count)
{
    for (int i = 1; i < size_of(h, h->mine); i++)
        coll_add_send(h->b, 0, member_of(h, h->mine, h->index[h->a->rank] + i), from, count);
}

/* Chunk k of this rank's block, to its deputies. own: where the whole block is. */
static void send_own(const hosts_t *h, size_t k, coll_ref_t own)
{
    const coll_args_t *a = h->a;
    coll_range_t block = coll_gathered_block(a, a->rank), part = coll_chunk(block, a->chunk, k);
    for (int i = 1; i < h->hosts; i++)
        coll_add_send(h->b, 0, deputy(h, (h->mine + i) % h->hosts, a->rank),
                      coll_ref_add(own, part.offset - block.offset), part.count);
}

/* Chunk k of every block, to the ranks of this host: from its owner or its deputy here. own: as above;
 * blocks: [n]. */
static void share_in_host(const hosts_t *h, size_t k, coll_ref_t own, int *blocks)
{
    const coll_args_t *a = h->a;
    coll_range_t block = coll_gathered_block(a, a->rank), part = coll_chunk(block, a->chunk, k);
    send_to_host(h, coll_ref_add(own, part.offset - block.offset), part.count);
    int n = list_blocks(h, a->rank, blocks);
    for (int j = 0; j + 1 < n; j++) {
        part = coll_chunk(coll_gathered_block(a, blocks[j]), a->chunk, k);
        coll_add_recv(h->b, 0, blocks[j], coll_out(part.offset), part.count);
        send_to_host(h, coll_out(part.offset), part.count);
    }
    for (int i = 1, size = size_of(h, h->mine); i < size; i++) {
        int peer = member_of(h, h->mine, h->index[a->rank] + size - i);
        n = list_blocks(h, peer, blocks);
        for (int j = 0; j < n; j++) { /* the peer's own block, listed last, is sent first */
            part = coll_chunk(coll_gathered_block(a, blocks[(j + n - 1) % n]), a->chunk, k);
            coll_add_recv(h->b, 0, peer, coll_out(part.offset), part.count);
        }
    }
}

static void reduce_blocks(hosts_t *h)
{
    const coll_args_t *a = h->a;
    reduction_t r;
    size_t most = coll_reduced_most(a), chunks = coll_chunks(most, a->chunk), out = coll_reduced_out(a);
    int gathers = a->op == COLL_ALL_REDUCE;
    if (!set_up_reduction(&r, h, most))
        return;
    for (size_t t = 0; t < chunks + 2 * AHEAD; t++) { /* step i = t - AHEAD, see above */
        int finishes = t >= AHEAD && t - AHEAD < chunks;
        if (t < chunks)
            contribute(&r, t, 0);
        if (finishes)
            contribute(&r, t - AHEAD, 1);
        if (t < chunks)
            send_pieces(&r, t);
        if (finishes) {
            own_block(&r, t - AHEAD, coll_out(out + (t - AHEAD) * a->chunk));
            if (gathers)
                send_own(h, t - AHEAD, coll_out(out));
        }
        if (gathers && t >= 2 * AHEAD)
            share_in_host(h, t - 2 * AHEAD, coll_out(out), r.blocks);
    }
}

static void reduce_to_root(hosts_t *h)
{
    const coll_args_t *a = h->a;
    reduction_t r;
    size_t most = coll_reduced_most(a), out = coll_reduced_out(a);
    if (!set_up_reduction(&r, h, most))
        return;
    for (size_t k = 0; k < coll_chunks(most, a->chunk); k++) {
        coll_ref_t to = a->rank == a->root ? coll_out(out + k * a->chunk) : coll_in(0);
        contribute(&r, k, 0);
        contribute(&r, k, 1);
        send_pieces(&r, k);
        coll_ref_t result = own_block(&r, k, to);
        if (a->rank != a->root) {
            coll_add_send(h->b, 0, a->root, result,
                          coll_chunk(coll_reduced_block(a, a->rank), a->chunk, k).count);
            continue;
        }
        for (int i = 1; i < a->n; i++) {
            int rank = coll_rank_before(a, i);
            coll_range_t part = coll_chunk(coll_reduced_block(a, rank), a->chunk, k);
            coll_add_recv(h->b, 0, rank, coll_out(part.offset), part.count);
        }
    }
}

static void all_gather(hosts_t *h)
{
    const coll_args_t *a = h->a;
    size_t most = 0;
    int *blocks = coll_scratch(h->b, (size_t)a->n, sizeof *blocks);
    for (int r = 0; r < a->n; r++)
        most = base_max_size(most, a->counts[r]);
    size_t chunks = coll_chunks(most, a->chunk);
    for (size_t t = 0; blocks && t < chunks + AHEAD; t++) {
        if (t < chunks)
            send_own(h, t, coll_in(0));
        if (t >= AHEAD)
            share_in_host(h, t - AHEAD, coll_in(0), blocks);
    }
    coll_add_own_copy(h->b, a);
}

/* ---- broadcast and barrier ---------------------------------------------------------------------------- */

/* The rank that has part j first on the v-th host after root's. */
static int holder(const hosts_t *h, int v, int part)
{
    int root = h->a->root;
    return v == 0 ? root : member_of(h, (h->host[root] + v) % h->hosts, part);
}

static void broadcast_part(const hosts_t *h, int j, coll_range_t range)
{
    const coll_args_t *a = h->a;
    int v = (h->mine - h->host[a->root] + h->hosts) % h->hosts, mine = holder(h, v, j);
    coll_ref_t out = coll_out(range.offset), from = a->rank == a->root ? coll_in(range.offset) : out;
    if (a->rank != mine) {
        coll_add_recv(h->b, 0, mine, out, range.count);
        return;
    }
    if (v > 0)
        coll_add_recv(h->b, 0, holder(h, v & (v - 1), j), out, range.count);
    int below = v > 0 ? v & -v : coll_power_below(h->hosts) * 2;
    for (int bit = below / 2; bit > 0; bit /= 2)
        if (bit < h->hosts - v)
            coll_add_send(h->b, 0, holder(h, v + bit, j), from, range.count);
    send_to_host(h, from, range.count);
}

static void broadcast(hosts_t *h)
{
    const coll_args_t *a = h->a;
    size_t chunks = coll_chunks(coll_shard(a->count, h->most, 0).count, a->chunk);
    for (size_t k = 0; k < chunks; k++)
        for (int j = 0; j < h->most; j++)
            broadcast_part(h, j, coll_chunk(coll_shard(a->count, h->most, j), a->chunk, k));
    if (a->rank == a->root)
        coll_add_own_copy(h->b, a);
}

static void barrier(const hosts_t *h)
{
    int size = size_of(h, h->mine), leader = member_of(h, h->mine, 0);
    if (h->a->rank != leader) {
        coll_add_sync_send(h->b, leader);
        coll_add_sync_recv(h->b, leader);
        return;
    }
    for (int i = 1; i < size; i++)
        coll_add_sync_recv(h->b, member_of(h, h->mine, i));
    for (int distance = 1; distance < h->hosts; distance *= 2) {
        coll_add_sync_send(h->b, member_of(h, (h->mine + distance) % h->hosts, 0));
        coll_add_sync_recv(h->b, member_of(h, (h->mine + h->hosts - distance) % h->hosts, 0));
    }
    for (int i = 1; i < size; i++)
        coll_add_sync_send(h->b, member_of(h, h->mine, i));
}

void coll_generate_hierarchical(coll_builder_t *b, const coll_args_t *args)
{
    hosts_t h;
    if (!find_hosts(&h, b, args))
        return;
    switch (args->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE_SCATTER:
        reduce_blocks(&h);
        break;
    case COLL_REDUCE:
        reduce_to_root(&h);
        break;
    case COLL_ALL_GATHER:
        all_gather(&h);
        break;
    case COLL_BROADCAST:
        broadcast(&h);
        break;
    default:
        barrier(&h);
        break;
    }
}
