/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/outbox.h: small messages of the ranks of one host, without links.
 *
 * Each rank has an outbox in the shared segment. All other ranks read it.
 *
 * For operations that are one exchange: each rank that has data posts it, and each rank reads what it needs
 * directly from the others' outboxes. A short payload lies in the cache line of its flag, so such a message
 * moves one cache line. Every line has one writer; there is no atomic read-modify-write and no system call.
 * (The form of MPICH's release-gather and of XHC's inlined payload, without their trees.)
 *
 *     outbox of a rank:  progress line | `lines` lines: flag, tag, payload <= COMM_OUTBOX_INLINE |
 *                        slots of the first class | of the second | of the third: longer payloads
 *
 * The operations of an exchange are numbered 1, 2, ... alike on all ranks. Operation k uses line k % lines. A
 * longer payload uses slot k % slots of the first class whose slots are long enough. A rank that posts first
 * makes sure that all others are done with what lay there before. A later post of another rank proves that;
 * otherwise the posting rank looks at the other's progress line.
 *
 * One operation at a time: reserve, post (or neither), look until all is there, finish. Nothing here
 * waits. */
#ifndef COMM_MEMORY_OUTBOX_H
#define COMM_MEMORY_OUTBOX_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "comm/memory/message.h"

enum {
    COMM_OUTBOX_INLINE = 48,
    COMM_OUTBOX_LINE = 64, /* bytes of the progress line, and of each other */
    COMM_OUTBOX_CLASSES = 3,
    COMM_OUTBOX_RANKS = 256 /* at most on one host */
};

#define COMM_OUTBOX_NOTHING SIZE_MAX

typedef struct {
    uint32_t lines, slots[COMM_OUTBOX_CLASSES]; /* powers of two, slots <= lines */
    uint32_t slot_bytes
        [COMM_OUTBOX_CLASSES]; /* multiples of 64, ascending; 0 from the first class that is not there */
} comm_outbox_shape_t;

typedef struct {
    unsigned char *base, *own; /* [ranks] outboxes; this rank's */
    size_t stride;
    comm_outbox_shape_t shape;
    int ranks, mine;
    uint64_t number;                  /* of the present operation, or of the last */
    size_t line;                      /* where its line begins in an outbox, in bytes */
    uint64_t safe;                    /* everyone is done with operation `safe` and those before it */
    uint64_t seen[COMM_OUTBOX_RANKS]; /* done by each, as last seen */
    size_t posted;                    /* bytes, in the present operation; COMM_OUTBOX_NOTHING */
    int stream;                       /* as given to comm_outbox_begin */
    int looked;                       /* 1: somebody's post was read in it */
    int awaited;                      /* the rank whose post was not there at the last look; -1: none */
} comm_outbox_t;

/* The longest payload. */
size_t comm_outbox_most(const comm_outbox_shape_t *shape);
/* Bytes of one outbox: a multiple of 64. */
size_t comm_outbox_bytes(const comm_outbox_shape_t *shape);
/* Bytes at the beginning of an outbox to map before posts of up to `bytes`. 0 where they go into lines: those
 * are one page or two, which come at less cost when they are touched. stream: as for comm_outbox_begin. */
size_t comm_outbox_reach(const comm_outbox_t *x, size_t bytes, int stream);
/* memory: [ranks] outboxes, `stride` bytes apart (a multiple of 64, at least comm_outbox_bytes), shared,
 * zeroed before anyone uses it, 64-byte aligned; borrowed. */
void comm_outbox_open(comm_outbox_t *x, const comm_outbox_shape_t *shape, void *memory, size_t stride,
                      int ranks, int mine);

/* Begins the next operation. stream: 1 if no rank both posts and reads in it, so that a posting rank may be
 * far ahead. The same on all ranks. */
static inline void comm_outbox_begin(comm_outbox_t *x, int stream)
{
    x->stream = stream;
    x->number++;
    x->line = COMM_OUTBOX_LINE + (x->number & (x->shape.lines - 1)) * COMM_OUTBOX_LINE;
    x->posted = COMM_OUTBOX_NOTHING;
    x->looked = 0;
    x->awaited = -1;
}
/* Where to write this rank's payload of `bytes` (<= comm_outbox_most). NULL: a rank has not finished reading
 * what lies there; call again. */
void *comm_outbox_reserve(comm_outbox_t *x, size_t bytes);
/* Shows it to the others. The caller rings their bells. */
void comm_outbox_post(comm_outbox_t *x, size_t bytes, comm_tag_t tag);
/* Looks at the post of `rank` for this operation. OK: *payload is set (valid until finish). IN_PROGRESS: no
 * post yet. MISMATCH (quiet): the post belongs to another call. */
gyre_status_t comm_outbox_look(comm_outbox_t *x, int rank, size_t bytes, comm_tag_t tag,
                               const void **payload);
/* The rank with the least progress, as far as this one knows. */
int comm_outbox_laggard(const comm_outbox_t *x);
/* Ends the operation: this rank has read all that it needs. */
void comm_outbox_finish(comm_outbox_t *x);

#endif
