/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/packing.c: which documents share a sequence. */
#include "model/data/packing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "model/data/tokens_format.h"

static const uint64_t NOTHING = UINT64_MAX;

/* ---- documents ----------------------------------------------------------------------------------------- */

typedef struct {
    model_document_t *document; /* [count], owned */
    size_t count, room;
} list_t;

static gyre_status_t add(list_t *list, uint64_t first, uint32_t tokens)
{
    if (!base_grow(&list->document, &list->room, list->count, 1, sizeof *list->document))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the places of %zu documents", list->count + 1);
    list->document[list->count++] = (model_document_t){.first = first, .tokens = tokens};
    return GYRE_OK;
}

/* Those of a file that begin at ids from .. end - 1 of the stream; the file's first id is `base`. */
static gyre_status_t list_file(const model_tokens_t *tokens, const model_tokens_file_t *file, uint64_t base,
                               uint64_t from, uint64_t end, model_packing_t *packing, list_t *list)
{
    gyre_status_t status = GYRE_OK;
    for (uint64_t d = 0; status == GYRE_OK && d < file->document_count; d++) {
        uint64_t a = tokens_u64(file->documents + 8 * d), b = tokens_u64(file->documents + 8 * d + 8);
        uint64_t count = tokens_u64(file->map + TOKENS_AT_COUNT), first = base + a;
        if (b > count || a > b)
            return gyre_fail(GYRE_ERR_FORMAT,
                             "%s: document %" PRIu64 " is of ids %" PRIu64 " to %" PRIu64
                             ", and there are %" PRIu64 ": the file is damaged",
                             file->path, d, a, b, count);
        if (first < from || first >= end || b - a < 2)
            continue;
        uint64_t taken = b - a < packing->seq + 1 ? b - a : packing->seq + 1;
        if (model_tokens_next_learned(tokens, first + 1, first + taken) == first + taken) {
            packing->unlearned++;
            continue;
        }
        packing->cut += taken < b - a;
        packing->positions += taken - 1;
        status = add(list, first, (uint32_t)taken);
    }
    return status;
}

static gyre_status_t list_all(const model_tokens_t *tokens, uint64_t first, uint64_t count,
                              model_packing_t *packing, list_t *list)
{
    gyre_status_t status = GYRE_OK;
    uint64_t base = 0;
    if (tokens->format != MODEL_TOKENS_GYRE)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "%s is of format %s, which does not say where documents are: --sampling packed and padded "
            "need a file of gyre-tokenize",
            tokens->path, model_tokens_format_name(tokens->format));
    for (size_t i = 0; status == GYRE_OK && i < tokens->maps; i++) {
        status = list_file(tokens, &tokens->file[i], base, first, first + count, packing, list);
        base += tokens_u64(tokens->file[i].map + TOKENS_AT_COUNT);
    }
    if (status == GYRE_OK && list->count == 0)
        status =
            gyre_fail(GYRE_ERR_INVALID,
                      "%s: of the ids %" PRIu64 " to %" PRIu64 " no document has a token to learn (%" PRIu64
                      " documents have none within a sequence): take a longer --seq, more --data, or "
                      "--valid-data of its own",
                      tokens->path, first, first + count, packing->unlearned);
    return status;
}

/* ---- sequences ----------------------------------------------------------------------------------------- */

/* Sequences with room, by the number of positions that they have left. */
typedef struct {
    uint64_t *top;  /* [seq + 1]: the last sequence with so much room; NOTHING: there is none */
    uint64_t *mark; /* [seq / 64 + 1]: bit r: there is one */
    uint64_t *next; /* [documents]: of a sequence: the one before it with the same room */
} rooms_t;

/* The least room of `need` or more that a sequence has; seq + 1: there is none. */
static size_t find_room(const rooms_t *rooms, size_t seq, size_t need)
{
    uint64_t word = rooms->mark[need / 64] & ~UINT64_C(0) << need % 64;
    for (size_t w = need / 64;;) {
        if (word)
            return 64 * w + (size_t)__builtin_ctzll(word);
        if (++w > seq / 64)
            return seq + 1;
        word = rooms->mark[w];
    }
}

static void push(rooms_t *rooms, size_t room, uint64_t sequence)
{
    rooms->next[sequence] = rooms->top[room];
    rooms->top[room] = sequence;
    rooms->mark[room / 64] |= UINT64_C(1) << room % 64;
}

static uint64_t pop(rooms_t *rooms, size_t room)
{
    uint64_t sequence = rooms->top[room];
    rooms->top[room] = rooms->next[sequence];
    if (rooms->top[room] == NOTHING)
        rooms->mark[room / 64] &= ~(UINT64_C(1) << room % 64);
    return sequence;
}

/* of [list->count]: each document's sequence. order: documents from the longest on. */
static void fill(rooms_t *rooms, const list_t *list, const uint64_t *order, model_packing_t *packing,
                 uint64_t *of)
{
    size_t seq = packing->seq;
    for (size_t r = 0; r <= seq; r++)
        rooms->top[r] = NOTHING;
    for (uint64_t i = 0; i < list->count; i++) {
        size_t need = list->document[order[i]].tokens - 1, room = find_room(rooms, seq, need);
        uint64_t sequence = room > seq ? packing->sequences++ : pop(rooms, room);
        size_t left = (room > seq ? seq : room) - need;
        of[order[i]] = sequence;
        if (left > 0)
            push(rooms, left, sequence);
    }
}

