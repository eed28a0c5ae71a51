/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/kept.h: which checkpoints of a folder stay, for rank 0's saver. */
#ifndef OPTIM_CHECKPOINT_KEPT_H
#define OPTIM_CHECKPOINT_KEPT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

typedef struct {
    const char *folder;
    size_t keep, goods;
    uint64_t *good;  /* [keep + 1] steps known to be good, oldest first, of which there are `goods` */
    uint64_t newest; /* the newest of them; UINT64_MAX: there is none */
    /* [bads] steps that the folder had before the run, newer than the one that it begins at: they are known
     * to be no good, whichever run wrote them */
    uint64_t *bad;
    size_t bads;
    int warned; /* 1: of another run's checkpoints */
} checkpoint_kept_t;

/* `folder` is borrowed, `kept` zeros. 1, or 0: no memory. */
int checkpoint_kept_begin(checkpoint_kept_t *kept, const char *folder, size_t keep);
void checkpoint_kept_free(checkpoint_kept_t *kept);
/* What the folder holds up to step `resumed` and is whole by a quick look counts towards `keep`; what is
 * newer is bad. IO, NO_MEMORY. */
gyre_status_t checkpoint_kept_take_stock(checkpoint_kept_t *kept, uint64_t resumed);
/* 1: the folder had a bad checkpoint of this step before the run. */
int checkpoint_kept_bad(const checkpoint_kept_t *kept, uint64_t step);
/* There is a new good checkpoint of `step`, of the run `run`: the oldest goes, and so does what is older than
 * the new one and no good. What another run has written is left, with one warning, unless it is bad. What
 * cannot be removed is logged and left: nothing depends on it any more. */
void checkpoint_kept_add(checkpoint_kept_t *kept, uint64_t step, const json_t *run);

#endif
