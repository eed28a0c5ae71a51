/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/kept.c: the last good checkpoints stay, older ones go (optim/checkpoint/kept.h). */
#include "optim/checkpoint/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/checkpoint/snapshot.h"

int checkpoint_kept_begin(checkpoint_kept_t *kept, const char *folder, size_t keep)
{
    kept->folder = folder;
    kept->keep = keep;
    kept->newest = UINT64_MAX;
    return (kept->good = calloc(keep + 1, sizeof *kept->good)) != NULL;
}

void checkpoint_kept_free(checkpoint_kept_t *kept)
{
    free(kept->good);
    free(kept->bad);
}

static int has(const uint64_t *steps, size_t count, uint64_t step)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step)
            return 1;
    return 0;
}

static void drop_oldest(checkpoint_kept_t *kept)
{
    memmove(kept->good, kept->good + 1, --kept->goods * sizeof *kept->good);
}

gyre_status_t checkpoint_kept_take_stock(checkpoint_kept_t *kept, uint64_t resumed)
{
    gyre_status_t status = optim_snapshot_list(kept->folder, &kept->bad, &kept->bads); /* newest first */
    int muted = base_log_mute(1); /* the resume has logged what is damaged */
    while (status == GYRE_OK && kept->bads > 0 && kept->bad[kept->bads - 1] <= resumed) {
        const uint64_t step = kept->bad[--kept->bads];
        if (optim_snapshot_check(kept->folder, step) != GYRE_OK)
            continue;
        if (kept->goods == kept->keep)
            drop_oldest(kept);
        kept->good[kept->goods++] = kept->newest = step;
    }
    base_log_mute(muted);
    return status;
}

int checkpoint_kept_bad(const checkpoint_kept_t *kept, uint64_t step)
{
    return has(kept->bad, kept->bads, step);
}

/* 1: the checkpoint of `step` is left to another run, with a warning once. */
static int leave_to_other(checkpoint_kept_t *kept, uint64_t step, const json_t *run)
{
    if (checkpoint_kept_bad(kept, step) || !optim_snapshot_is_other(kept->folder, step, run))
        return 0;
    if (!kept->warned)
        log_warning("step %llu in %s is of another run, and is left: give each run a --checkpoint folder of "
                    "its own",
                    (unsigned long long)step, kept->folder);
    kept->warned = 1;
    return 1;
}

void checkpoint_kept_add(checkpoint_kept_t *kept, uint64_t step, const json_t *run)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    /* a step that was written before (its checkpoint was found damaged) has its place already */
    if (!has(kept->good, kept->goods, step))
        kept->good[kept->goods++] = step;
    kept->newest = step;
    if (kept->goods > kept->keep)
        drop_oldest(kept);
    if (optim_snapshot_list(kept->folder, &steps, &count) != GYRE_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (steps[i] < step && !has(kept->good, kept->goods, steps[i]) &&
            !leave_to_other(kept, steps[i], run))
            (void)optim_snapshot_remove(kept->folder, steps[i]);
    free(steps);
}
