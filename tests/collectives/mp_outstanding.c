/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/mp_outstanding.c: tens of thousands of messages between two ranks are under way at once.
 * A pass over those that wait does not look at each of them: they would take minutes. */
/* ranks: 2 */
/* over UCX: 2 */
#include "tests/support/mp.h"

enum { MESSAGES = 60000 };

static gyre_request_t *requests[2][MESSAGES];
static int64_t sent[MESSAGES], got[MESSAGES];

int main(void)
{
    gyre_comm_t *world;
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world), other = 1 - rank;

    for (int64_t turn = 0; turn < 2; turn++) {
        for (int half = 0; half < 2; half++) { /* all of one kind, then all of the other */
            const int sends = half == turn;
            for (int i = 0; i < MESSAGES; i++) {
                if (sends)
                    sent[i] = rank + 2 * i + turn;
                MP_OK(sends ? gyre_isend(&sent[i], 1, GYRE_INT64, other, world, &requests[0][i])
                            : gyre_irecv(&got[i], 1, GYRE_INT64, other, world, &requests[1][i]));
            }
        }
        MP_OK(gyre_wait_all(MESSAGES, requests[0]));
        MP_OK(gyre_wait_all(MESSAGES, requests[1]));
        for (int i = 0; i < MESSAGES; i++)
            MP_CHECK(got[i] == other + 2 * i + turn, "message %d is %lld", i, (long long)got[i]);
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
