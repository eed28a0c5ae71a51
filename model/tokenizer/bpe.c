/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/bpe.c: pieces to tokens.
 *
 * A piece is a linked list of tokens, at first one per byte, each identified by its first byte. A heap holds
 * the neighbours that may be merged, by (rank, place). When an entry comes up, the rank noted at its place
 * shows whether a merge has changed it meanwhile. A piece of n bytes takes O(n log n) in any case. Short
 * pieces that have been seen are cached. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "model/tokenizer/internal.h"

#define NOWHERE UINT32_MAX

#define CACHE       8192 /* pieces */
#define CACHE_BYTES 22
#define CACHE_IDS   8
typedef struct {
    unsigned char bytes, ids; /* bytes 0: empty */
    unsigned char piece[CACHE_BYTES];
    model_token_t id[CACHE_IDS];
} remembered_t;

typedef struct {
    uint32_t id, before, next; /* neighbours' places; NOWHERE at the ends */
    /* of the merge with the next; TOKENIZER_NONE: no merge, or not a token's place any more */
    uint32_t rank;
} node_t;

struct model_encoder {
    const model_tokenizer_t *tokenizer;
    tokenizer_cutter_t *cutter;
    node_t *node;   /* [node_room] */
    uint64_t *heap; /* [3 node_room]: rank << 32 | place */
    size_t node_room, heap_count;
    model_token_t *id; /* [room] */
    size_t count, room;
    remembered_t *cache; /* [CACHE] */
};

gyre_status_t model_encoder_create(const model_tokenizer_t *tokenizer, model_encoder_t **out)
{
    model_encoder_t *encoder = calloc(1, sizeof *encoder);
    if (encoder)
        encoder->cache = calloc(CACHE, sizeof *encoder->cache);
    if (!encoder || !encoder->cache) {
        free(encoder);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to encode text");
    }
    encoder->tokenizer = tokenizer;
    gyre_status_t status = tokenizer_cutter_create(tokenizer->split, &encoder->cutter);
    if (status != GYRE_OK) {
        model_encoder_destroy(encoder);
        return status;
    }
    *out = encoder;
    return GYRE_OK;
}

void model_encoder_destroy(model_encoder_t *encoder)
{
    if (!encoder)
        return;
    tokenizer_cutter_destroy(encoder->cutter);
    free(encoder->node);
    free(encoder->heap);
    free(encoder->id);
    free(encoder->cache);
    free(encoder);
}

/* ---- heap ---------------------------------------------------------------------------------------------- */