/* order [list->count]: by falling length, those of one length as they come. start [seq + 2]: scratch. */
static void sort(const list_t *list, size_t seq, uint64_t *order, uint64_t *start)
{
    memset(start, 0, (seq + 2) * sizeof *start);
    for (uint64_t d = 0; d < list->count; d++)
        start[seq + 1 - list->document[d].tokens + 1]++; /* a longer one has a lower place */
    for (size_t l = 1; l <= seq + 1; l++)
        start[l] += start[l - 1];
    for (uint64_t d = 0; d < list->count; d++)
        order[start[seq + 1 - list->document[d].tokens]++] = d;
}

/* Documents sequence by sequence, in the order in which they were placed. */
static void lay_out(const list_t *list, const uint64_t *order, const uint64_t *of, model_packing_t *packing)
{
    uint64_t *at = packing->begin;
    for (uint64_t d = 0; d < list->count; d++)
        at[of[d] + 1]++;
    for (uint64_t s = 0; s < packing->sequences; s++)
        at[s + 1] += at[s];
    for (uint64_t i = 0; i < list->count; i++)
        packing->document[at[of[order[i]]]++] = list->document[order[i]];
    for (uint64_t s = packing->sequences; s > 0; s--)
        at[s] = at[s - 1];
    at[0] = 0;
}

static gyre_status_t pack(const list_t *list, model_packing_t *packing)
{
    size_t seq = packing->seq;
    uint64_t *order = calloc(list->count, sizeof *order), *of = calloc(list->count, sizeof *of),
             *start = calloc(seq + 2, sizeof *start);
    rooms_t rooms = {.top = calloc(seq + 1, sizeof *rooms.top),
                     .mark = calloc(seq / 64 + 1, sizeof *rooms.mark),
                     .next = calloc(list->count, sizeof *rooms.next)};
    packing->document = calloc(list->count, sizeof *packing->document);
    packing->begin = calloc(list->count + 1, sizeof *packing->begin);
    int ok =
        order && of && start && rooms.top && rooms.mark && rooms.next && packing->document && packing->begin;
    if (ok) {
        sort(list, seq, order, start);
        fill(&rooms, list, order, packing, of);
        lay_out(list, order, of, packing);
    }
    free(order);
    free(of);
    free(start);
    free(rooms.top);
    free(rooms.mark);
    free(rooms.next);
    return ok ? GYRE_OK
              : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to pack %" PRIu64 " documents", list->count);
}

/* A sequence for each. */
static gyre_status_t spread(list_t *list, model_packing_t *packing)
{
    packing->begin = calloc(list->count + 1, sizeof *packing->begin);
    if (!packing->begin)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %" PRIu64 " documents", list->count);
    for (uint64_t d = 0; d <= list->count; d++)
        packing->begin[d] = d;
    packing->sequences = list->count;
    packing->document = list->document;
    list->document = NULL;
    return GYRE_OK;
}

gyre_status_t model_packing_create(const model_tokens_t *tokens, uint64_t first, uint64_t count, size_t seq,
                                   int together, model_packing_t **out)
{
    list_t list = {0};
    model_packing_t *packing = calloc(1, sizeof *packing);
    if (!packing)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to pack %s", tokens->path);
    packing->seq = seq;
    gyre_status_t status = list_all(tokens, first, count, packing, &list);
    packing->documents = list.count;
    if (status == GYRE_OK)
        status = together ? pack(&list, packing) : spread(&list, packing);
    free(list.document);
    if (status != GYRE_OK) {
        model_packing_destroy(packing);
        return status;
    }
    *out = packing;
    return GYRE_OK;
}

void model_packing_destroy(model_packing_t *packing)
{
    if (!packing)
        return;
    free(packing->begin);
    free(packing->document);
    free(packing);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Of targets [count], which are ids from `first` on. */
static void hide(const model_tokens_t *from, uint64_t first, size_t count, model_token_t *targets)
{
    unsigned char learned[1024];
    for (size_t at = 0, n; from->masked && at < count; at += n) {
        n = count - at < sizeof learned ? count - at : sizeof learned;
        model_tokens_learned(from, first + at, n, learned);
        for (size_t i = 0; i < n; i++)
            targets[at + i] = learned[i] ? targets[at + i] : MODEL_IGNORED;
    }
}

/* Tokens and targets [n] of ids first .. first + n. */
gyre_status_t model_window_read(const model_tokens_t *from, uint64_t first, size_t n, size_t vocab,
                                model_token_t *tokens, model_token_t *targets)
{
    gyre_status_t status = model_tokens_read(from, first + 1, n, vocab, targets),
                  head = model_tokens_read(from, first, 1, vocab, tokens);
    memcpy(tokens + 1, targets, (n - 1) * sizeof *tokens);
    hide(from, first + 1, n, targets);
    return status == GYRE_OK ? head : status;
}

gyre_status_t model_packing_read(const model_packing_t *packing, const model_tokens_t *from, uint64_t number,
                                 size_t vocab, model_token_t *tokens, model_token_t *targets,
                                 int32_t *documents)
{
    size_t at = 0, seq = packing->seq;
    gyre_status_t status = GYRE_OK;
    for (uint64_t d = packing->begin[number]; d < packing->begin[number + 1]; d++) {
        const model_document_t *document = &packing->document[d];
        size_t n = document->tokens - 1;
        gyre_status_t read = model_window_read(from, document->first, n, vocab, tokens + at, targets + at);
        status = status == GYRE_OK ? read : status;
        for (size_t t = 0; documents && t < n; t++)
            documents[at + t] = (int32_t)at;
        at += n;
    }
    for (size_t t = at; t < seq; t++) {
        tokens[t] = 0;
        targets[t] = MODEL_IGNORED;
        if (documents)
            documents[t] = (int32_t)at;
    }
    return status;
}
