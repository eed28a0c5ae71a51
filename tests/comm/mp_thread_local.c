/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 */
/* tests/comm/mp_thread_local.c: a program whose variables of each thread are longer than the stack that the
 * watcher's thread asks for. */
#include "tests/support/mp.h"

static _Thread_local char mine[1 << 20];

int main(void)
{
    gyre_comm_t *world;
    memset(mine, 1, sizeof mine);
    MP_OK(gyre_init(NULL, &world));
    int sum = 0, one = mine[sizeof mine - 1];
    MP_OK(gyre_all_reduce(&one, &sum, 1, GYRE_INT32, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(sum == gyre_comm_size(world), "%d", sum);
    MP_OK(gyre_finalize(world));
    return 0;
}