static void heap_push(model_encoder_t *e, uint64_t key)
{
    size_t at = e->heap_count++;
    for (; at > 0 && e->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = key;
}

static uint64_t heap_pop(model_encoder_t *e)
{
    uint64_t top = e->heap[0], key = e->heap[--e->heap_count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < e->heap_count) {
        if (child + 1 < e->heap_count && e->heap[child + 1] < e->heap[child])
            child++;
        if (e->heap[child] >= key)
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = key;
    return top;
}

/* ---- merging ------------------------------------------------------------------------------------------- */

/* Looks whether the token at `at` and its next may be merged. */
static void consider(model_encoder_t *e, const unsigned char *piece, size_t bytes, uint32_t at)
{
    const model_tokenizer_t *t = e->tokenizer;
    node_t *node = &e->node[at];
    node->rank = TOKENIZER_NONE;
    if (node->next == NOWHERE)
        return;
    const node_t *next = &e->node[node->next];
    if (t->merged)
        node->rank = tokenizer_rank(t, node->id, next->id);
    else {
        size_t end = next->next == NOWHERE ? bytes : next->next;
        node->rank = tokenizer_lookup(t, piece + at, end - at);
    }
    if (node->rank != TOKENIZER_NONE)
        heap_push(e, (uint64_t)node->rank << 32 | at);
}

static void merge_all(model_encoder_t *e, const unsigned char *piece, size_t bytes)
{
    e->heap_count = 0;
    for (uint32_t i = 0; i < bytes; i++)
        e->node[i] = (node_t){.id = e->tokenizer->byte_id[piece[i]],
                              .before = i == 0 ? NOWHERE : i - 1,
                              .next = i + 1 == bytes ? NOWHERE : i + 1};
    for (uint32_t i = 0; i < bytes; i++)
        consider(e, piece, bytes, i);
    while (e->heap_count > 0) {
        uint64_t key = heap_pop(e);
        uint32_t at = (uint32_t)key, rank = (uint32_t)(key >> 32);
        node_t *node = &e->node[at];
        if (node->rank != rank)
            continue; /* of before another merge */
        node_t *gone = &e->node[node->next];
        gone->rank = TOKENIZER_NONE;
        node->id = e->tokenizer->merged ? e->tokenizer->merged[rank] : rank;
        node->next = gone->next;
        if (node->next != NOWHERE)
            e->node[node->next].before = at;
        consider(e, piece, bytes, at);
        if (node->before != NOWHERE)
            consider(e, piece, bytes, node->before);
    }
}

static gyre_status_t make_room(model_encoder_t *e, size_t bytes)
{
    if (e->room - e->count < bytes) {
        size_t room = base_max_size(2 * e->room, e->count + bytes + 1024);
        model_token_t *grown = realloc(e->id, room * sizeof *grown);
        if (!grown)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu tokens", room);
        e->id = grown;
        e->room = room;
    }
    return GYRE_OK;
}

static gyre_status_t make_nodes(model_encoder_t *e, size_t bytes)
{
    size_t room = base_max_size(2 * e->node_room, bytes + 256);
    if (bytes <= e->node_room)
        return GYRE_OK;
    if (bytes >= NOWHERE / 2)
        return gyre_fail(GYRE_ERR_INVALID, "a piece of %zu bytes without a place to cut it is too long",
                         bytes);
    free(e->node);
    free(e->heap);
    e->node_room = 0;
    e->node = malloc(room * sizeof *e->node);
    e->heap = malloc(3 * room * sizeof *e->heap);
    if (!e->node || !e->heap)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a piece of %zu bytes", bytes);
    e->node_room = room;
    return GYRE_OK;
}

static gyre_status_t take_piece(void *user, const unsigned char *piece, size_t bytes)
{
    model_encoder_t *e = user;
    const model_tokenizer_t *t = e->tokenizer;
    gyre_status_t status = make_room(e, bytes);
    if (status != GYRE_OK)
        return status;
    remembered_t *seen = NULL;
    if (bytes <= CACHE_BYTES) {
        seen = &e->cache[base_hash64(piece, bytes, 0) % CACHE];
        if (seen->bytes == bytes && memcmp(seen->piece, piece, bytes) == 0) {
            memcpy(e->id + e->count, seen->id, seen->ids * sizeof *e->id);
            e->count += seen->ids;
            return GYRE_OK;
        }
    }
    size_t first = e->count;
    uint32_t whole = t->whole_first ? tokenizer_lookup(t, piece, bytes) : TOKENIZER_NONE;
    if (whole != TOKENIZER_NONE)
        e->id[e->count++] = (model_token_t)whole;
    else {
        if ((status = make_nodes(e, bytes)) != GYRE_OK)
            return status;
        merge_all(e, piece, bytes);
        for (uint32_t at = 0; at != NOWHERE; at = e->node[at].next)
            e->id[e->count++] = (model_token_t)e->node[at].id;
    }
    if (seen && e->count - first <= CACHE_IDS) {
        seen->bytes = (unsigned char)bytes;
        seen->ids = (unsigned char)(e->count - first);
        memcpy(seen->piece, piece, bytes);
        memcpy(seen->id, e->id + first, seen->ids * sizeof *e->id);
    }
    return GYRE_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* The longest added token at `text`; NULL: no such token. */
static const tokenizer_added_t *added_at(const model_tokenizer_t *t, const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].count <= bytes && memcmp(t->added[i].bytes, text, t->added[i].count) == 0)
            return &t->added[i];
    return NULL;
}

static gyre_status_t encode_around_added(model_encoder_t *e, const unsigned char *text, size_t bytes)
{
    const model_tokenizer_t *t = e->tokenizer;
    size_t from = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t at = 0; status == GYRE_OK && t->added_count > 0 && at < bytes;) {
        const tokenizer_added_t *added = added_at(t, text + at, bytes - at);
        if (!added) {
            at++;
            continue;
        }
        if (at > from)
            status = tokenizer_cut(e->cutter, text + from, at - from, take_piece, e);
        if (status == GYRE_OK && (status = make_room(e, 1)) == GYRE_OK)
            e->id[e->count++] = (model_token_t)added->id;
        from = at += added->count;
    }
    return status == GYRE_OK && from < bytes
               ? tokenizer_cut(e->cutter, text + from, bytes - from, take_piece, e)
               : status;
}

gyre_status_t model_encode(model_encoder_t *encoder, const void *text, size_t bytes,
                           const model_token_t **ids, size_t *count)
{
    const model_tokenizer_t *t = encoder->tokenizer;
    const unsigned char *byte = text;
    encoder->count = 0;
    gyre_status_t status = make_room(encoder, 1);
    if (status == GYRE_OK && !t->split && t->merged && t->merges == 0) { /* bytes */
        if ((status = make_room(encoder, bytes)) == GYRE_OK)
            for (; encoder->count < bytes; encoder->count++)
                encoder->id[encoder->count] = (model_token_t)t->byte_id[byte[encoder->count]];
    } else if (status == GYRE_OK)
        status = encode_around_added(encoder, byte, bytes);
    if (status != GYRE_OK)
        return status;
    *ids = encoder->id;
    *count = encoder->count;
    return GYRE_OK;
}
