/* SPDX-License-Identifier: Apache-2.0 */
/* examples/groups.c: a rank in several communicators at once.
 *
 *     ucx-run -n 4 build/examples/groups
 *
 * Shows gyre_comm_create_group: three groups that overlap, each called by its members only, and the groups of
 * hosts by gyre_comm_split_type. */
#include <stdio.h>

#include <gyre/gyre.h>

enum { GROUPS = 3, MEMBERS = 3 };

int main(void)
{
    static const int lists[GROUPS][MEMBERS] = {{0, 1, 2}, {3, 2, 1}, {0, 3, 2}};
    gyre_comm_t *world, *host, *in[GROUPS] = {NULL};
    gyre_status_t status = GYRE_OK;
    char line[160];
    int used;
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 1; /* Gyre has logged why */
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    if (n != 4) {
        fprintf(stderr, "usage: ucx-run -n 4 groups\n");
        return 2;
    }
    /* All groups in the same order on all ranks, so that no rank waits in one for a rank that waits in
     * another. Each has a tag, as rank 1 may be in the second one while rank 0 still makes the first. */
    for (int g = 0; g < GROUPS && status == GYRE_OK; g++) {
        int member = 0;
        for (int i = 0; i < MEMBERS; i++)
            member |= lists[g][i] == rank;
        if (member)
            status = gyre_comm_create_group(world, lists[g], MEMBERS, (uint64_t)g, &in[g]);
    }
    used = snprintf(line, sizeof line, "rank %d:", rank);
    for (int g = 0; g < GROUPS && status == GYRE_OK; g++) {
        int mine = rank, sum = 0;
        if (!in[g])
            continue;
        status = gyre_all_reduce(&mine, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), in[g]);
        used += snprintf(line + used, sizeof line - (size_t)used, " rank %d of group %d, whose sum is %d;",
                         gyre_comm_rank(in[g]), g, sum);
    }
    if (status == GYRE_OK)
        status = gyre_comm_split_type(world, GYRE_SPLIT_HOST, 0, &host);
    if (status == GYRE_OK)
        printf("%s rank %d of %d on its host\n", line, gyre_comm_rank(host), gyre_comm_size(host));
    return gyre_finalize(world) != GYRE_OK || status != GYRE_OK; /* frees the others, too */
}
