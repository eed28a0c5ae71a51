/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/bpe.c: pieces to tokens, by byte-pair encoding.
 *
 * A piece is a linked list of tokens, at first one for each byte, or for each character that has a token. A
 * heap holds the neighbours that may be merged, by (rank, place). When an entry comes up, the rank noted at
 * its place shows whether a merge has changed it meanwhile. A piece of n bytes takes O(n log n) in any
 * case. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/tokenizer/internal.h"

#define NOWHERE UINT32_MAX

typedef struct {
    uint32_t id, before, next; /* neighbours' places; NOWHERE at the ends */
    /* of the merge with the next; TOKENIZER_NONE: no merge, or not a token's place any more */
    uint32_t rank;
} node_t;

struct tokenizer_bpe {
    node_t *node;   /* [node_room] */
    uint64_t *heap; /* [3 node_room]: rank << 32 | place */
    size_t node_room, heap_count;
};

gyre_status_t tokenizer_bpe_create(tokenizer_bpe_t **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to encode text");
}

void tokenizer_bpe_destroy(tokenizer_bpe_t *bpe)
{
    if (!bpe)
        return;
    free(bpe->node);
    free(bpe->heap);
    free(bpe);
}

/* ---- heap ---------------------------------------------------------------------------------------------- */

static void heap_push(tokenizer_bpe_t *e, uint64_t key)
{
    size_t at = e->heap_count++;
    for (; at > 0 && e->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = key;
}

static uint64_t heap_pop(tokenizer_bpe_t *e)
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
static void consider(tokenizer_bpe_t *e, const model_tokenizer_t *t, const unsigned char *piece, size_t bytes,
                     uint32_t at)
{
    node_t *node = &e->node[at];
    node->rank = TOKENIZER_NONE;
    if (node->next == NOWHERE)
        return;
    const node_t *next = &e->node[node->next];
    if (t->merged)
        node->rank = tokenizer_rank(t, node->id, next->id);
    else { /* of bytes: places are theirs */
        size_t end = next->next == NOWHERE ? bytes : next->next;
        node->rank = tokenizer_lookup(t, piece + at, end - at);
    }
    if (node->rank != TOKENIZER_NONE)
        heap_push(e, (uint64_t)node->rank << 32 | at);
}

/* The first `count` nodes have their ids. */
static void merge_all(tokenizer_bpe_t *e, const model_tokenizer_t *t, const unsigned char *piece,
                      size_t bytes, size_t count)
{
    e->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        e->node[i].before = i == 0 ? NOWHERE : i - 1;
        e->node[i].next = i + 1 == count ? NOWHERE : i + 1;
    }
    for (uint32_t i = 0; i < count; i++)
        consider(e, t, piece, bytes, i);
    while (e->heap_count > 0) {
        uint64_t key = heap_pop(e);
        uint32_t at = (uint32_t)key, rank = (uint32_t)(key >> 32);
        node_t *node = &e->node[at];
        if (node->rank != rank)
            continue; /* of before another merge */
        node_t *gone = &e->node[node->next];
        gone->rank = TOKENIZER_NONE;
        node->id = t->merged ? t->merged[rank] : rank;
        node->next = gone->next;
        if (node->next != NOWHERE)
            e->node[node->next].before = at;
        consider(e, t, piece, bytes, at);
        if (node->before != NOWHERE)
            consider(e, t, piece, bytes, node->before);
    }
}

/* 1: each byte of a character has a token. */
static int falls_back(const model_tokenizer_t *t, const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (t->byte_id[text[i]] == TOKENIZER_NONE)
            return 0;
    return 1;
}

/* A token for each character, byte tokens where there is none, else the unknown token. Hugging Face's writes
 * an unknown token only when the next known character or the end comes, after byte tokens in between. */
static size_t start_of_characters(tokenizer_bpe_t *e, const model_tokenizer_t *t, const unsigned char *piece,
                                  size_t bytes)
{
    size_t n = 0, length;
    int waiting = 0; /* for an unknown token */
    uint32_t c;
    for (size_t at = 0; at < bytes; at += length) {
        length = base_utf8_decode(piece + at, bytes - at, &c);
        uint32_t id = tokenizer_lookup(t, piece + at, length);
        if (id != TOKENIZER_NONE && !t->token[id].special) {
            if (waiting)
                e->node[n++].id = t->unknown;
            waiting = 0;
            e->node[n++].id = id;
        } else if (falls_back(t, piece + at, length)) {
            for (size_t i = 0; i < length; i++)
                e->node[n++].id = t->byte_id[piece[at + i]];
        } else if (t->unknown != TOKENIZER_NONE) {
            if (waiting && !t->fuse_unknown)
                e->node[n++].id = t->unknown;
            waiting = 1;
        }
    }
    if (waiting)
        e->node[n++].id = t->unknown;
    return n;
}

static gyre_status_t make_nodes(tokenizer_bpe_t *e, size_t bytes)
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

gyre_status_t tokenizer_bpe_piece(tokenizer_bpe_t *e, const model_tokenizer_t *t, const unsigned char *piece,
                                  size_t bytes, model_token_t *id, size_t *count)
{
    uint32_t whole = t->whole_first ? tokenizer_lookup(t, piece, bytes) : TOKENIZER_NONE;
    *count = 0;
    if (whole != TOKENIZER_NONE && !t->token[whole].special) {
        id[(*count)++] = (model_token_t)whole;
        return GYRE_OK;
    }
    gyre_status_t status = make_nodes(e, bytes);
    if (status != GYRE_OK)
        return status;
    size_t n = bytes;
    if (t->kind == TOKENIZER_BYTES)
        for (size_t i = 0; i < bytes; i++)
            e->node[i].id = t->byte_id[piece[i]];
    else
        n = start_of_characters(e, t, piece, bytes);
    merge_all(e, t, piece, bytes, n);
    for (uint32_t at = n > 0 ? 0 : NOWHERE; at != NOWHERE; at = e->node[at].next)
        id[(*count)++] = (model_token_t)e->node[at].id;
    return GYRE_OK;
}
