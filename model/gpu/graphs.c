/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/graphs.c: a table of captured work, by key.
 *
 * Captures concern this thread alone (cudaStreamCaptureModeThreadLocal): calls of other threads on events do
 * not disturb them. */
#include "model/gpu/graphs.h"

#ifdef GYRE_CUDA

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

enum {
    CHAINS = 1024,       /* a power of two */
    MOST_ENTRIES = 8192, /* keys that are known, with or without a graph */
    LONG_AGO = 4         /* unused for so many times as many runs as there are entries */
};

typedef struct entry {
    struct entry *next;   /* in its chain */
    cudaGraphExec_t exec; /* NULL: ran once, or stays without */
    size_t nodes;
    uint64_t used; /* when, in runs */
    char bytes[];  /* the key, then the note of the capture */
} entry_t;

struct model_cuda_graphs {
    cudaStream_t stream;
    size_t key_bytes, note_bytes, most, entries;
    size_t longest;           /* nodes of the longest graph so far */
    uint64_t now, next_sweep; /* in runs */
    int full;                 /* 1: no graph is made any more */
    entry_t *chain[CHAINS];
    model_cuda_graphs_count_t count;
};

gyre_status_t model_cuda_graphs_create(struct CUstream_st *stream, size_t key_bytes, size_t note_bytes,
                                       size_t most, model_cuda_graphs_t **out)
{
    model_cuda_graphs_t *g = calloc(1, sizeof *g);
    if (!g)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of CUDA graphs");
    g->stream = stream;
    g->key_bytes = key_bytes;
    g->note_bytes = note_bytes;
    g->most = most;
    *out = g;
    return GYRE_OK;
}

static void drop(model_cuda_graphs_t *g, entry_t *entry)
{
    if (entry->exec)
        (void)cudaGraphExecDestroy(entry->exec); /* if it still runs, CUDA frees it after its end */
    g->count.nodes -= entry->nodes;
    g->entries--;
    free(entry);
}

void model_cuda_graphs_destroy(model_cuda_graphs_t *g)
{
    for (size_t i = 0; g && i < CHAINS; i++)
        for (entry_t *entry = g->chain[i], *next; entry; entry = next) {
            next = entry->next;
            drop(g, entry);
        }
    free(g);
}

void model_cuda_graphs_count(const model_cuda_graphs_t *g, model_cuda_graphs_count_t *out)
{
    *out = g->count;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static entry_t **chain_of(model_cuda_graphs_t *g, const void *key)
{
    return &g->chain[base_hash64(key, g->key_bytes, 0) % CHAINS];
}

static entry_t *find(model_cuda_graphs_t *g, const void *key)
{
    entry_t *entry = *chain_of(g, key);
    while (entry && memcmp(entry->bytes, key, g->key_bytes) != 0)
        entry = entry->next;
    return entry;
}

/* Work that alternates with all others was last used at most as many runs ago as there are entries. */
static void sweep(model_cuda_graphs_t *g)
{
    const uint64_t long_ago = LONG_AGO * (uint64_t)g->entries;
    if (g->now < g->next_sweep)
        return;
    g->next_sweep = g->now + g->entries / 4;
    for (size_t i = 0; i < CHAINS; i++)
        for (entry_t **at = &g->chain[i]; *at;) {
            entry_t *entry = *at;
            if (g->now - entry->used <= long_ago) {
                at = &entry->next;
                continue;
            }
            g->count.dropped += entry->exec != NULL;
            *at = entry->next;
            drop(g, entry);
        }
}

/* Remembers a key, if there is room. */
static gyre_status_t remember(model_cuda_graphs_t *g, const void *key)
{
    if (g->entries >= MOST_ENTRIES)
        sweep(g);
    if (g->entries >= MOST_ENTRIES)
        return GYRE_OK;
    entry_t *entry = calloc(1, sizeof *entry + g->key_bytes + g->note_bytes);
    if (!entry)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for one more of %zu CUDA graphs", g->entries);
    entry_t **chain = chain_of(g, key);
    memcpy(entry->bytes, key, g->key_bytes);
    entry->used = g->now;
    entry->next = *chain;
    *chain = entry;
    g->entries++;
    return GYRE_OK;
}

/* ---- capture ------------------------------------------------------------------------------------------- */

/* Returns *graph and *nodes, or CUDA's error; status: the work's own. */
static cudaError_t capture(model_cuda_graphs_t *g, const model_cuda_work_t *work, cudaGraph_t *graph,
                           gyre_status_t *status)
{
    *graph = NULL;
    cudaError_t rc = cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal);
    if (rc != cudaSuccess)
        return rc;
    *status = work->enqueue(work->user);
    return cudaStreamEndCapture(g->stream, graph);
}

/* entry->exec: the work's graph; NULL where it was refused. Nothing is on the stream either way. */
static gyre_status_t make(model_cuda_graphs_t *g, entry_t *entry, const model_cuda_work_t *work)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    gyre_status_t status = GYRE_OK;
    const char *what = "capturing";
    cudaError_t rc = capture(g, work, &graph, &status);
    if (rc == cudaSuccess && status == GYRE_OK) {
        what = "instantiating";
        if ((rc = cudaGraphGetNodes(graph, NULL, &nodes)) == cudaSuccess)
            rc = cudaGraphInstantiate(&exec, graph, 0);
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (rc == cudaSuccess && status == GYRE_OK) {
        entry->exec = exec;
        entry->nodes = nodes;
        g->count.nodes += nodes;
        g->longest = nodes > g->longest ? nodes : g->longest;
        g->count.captured++;
        if (g->note_bytes)
            memcpy(entry->bytes + g->key_bytes, work->note, g->note_bytes);
        return GYRE_OK;
    }
    (void)cudaGetLastError(); /* clears the error, which is logged here */
    const char *why = rc != cudaSuccess ? cudaGetErrorString(rc) : gyre_last_error();
    if (work->together)
        return status != GYRE_OK
                   ? status
                   : gyre_fail(GYRE_ERR_SYSTEM, "a CUDA graph with collectives, %s: %s: go without (off)",
                               what, why);
    log_warning("CUDA graphs, %s: %s: what has no graph yet is launched kernel by kernel", what, why);
    g->full = 1;
    return GYRE_OK;
}

/* Room for a graph as long as the longest so far: only a capture shows its length. */
static int has_room(model_cuda_graphs_t *g)
{
    if (!g->full && g->count.nodes + g->longest > g->most)
        sweep(g);
    return !g->full && g->count.nodes + g->longest <= g->most;
}

gyre_status_t model_cuda_graphs_run(model_cuda_graphs_t *g, const model_cuda_work_t *work)
{
    g->now++;
    entry_t *entry = find(g, work->key);
    gyre_status_t status = GYRE_OK;
    if (entry)
        entry->used = g->now; /* before others are swept out */
    else
        status = remember(g, work->key);
    if (entry && !entry->exec && has_room(g))
        status = make(g, entry, work);
    if (status != GYRE_OK)
        return status;
    if (!entry || !entry->exec) {
        g->count.plain++;
        return work->enqueue(work->user);
    }
    if (g->note_bytes)
        memcpy(work->note, entry->bytes + g->key_bytes, g->note_bytes);
    cudaError_t rc = cudaGraphLaunch(entry->exec, g->stream);
    g->count.launched++;
    return rc == cudaSuccess ? GYRE_OK
                             : gyre_fail(GYRE_ERR_SYSTEM, "launching a CUDA graph of %zu nodes: %s",
                                         entry->nodes, cudaGetErrorString(rc));
}

#endif
