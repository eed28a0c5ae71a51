/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cells.c: which ranks of one host are near each other: bound to one last-level cache or NUMA node.
 *
 * The rank that makes the group's segment computes the cells, from its own view of the machine and the
 * affinity masks of all ranks. It writes the cells to the segment before the others have the segment, so all
 * ranks read the same. Processor numbers are the system's, which mean the same in every container of a
 * host. */
#include "comm/link.h"

#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

static int all_alike(const comm_group_t *group)
{
    for (int r = 1; r < group->n; r++)
        if (memcmp(group->cards[r].cores, group->cards[0].cores, sizeof group->cards[0].cores) != 0)
            return 0;
    return 1;
}

int comm_cells_one(const comm_group_t *group)
{
    return group->n <= COMM_FLAT_RANKS || all_alike(group);
}

void comm_cells_divide(comm_group_t *group)
{
    const size_t n = (size_t)group->n;
    topo_t *topo = NULL;
    int count;
    _Static_assert(sizeof(int) == sizeof(int32_t), "cells are shared as they are");

    /* a new segment is all zeros: one cell */
    if (comm_cells_one(group))
        return;
    const uint64_t **masks = malloc(n * sizeof *masks);
    for (size_t r = 0; masks && r < n; r++)
        masks[r] = group->cards[r].cores;
    /* Cells only make things faster: a machine that cannot be looked at, which was reported, has one. */
    if (masks && topo_load_cores(&topo) == GYRE_OK)
        (void)topo_cells(topo, group->n, masks, COMM_CORE_WORDS, comm_segment_cells(&group->seg), &count);
    topo_free(topo);
    free(masks);
}

void comm_cells_take(comm_group_t *group)
{
    const size_t bytes = (size_t)group->n * sizeof *group->cell_of;
    int count = 0;

    if (group->hosts > 1 || !group->seg.base || group->seg.locals != group->n)
        return;
    memcpy(group->cell_of, comm_segment_cells(&group->seg), bytes); /* places of such a segment are ranks */
    for (int r = 0; r < group->n; r++) {
        if (group->cell_of[r] < 0 || group->cell_of[r] > count) { /* not what a maker writes */
            memset(group->cell_of, 0, bytes);
            count = 1;
            break;
        }
        count += group->cell_of[r] == count;
    }
    group->cells = count;
}
