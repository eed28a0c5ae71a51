/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/packing.h: whole documents in sequences: several in one, or one in each with padding after it.
 *
 * A document of n tokens fills n - 1 positions: each reads a token and has the next one as its target. So
 * documents of up to seq + 1 tokens fit; of a longer one the first seq + 1 tokens are taken. Documents of
 * fewer than two tokens, and those of whose targets none is learned, are left out. What a sequence has left
 * at its end is padding: tokens 0 without targets, a document of their own.
 *
 * Several in one: best-fit decreasing (Johnson, "Near-optimal bin packing algorithms", MIT 1973): documents
 * from the longest to the shortest, those of one length in their order, each into the fullest sequence that
 * has room. Which documents are together does not depend on a seed: epochs permute sequences. */
#ifndef MODEL_DATA_PACKING_H
#define MODEL_DATA_PACKING_H

#include "model/data/tokens.h"

typedef struct {
    uint64_t first;  /* token of the stream */
    uint32_t tokens; /* 2 .. seq + 1 */
} model_document_t;

typedef struct model_packing {
    size_t seq;
    uint64_t sequences, documents;
    uint64_t *begin;            /* [sequences + 1]: first of its documents */
    model_document_t *document; /* [documents], sequence by sequence */
    uint64_t positions;         /* that are not padding */
    uint64_t cut;               /* documents that are longer than a sequence */
    uint64_t unlearned;         /* documents that are left out: no target is learned */
} model_packing_t;

/* Of the documents that begin among ids first .. first + count - 1 of the stream. together 0: one in each
 * sequence, in their order. 24 bytes for each document, and twice as many while it is made. INVALID: the
 * files do not say where documents are, or none is left. FORMAT: a file is damaged. NO_MEMORY. */
gyre_status_t model_packing_create(const model_tokens_t *tokens, uint64_t first, uint64_t count, size_t seq,
                                   int together, model_packing_t **out);
void model_packing_destroy(model_packing_t *packing);

/* Sequence `number`: tokens, targets [seq], and with documents != NULL the first position of the document
 * that each position is part of [seq]. FORMAT: an id is not below `vocab`. */
gyre_status_t model_packing_read(const model_packing_t *packing, const model_tokens_t *from, uint64_t number,
                                 size_t vocab, model_token_t *tokens, model_token_t *targets,
                                 int32_t *documents);

/* Tokens and targets [n] of the ids first .. first + n of a stream; targets that are not learned are
 * MODEL_IGNORED. FORMAT, as above. */
gyre_status_t model_window_read(const model_tokens_t *from, uint64_t first, size_t n, size_t vocab,
                                model_token_t *tokens, model_token_t *targets);

#endif
